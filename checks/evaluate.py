#!/usr/bin/env python3
"""Short evaluations of KV caches: drift, memory and accumulation, and comparing their reports.

On the built-in model, and on SmolLM2-135M, which `cascadia pull` keeps under target/. Where it cannot be had, that half is
skipped, loudly. About twenty seconds without the download.
"""
import json
import pathlib
import subprocess
import tempfile

import program

TEXT = program.ROOT / "docs" / "fleet.md"
# Greatest mean divergence from the f32 cache at 512 tokens, in nats.
DRIFT = {"f16": 0.01, "int8": 0.01, "int4": 0.05}
# How far measured growth of the cache may be from theory: a share, and what one huge page more at either end is, in MB.
MEMORY = (0.1, 2 * 2.1)


def report(out, command, *arguments):
    program.run("eval", command, *arguments, "--out", out, "--html", out.with_suffix(".html"))
    page = out.with_suffix(".html").read_text()
    assert "<svg" in page and "<script" not in page, out
    return json.loads(out.read_text())


def series(found, metric, name):
    metric = next(one for one in found["metrics"] if one["name"] == metric)
    return [value for _, value in next(one for one in metric["series"] if one["name"] == name)["points"]]


def compare(before, after, tolerance="1%"):
    command = [program.BINARY, "eval", "compare", before, after, "--tolerance", tolerance]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def drift(folder, model):
    formats = ["f32", *DRIFT]
    found = report(folder / "drift.json", "drift", *model, "--text", TEXT, "--kv", ",".join(formats), "--contexts", "192,512",
                   "--windows", 1)
    assert series(found, "KL divergence", "f32") == [0, 0] and series(found, "top-1 agreement", "f32") == [100, 100]
    for name in formats:
        copied, retrieved = (series(found, probe, name)[-1] for probe in ("long copy: tokens predicted", "retrieval: values found"))
        print(f"  {name}: copied {copied:.1f} %, retrieved {retrieved:.1f} %")
    for name, limit in DRIFT.items():
        program.expect(f"drift of {name}", series(found, "KL divergence", name)[-1], limit)


def memory(folder, model):
    found = report(folder / "memory.json", "memory", *model, "--kv", "f16,int8", "--context", 1024)
    for name in ("f16", "int8"):
        theory, measured = (series(found, "growth of the KV cache", f"{name}, {kind}")[-1] for kind in ("theory", "measured"))
        program.expect(f"MB of {name} beyond {theory:.2f}", measured - theory, MEMORY[0] * theory + MEMORY[1])


def accumulation(folder, model):
    found = report(folder / "accumulation.json", "accumulation", *model, "--text", TEXT, "--kv", "int4", "--tokens", 512,
                   "--refresh", 256, "--block", 64)
    plain, refreshed = (series(found, "KL divergence", name) for name in ("plain", "refreshed every 256"))
    # Equal until the first refresh, and not after it.
    assert len(plain) == len(refreshed) == 8 and plain[:4] == refreshed[:4] and plain[4:] != refreshed[4:], (plain, refreshed)
    for name, blocks in (("plain", plain), ("refreshed", refreshed)):
        program.expect(f"divergence of the last block, {name}", blocks[-1], DRIFT["int4"])


def comparison(folder):
    good, bad = folder / "drift.json", folder / "worse.json"
    same = compare(good, good, "0%")
    assert same.returncode == 0, same.stderr
    found = json.loads(good.read_text())
    divergence = next(metric for metric in found["metrics"] if metric["name"] == "KL divergence")
    divergence["series"][-1]["points"][-1][1] *= 1.5
    bad.write_text(json.dumps(found))
    worse = compare(good, bad)
    assert worse.returncode == 1 and worse.stdout.count("WORSE") == 1, (worse.stdout, worse.stderr)
    assert compare(bad, good).returncode == 0
    print("  a report compared with itself is the same; a worse one fails")


def main():
    models = {"built-in model": []}
    if found := program.stored_model("smollm2:135m"):
        models["SmolLM2-135M"] = [found]
    with tempfile.TemporaryDirectory() as scratch:
        for name, model in models.items():
            print(f"{name}:", flush=True)
            folder = pathlib.Path(scratch) / name.split()[0]
            folder.mkdir()
            drift(folder, model)
            memory(folder, model)
            accumulation(folder, model)
            comparison(folder)


if __name__ == "__main__":
    main()
