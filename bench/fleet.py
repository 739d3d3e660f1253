#!/usr/bin/env python3
"""Speed of a fleet beside one machine: nodes pinned to a core each, links with a round trip and a bandwidth.

    bench/fleet.py model.gguf 10,11 --rtt 1,6 --rate 1000,100 --text-model rainier-33m --keep bench/runs/DATE-fleet
    bench/fleet.py … --llama-bench path/to/llama-bench --rpc-server path/to/ggml-rpc-server \\
        --llama-batched-bench path/to/llama-batched-bench

Every turn measures, one after the other: one node with one stream (the model whole, one thread on one core), two such
nodes at the same time that know nothing of each other, which is the most this machine could do as two, and two
nodes (some of the layers each, one thread on a core each) with one and with two streams, for every link. The
first node is the coordinator, which runs its stage itself; the longer the round trip, the more layers it should have.
The link to the second is a relay in this process that holds every byte back for half a round trip and lets no more bytes
through than the bandwidth allows; it costs processor time, which is part of the result. Speed is counted while all
streams run.

Where the time of one stream goes is read from the coordinator's own counters: what the stages and the output matrix
computed, what the way to the other machine and back took besides, and what is left of the time that a client waited,
which is our overhead.

With --text-model, a trained model goes on with passages of --text: on one node without guessing ahead, which is what
its other lines are compared with, and with n-gram guesses on one node and over two. All answers must be the same text.

With --llama-bench and --rpc-server (llama.cpp with GGML_RPC=ON), the same model over the same links by llama.cpp's RPC
backend: as many layers there as our first node has, with the output matrix. The weights are sent there without waiting
for the bandwidth. Needs nothing but Python and Linux.
"""
import argparse
import contextlib
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
import urllib.request

import serving

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = ROOT / "target" / "release" / "cascadia"
PRIORITY = ["nice", "-n", "5"]
BASE, TEXT_BASE = "one node, 1 stream", "text, one node, 1 stream, no guesses"


class Relay:
    """A port that leads to another through a slow link; the first `head` bytes towards it only wait."""

    def __init__(self, target, link, head=0):
        rtt, mbit = link
        self.target, self.delay, self.rate, self.head = target, rtt / 2000, mbit * 1e6 / 8, head
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()

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
                self.lead(one, other, towards=other is far)

    def lead(self, source, sink, towards):
        waiting = queue.Queue(1000)

        def read():
            go_first()
            free = 0.0
            while True:
                try:
                    data = source.recv(1 << 16)
                except OSError:
                    data = b""
                ahead = min(len(data), self.head) if towards else 0
                self.head -= ahead
                free = max(free, time.perf_counter()) + (len(data) - ahead) / self.rate
                waiting.put((free + self.delay, data))
                if not data:
                    return

        def write():
            go_first()
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


def go_first():
    """Lets this thread go before all programs, as a network does, where the system allows it."""
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(20))


class Program:
    """A running program, on one core if that is named. It yields to the relay, as a machine does to its network."""

    def __init__(self, folder, *command, core=None):
        self.log = pathlib.Path(folder) / f"log-{time.perf_counter_ns()}"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(pinned(command, core), stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def say(self, pattern, seconds=60):
        for _ in range(seconds * 20):
            found = re.search(pattern, self.log.read_text())
            if found:
                return found[1]
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise SystemExit(f"no `{pattern}` in: {self.log.read_text()[-2000:]}")

    def url(self):
        return self.say(r"(http://[\d.]+:\d+)/")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def pinned(command, core):
    return [*PRIORITY, *(["taskset", "-c", str(core)] if core is not None else []), *map(str, command)]


def run(command, core=None):
    done = subprocess.run(pinned(command, core) if core is not None else list(map(str, command)), capture_output=True,
                          text=True, stdin=subprocess.DEVNULL, timeout=300)
    if done.returncode:
        raise SystemExit(f"{command}: {done.stderr[-2000:]}")
    return done.stdout


def cascadia(*arguments):
    return run([BINARY, *arguments])


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def together(requests):
    return serving.together({"requests": requests})


def ask(url, streams, tokens):
    """What became of requests that were sent at once."""
    return json.loads(cascadia("bench", "serve", url, "--clients", streams, "--requests", streams, "--prompt", 1,
                               "--answer", tokens, "--json"))["requests"]


def go_on(url, prompts, tokens):
    """The same for answers that go on with these texts."""
    begin, requests = time.perf_counter(), {}

    def one(prompt):
        body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True,
                "stream_options": {"include_usage": True}}
        request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(),
                                         {"content-type": "application/json"})
        times, text, usage = [], "", {}
        for line in urllib.request.urlopen(request, timeout=600):
            if line.startswith(b"data: {"):
                event = json.loads(line[6:])
                piece = event["choices"][0]["text"] if event.get("choices") else ""
                text, usage = text + piece, event.get("usage") or usage
                times += [time.perf_counter() - begin] * bool(piece)
        gaps = [later - sooner for sooner, later in zip(times, times[1:])]
        requests[prompt] = {"outcome": "done", "start_s": 0, "first_token_s": times[0], "inter_token_s": gaps,
                            "tokens": usage["completion_tokens"], "text": text}

    threads = [threading.Thread(target=one, args=[prompt]) for prompt in prompts]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    return [requests[prompt] for prompt in prompts]


def status(url):
    return json.load(urllib.request.urlopen(url + "/status"))


def counters(url):
    """What the coordinator has counted, once it has written down the last step, which it does every second."""
    for _ in range(100):
        now = status(url)
        stages, service = (now["fleet"] or {}).get("stages", []), now["service"]
        if stages and all(stage["steps"] == service["steps_total"] for stage in stages):
            total = lambda name: sum(stage[name] for stage in stages)
            return {"steps": service["steps_total"], "output": service["output_seconds_total"],
                    "all": total("microseconds") / 1e6, "computing": total("computing_microseconds") / 1e6,
                    "sent": total("sent_bytes"), "rows": max(stage["rows"] for stage in stages)}
        time.sleep(0.05)
    raise SystemExit(f"the stages and the service count differently: {now['fleet']}, {now['service']}")


def split(before, after, seconds):
    """Where the time that a client waited went, in parts of it; and what a step took, and a row on its way there."""
    grown = {name: after[name] - before[name] for name in after}
    computing, network = grown["computing"] + grown["output"], grown["all"] - grown["computing"]
    return {"ms a step": 1e3 * seconds / grown["steps"], "computing": computing / seconds, "network": network / seconds,
            "overhead": 1 - (computing + network) / seconds, "bytes": grown["sent"] / grown["rows"]}


class Fleet:
    """A coordinator and a worker that has its shard; servers come and go."""

    def __init__(self, folder, model, first):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir()
        self.shards, self.port = self.folder / "shards", free_port()
        cascadia("export", model, "--splits", f"0,{first}", "--precision", "keep", "--out", self.shards, "--force")
        with Program(folder, BINARY, "fleet", "init", "--invitation", "--home", self.folder / "home", "--listen",
                     f"127.0.0.1:{self.port}") as init:
            cascadia("join", init.say(r"(cas1-\S+)"), "--home", self.folder / "node")

    @contextlib.contextmanager
    def serve(self, link, *more):
        """The address of a server over this link."""
        with (Relay(self.port, link) as relay,
              Program(self.folder, BINARY, "worker", "start", "--shard", self.shards / "stage-1.gguf", "--home",
                      self.folder / "node", "--coordinator", f"127.0.0.1:{relay.port}", "--threads", 1, "--priority",
                      "normal", core=1),
              Program(self.folder, BINARY, "serve", "--fleet", self.shards, "--own-stage", 0, "--home",
                      self.folder / "home", "--port", 0, "--threads", 1, "--ctx", 1024, "--log-level", "error", *more,
                      core=0) as server):
            yield server.url()


def alone(folder, model, core, *more):
    return Program(folder, BINARY, "serve", model, "--port", 0, "--threads", 1, "--ctx", 1024, "--log-level", "error", *more,
                   core=core)


def machine_speeds(folder, options):
    """One node, and two that know nothing of each other, which is the most that this machine could do as two."""
    plain = ["--draft-tokens", 0]
    with alone(folder, options.model, 0, *plain) as one, alone(folder, options.model, 1, *plain) as other:
        urls = [one.url(), other.url()]
        [ask(url, 1, 2) for url in urls]
        found = {BASE: together(ask(urls[0], 1, options.tokens))}
        both = []
        threads = [threading.Thread(target=lambda url=url: both.append(together(ask(url, 1, options.tokens)))) for url in urls]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    return {**found, "two nodes apart, 1 stream each": sum(both)}


def fleet_speeds(fleets, options):
    """Two nodes over every link, and where the time of one stream goes."""
    speeds, splits = {}, {}
    for link in options.links:
        with fleets[options.first[link[0]]].serve(link, "--draft-tokens", 0) as url:
            ask(url, 1, 2)
            before = counters(url)
            requests = ask(url, 1, options.tokens)
            splits[shown(link)] = split(before, counters(url), requests[0]["total_s"])
            speeds[f"two nodes, {shown(link)}, 1 stream"] = together(requests)
            speeds[f"two nodes, {shown(link)}, 2 streams"] = together(ask(url, 2, options.tokens))
    return speeds, splits


def text_speeds(folder, fleet, options):
    """A trained model that goes on with real texts, guessing ahead."""
    passages = options.text.read_text()
    prompts = [passages[begin:begin + 1200] for begin in (0, len(passages) // 2)]
    speeds, guessed, texts = {}, {}, set()

    def measure(name, url, prompts):
        count = lambda: {kind: status(url)["service"][f"{kind}_tokens_total"] for kind in ("drafted", "accepted")}
        before = count()
        requests = go_on(url, prompts, options.text_tokens)
        texts.update(zip(prompts, (request["text"] for request in requests)))
        speeds[name], guessed[name] = together(requests), {kind: now - before[kind] for kind, now in count().items()}

    for name, more in ((TEXT_BASE, ["--draft-tokens", 0]), ("text, one node, 1 stream, guesses", [])):
        with alone(folder, options.text_model, 0, *more) as server:
            go_on(server.url(), ["warm"], 2)
            measure(name, server.url(), prompts[:1])
    for link in options.links:
        with fleet.serve(link) as url:
            go_on(url, ["warm"], 2)
            measure(f"text, two nodes, {shown(link)}, 1 stream, guesses", url, prompts[:1])
            measure(f"text, two nodes, {shown(link)}, 2 streams, guesses", url, prompts)
    if len(texts) != len(prompts):
        raise SystemExit(f"answers differ: {texts}")
    return speeds, guessed


def peer_speeds(folder, fleets, options):
    """The same model over the same links by llama.cpp's RPC backend."""

    def over(link, program, *more):
        port, first = free_port(), options.first[link[0]]
        # What is sent there: as many layers, and the larger half of both ends.
        size = lambda name: (fleets[first].shards / name).stat().st_size
        head = size("stage-0.gguf") + size("token-io.gguf") // 2
        with (Program(folder, options.rpc_server, "-H", "127.0.0.1", "-p", port, "-t", 1, core=1) as server,
              Relay(port, link, head) as relay):
            for _ in range(200):
                with contextlib.suppress(OSError):
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                time.sleep(0.05)
            else:
                raise SystemExit(f"{options.rpc_server} does not listen: {server.log.read_text()[-2000:]}")
            return run([program, "-m", options.model, "-t", 1, "-ngl", first + 1, "--rpc", f"127.0.0.1:{relay.port}",
                        *more], core=0)

    speeds = {}
    for link in options.links:
        told = attempt(over, link, options.llama_bench, "-p", 0, "-n", options.tokens, "-r", 1, "-o", "json")
        if told:
            speeds[peer(f"{shown(link)}, 1 stream")] = json.loads(told)[0]["avg_ts"]
        told = options.llama_batched_bench and attempt(
            over, link, options.llama_batched_bench, "-c", 512, "-npp", 4, "-ntg", options.tokens, "-npl", 2,
            "--output-format", "jsonl")
        if told:
            rows = [json.loads(line) for line in told.splitlines() if line.startswith("{")]
            speeds[peer(f"{shown(link)}, 2 streams")] = rows[0]["speed_tg"]
    return speeds


def shown(link):
    rtt, mbit = link
    return f"{rtt:g} ms {mbit:g} Mbit/s"


def peer(name):
    return f"llama.cpp RPC, {name}"


def attempt(measure, *arguments):
    """What was measured, or nothing where that failed: the rest is worth keeping."""
    try:
        return measure(*arguments)
    except (SystemExit, subprocess.TimeoutExpired) as problem:
        print(f"{measure.__name__}: {problem}", flush=True)


def keep(options, **found):
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
        about = {"first": options.first, "tokens": options.tokens, "realtime": options.realtime}
        (options.keep / "fleet.json").write_text(json.dumps({**about, **found}, indent=1))


def table(results):
    names = [name for name in results[0] if all(name in row for row in results)]
    width = max(map(len, names))
    spread = lambda values: f"{statistics.median(values):7.1f} {min(values):7.1f} … {max(values):6.1f}"
    ratio = lambda name, base: statistics.median(row[name] / row[base] for row in results)
    print(f"\n{'':{width}} {'tok/s':>7} {'(min … max)':>16} {'beside one node':>16} {'beside the peer':>16}")
    for name in names:
        base = TEXT_BASE if name.startswith("text") else BASE
        rival = peer(name.removeprefix("two nodes, "))
        beside = f"{ratio(name, rival):15.2f}x" if rival in names else ""
        print(f"{name:{width}} {spread([row[name] for row in results])} {ratio(name, base):15.2f}x {beside}")


def split_table(splits):
    print(f"\n{'one stream on two nodes':24} {'ms a step':>9} " + " ".join(f"{name:>24}" for name in PARTS) + "   bytes there a row")
    for link in splits[0]:
        of = lambda name: [100 * row[link][name] for row in splits]
        parts = " ".join(f"{statistics.median(of(name)):7.1f} % ({min(of(name)):4.1f} … {max(of(name)):4.1f})" for name in PARTS)
        middle = lambda name: statistics.median(row[link][name] for row in splits)
        print(f"{link:24} {middle('ms a step'):9.1f} {parts} {middle('bytes'):19.0f}")


PARTS = ["computing", "network", "overhead"]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = lambda text: [float(part) for part in text.split(",")]
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("first", type=numbers, help="layers of the node that is the coordinator too, which has the output "
                        "matrix; one number, or one for each round trip")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=11.5, help="begin no turn that would probably end later")
    parser.add_argument("--rtt", type=numbers, default=[1, 6], help="round trips in milliseconds")
    parser.add_argument("--rate", type=numbers, default=[1000], help="bandwidths in Mbit/s")
    parser.add_argument("--tokens", type=int, default=32, help="of every answer")
    parser.add_argument("--text-model", type=pathlib.Path, help="a trained model that guesses ahead")
    parser.add_argument("--text-first", type=int, default=4, help="its layers on the first node")
    parser.add_argument("--text-tokens", type=int, default=200, help="of its answers")
    parser.add_argument("--text", type=pathlib.Path, default=ROOT / "docs" / "serving.md", help="what it goes on with")
    parser.add_argument("--llama-bench", type=pathlib.Path)
    parser.add_argument("--llama-batched-bench", type=pathlib.Path, help="for two streams")
    parser.add_argument("--rpc-server", type=pathlib.Path)
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for what was measured")
    parser.add_argument("--realtime", action="store_true", help="go before everything else on a machine that is not idle; "
                        "the system still takes a twentieth of a core that is always busy")
    options = parser.parse_args()
    if bool(options.llama_bench) != bool(options.rpc_server):
        parser.error("--llama-bench and --rpc-server belong together")
    if len(options.first) not in (1, len(options.rtt)):
        parser.error("give one number of layers, or as many as round trips")
    options.first = dict(zip(options.rtt, map(int, options.first * len(options.rtt))))
    options.links = [(rtt, rate) for rtt in options.rtt for rate in options.rate]
    return options


def main():
    options = arguments()
    if options.realtime:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
        PRIORITY[:] = ["chrt", "-r", "5"]
    if os.cpu_count() < 2:
        raise SystemExit("two cores are needed")
    begin, results, splits, guesses = time.monotonic(), [], [], []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        fleets = {first: Fleet(folder / f"fleet-{first}", options.model, first) for first in set(options.first.values())}
        text_fleet = options.text_model and Fleet(folder / "text", options.text_model, options.text_first)
        while len(results) < options.turns:
            passed = (time.monotonic() - begin) / 60
            if results and passed + passed / len(results) > options.minutes:
                print(f"{len(results)} turns took {passed:.1f} minutes; there is no time for another")
                break
            row = machine_speeds(folder, options)
            speeds, parts = fleet_speeds(fleets, options)
            row |= speeds
            if text_fleet:
                speeds, guessed = attempt(text_speeds, folder, text_fleet, options) or ({}, {})
                row |= speeds
                guesses.append(guessed)
            if options.rpc_server:
                row |= peer_speeds(folder, fleets, options)
            results.append(row)
            splits.append(parts)
            keep(options, turns=results, splits=splits, guesses=guesses)
            print(f"turn {len(results)}: " + ", ".join(f"{name} {value:.1f}" for name, value in row.items()), flush=True)
    table(results)
    split_table(splits)


if __name__ == "__main__":
    main()
