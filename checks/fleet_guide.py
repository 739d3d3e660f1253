#!/usr/bin/env python3
"""Follows docs/quickstart-fleet.md to the letter on PCs that are network namespaces of this machine.

Every PC has a namespace, a host name and a home of its own; a bridge in one more namespace connects them. The commands
are those of the guide's code blocks; only the model is another, small enough to be done in seconds. Then it does what
offices do wrong: wrong codes, a code for one machine used by two, two coordinators in one network, a machine that was
removed. Needs root and iproute2 (Linux); says so and succeeds where it cannot run. Nothing is sent to any other
address than those of the namespaces.
"""
import contextlib
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import program

GUIDE = program.ROOT / "docs" / "quickstart-fleet.md"
GUIDES_MODEL = "Qwen/Qwen2.5-7B-Instruct"
CODE = r"[3-9A-Y]{4}-[3-9A-Y]{4}"
# Longer than anything takes here, also where other programs have the processors.
PATIENCE = 120
ASKED = {"model": "default", "prompt": "It was a dark and stormy night, and", "max_tokens": 1500, "temperature": 0, "stream": True}


def blocks():
    """The guide's commands, each with the PCs that it is for."""
    found, pcs = [], []
    for text, block in re.findall(r"(.*?)```(.*?)```", GUIDE.read_text(), re.DOTALL):
        # Said in the paragraph before the block.
        named = re.findall(r"\*\*PC (\d)\*\*", text.strip().split("\n\n")[-1])
        pcs = [int(number) for number in named] or pcs
        language, _, commands = block.partition("\n")
        if language == "sh":
            found.append((pcs, commands.replace("\\\n", " ").strip()))
    return found


class Running:
    """A program on a PC, and what it has said so far."""

    def __init__(self, name, process, output, keyboard=None):
        self.name, self.process, self.keyboard, self.said = name, process, keyboard, ""
        self.news = threading.Condition()
        threading.Thread(target=self.listen, args=(output,), daemon=True).start()

    def listen(self, output):
        # A terminal that is closed is an error, and the end of it.
        with contextlib.suppress(OSError):
            while piece := os.read(output, 4096):
                with self.news:
                    self.said += piece.decode(errors="replace")
                    self.news.notify_all()
        with self.news:
            self.said += "\0"
            self.news.notify_all()

    def says(self, pattern, after=0):
        """Waits for this; gives the match."""
        deadline = time.monotonic() + PATIENCE
        with self.news:
            while not (found := re.search(pattern, self.said[after:])):
                left = deadline - time.monotonic()
                assert left > 0 and "\0" not in self.said, f"{self.name} did not say `{pattern}`, but:\n{self.said}"
                self.news.wait(left)
        return found

    def repeats(self, words, times):
        """Waits until it has said this so often."""
        deadline = time.monotonic() + PATIENCE
        with self.news:
            while self.said.count(words) < times:
                left = deadline - time.monotonic()
                assert left > 0 and "\0" not in self.said, f"{self.name} did not go on:\n{self.said}"
                self.news.wait(left)

    def types(self, line):
        os.write(self.keyboard, f"{line}\n".encode())

    def ends(self, code=None):
        """Waits for its end; gives all that it said."""
        status = self.process.wait(PATIENCE)
        with self.news:
            while "\0" not in self.said:
                assert self.news.wait(PATIENCE), f"{self.name} ended and still talks"
        assert code is None or status == code, f"{self.name} ended with {status}:\n{self.said}"
        return self.said

    def stop(self, how=signal.SIGINT):
        """As if somebody pressed Ctrl+C, or pulled the plug."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, how)
        self.process.wait(PATIENCE)


class Pc:
    """A namespace with a host name, a home and an address in the network of all."""

    def __init__(self, office, number, host):
        self.office, self.host, self.address = office, host, f"10.77.0.{number}"
        self.namespace, self.folder = f"{office.name}-{number}", office.folder / host
        self.folder.mkdir()
        there = f"pc{number}"
        ip("netns", "add", self.namespace)
        office.namespaces.append(self.namespace)
        ip("-n", office.hub, "link", "add", there, "type", "veth", "peer", "name", "eth0", "netns", self.namespace)
        ip("-n", office.hub, "link", "set", there, "master", "lan", "up")
        ip("-n", self.namespace, "link", "set", "lo", "up")
        ip("-n", self.namespace, "addr", "add", f"{self.address}/24", "dev", "eth0")
        ip("-n", self.namespace, "link", "set", "eth0", "up")
        ip("-n", self.namespace, "route", "add", "default", "dev", "eth0")

    def slow_down(self):
        """Lets so little out of this PC that a token takes milliseconds, where the system can do so."""
        limit = ["tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "8mbit", "burst", "16kb", "latency", "5s"]
        subprocess.run(["ip", "netns", "exec", self.namespace, *limit], capture_output=True)

    def command(self, command):
        script = f"hostname {self.host} && cd {self.folder} && exec {command}"
        return ["ip", "netns", "exec", self.namespace, "unshare", "--uts", "sh", "-c", script]

    def environment(self):
        return {"HOME": str(self.folder), "PATH": f"{self.office.folder}:{os.environ['PATH']}"}

    def start(self, command, terminal=False, typed=None):
        """Runs a command that stays; on a terminal, or with what is typed as its input."""
        here, there = pty.openpty() if terminal else os.pipe()
        given = there if terminal else subprocess.DEVNULL if typed is None else subprocess.PIPE
        process = subprocess.Popen(self.command(command), env=self.environment(), stdin=given, stdout=there, stderr=there,
                                   start_new_session=True)
        os.close(there)
        if typed is not None:
            process.stdin.write(typed.encode())
            process.stdin.close()
        running = Running(f"{self.host}: {command}", process, here, here if terminal else None)
        self.office.running.append(running)
        return running

    def run(self, command, code=0, typed=None):
        """Runs a command to its end; gives what it said."""
        return self.start(command, typed=typed).ends(code)

    def status(self):
        return parsed(self.run("cascadia fleet status --json"))


class Office:
    """PCs in one network, which are gone after the `with` block."""

    def __init__(self):
        self.name = f"cascadia-{os.getpid()}"
        self.namespaces, self.running, self.hub = [], [], f"{self.name}-hub"

    def __enter__(self):
        self.place = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.place.name)
        (self.folder / "cascadia").symlink_to(program.BINARY)
        ip("netns", "add", self.hub)
        self.namespaces.append(self.hub)
        # Without snooping, which drops multicast that nobody has asked a router for.
        ip("-n", self.hub, "link", "add", "lan", "type", "bridge", "mcast_snooping", "0")
        ip("-n", self.hub, "link", "set", "lan", "up")
        return self

    def __exit__(self, kind, *_):
        for running in self.running:
            if kind and running.process.poll() is None:
                print(f"== {running.name}\n{running.said}")
            running.stop(signal.SIGKILL)
        for namespace in self.namespaces:
            ip("netns", "del", namespace)
        self.place.cleanup()


def ip(*arguments):
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"ip {' '.join(arguments)}: {done.stderr}")


def parsed(said):
    """The JSON in what a program has said, which may have talked of other things too."""
    return json.loads(re.search(r"\{.*\}", said, re.DOTALL)[0])


def until(look, what):
    """What `look` finds, once it finds something."""
    deadline = time.monotonic() + PATIENCE
    while not (found := look()):
        assert time.monotonic() < deadline, f"{what} was waited for in vain"
    return found


def tokens(running):
    """The pieces of a streamed answer so far."""
    lines = re.findall(r"data: (\{.*\})\n", running.said)
    return [json.loads(line)["choices"][0]["text"] for line in lines]


def ask(pc, port=8080):
    return pc.start(f"curl -sN http://127.0.0.1:{port}/v1/completions -H 'content-type: application/json' -d '{json.dumps(ASKED)}'")


def answer(running):
    running.ends(0)
    assert "data: [DONE]" in running.said, running.said
    return "".join(tokens(running))


def guide(office):
    """What the guide says, on three PCs."""
    pcs = {1: Pc(office, 1, "office-pc"), 2: Pc(office, 2, "library-pc"), 3: Pc(office, 3, "desk-pc")}
    (_, install), *steps = blocks()
    assert install.startswith("cargo install"), install
    expected = [
        ([1], "cascadia fleet init"), ([2, 3], "cascadia join"), ([1], f"cascadia serve {GUIDES_MODEL} --fleet all"),
    ]
    assert steps[:3] == expected, f"the guide begins with other commands: {steps[:3]}"
    # As the guide's model, this one is not quantised before; what it becomes in one piece says which tokens are right.
    model, whole = office.folder / "story.gguf", office.folder / "whole.gguf"
    program.quantize(program.quantize(program.EMBEDDED_MODEL, model, "f16"), whole, "int4")
    commands = iter(command.replace(GUIDES_MODEL, str(model)) for _, command in steps)
    init = pcs[1].start(next(commands))
    code = init.says(f"Pairing code: ({CODE})")[1]
    join = next(commands)
    # One types on a terminal, wrongly at first, and one has it in a pipe, in small letters and without the dash.
    first = pcs[2].start(join, terminal=True)
    first.says("The coordinator is office-pc")
    first.says("Pairing code that the coordinator shows: ")
    first.types("K7QF-3MXO")
    first.says("no pairing code has a `O`")
    first.says(r"(?s)coordinator shows: .*coordinator shows: ")
    first.types(code)
    second = pcs[3].start(join, typed=code.lower().replace("-", "") + "\n")
    for running, host in ((first, "library-pc"), (second, "desk-pc")):
        agreed = running.says(rf"This machine is {host} now. The coordinator shows (\S+) too")[1]
        init.says(rf"{host} has joined \([12] of 10\). It shows {agreed} too")
        running.says(rf"{host} is connected to its coordinator")
    until(lambda: sorted(pcs[1].status()["connected"]) == ["desk-pc", "library-pc"], "both machines in `fleet status`")
    # Nobody has to be restarted for a plan, nor for the server, beside which machines can still join.
    until(lambda: "Nothing is known" not in pcs[1].run(f"cascadia plan {model}"), "a plan with all machines")
    server = pcs[1].start(next(commands))
    server.says("the page is at")
    # It is written every second.
    shown = lambda: pcs[1].run("cascadia fleet status")
    until(lambda: re.search(r"Serving story \(\w+\)", said := shown()) and "not connected" not in said, "the whole status")
    # Without the progress that curl shows where its output is no terminal.
    said = parsed(pcs[1].run(f"{next(commands)} 2>/dev/null"))
    assert said["choices"][0]["message"]["content"], said
    late = Pc(office, 4, "attic-pc")
    joining = late.start(join, typed=code)
    joining.says("This machine is attic-pc now")
    init.says(r"attic-pc has joined \(3 of 10\)")
    joining.says("attic-pc is connected to its coordinator")
    server.says("attic-pc can take part; planning again")
    # The same command again starts a worker that belongs to the fleet.
    joining.stop()
    joining = late.start(join)
    joining.says("This machine is attic-pc of a fleet already")
    joining.says("attic-pc is connected to its coordinator")
    alone = pcs[1].start(f"cascadia serve {whole} --port 8081")
    alone.says("the page is at")
    expected = answer(ask(pcs[1], 8081))
    assert answer(ask(pcs[1])) == expected
    alone.stop()
    for command in next(commands).splitlines():
        pcs[1].run(command)
    assert next(commands, None) is None, "the guide has more commands than this check follows"
    # After the push, both wait for the stage, and a step makes one of them its worker.
    computing = lambda: pcs[1].status()["serving"]["stages"][1]
    pair = {"library-pc", "desk-pc"}
    until(lambda: pair <= {(stage := computing())["node"], *stage["spares"]}, "a standby")
    assert answer(ask(pcs[1])) == expected
    lost = until(lambda: computing()["node"], "the machine that computes")
    # The answer is not to be over before the plug is pulled.
    pcs[2].slow_down()
    pcs[3].slow_down()
    workers = {"library-pc": first, "desk-pc": second}
    running = ask(pcs[1])
    running.repeats("data: ", 20)
    workers[lost].stop(signal.SIGKILL)
    assert len(tokens(running)) < ASKED["max_tokens"] - 50, "the answer was over before the plug was pulled"
    assert answer(running) == expected, "the answer is another one without the machine"
    (left,) = pair - {lost}
    until(lambda: computing()["node"] == left, "the standby in its place")
    print(f"the guide: {len(steps)} steps on three PCs, {ASKED['max_tokens']} tokens as of one machine, one lost on the way")
    removed(pcs[1], late, joining)
    # A server that ends gives the port back to whoever waits.
    server.stop()
    until(lambda: "attic-pc" not in pcs[1].status()["machines"] and pcs[1].status()["connected"], "machines that came back")
    for running in (*workers.values(), init):
        running.stop()


def removed(coordinator, pc, worker):
    """A machine that was removed says so once, and stops."""
    coordinator.run("cascadia fleet revoke attic-pc")
    said = worker.ends(3)
    assert said.count("was removed from its fleet") == 1, said
    again = pc.start("cascadia worker start").ends(3)
    assert "cascadia leave" in again, again
    print("revoked: the worker says so, and ends with code 3")


def mistakes(office):
    """Wrong codes, a code for one machine, two coordinators, and a coordinator that cannot be found."""
    main, other, pc, more = (Pc(office, number, host) for number, host in
                             ((11, "main-office"), (12, "branch-office"), (13, "till-1"), (14, "till-2")))
    init = main.start("cascadia fleet init --machines 1")
    code = init.says(f"Pairing code: ({CODE})")[1]
    beside = other.start("cascadia fleet init")
    beside.says("Pairing code: ")
    join = "cascadia join --no-start"
    several = until(lambda: (lambda said: said if "several" in said else None)(pc.run(join, 1, code)), "both coordinators")
    assert "branch-office (10.77.0.12:7420)" in several and "main-office (10.77.0.11:7420)" in several, several
    terminal = pc.start(join, terminal=True)
    terminal.says("Number of the right one: ")
    terminal.stop()
    # The code of the main office is wrong in the branch.
    assert "the code is wrong; 2 more wrong codes" in pc.run(f"{join} --coordinator branch-office", 1, code)
    beside.says(r"10.77.0.13 did not join: it gave a wrong pairing code \(1 of 3\)")
    beside.stop()
    # A coordinator that is started again counts on.
    beside = other.start("cascadia fleet init")
    before = beside.says(f"Pairing code: ({CODE})")[1]
    wrong = before[:-1] + ("7" if before[-1] != "7" else "9")
    assert "1 more wrong code " in pc.run(f"{join} --coordinator 10.77.0.12 --code {wrong}", 1)
    assert "it was the third wrong one" in more.run(f"{join} --coordinator 10.77.0.12:7420 --code {wrong}", 1)
    beside.says("Wrong codes were given three times")
    renewed = beside.says(rf"(?s){before}.*Pairing code: ({CODE})")[1]
    assert renewed != before
    assert "the code is wrong" in pc.run(f"{join} --coordinator 10.77.0.12 --code {before}", 1)
    beside.stop()
    assert "cannot be reached" in pc.run(f"{join} --coordinator 10.77.0.12 --code {before}", 1)
    # By its name, and then by itself: the other one is gone.
    assert "This machine is till-1 now" in pc.run(f"{join} --coordinator main-office", 0, code)
    init.says(r"till-1 has joined \(1 of 1\)")
    init.says("All machines have joined: the code is of no more use")
    assert "as many machines have joined as the code is good for" in more.run(f"{join} --coordinator main-office", 1, code)
    init.says("10.77.0.14 did not join: the pairing code is used up")
    assert "This machine is till-1 of a fleet already" in pc.run(join)
    init.stop()
    # A long invitation is as before.
    line = main.run("cascadia fleet init --no-wait").rstrip("\0").strip()
    waiting = main.start("cascadia fleet init")
    waiting.says("Pairing code: ")
    assert "This machine is till-2 now" in more.run(f"cascadia join {line}")
    waiting.stop()
    print("mistakes: wrong codes, three of them, a used code, two coordinators, a name, an invitation")


def main():
    possible = sys.platform == "linux" and os.geteuid() == 0 and all(map(shutil.which, ("ip", "unshare", "curl")))
    if possible:
        possible = subprocess.run(["ip", "netns", "add", f"cascadia-{os.getpid()}-try"], capture_output=True).returncode == 0
        subprocess.run(["ip", "netns", "del", f"cascadia-{os.getpid()}-try"], capture_output=True)
    if not possible:
        print("SKIPPED: the guide for fleets needs Linux, root, iproute2 with network namespaces, unshare and curl")
        return
    begin = time.monotonic()
    for scene in (mistakes, guide):
        with Office() as office:
            scene(office)
    print(f"all of it in {time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    main()
