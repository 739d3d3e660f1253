#!/usr/bin/env python3
"""What the precision of activations costs and gives: `--activations int8` beside `int16`, and llama.cpp beside both.

    bench/activations.py files model-f16.gguf FOLDER --llama-quantize path/to/llama-quantize
    bench/activations.py quality FOLDER --text books.txt --keep RUN
    bench/activations.py llama FOLDER --text books.txt --keep RUN --llama-perplexity path/to/llama-perplexity
    bench/activations.py answers FOLDER --prompts prompts.txt --keep RUN
    bench/activations.py speed model.gguf --keep RUN
    bench/activations.py table RUN

`files` writes what the others read: the model in each format, and beside each a twin of 32-bit floats with the same
weights, which float activations meet. `quality` scores a text against that twin (what activations cost) and against the
16-bit file (what activations and weights cost together). `answers` counts greedy answers that are equal to those of the
16-bit file. `speed` lets both precisions take turns. Every command appends lines of JSON to RUN/results.jsonl, from which
`table` makes tables. Needs nothing but Python.
"""
import argparse
import concurrent.futures
import contextlib
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import urllib.request

from serving import serving

ROOT = pathlib.Path(__file__).resolve().parent.parent
PRECISIONS = ["int8", "int16"]
FORMATS = ["q8_0", "q4_k_m", "q4_1", "q4_0"]
# Which of the formats `cascadia quantize` does not write.
OTHERS = ["q4_1"]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ["files", "quality", "llama", "answers", "speed", "table"]:
        command = commands.add_parser(name)
        command.add_argument("model" if name in ["files", "speed"] else "folder", type=pathlib.Path)
        command.add_argument("--cascadia", type=pathlib.Path, default=ROOT / "target" / "release" / "cascadia")
        command.add_argument("--threads", type=int, default=2)
        if name == "files":
            command.add_argument("folder", type=pathlib.Path)
            command.add_argument("--llama-quantize", type=pathlib.Path)
        elif name not in ["speed", "table"]:
            command.add_argument("--formats", type=lambda text: text.split(","), default=FORMATS)
            command.add_argument("--windows", type=int, default=16)
            command.add_argument("--window", type=int, default=511)
            command.add_argument("--text", type=pathlib.Path)
            command.add_argument("--prompts", type=pathlib.Path)
            command.add_argument("--no-floats", dest="floats", action="store_false", help="no answers of the float twins")
            command.add_argument("--llama-perplexity", type=pathlib.Path)
        if name == "speed":
            command.add_argument("--name", help="what the table calls the model")
            command.add_argument("--turns", type=int, default=3)
            command.add_argument("--prompt", type=int, default=256)
            command.add_argument("--gen", type=int, default=48)
        if name not in ["files", "table"]:
            command.add_argument("--keep", type=pathlib.Path, required=True, help="folder of the results")
    return parser.parse_args()


def run(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}: {done.stderr[-2000:]}")
    return done.stdout


def keep(options, **result):
    options.keep.mkdir(parents=True, exist_ok=True)
    with open(options.keep / "results.jsonl", "a") as file:
        print(json.dumps(result), file=file)
    print(json.dumps({key: value for key, value in result.items() if key != "answers"}), file=sys.stderr)


def kept(folder, kind):
    lines = (folder / "results.jsonl").read_text().splitlines()
    return [result for result in map(json.loads, lines) if result.get("kind") == kind]


def formats(options):
    return [name for name in options.formats if (options.folder / f"{name}.gguf").exists()]


def files(options):
    """The model in every format, and a twin of floats for each."""
    options.folder.mkdir(parents=True, exist_ok=True)
    quantize = lambda source, out, kind: run(options.cascadia, "quantize", source, options.folder / out, "--type", kind,
                                             "--force")
    quantize(options.model, "f16.gguf", "f16")
    for name in FORMATS:
        path = options.folder / f"{name}.gguf"
        if name in OTHERS and not path.exists() and options.llama_quantize:
            run(options.llama_quantize, options.folder / "f16.gguf", path, name.upper())
        elif name not in OTHERS:
            quantize(options.folder / "f16.gguf", path.name, name)
        if path.exists():
            quantize(path, f"{name}-f32.gguf", "f32")


def quality(options):
    """Perplexity, divergence and equal most likely tokens."""
    def score(models, against, precision):
        found = json.loads(run(options.cascadia, "eval", "perplexity", *models, "--against", against, "--text", options.text,
                               "--windows", options.windows, "--window", options.window, "--threads", options.threads,
                               "--activations", precision, "--json"))
        return found.get("models", [found])

    def note(name, activations, against, found):
        found = {**found, "model": options.folder.name, "growth": found["perplexity"] / found["reference_perplexity"] - 1}
        keep(options, kind="quality", weights=name, activations=activations, against=against, **found)

    names, whole = formats(options), options.folder / "f16.gguf"
    path = lambda name: options.folder / f"{name}.gguf"
    for precision in PRECISIONS:
        # Floats meet floats in either precision.
        runs = [(name, precision, name) for name in names]
        runs += [(name, "float", f"{name}-f32") for name in names] if precision == "int8" else []
        for (name, activations, _), found in zip(runs, score([path(file) for _, _, file in runs], whole, precision)):
            note(name, activations, "f16", found)
    for name in names:
        for precision in PRECISIONS:
            note(name, precision, "own", score([path(name)], path(f"{name}-f32"), precision)[0])


def llama(options):
    """The same by llama.cpp, which scores the second half of each window."""
    context = options.window + 1
    usual = ["-f", options.text, "-c", context, "--chunks", options.windows, "-t", options.threads]
    names = formats(options)
    comparisons = [("f16", "f16", names), *(("own", f"{name}-f32", [name]) for name in names)]
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        base = pathlib.Path(scratch) / "base"
        for against, reference, names in comparisons:
            run(options.llama_perplexity, "-m", options.folder / f"{reference}.gguf", "--kl-divergence-base", base, *usual)
            for name in names:
                text = run(options.llama_perplexity, "-m", options.folder / f"{name}.gguf", "--kl-divergence-base", base,
                           "--kl-divergence", *usual)
                number = lambda label: float(re.search(rf"{label}\s*:\s*(-?[\d.]+)", text).group(1))
                keep(options, kind="llama", model=options.folder.name, weights=name, against=against,
                     growth=number(r"Mean PPL\(Q\)/PPL\(base\)") - 1, divergence=number("Mean    KLD"),
                     same_top=number("Same top p") / 100)


def answers(options):
    """Greedy answers of up to 40 tokens, equal to those of the 16-bit file."""
    prompts = options.prompts.read_text().splitlines()

    def answer(url, model, prompt):
        body = {"model": model, "messages": [{"role": "user", "content": prompt}], "temperature": 0, "max_tokens": 40}
        request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with contextlib.closing(urllib.request.urlopen(request, timeout=600)) as response:
            return json.load(response)["choices"][0]["message"]["content"]

    def all_of(name, precision):
        command = [options.cascadia, "serve", options.folder / f"{name}.gguf", "--threads", options.threads, "--ctx", 512,
                   "--log-level", "error", "--draft-tokens", 0, "--activations", precision]
        with serving(command, "/livez") as url, concurrent.futures.ThreadPoolExecutor(8) as pool:
            model = json.load(urllib.request.urlopen(url + "/v1/models", timeout=60))["data"][0]["id"]
            return list(pool.map(lambda prompt: answer(url, model, prompt), prompts))

    expected = all_of("f16", "int8")
    for name in formats(options):
        own = all_of(f"{name}-f32", "int8") if options.floats else None
        given = {"float": own} if own else {}
        for precision, answers in {**given, **{each: all_of(name, each) for each in PRECISIONS}}.items():
            same = lambda others: others and sum(one == other for one, other in zip(answers, others))
            keep(options, kind="answers", model=options.folder.name, weights=name, activations=precision,
                 prompts=len(prompts), equal=same(expected), equal_own=same(own), answers=answers)


def speed(options):
    """Decode and prefill, in turns."""
    for turn in range(options.turns):
        for precision in PRECISIONS if turn % 2 == 0 else PRECISIONS[::-1]:
            found = json.loads(run(options.cascadia, "bench", options.model, "--prompt", options.prompt, "--gen", options.gen,
                                   "--repeat", 1, "--threads", options.threads, "--activations", precision, "--json"))
            keep(options, kind="speed", model=options.name or options.model.stem, activations=precision, prompt=options.prompt,
                 gen=options.gen, threads=options.threads, instructions=found["kernels"]["instructions"],
                 decode=found["runs"][0]["decode_tok_s"]["median"], prefill=found["runs"][0]["prefill_tok_s"]["median"])


def table(options):
    """The results as Markdown."""
    def find(kind, **keys):
        found = [each for each in kept(options.folder, kind) if all(each.get(key) == keys[key] for key in keys)]
        return found[-1] if found else None

    rows = []
    for each in kept(options.folder, "quality"):
        if (each["model"], each["weights"]) not in rows:
            rows.append((each["model"], each["weights"]))
    print("| model | weights | activations | perplexity, own | KL, own | same top, own | perplexity, F16 | KL, F16 "
          "| same top, F16 | equal answers | of own floats |\n|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    measures = [("growth", lambda value: f"{100 * value:+.3f} %"), ("divergence", lambda value: f"{value:.1e}"),
                ("same_top", lambda value: f"{value:.4f}")]
    for model, weights in rows:
        for activations in ["float", *PRECISIONS, "llama.cpp"]:
            kind, more = ("llama", {}) if activations == "llama.cpp" else ("quality", {"activations": activations})
            cells = []
            for against in ["own", "f16"]:
                found = find(kind, model=model, weights=weights, against=against, **more)
                cells += [show(found[key]) if found else "" for key, show in measures]
            same = find("answers", model=model, weights=weights, activations=activations)
            cells += [str(same[key] or "") for key in ["equal", "equal_own"]] if same else ["", ""]
            if any(cells):
                print(f"| {model} | {weights.upper()} | {activations} | {' | '.join(cells)} |")
    print("\nTokens per second, median of all turns (best turn).\n\n| model | threads | decode int8 | int16 | ratio | prefill int8 | int16 | ratio |\n|---|--:|--:|--:|--:|--:|--:|--:|")
    for model, threads in sorted({(each["model"], each["threads"]) for each in kept(options.folder, "speed")}):
        turns = [each for each in kept(options.folder, "speed") if (each["model"], each["threads"]) == (model, threads)]
        cells = []
        for measure in ["decode", "prefill"]:
            one, other = ([each[measure] for each in turns if each["activations"] == precision] for precision in PRECISIONS)
            cells += [f"{statistics.median(turns):.0f} ({max(turns):.0f})" for turns in (one, other)]
            median, best = statistics.median(other) / statistics.median(one), max(other) / max(one)
            cells.append(f"{median:.2f} ({best:.2f})")
        print(f"| {model} | {threads} | {' | '.join(cells)} |")


if __name__ == "__main__":
    options = arguments()
    globals()[options.command](options)
