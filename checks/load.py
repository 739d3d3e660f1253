#!/usr/bin/env python3
"""A server under load: at 70 % of what it can do, at three times that, and with one tenant that wants it all.

Without arguments a run of half a minute, part of CI, which asks what does not depend on the machine: no errors, nothing
leaked, refusals with a time to come back. Times are only shown, and so are refusals at 70 % of what the machine could
do a moment before. `checks/load.py --minutes 10 --keep bench/runs/DATE` is the whole suite, with limits on those too;
run it on a machine that does nothing else. Rows of docs/serving.md come from it.
"""
import argparse
import json
import pathlib
import threading
import time

import serving

# Sizes of the whole suite and of the short run, and seconds of their phases.
WHOLE = {"sizes": ["--prompt", "16..2048", "--answer", "16..512"], "saturation": 60, "overload": 60, "fairness": 60}
SHORT = {"sizes": ["--prompt", "16..128", "--answer", "8..32"], "saturation": 3, "overload": 4, "fairness": 3}
MISBEHAVIOUR = ["--cancel", "10%", "--slow-readers", "10%"]


class Suite:
    def __init__(self, options):
        self.whole = options.minutes is not None
        self.settings = WHOLE if self.whole else SHORT
        self.seconds = options.minutes * 60 if self.whole else 6
        self.keep, self.model, self.threads = options.keep, options.model, options.threads
        self.findings = serving.Findings()

    def load(self, server, name, *arguments):
        keep = self.keep and self.keep / f"load-{name}.json"
        return server.load(*self.settings["sizes"], *arguments, keep=keep)

    def timed(self, what, value, holds, limit):
        """A limit on what time decides holds for the whole suite; the short run only shows the value."""
        self.findings.add(what, value, holds if self.whole else None, limit)

    def run(self):
        machine = ["--threads", self.threads] if self.threads else []
        with serving.Server("--queue", 32, *machine, model=self.model) as server:
            start = server.settle()
            self.findings.add("memory after start, MB", start["rss"] / 1e6)
            saturation = self.saturation(server)
            if self.whole:
                self.fill(server)
            calm = self.calm(server, saturation)
            self.overload(server, saturation, calm)
        with serving.Server("--queue", 64, *machine, model=self.model) as server:
            self.fairness(server)
        if self.keep:
            (self.keep / "load.json").write_text(json.dumps(self.findings.rows, indent=1))
        self.findings.end()

    def saturation(self, server):
        run = self.load(server, "saturation", "--clients", 32, "--duration", self.settings["saturation"])
        self.findings.add("saturation, tok/s", run["tok_s"])
        # Answers cut off by the end of a short phase would make it look slower than it is.
        answers = run["done"] / max(r["start_s"] + r["total_s"] for r in run["requests"])
        self.findings.add("saturation, answers/s", answers)
        return answers

    def fill(self, server):
        """Long prompts until every page of the cache has been used, since memory counts only once it is touched."""
        for seed in range(100, 120):
            now = server.metrics()
            if now["kv_pages_cached"] >= 0.95 * now["kv_pages"]:
                break
            server.load("--requests", 16, "--clients", 8, "--prompt", 1800, "--answer", 1, "--seed", seed)
        self.findings.add("cache in use before the baseline, %", 100 * now["kv_pages_cached"] / now["kv_pages"])

    def calm(self, server, saturation):
        before = server.settle()
        run = self.load(server, "calm", "--clients", 32, "--rate", 0.7 * saturation, "--duration", self.seconds,
                        *MISBEHAVIOUR)
        after = server.settle(fds=before["fds"])
        add = self.findings.add
        add("70 %: requests", run["sent"])
        add("70 %: cancelled", run["cancelled"])
        add("70 %: errors", run["failed"], run["failed"] == 0, "0")
        self.timed("70 %: refused with 429", run["refused"], run["refused"] == 0, "0")
        add("70 %: contradictions in the history", len(run["problems"]), not run["problems"], "0")
        add("70 %: time to first token p99, ms", run["first_token_s"]["p99"] * 1e3)
        add("70 %: token to token p99, ms", run["inter_token_s"]["p99"] * 1e3)
        add("70 %: pages held afterwards", after["pages_held"], after["pages_held"] == 0, "0")
        add("70 %: file descriptors left", after["fds"] - before["fds"], after["fds"] <= before["fds"], "0")
        growth = 100 * (after["rss"] / before["rss"] - 1)
        # A short run begins before the cache and the allocator have seen their largest request.
        self.timed("70 %: memory kept, %", growth, growth <= 2, "2")
        return run

    def overload(self, server, saturation, calm):
        seconds, probes = self.settings["overload"], []

        def probe():
            time.sleep(seconds)
            begin = time.perf_counter()
            while time.perf_counter() - begin < 60 and not (probes and probes[-1][1] <= self.recovered(calm)):
                sent = time.perf_counter() - begin
                body = {"prompt": "the sea at night", "max_tokens": 1, "temperature": 0}
                begun = time.perf_counter()
                status = server.request("POST", "/v1/completions", body)[0]
                probes.append((sent, time.perf_counter() - begun if status == 200 else 1e9))
                time.sleep(0.2)

        prober = threading.Thread(target=probe)
        prober.start()
        run = self.load(server, "overload", "--rate", 3 * saturation, "--duration", seconds)
        prober.join()
        add = self.findings.add
        add("3x: requests", run["sent"])
        add("3x: refused with 429", run["refused"])
        add("3x: other errors", run["failed"], run["failed"] == 0, "0")
        add("3x: contradictions in the history", len(run["problems"]), not run["problems"], "0")
        refusals = sorted(r["total_s"] for r in run["requests"] if r["status"] == 429)
        if refusals:
            add("3x: time to a refusal p99, ms", refusals[int(0.99 * (len(refusals) - 1))] * 1e3)
        growth = run["inter_token_s"]["p99"] / max(calm["inter_token_s"]["p99"], 1e-9)
        self.timed("3x: token to token p99 beside 70 %", growth, growth <= 1.5, "1.5")
        self.timed("3x: seconds to recover", probes[-1][0], probes[-1][1] <= self.recovered(calm) and probes[-1][0] <= 10,
                   "10")
        after = server.settle()
        add("3x: pages held afterwards", after["pages_held"], after["pages_held"] == 0, "0")

    @staticmethod
    def recovered(calm):
        """A probe this fast means that the server is as it was."""
        return max(calm["first_token_s"]["p99"], 0.05)

    def fairness(self, server):
        for name, more, clients in (("equal", [], 32), ("one sends ten times as much", ["--greedy", 10], 52)):
            run = self.load(server, f"fairness-{name.split()[0]}", "--clients", clients, "--duration",
                            self.settings["fairness"], "--seed", 7, *more)
            self.findings.add(f"fairness, {name}: errors", run["failed"], run["failed"] == 0, "0")
            self.timed(f"fairness, {name}: Jain", run["fairness"], run["fairness"] >= 0.9, "0.9")
            server.settle()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, help="the whole suite, with so many minutes at 70 %%")
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for everything that was measured")
    parser.add_argument("--model", help="instead of the model inside the program")
    parser.add_argument("--threads", help="threads of the server")
    options = parser.parse_args()
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
    Suite(options).run()


if __name__ == "__main__":
    main()
