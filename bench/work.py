#!/usr/bin/env python3
"""What draft tokens are worth on real work: the prompts of bench/work, with and without speculation.

    bench/work.py model.gguf --read-gb-s 31.7 --turns 3 --keep bench/runs/DATE-speculation
    bench/work.py model-folder --draft draft-folder --work summarise,chat

Two servers run at once and are asked in turns, one of them with --draft-tokens 0. Every prompt is answered greedily and at
temperature 0.7, top-p 0.8, with a seed; both servers must give the same text. The speed is that of decode: the time of an answer less
that of its first token, which both read from the prefix cache. The plain-read limit is the bandwidth that `cascadia bench
machine` measures divided by the bytes of the weights: the speed of a decoder that does nothing but read them once per
token. Prompts of `rewrite` and `extract` are continued as they are (/v1/completions), the others are chat messages.
Needs nothing but Python.
"""
import argparse
import contextlib
import json
import math
import pathlib
import statistics
import subprocess
import sys
import time
import urllib.request

from serving import ROOT, serving

WORK = ROOT / "bench" / "work"
CONTINUED = ("rewrite", "extract")
SAMPLING = {"greedy": {"temperature": 0}, "seeded": {"temperature": 0.7, "top_p": 0.8, "seed": 7}}
HOW = {"plain": ["--draft-tokens", 0], "speculation": []}


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=600))


def answer(url, kind, prompt, settings):
    """(seconds, tokens, text) of an answer that is sent when it is complete."""
    begin = time.perf_counter()
    if kind in CONTINUED:
        reply = post(url + "/v1/completions", {"prompt": prompt, **settings})
        text = reply["choices"][0]["text"]
    else:
        reply = post(url + "/v1/chat/completions", {"messages": [{"role": "user", "content": prompt}], **settings})
        text = reply["choices"][0]["message"]["content"]
    return time.perf_counter() - begin, reply["usage"]["completion_tokens"], text


def counters(url):
    service = json.load(urllib.request.urlopen(url + "/status"))["service"]
    return {name: service[f"{name}_tokens_total"] for name in ("generated", "drafted", "accepted")}


def measure(url, kind, prompt, settings, tokens):
    """Speed of decode, and how many draft tokens were computed and accepted."""
    first, _, _ = answer(url, kind, prompt, {**settings, "max_tokens": 1})
    before = counters(url)
    seconds, count, text = answer(url, kind, prompt, {**settings, "max_tokens": tokens})
    counted = {name: now - before[name] for name, now in counters(url).items()}
    return {"tok_s": (count - 1) / (seconds - first), "tokens": count, "text": text, **counted}


def compare(urls, path, options):
    """Both servers on one prompt, in turns."""
    kind, prompt = path.parent.name, path.read_text().rstrip()
    for name, sampling in ((name, SAMPLING[name]) for name in options.sampling.split(",")):
        runs = {how: [] for how in urls}
        for turn in range(options.turns + 1):
            for how, url in urls.items():
                run = measure(url, kind, prompt, sampling, options.tokens)
                # The first turn computes the prompt.
                runs[how] += [run] if turn else []
        texts = {run["text"] for turns in runs.values() for run in turns}
        if len(texts) != 1:
            raise SystemExit(f"answers to {path} differ: {texts}")
        yield {"kind": kind, "prompt": path.stem, "sampling": name, "text": texts.pop(),
               "runs": {how: [{key: run[key] for key in run if key != "text"} for run in turns]
                        for how, turns in runs.items()}}


def summary(result, limit):
    plain, fast = result["runs"]["plain"], result["runs"]["speculation"]
    speeds = [statistics.median(run["tok_s"] for run in runs) for runs in (plain, fast)]
    ratios = [with_drafts["tok_s"] / without["tok_s"] for without, with_drafts in zip(plain, fast)]
    last = fast[-1]
    steps = max(1, last["generated"] - last["accepted"])
    return {"tokens": last["tokens"], "plain": speeds[0], "speculation": speeds[1], "ratio": statistics.median(ratios),
            "per_step": last["generated"] / steps, "accepted": last["accepted"], "drafted": last["drafted"],
            "of_limit": speeds[1] / limit if limit else math.nan}


def show(name, one):
    accepted = f"{one['accepted']:.0f}/{one['drafted']:.0f}"
    print(f"{name:28} {one['tokens']:6.0f} {one['plain']:8.1f} {one['speculation']:8.1f} {one['ratio']:6.2f} "
          f"{one['per_step']:9.2f} {accepted:>10} {one['of_limit']:9.2f}", flush=True)


def weight_bytes(options):
    text = subprocess.run([options.cascadia, "inspect", options.model, "--json"], check=True, capture_output=True,
                          text=True).stdout
    return json.loads(text)["weight_bytes"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--draft", help="a draft model")
    parser.add_argument("--cascadia", type=pathlib.Path, default=ROOT / "target" / "release" / "cascadia")
    parser.add_argument("--work", default="rewrite,extract,summarise,chat",
                        help="kinds of work, or single prompts such as rewrite/rust")
    parser.add_argument("--sampling", default=",".join(SAMPLING))
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=160, help="the most of an answer")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--read-gb-s", type=float, help="plain read of `cascadia bench machine`, all threads")
    parser.add_argument("--flags", default="", help="more flags of the server that speculates")
    parser.add_argument("--keep", type=pathlib.Path, help="folder for the raw numbers")
    options = parser.parse_args()
    limit = options.read_gb_s * 1e9 / weight_bytes(options) if options.read_gb_s else None
    print(f"{pathlib.Path(options.model).name}, {options.threads} threads" +
          (f", plain-read limit {limit:.1f} tokens/s" if limit else ""))
    print(f"{'':28} {'tokens':>6} {'plain':>8} {'drafts':>8} {'ratio':>6} {'per step':>9} {'accepted':>10} {'of limit':>9}")
    HOW["speculation"] += options.flags.split() + (["--draft", options.draft] if options.draft else [])
    results = []
    with contextlib.ExitStack() as stack:
        start = [options.cascadia, "serve", options.model, "--threads", options.threads, "--log-level", "error"]
        urls = {how: stack.enter_context(serving([*start, *more], "/livez")) for how, more in HOW.items()}
        for kind in options.work.split(","):
            summaries = []
            for path in sorted(WORK.glob(f"{kind}.txt" if "/" in kind else f"{kind}/*.txt")):
                for one in compare(urls, path, options):
                    results.append(one)
                    summaries.append(summary(one, limit))
                    show(f"{one['kind']} {one['prompt']} {one['sampling']}", summaries[-1])
            mean = {key: statistics.geometric_mean(one[key] for one in summaries) for key in ("ratio", "of_limit", "per_step",
                    "plain", "speculation")}
            total = {key: sum(one[key] for one in summaries) for key in ("tokens", "accepted", "drafted")}
            show(f"{kind}: geometric mean", {**mean, **total})
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
        name = f"{pathlib.Path(options.model).stem}-{'draft-' if options.draft else ''}{options.work.replace(',', '-').replace('/', '-')}.json"
        (options.keep / name).write_text(json.dumps({"limit_tok_s": limit, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
