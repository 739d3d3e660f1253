#!/usr/bin/env python3
"""Speed of `cascadia bench` beside its peers, on the same file with the same threads.

Programs take turns on every measurement, so that a machine that slows down slows all of them; the table shows medians
over all turns, their spread, and the ratio of the medians. Raw output goes to bench/runs/<date>-<processor>/, with a
summary that bench/plot.py draws. Needs nothing but Python.

    bench/compare.py model.gguf --llama-bench path/to/llama-bench
    bench/compare.py model.gguf --llama-bench path/to/llama-bench --llama-batched-bench path/to/llama-batched-bench \\
        --ik-bench path/to/ik/llama-bench --turns 7 --plot docs/speed.svg

What is measured: reading memory (the ceiling of decoding), decode at each --depth, prefill of each --prefill, decode
of each --batch, and decode while another process keeps one core busy. Leave a kind out with an empty list
(--batch "") or --no-busy. A depth needs a model with a context that long.
"""
import argparse
import contextlib
import datetime
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys

import plot

ROOT = pathlib.Path(__file__).resolve().parent.parent
OURS = "cascadia"
PACKED = "cascadia, packed"
READ, PEAK = "reading memory, GB/s", "int8 arithmetic, Gop/s"
TOKEN_BYTES, TOKEN_OPERATIONS = "read for a token, GB", "operations for a token, G"


def numbers(text):
    return [int(part) for part in text.split(",") if part]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--llama-bench", type=pathlib.Path, required=True)
    parser.add_argument("--llama-batched-bench", type=pathlib.Path)
    parser.add_argument("--ik-bench", type=pathlib.Path, help="llama-bench of ik_llama.cpp")
    parser.add_argument("--packed", type=pathlib.Path, help="the same model as `cascadia quantize --packed` wrote it")
    parser.add_argument("--cascadia", type=pathlib.Path, default=ROOT / "target" / "release" / "cascadia")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--gen", type=int, default=64, help="tokens decoded in one measurement")
    parser.add_argument("--depth", type=numbers, default=[0, 1024, 4096])
    parser.add_argument("--prefill", type=numbers, default=[512, 2048])
    parser.add_argument("--batch", type=numbers, default=[4, 8])
    parser.add_argument("--batch-prompt", type=int, default=64)
    parser.add_argument("--as-it-comes", action="store_true", help="llama.cpp with flash attention as it chooses, only")
    parser.add_argument("--no-busy", dest="busy", action="store_false")
    parser.add_argument("--busy-core", type=int, default=1)
    parser.add_argument("--plot", type=pathlib.Path, help="an SVG file to draw")
    return parser.parse_args()


class Bench:
    """Runs programs on one model and keeps what they print."""

    def __init__(self, given, folder):
        self.given, self.folder, self.turn, self.kernels = given, folder, 0, {}
        self.stem = f"{given.model.stem}-t{given.threads}"

    def run(self, program, options, name):
        """One run; started in the model's folder, so that raw output names no path of this machine."""
        command = [str(program.resolve()), *map(str, options)]
        done = subprocess.run(command, cwd=self.given.model.resolve().parent, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
        (self.folder / f"{self.stem}-{self.turn}-{name}.json").write_text(done.stdout)
        return done.stdout

    def ours(self, options, name):
        options = ["bench", *options, "--threads", self.given.threads, "--json"]
        return json.loads(self.run(self.given.cascadia, options, f"{name}-cascadia"))

    def both(self, options, name):
        """What ours says of the model, and of the same model packed."""
        yield OURS, self.ours([self.given.model.name, *options], name)
        if self.given.packed:
            packed = os.path.relpath(self.given.packed, self.given.model.resolve().parent)
            yield PACKED, self.ours([packed, *options], f"{name}-packed")

    def peer(self, program, options, name):
        """Speeds of llama-bench by (prompt, generated, depth)."""
        options = ["-m", self.given.model.name, "-t", self.given.threads, "-r", 1, "-o", "json", *options]
        rows = json.loads(self.run(program, options, name))
        return {(row["n_prompt"], row["n_gen"], row.get("n_depth", 0)): row["avg_ts"] for row in rows}

    def batched(self, sequences, name):
        given = self.given
        context = max(sequences) * (given.batch_prompt + given.gen)
        options = ["-m", given.model.name, "-t", given.threads, "-c", context, "-npp", given.batch_prompt,
                   "-ntg", given.gen, "-npl", ",".join(map(str, sequences)), "--output-format", "jsonl"]
        lines = self.run(given.llama_batched_bench, options, name).splitlines()
        rows = [json.loads(line) for line in lines if line.startswith("{")]
        return {row["pl"]: row["speed_tg"] for row in rows}


def contenders(given):
    """Name, program and options of every way to run a peer."""
    found = [("llama.cpp", given.llama_bench, [])]
    if not given.as_it_comes:
        found += [("llama.cpp -fa off", given.llama_bench, ["-fa", "off"])]
    if given.ik_bench:
        found += [("ik_llama.cpp", given.ik_bench, []), ("ik_llama.cpp -rtr 1", given.ik_bench, ["-rtr", 1])]
    return found


def file_name(text):
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-")


def measure_decode(bench, record):
    given = bench.given
    if not given.depth:
        return
    depths = ",".join(map(str, given.depth))
    options = ["--prompt", 1, "--gen", given.gen, "--depth", depths, "--repeat", 1]
    for who, said in bench.both(options, "decode"):
        bench.kernels[who] = said["kernels"]
        for run in said["runs"]:
            record(f"decode, depth {run['depth']}", who, run["decode_tok_s"]["median"])
    for name, program, extra in contenders(given):
        # ik_llama.cpp has no option for depth.
        options = ["-p", 0, "-n", given.gen, *extra] + ([] if name.startswith("ik") else ["-d", depths])
        for (_, _, depth), speed in bench.peer(program, options, f"decode-{file_name(name)}").items():
            record(f"decode, depth {depth}", name, speed)


def measure_prefill(bench, record):
    given = bench.given
    for prompt in given.prefill:
        for who, said in bench.both(["--prompt", prompt, "--gen", 1, "--repeat", 1], f"prefill-{prompt}"):
            record(f"prefill {prompt}", who, said["runs"][0]["prefill_tok_s"]["median"])
        for name, program, extra in contenders(given):
            speeds = bench.peer(program, ["-p", prompt, "-n", 0, *extra], f"prefill-{prompt}-{file_name(name)}")
            record(f"prefill {prompt}", name, next(iter(speeds.values())))


def measure_batch(bench, record):
    given = bench.given
    if not given.batch or not given.llama_batched_bench:
        return
    options = ["--batch", ",".join(map(str, given.batch)), "--prompt", given.batch_prompt, "--gen", given.gen,
               "--repeat", 1]
    for who, said in bench.both(options, "batch"):
        for row in said["batches"]:
            record(f"decode, {row['sequences']} at once", who, row["decode_tok_s"]["median"])
    for sequences, speed in bench.batched(given.batch, "batch-llama.cpp").items():
        record(f"decode, {sequences} at once", "llama.cpp", speed)


@contextlib.contextmanager
def busy_core(core):
    """Another process computes on one core meanwhile."""
    pin = (lambda: os.sched_setaffinity(0, {core})) if hasattr(os, "sched_setaffinity") else None
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"], preexec_fn=pin)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def measure_busy(bench, record):
    given = bench.given
    if not given.busy:
        return
    with busy_core(given.busy_core):
        options = [given.model.name, "--prompt", 1, "--gen", given.gen, "--repeat", 1]
        run = bench.ours(options, "busy")["runs"][0]
        record("decode, one core busy", OURS, run["decode_tok_s"]["median"])
        speeds = bench.peer(given.llama_bench, ["-p", 0, "-n", given.gen], "busy-llama.cpp")
        record("decode, one core busy", "llama.cpp", next(iter(speeds.values())))


def measure_machine(bench, record):
    """What memory and arithmetic can do, and what a token takes of them: all weights but the embedding."""
    profile = bench.ours([bench.given.model.name, "--profile", "--prompt", 1, "--gen", 1], "machine")
    record(READ, "machine", profile["machine"]["by_threads"][-1]["read_gb_s"])
    record(PEAK, "machine", profile["machine"]["by_threads"][-1]["int8_gop_s"])
    decode = next(phase for phase in profile["phases"] if phase["phase"] == "decode")
    record(TOKEN_BYTES, "model", decode["total"]["bytes"] / decode["tokens"] / 1e9)
    record(TOKEN_OPERATIONS, "model", decode["total"]["operations"] / decode["tokens"] / 1e9)


def processor():
    """Name, family and model of the CPU."""
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text()
        name, family, model = (re.search(rf"^{key}\s*:\s*(.+)", text, re.MULTILINE).group(1)
                               for key in ("model name", "cpu family", "model"))
        return f"{name}, family {family} model {model}"
    except (OSError, AttributeError):
        return platform.processor() or platform.machine()


def share(what, speed, results):
    """How much of a ceiling of this machine a speed is: of plain reading, or of arithmetic where a prompt is read."""
    middle = lambda name: statistics.median(next(iter(results[name].values())))
    sequences = re.search(r"(\d+) at once", what)
    if what.startswith("prefill"):
        return f"{100 * speed * middle(TOKEN_OPERATIONS) / middle(PEAK):.0f} % of int8"
    if what.startswith("decode"):
        steps = speed / int(sequences.group(1)) if sequences else speed
        return f"{100 * steps * middle(TOKEN_BYTES) / middle(READ):.0f} % of read"
    return ""


def table(given, results, kernels):
    lines = [f"{given.model.name}, {given.threads} threads of {processor()}, {given.turns} turns, tokens per second: "
             "median (min to max). The share counts weights alone.", "",
             "| what | who | speed | share of the machine | cascadia is |", "|---|---|--:|--:|--:|"]
    for what, speeds in results.items():
        ours = statistics.median(speeds[OURS]) if OURS in speeds else None
        for who, values in speeds.items():
            median = statistics.median(values)
            ratio = f"{ours / median:.2f}×" if ours and who != OURS else ""
            spread = f"{median:.2f} ({min(values):.2f} to {max(values):.2f})"
            lines.append(f"| {what} | {who} | {spread} | {share(what, median, results)} | {ratio} |")
    for who, chosen in kernels.items():
        ways = ", ".join(f"{kind} {choice['reading']}" for kind, choice in chosen["readings"].items())
        lines += ["", f"Kernels of {who}: {chosen['instructions']}; {ways or 'default ways of reading'}."]
    return "\n".join(lines) + "\n"


def main():
    given = arguments()
    slug = re.sub(r"[^a-z0-9]+", "-", processor().lower()).strip("-")
    folder = ROOT / "bench" / "runs" / f"{datetime.date.today()}-{slug}"
    folder.mkdir(parents=True, exist_ok=True)
    bench, results = Bench(given, folder), {}
    for bench.turn in range(given.turns):
        def record(what, who, speed):
            results.setdefault(what, {}).setdefault(who, []).append(speed)
        for measure in (measure_machine, measure_decode, measure_prefill, measure_batch, measure_busy):
            measure(bench, record)
        print(f"turn {bench.turn + 1} of {given.turns} done", flush=True)
    text = table(given, results, bench.kernels)
    (folder / f"{bench.stem}.md").write_text(text)
    summary = folder / f"{bench.stem}-summary.json"
    summary.write_text(json.dumps({"model": given.model.name, "threads": given.threads, "results": results}, indent=1))
    if given.plot:
        given.plot.write_text(plot.draw(json.loads(summary.read_text())))
    print(f"\n{text}\nraw output in {folder.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
