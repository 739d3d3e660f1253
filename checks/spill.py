#!/usr/bin/env python3
"""A server whose KV cache spills to a disk that is full, read-only, changed or emptied: its answers stay the same, and it recovers.

Half a minute, part of CI where it runs as root and may mount; elsewhere it says so. The cache has room for one conversation, so that every
other one has to come back from the disk. With `--long` recovery has a limit in seconds, for a machine that does nothing else.
"""
import argparse
import itertools
import json
import pathlib
import tempfile
import time

import serving
from browser import until
from disk import FULL, READ_ONLY, RECOVERY, Disk

CONVERSATIONS = 4
FLAGS = ["--parallel", 1, "--ctx", 512, "--threads", 1]


class Spilling:
    """A server that spills, and one beside it that never does and has room for everything."""

    def __init__(self, server, plain, disk, options, findings):
        self.server, self.plain, self.disk, self.options, self.findings = server, plain, disk, options, findings
        self.seeds, self.wrong, self.answers = itertools.count(), 0, 0
        self.texts = self.new_texts()

    def new_texts(self):
        return [serving.text(220, next(self.seeds)) for _ in range(CONVERSATIONS)]

    def ask(self, texts):
        """Every conversation in turn; each takes the pages of the one before."""
        for prompt in texts:
            asked = {"prompt": prompt, "max_tokens": 8, "temperature": 0}
            self.wrong += self.server.stream(asked)[2] != self.plain.stream(asked)[2]
            self.answers += 1

    def status(self):
        return json.loads(self.server.request("GET", "/status")[2])["spill"]

    def counted(self, name):
        return int(self.status()[f"spill_{name}_total"])

    def grows(self, when, name, act):
        """A number of the disk tier that must be larger after something was done."""
        before = self.counted(name)
        act()
        more = self.counted(name) - before
        self.findings.add(f"{when}: pages {name}", more, more > 0, "> 0")

    def settles(self):
        until(lambda: self.status()["spill_waiting_bytes"] == 0, "everything to be written")

    def fails(self, when, why):
        """What is new cannot be written; the server says why, and answers."""
        self.ask(self.new_texts())
        until(lambda: self.status()["spill_on"] == 0, "the disk to be left alone")
        problem = self.status()["problem"]
        self.findings.add(f"{when}: says why", problem, why in problem)
        self.ask(self.texts)

    def recovers(self, when):
        begin = time.monotonic()

        def works():
            texts = self.new_texts()
            # Written by the first, read by the second.
            self.ask(texts)
            self.ask(texts)
            return self.status()["spill_on"] == 1
        until(works, "the disk to be used again")
        seconds = time.monotonic() - begin
        self.findings.add(f"{when}: seconds until it is used", seconds,
                          seconds <= RECOVERY if self.options.long else None, f"{RECOVERY}")


def usual(spilling):
    spilling.grows("usual", "written", lambda: (spilling.ask(spilling.texts), spilling.settles()))
    spilling.grows("usual", "restored", lambda: spilling.ask(spilling.texts))


def full(spilling):
    spilling.settles()
    spilling.disk.shrink()
    spilling.fails("full", FULL)
    spilling.disk.grow()
    spilling.recovers("full")


def read_only(spilling):
    spilling.settles()
    spilling.disk.forbid()
    spilling.fails("read-only", READ_ONLY)
    spilling.disk.allow()
    spilling.recovers("read-only")


def changed(spilling):
    """Every record is another by one bit, or cut off; then all of them are gone."""
    spilling.ask(spilling.texts)
    spilling.settles()
    for number, file in enumerate(sorted(spilling.disk.path.glob("*.kv"))):
        content = bytearray(file.read_bytes())
        content[number * 7919 % len(content)] ^= 1
        file.write_bytes(content[:len(content) // 2] if number % 5 == 4 else content)
    spilling.grows("changed", "damaged", lambda: spilling.ask(spilling.texts))
    spilling.settles()
    for file in spilling.disk.path.glob("*.kv"):
        file.unlink(missing_ok=True)
    spilling.grows("emptied", "unreadable", lambda: spilling.ask(spilling.texts))
    spilling.recovers("emptied")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--long", action="store_true", help="with limits on times")
    options = parser.parse_args()
    findings = serving.Findings()
    with tempfile.TemporaryDirectory() as folder:
        disk = Disk(pathlib.Path(folder) / "disk", 64)
        try:
            with disk:
                pass
        except (PermissionError, FileNotFoundError) as problem:
            print(f"a small disk cannot be mounted here ({problem}): spilling is not checked; run it as root")
            return
        with disk:
            with (serving.Server(*FLAGS[2:], tenants=1) as plain,
                  serving.Server(*FLAGS, "--spill", disk.path, "--spill-size", "48MiB", tenants=1) as server):
                spilling = Spilling(server, plain, disk, options, findings)
                for part in (usual, full, read_only, changed):
                    part(spilling)
                size = int(spilling.status()["spill_bytes"])
                findings.add("bytes on disk", size, size <= 48 << 20, "48 MiB")
                findings.add("answers", spilling.answers)
                findings.add("of them with other tokens", spilling.wrong, spilling.wrong == 0, "0")
            left = len(list(disk.path.glob("*.kv")))
            findings.add("records left after the end", left, left == 0, "0")
    findings.end()


if __name__ == "__main__":
    main()
