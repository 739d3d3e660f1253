#!/usr/bin/env python3
"""Speed of `cascadia bench` beside llama.cpp's `llama-bench`, on the same file with the same threads.

Runs of the two programs take turns, so that a machine that slows down slows both; the table shows medians over all
turns. Raw output goes to bench/runs/<date>-<processor>/. Needs nothing but Python.

    bench/compare.py --llama-bench path/to/llama-bench model.gguf
    bench/compare.py --llama-bench path/to/llama-bench model.gguf --turns 7 --depth 0,1024 --threads 2
"""
import argparse
import datetime
import json
import pathlib
import platform
import re
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--llama-bench", type=pathlib.Path, required=True)
    parser.add_argument("--cascadia", type=pathlib.Path, default=ROOT / "target" / "release" / "cascadia")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--gen", type=int, default=64)
    parser.add_argument("--depth", default="0")
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def run(program, options, model, raw):
    """One turn of one program; started in the model's folder, so that raw output names no path of this machine."""
    command = [str(program.resolve()), *map(str, options)]
    done = subprocess.run(command, cwd=model.resolve().parent, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    raw.write_text(done.stdout)
    return json.loads(done.stdout)


def run_ours(given, raw):
    options = ["bench", given.model.name, "--prompt", given.prompt, "--gen", given.gen, "--depth", given.depth,
               "--threads", given.threads, "--repeat", 1, "--json"]
    speeds = {}
    for part in run(given.cascadia, options, given.model, raw)["runs"]:
        speeds["prefill", part["depth"]] = part["prefill_tok_s"]["median"]
        speeds["decode", part["depth"]] = part["decode_tok_s"]["median"]
    return speeds


def run_theirs(given, raw):
    options = ["-m", given.model.name, "-p", given.prompt, "-n", given.gen, "-d", given.depth, "-t", given.threads,
               "-r", 1, "-o", "json"]
    speeds = {}
    for part in run(given.llama_bench, options, given.model, raw):
        speeds["decode" if part["n_gen"] else "prefill", part["n_depth"]] = part["avg_ts"]
    return speeds


def processor():
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text()
        name = re.search(r"model name\s*:\s*(.+)", text).group(1)
    except (OSError, AttributeError):
        name = platform.processor() or platform.machine()
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def spread(values):
    return f"{statistics.median(values):9.2f} ({min(values):.2f} to {max(values):.2f})"


def main():
    given = arguments()
    folder = ROOT / "bench" / "runs" / f"{datetime.date.today()}-{processor()}"
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{given.model.stem}-t{given.threads}"
    turns = []
    for turn in range(given.turns):
        ours = run_ours(given, folder / f"{stem}-{turn}-cascadia.json")
        theirs = run_theirs(given, folder / f"{stem}-{turn}-llama-bench.json")
        turns.append((ours, theirs))
        print(f"turn {turn + 1} of {given.turns} done", flush=True)
    lines = [f"{given.model.name}, {given.threads} threads, prompt {given.prompt}, gen {given.gen}, "
             f"{given.turns} turns, tokens per second: median (min to max)", "",
             "| what | depth | cascadia | llama.cpp | ratio |", "|---|--:|--:|--:|--:|"]
    for key in turns[0][0]:
        ours, theirs = ([turn[side][key] for turn in turns] for side in (0, 1))
        ratio = statistics.median(ours) / statistics.median(theirs)
        lines.append(f"| {key[0]} | {key[1]} | {spread(ours)} | {spread(theirs)} | {ratio:.2f} |")
    table = "\n".join(lines) + "\n"
    (folder / f"{stem}.md").write_text(table)
    print(f"\n{table}\nraw output in {folder.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
