#!/usr/bin/env python3
"""Disks that are full, read-only or broken under a fleet that serves: answers go on, acts are refused, and it recovers.

A coordinator and two workers with homes on small disks of their own (tmpfs), while answers stream without a break: each
must have the tokens of the first. A minute, part of CI where it runs as root and may mount; elsewhere it says so. With
`--long` recovery has a limit in seconds, for a machine that does nothing else; without, it only says how long it took.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import tempfile
import time

import program
import serving
from browser import free_port, until

RECOVERY = 10  # seconds after the space is back
STAGES = ["node-00:stage-0", "node-01:stage-1"]
ASKED = {"prompt": "The harbour at night", "max_tokens": 64, "temperature": 0}
FULL, READ_ONLY, BROKEN = "No space left on device", "Read-only file system", "Input/output error"


def mount(*arguments):
    return subprocess.run(["mount", *map(str, arguments)], capture_output=True, text=True)


class Disk:
    """A small disk of its own; ends with its `with` block."""

    def __init__(self, path, megabytes):
        self.path, self.size, self.mounts = path, megabytes << 20, 0
        self.path.mkdir()

    def __enter__(self):
        done = mount("-t", "tmpfs", "-o", f"size={self.size}", "tmpfs", self.path)
        if done.returncode != 0:
            raise PermissionError(done.stderr.strip())
        self.mounts = 1
        return self

    def __exit__(self, *_):
        for _ in range(self.mounts):
            subprocess.run(["umount", "--lazy", self.path], check=True)

    def shrink(self, spare=0):
        """Leaves so many bytes free from now on."""
        def resize():
            known = os.statvfs(self.path)
            used = (known.f_blocks - known.f_bfree) * known.f_frsize
            return self.resize(max(used + spare, 4096))
        # Not possible where more was written meanwhile.
        until(resize, "a smaller disk", pause=0)

    def grow(self):
        assert self.resize(self.size)

    def resize(self, size):
        return mount("-o", f"remount,size={size}", self.path).returncode == 0

    def forbid(self):
        """Nothing can be written any more; what is open stays so, as after an error of the disk."""
        # Made elsewhere, where nobody writes meanwhile.
        aside = self.path.with_suffix(".aside")
        aside.mkdir(exist_ok=True)
        for arguments in (["--bind", self.path, aside], ["-o", "remount,bind,ro", aside], ["--bind", aside, self.path]):
            done = mount(*arguments)
            assert done.returncode == 0, done.stderr
        self.mounts += 1
        subprocess.run(["umount", "--lazy", aside], check=True)

    def allow(self):
        subprocess.run(["umount", "--lazy", self.path], check=True)
        self.mounts -= 1


class Broken:
    """A file of which nothing can be read or written for as long as the `with` block lasts."""

    def __init__(self, path):
        self.path, self.kept = path, path.with_name(path.name + ".kept")

    def __enter__(self):
        self.path.rename(self.kept)
        # Nothing is at the address 0 of any program.
        self.path.symlink_to("/proc/self/mem")

    def __exit__(self, *_):
        self.kept.replace(self.path)


class Fleet:
    """The programs, and what was acknowledged."""

    def __init__(self, folder, disks, findings, long):
        self.folder, self.disks, self.findings, self.long = folder, disks, findings, long
        self.home, self.homes = disks[0].path / "home", [disk.path / "home" for disk in disks[1:]]
        self.versions = [folder / "one", folder / "other"]
        for version, precision in zip(self.versions, ("keep", "f16")):
            program.run("export", program.EMBEDDED_MODEL, "--stages", 2, "--precision", precision, "--out", version)
        self.workers, self.server, self.answers, self.wrong, self.acknowledged = [], None, 0, [], []

    def begin(self):
        init = self.command("fleet", "init", "--invitation", "--listen", f"127.0.0.1:{free_port()}", "--machines", 2)
        waits = subprocess.Popen(init, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        line = waits.stdout.readline().strip()
        for number, home in enumerate(self.homes):
            program.run("join", line, "--home", home, "--name", f"node-{number:02}")
        assert waits.wait(300) == 0
        self.acknowledge("join", 2)
        self.work()
        self.push(0)
        self.serve()
        self.expected = [self.server.stream(ASKED)[2]]
        self.push(1)
        self.expected.append(self.server.stream(ASKED)[2])
        self.push(0)

    def work(self):
        for number, home in enumerate(self.homes):
            said = (self.disks[number + 1].path / "said").open("a")
            self.workers.append(subprocess.Popen([program.BINARY, "worker", "start", "--home", home, "--threads", "1",
                                                  "--priority", "normal"],
                                                 stdin=subprocess.DEVNULL, stdout=said, stderr=said))

    def serve(self):
        # What it says goes onto the same disk, and tokens of streams onto a worker's, because they come and go.
        self.server = serving.Server("--fleet", "all", "--home", self.home, "--threads", 1, "--resume-log",
                                     self.disks[2].path / "resume", tenants=1, log=self.disks[0].path / "said")

    def command(self, *arguments):
        return list(map(str, [program.BINARY, *arguments, "--home", self.home]))

    def call(self, *arguments, seconds=300):
        try:
            return subprocess.run(self.command(*arguments), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  timeout=seconds)
        except subprocess.TimeoutExpired:
            raise SystemExit(f"no answer within {seconds} s: {' '.join(map(str, arguments))}")

    def does(self, *arguments):
        """An act that must succeed, and be in the log from then on."""
        done = self.call(*arguments)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(map(str, arguments))}: {done.stderr}")
        self.acknowledge(arguments[1])

    def acknowledge(self, verb, count=1):
        """What was just done has records that nobody knew of before; they must be there from now on."""
        new = [record for record in self.records() if record["verb"] == verb and record["decision"] == "allowed"
               and record not in self.acknowledged]
        assert len(new) >= count, f"{verb} is not in the log"
        self.acknowledged += new[-count:]

    def records(self):
        shown = program.run("audit", "show", "--home", self.home, "--json", "--last", 100_000)
        return json.loads(shown)["records"]

    def push(self, version):
        self.does("fleet", "push", self.versions[version], *STAGES)

    def refused(self, when, why, *arguments):
        """An act that must be refused with a reason."""
        done = self.call(*arguments)
        name = " ".join(str(argument) for argument in arguments[:2])
        reason = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else ""
        holds = done.returncode == 1 and not done.stdout and re.search(why, done.stderr)
        self.findings.add(f"{when}: {name} is refused", reason[-200:] if not holds else "yes", bool(holds))

    def all_refused(self, when, why, break_it=lambda: None):
        acts = (["init", "--no-wait"], ["trust", "node-00"], ["revoke", "node-01"], ["push", self.versions[1], *STAGES])
        for act in acts:
            # Before each of them, because the one before may have made room.
            break_it()
            self.refused(when, f"{why}|make room", "fleet", *act)

    def recovers(self, when):
        """Everything that was refused works again, without a restart of anything."""
        begin = time.monotonic()
        until(lambda: self.call("fleet", "init", "--no-wait").returncode == 0, "an act to work again")
        self.acknowledge("invite")
        self.does("fleet", "trust", "node-00")
        self.timed(f"{when}: seconds until acts work", time.monotonic() - begin)
        begin = time.monotonic()
        self.push(1)
        self.timed(f"{when}: seconds of a push", time.monotonic() - begin)
        self.push(0)

    def timed(self, what, seconds):
        self.findings.add(what, seconds, seconds <= RECOVERY if self.long else None, f"{RECOVERY}")

    def ask(self):
        """One of the two models answers, as it did at the beginning."""
        text = self.server.stream(ASKED)[2]
        self.answers += 1
        if text not in self.expected:
            self.wrong.append(text)

    def streaming(self, when):
        """Answers without a break; of two models while they change places."""
        return Streams(self, when)

    def forget(self):
        """Lets the machines hold the other version no more."""
        shards = json.loads((self.versions[1] / "manifest.json").read_text())["stages"]
        for home, shard in zip(self.homes, shards):
            (home / "worker" / "blobs" / shard["digest"]).unlink()

    def pushing(self):
        """A push of the other version, and whether it is in the middle: all may have come before this has looked."""
        running = subprocess.Popen(self.command("fleet", "push", self.versions[1], *STAGES), stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True)
        until(lambda: running.poll() is not None or self.receives(1), "a piece", pause=0)
        return running, running.poll() is None

    def receives(self, number):
        parts = (self.homes[number] / "worker" / "blobs").glob("*.part")
        try:
            return any(part.stat().st_size > 1 << 20 for part in parts)
        except FileNotFoundError:  # all of it has come since
            return False

    def verify(self, when):
        # Before it is verified: the fleet goes on, and records come meanwhile.
        shown = self.records()
        told = json.loads(program.run("audit", "verify", "--home", self.home, "--json"))
        missing = [record for record in self.acknowledged if record not in shown]
        self.findings.add(f"{when}: records that verify", told["records"], told["records"] >= len(shown))
        self.findings.add(f"{when}: acts acknowledged", len(self.acknowledged))
        self.findings.add(f"{when}: of them missing in the log", len(missing), not missing, "0")

    def kill(self, *others):
        """All of it at once, and without a warning."""
        running = [self.server.process, *self.workers, *others]
        for one in running:
            one.kill()
        for one in running:
            one.wait()
        self.workers.clear()

    def end(self):
        for one in [*self.workers, *([self.server.process] if self.server else [])]:
            one.kill()
            one.wait()
        for said in (disk.path / "said" for disk in self.disks):
            if said.exists() and "panicked" in said.read_text():
                raise SystemExit(said.read_text()[-4000:])


class Streams(serving.Background):
    def __init__(self, fleet, when):
        super().__init__(fleet.ask)
        self.fleet, self.when = fleet, when

    def __enter__(self):
        self.before = self.fleet.answers
        return super().__enter__()

    def __exit__(self, *_):
        super().__exit__()
        add = self.fleet.findings.add
        add(f"{self.when}: answers meanwhile", self.fleet.answers - self.before, self.fleet.answers > self.before)
        add(f"{self.when}: answers with other tokens", len(self.fleet.wrong), not self.fleet.wrong, "0")


def full_coordinator(fleet):
    disk = fleet.disks[0]
    with fleet.streaming("coordinator full"):
        fleet.all_refused("coordinator full", FULL, disk.shrink)
        # A few records still fit into the last page of the log.
        for tries in range(1, 100):
            disk.shrink()
            done = fleet.call("fleet", "trust", "node-00")
            if done.returncode != 1 or "cannot record" in done.stderr:
                break
        fleet.findings.add("coordinator full: acts refused until no record fits", tries,
                           done.returncode == 1 and "cannot record" in done.stderr)
        time.sleep(1)
        disk.grow()
        fleet.recovers("coordinator full")
    fleet.verify("coordinator full")


def full_worker(fleet):
    disk, blobs = fleet.disks[2], fleet.homes[1] / "worker" / "blobs"
    push = ["fleet", "push", fleet.versions[1], *STAGES]
    fleet.forget()
    with fleet.streaming("worker full"):
        disk.shrink(40 << 20)
        why = r"node-01 did not take stage-1.gguf: .*\d+ bytes.* \d+ free"
        fleet.refused("worker full", why, *push)
        disk.grow()
        for _ in range(20):
            running, in_the_middle = fleet.pushing()
            if in_the_middle:
                disk.shrink()
            said = running.communicate(timeout=300)[1]
            if running.returncode != 0:
                break
            # All of it was there before the disk was full.
            disk.grow()
            fleet.push(0)
            fleet.forget()
        holds = running.returncode == 1 and re.search(why, said)
        fleet.findings.add("worker full in the middle: fleet push is refused", "yes" if holds else said[-400:],
                           bool(holds))
        fleet.findings.add("worker full in the middle: pieces left there", len(list(blobs.glob("*.part"))),
                           not list(blobs.glob("*.part")), "0")
        disk.grow()
        fleet.recovers("worker full")
    fleet.verify("worker full")


def read_only(fleet):
    with fleet.streaming("coordinator read-only"):
        fleet.disks[0].forbid()
        fleet.all_refused("coordinator read-only", READ_ONLY)
        time.sleep(1)
        fleet.disks[0].allow()
        fleet.recovers("coordinator read-only")
    with fleet.streaming("worker read-only"):
        fleet.disks[2].forbid()
        fleet.refused("worker read-only", READ_ONLY, "fleet", "push", fleet.versions[1], *STAGES)
        fleet.disks[2].allow()
        fleet.recovers("worker read-only")
    fleet.verify("read-only")


def input_output_error(fleet):
    coordinator = fleet.home / "coordinator"
    newest = max((coordinator / "audit").glob("*.log"))
    with fleet.streaming("errors of the disk"):
        for file in (newest, coordinator / "members.json"):
            with Broken(file):
                fleet.all_refused(f"errors in {file.name[-12:]}", BROKEN)
                time.sleep(3)
        fleet.recovers("errors of the disk")
    fleet.verify("errors of the disk")


def killed(fleet):
    """Everything is killed on full disks in the middle of a push, and what is never synced is torn besides."""
    fleet.forget()
    for _ in range(20):
        pushing, in_the_middle = fleet.pushing()
        if in_the_middle:
            break
        fleet.push(0)
        fleet.forget()
    fleet.findings.add("killed while full: in the middle of a push", "yes" if in_the_middle else "no", in_the_middle)
    for disk in fleet.disks:
        disk.shrink()
    fleet.kill(pushing)
    for disk in fleet.disks:
        disk.grow()
    for name in ("status.json", "push.json", "push-taken.json", "push-news.json", ".tmpAbCdEf"):
        torn = fleet.home / "coordinator" / name
        torn.write_bytes(torn.read_bytes()[:20] if torn.exists() else b"{")
    with max((fleet.home / "coordinator" / "audit").glob("*.log")).open("ab") as log:
        log.write(b"half a rec")
    begin = time.monotonic()
    fleet.work()
    fleet.serve()
    fleet.findings.add("killed while full: seconds until it serves again", time.monotonic() - begin)
    with fleet.streaming("killed while full"):
        shown = fleet.call("fleet", "status")
        fleet.findings.add("killed while full: status", shown.stderr or "yes", shown.returncode == 0)
        fleet.recovers("killed while full")
    fleet.verify("killed while full")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--long", action="store_true", help="with limits on times")
    options = parser.parse_args()
    findings = serving.Findings()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        disks = [Disk(folder / name, size) for name, size in (("coordinator", 8), ("node-00", 200), ("node-01", 200))]
        try:
            with disks[0]:
                pass
        except (PermissionError, FileNotFoundError) as problem:
            print(f"a small disk cannot be mounted here ({problem}): full disks are not checked; run it as root")
            return
        with disks[0], disks[1], disks[2]:
            fleet = Fleet(folder, disks, findings, options.long)
            try:
                fleet.begin()
                for part in (full_coordinator, full_worker, read_only, input_output_error, killed):
                    part(fleet)
            finally:
                fleet.end()
    findings.end()


if __name__ == "__main__":
    main()
