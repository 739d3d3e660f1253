"""The built binary as Python functions, and what the checks compare its answers with."""
import json
import os
import pathlib
import subprocess
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = ROOT / "target" / "release" / "cascadia"
EMBEDDED_MODEL = ROOT / "crates" / "cascadia" / "model" / "rainier-33m-q4_k_m.gguf"
PASSAGE = ROOT / "checks" / "passage.txt"


def run(*arguments):
    """Standard output of one command; a failure shows the command and what it said."""
    command = [str(BINARY), *map(str, arguments)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=3600)
    if done.returncode != 0:
        raise SystemExit(f"exit code {done.returncode} from {' '.join(command)}\n{done.stderr}")
    return done.stdout


def stored_model(name):
    """The file of a model in a store under target/, fetched if need be; None, loudly, where nobody can be asked for it."""
    folder = ROOT / "target" / "models"
    places = {"XDG_CACHE_HOME": folder, "XDG_CONFIG_HOME": folder / "config", "HF_HOME": folder / "hub", "OLLAMA_MODELS": folder / "none"}
    environment = dict(os.environ, **{variable: str(path) for variable, path in places.items()})
    ask = lambda *arguments: subprocess.run([BINARY, *arguments], env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                                            text=True, timeout=3600)
    pulled = ask("pull", name)
    if pulled.returncode != 0:
        print(f"SKIPPED, PART OF THIS CHECK: {pulled.stderr.strip()}")
        return None
    return pathlib.Path(json.loads(ask("show", name, "--json").stdout)["path"])


def quantize(source, target, kind):
    run("quantize", source, target, "--type", kind, "--force")
    return target


def merge(base, adapter, target, *options):
    run("adapter", "merge", base, adapter, target, *options, "--force")
    return target


def logits(model, tokens, *options):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "logits.npy"
        run("eval", "logits", model, "--tokens", ",".join(map(str, tokens)), "--out", out, *options)
        values = np.load(out)
    assert values.dtype == np.float32 and values.shape[0] == len(tokens), (values.dtype, values.shape)
    return values.astype(np.float64)


def perplexity(model, text, *options):
    return json.loads(run("eval", "perplexity", model, "--text", text, *options, "--json"))


def perplexity_of_files(models, text, reference, windows):
    """(growth of perplexity in percent, divergence in thousandths of a nat) of each model beside a reference."""
    answer = json.loads(run("eval", "perplexity", *models, "--text", text, "--against", reference, "--windows", windows,
                            "--window", 512, "--json"))
    found = answer.get("models", [answer])
    growth = lambda one: 100 * (one["perplexity"] / one["reference_perplexity"] - 1)
    return [(growth(one), 1000 * one["divergence"]) for one in found]


def log_probabilities(values):
    shifted = values - values.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def perplexity_of(log_probs, tokens):
    """Perplexity of `tokens` after the first, where row i of `log_probs` predicts token i + 1."""
    rows = np.arange(len(tokens) - 1)
    return float(np.exp(-log_probs[rows, tokens[1:]].mean()))


def divergence(reference, ours):
    """Mean Kullback-Leibler divergence of two tables of log-probabilities."""
    return float((np.exp(reference) * (reference - ours)).sum(axis=1).mean())


# Limits for two computations of the same model. In float arithmetic only the order of sums differs.
EXACT = {"perplexity": 1e-3, "divergence": 1e-4}
# With 8-bit activations, random weights carry the rounding far: single log-probabilities move by 0.06 or so. The
# divergence averages over all tokens and positions; perplexity looks at 71 random targets only, where the same file
# moves by 2 % in one program and by 1.6 % in the other. So it is printed, and has its limit on real text.
ROUNDED = {"divergence": 5e-3}


def compare(reference, ours, tokens, limits):
    """Two tables of log-probabilities for the same tokens."""
    ratio = perplexity_of(ours, tokens) / perplexity_of(reference, tokens) - 1
    expect("relative difference of perplexity", ratio, limits.get("perplexity"))
    expect("divergence", divergence(reference, ours), limits["divergence"])


def fixture(name):
    folder = ROOT / "fixtures" / name
    return folder, json.loads((folder / "tokens.json").read_text())


def expect(what, value, limit):
    """Prints one measured value beside its limit, if it has one, and stops the check if it is over."""
    print(f"  {what}: {value:.3g} ({'no limit' if limit is None else f'limit {limit:g}'})", flush=True)
    if limit is not None and not abs(value) <= limit:
        raise SystemExit(f"{what} is {value}, over the limit {limit}")
