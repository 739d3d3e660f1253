#!/usr/bin/env python3
"""Decode speed deep in a text by KV cache policy, in turns, beside llama.cpp with its own cache types.

    bench/kv.py model.gguf --depth 4096,16384 --kv f16,int8,auto,int4 [--llama-bench path/to/llama-bench]

Prints a table of medians and their spread; raw output goes to bench/runs/<date>-kv. A depth needs a model with a context
that long. Needs nothing but Python.
"""
import argparse
import datetime
import pathlib
import statistics

from compare import ROOT, Bench, file_name, numbers, processor


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--depth", type=numbers, default=[4096, 16384])
    parser.add_argument("--kv", type=lambda text: text.split(","), default=["f16", "int8", "auto", "int4"])
    parser.add_argument("--llama-bench", type=pathlib.Path)
    parser.add_argument("--llama-kv", type=lambda text: text.split(","), default=["f16", "q8_0"])
    parser.add_argument("--cascadia", type=pathlib.Path, default=ROOT / "target" / "release" / "cascadia")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--gen", type=int, default=32)
    return parser.parse_args()


def measure(bench, depth, record):
    given = bench.given
    for policy in given.kv:
        options = [given.model.name, "--prompt", 1, "--gen", given.gen, "--depth", depth, "--repeat", 1, "--kv", policy]
        said = bench.ours(options, f"{depth}-{file_name(policy)}")
        record(depth, policy, said["runs"][0]["decode_tok_s"]["median"])
    for kind in given.llama_kv if given.llama_bench else []:
        options = ["-p", 0, "-n", given.gen, "-d", depth, "-ctk", kind, "-ctv", kind, "-fa", "on"]
        for speed in bench.peer(given.llama_bench, options, f"{depth}-llama-{kind}").values():
            record(depth, f"llama.cpp {kind}", speed)


def table(given, results):
    first = given.kv[0]
    lines = [f"{given.model.name}, {given.threads} threads, {given.turns} turns, {processor()}", "",
             f"| depth | cache | decode, tokens/s | beside {first} |", "|--:|---|--:|--:|"]
    for depth, rows in results.items():
        for who, speeds in rows.items():
            ratio = statistics.median(speeds) / statistics.median(rows[first])
            spread = f"{statistics.median(speeds):.1f} ({min(speeds):.1f}–{max(speeds):.1f})"
            lines.append(f"| {depth} | {who} | {spread} | {ratio:.2f} |")
    return "\n".join(lines) + "\n"


def main():
    given = arguments()
    folder = ROOT / "bench" / "runs" / f"{datetime.date.today()}-kv"
    folder.mkdir(parents=True, exist_ok=True)
    bench, results = Bench(given, folder), {}
    for bench.turn in range(given.turns):
        for depth in given.depth:
            measure(bench, depth, lambda depth, who, speed: results.setdefault(depth, {}).setdefault(who, []).append(speed))
        print(f"turn {bench.turn + 1} of {given.turns} done", flush=True)
    text = table(given, results)
    (folder / f"{bench.stem}.md").write_text(text)
    print(f"\n{text}\nraw output in {folder.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
