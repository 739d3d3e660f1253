#!/usr/bin/env python3
"""Speed of a fleet beside one machine: workers pinned to a core each, links with a round trip and a bandwidth.

    bench/fleet.py model.gguf 10 --turns 5 --rtt 1,6 --mbit 1000 --keep bench/runs/DATE-fleet

Every turn measures, one after the other: one node with one stream (the model whole, one thread on one core), two such
nodes at the same time that know nothing of each other, which is the most this machine could do as two, and two
nodes (some of the layers each, one thread on a core each) with one and with two streams, for every round trip. The
first node is the coordinator, which runs its stage itself. Its link to the second is a relay in this process that holds
every byte back for half a round trip and lets no more bytes through than the bandwidth allows; it costs processor time,
which is part of the result. Speed is counted while all streams run. Needs nothing but Python and Linux.
"""
import argparse
import json
import os
import pathlib
import queue
import re
import socket
import statistics
import subprocess
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = ROOT / "target" / "release" / "cascadia"
PRIORITY = ["nice", "-n", "5"]


class Relay:
    """A port that leads to another through a slow link."""

    def __init__(self, target, rtt, mbit):
        self.target, self.delay, self.rate = target, rtt / 2000, mbit * 1e6 / 8
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.target))
            except OSError:  # nobody listens there yet; a worker tries again
                near.close()
                continue
            for one, other in ((near, far), (far, near)):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.lead(one, other)

    def lead(self, source, sink):
        waiting = queue.Queue(1000)

        def read():
            free = 0.0
            while True:
                try:
                    data = source.recv(1 << 16)
                except OSError:
                    data = b""
                free = max(free, time.perf_counter()) + len(data) / self.rate
                waiting.put((free + self.delay, data))
                if not data:
                    return

        def write():
            while True:
                due, data = waiting.get()
                time.sleep(max(0, due - time.perf_counter()))
                try:
                    if not data:
                        return sink.shutdown(socket.SHUT_WR)
                    sink.sendall(data)
                except OSError:
                    return

        for work in (read, write):
            threading.Thread(target=work, daemon=True).start()


class Program:
    """A running `cascadia`, on one core if that is named. It yields to the relay, as a machine does to its network."""

    def __init__(self, folder, *arguments, core=None):
        self.log = pathlib.Path(folder) / f"log-{time.perf_counter_ns()}"
        pin = [*PRIORITY, *(["taskset", "-c", str(core)] if core is not None else [])]
        with self.log.open("w") as log:
            self.process = subprocess.Popen([*pin, str(BINARY), *map(str, arguments)], stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log)

    def say(self, pattern, seconds=60):
        for _ in range(seconds * 20):
            found = re.search(pattern, self.log.read_text())
            if found:
                return found[1]
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise SystemExit(f"no `{pattern}` in: {self.log.read_text()[-2000:]}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def run(*arguments):
    done = subprocess.run([str(BINARY), *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{arguments}: {done.stderr[-2000:]}")
    return done.stdout


def speed(server, streams, tokens):
    """Tokens per second of all streams together, from the last first token to the first end."""
    url = server.say(r"(http://[\d.]+:\d+)/")
    found = json.loads(run("bench", "serve", url, "--clients", streams, "--requests", streams, "--prompt", 16,
                           "--answer", tokens, "--json"))
    begin = max(r["start_s"] + r["first_token_s"] for r in found["requests"])
    end = min(r["start_s"] + r["total_s"] for r in found["requests"])
    every = [(r["start_s"] + r["first_token_s"], r["start_s"] + r["total_s"], r["tokens"] - 1) for r in found["requests"]]
    return sum(count * (end - begin) / (last - first) for first, last, count in every) / (end - begin)


class Fleet:
    """A coordinator and a worker that has its shard; servers come and go."""

    def __init__(self, folder, shards):
        self.folder, self.shards = pathlib.Path(folder), shards
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        with Program(folder, "fleet", "init", "--home", self.folder / "home", "--listen", f"127.0.0.1:{self.port}") as init:
            run("join", init.say(r"(cas1-\S+)"), "--home", self.folder / "node")

    def speeds(self, rtt, mbit, options):
        relay = Relay(self.port, rtt, mbit)
        worker = Program(self.folder, "worker", "start", "--shard", self.shards / "stage-1.gguf", "--home",
                         self.folder / "node", "--coordinator", f"127.0.0.1:{relay.port}", "--threads", 1,
                         "--priority", "normal", core=1)
        with worker, Program(self.folder, "serve", "--fleet", self.shards, "--own-stage", 0, "--home",
                             self.folder / "home", "--port", 0, "--threads", 1, "--draft-tokens", 0, "--ctx", 1024,
                             "--log-level", "error", core=0) as server:
            found = {streams: speed(server, streams, options.tokens) for streams in (1, 2)}
        relay.listener.close()
        return found


def machine_speeds(folder, options):
    """One node, and two that know nothing of each other, which is the most that this machine could do as two."""
    start = lambda core: Program(folder, "serve", options.model, "--port", 0, "--threads", 1, "--draft-tokens", 0, "--ctx",
                                 1024, "--log-level", "error", core=core)
    with start(0) as one, start(1) as other:
        row = {"one node, one stream": speed(one, 1, options.tokens)}
        both = {}
        measure = lambda name, server: both.update({name: speed(server, 1, options.tokens)})
        threads = [threading.Thread(target=measure, args=pair) for pair in (("one", one), ("other", other))]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    return {**row, "two nodes apart, one stream each": sum(both.values())}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("first", type=int, help="layers of the node that is the coordinator too, which has the output matrix")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--rtt", default="1,6", help="round trips in milliseconds")
    parser.add_argument("--mbit", type=float, default=1000, help="bandwidth of a link")
    parser.add_argument("--tokens", type=int, default=48, help="of every answer")
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for what was measured")
    parser.add_argument("--realtime", action="store_true", help="go before everything else on a machine that is not idle; "
                        "the system still takes a twentieth of a core that is always busy")
    options = parser.parse_args()
    if options.realtime:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
        PRIORITY[:] = ["chrt", "-r", "5"]
    if os.cpu_count() < 2:
        raise SystemExit("two cores are needed")
    trips = [float(rtt) for rtt in options.rtt.split(",")]
    results = []
    with tempfile.TemporaryDirectory() as folder:
        shards = pathlib.Path(folder) / "shards"
        run("export", options.model, "--splits", f"0,{options.first}", "--precision", "keep", "--out", shards)
        fleet = Fleet(folder, shards)
        for turn in range(options.turns):
            row = machine_speeds(folder, options)
            for rtt in trips:
                for streams, found in fleet.speeds(rtt, options.mbit, options).items():
                    row[f"two nodes, {rtt:g} ms, {streams} stream{'s' * (streams > 1)}"] = found
            results.append(row)
            print(f"turn {turn + 1}: " + ", ".join(f"{name} {value:.1f}" for name, value in row.items()), flush=True)
    base = [row["one node, one stream"] for row in results]
    print(f"\n{'':36} {'tok/s':>7} {'(min … max)':>16} {'beside one node':>18}")
    for name in results[0]:
        values = [row[name] for row in results]
        ratio = statistics.median(value / one for value, one in zip(values, base))
        print(f"{name:36} {statistics.median(values):7.1f} {min(values):7.1f} … {max(values):5.1f} {ratio:17.2f}x")
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
        (options.keep / "fleet.json").write_text(json.dumps(
            {"first": options.first, "mbit": options.mbit, "realtime": options.realtime, "turns": results}, indent=1))


if __name__ == "__main__":
    main()
