#!/usr/bin/env python3
"""Adapters of the built program: against peft, merged against unmerged, and against llama.cpp.

Tiny models are always checked. The trained adapters of rainier-33m are not part of this repository. Where they lie beside
it, as `../shared/models/adapters` with `../shared/eval`, their perplexity is compared with what peft computes in float32;
elsewhere the check says that it was not.
"""
import json
import pathlib
import tempfile

import numpy as np

import program
from llama_cpp import LlamaCpp

SHARED = program.ROOT.parent / "shared"
ADAPTERS = program.ROOT / "fixtures" / "adapters"
# Of float32 models, whose adapters are not rounded.
EXACT_KINDS = ("llama3-all", "llama3-dora", "llama3-embeddings", "mistral-rslora", "qwen2-biases", "qwen2-dora")
# Largest relative difference of perplexity from the reference.
LIMITS = {"safetensors": 0.0005, "q4_k_m": 0.007}
# Largest relative difference of perplexity between an adapter and the model that it was merged into, both as floats.
MERGED = 0.0001


def worst(reference, ours):
    """Largest difference of two tables of logits, relative to the largest logit of each row."""
    return float((np.abs(ours - reference).max(axis=1) / np.abs(reference).max(axis=1)).max())


def tiny_models(scratch):
    for name in EXACT_KINDS:
        print(name, flush=True)
        folder, tokens = program.fixture(name.rsplit("-", 1)[0])
        adapter = ADAPTERS / name
        ours = program.logits(folder, tokens, "--adapter", adapter)
        reference = np.load(adapter / "logits.npy").astype(np.float64)
        program.expect("difference from peft", worst(reference, ours[-len(reference):]), 1e-4)
        merged = program.merge(folder, adapter, scratch / "merged.gguf", "--type", "f32")
        program.expect("difference of the merged model", worst(ours, program.logits(merged, tokens)), 1e-4)


def llama_cpp():
    """A GGUF adapter gives what llama.cpp gives with it."""
    print("llama3-gguf-all in llama.cpp", flush=True)
    folder, tokens = program.fixture("llama3-gguf")
    model, adapter = folder / "model.gguf", ADAPTERS / "llama3-gguf-all" / "adapter.gguf"
    ours = program.log_probabilities(program.logits(model, tokens, "--adapter", adapter))
    theirs = LlamaCpp(model, len(tokens) + 8, adapter).log_probabilities(tokens, ours.shape[1])
    program.compare(theirs, ours, tokens, program.EXACT)
    plain = program.log_probabilities(program.logits(model, tokens))
    assert program.divergence(theirs, plain) > 100 * program.EXACT["divergence"], "the adapter changes nothing"


def trained_adapters(scratch):
    """Perplexity of each adapter on the text that it is for."""
    model, reference_file = SHARED / "models" / "rainier-33m", SHARED / "eval" / "reference.json"
    if not reference_file.exists() or not (SHARED / "models" / "adapters").exists():
        print("SKIPPED, HALF OF THIS CHECK: ../shared/eval and ../shared/models/adapters are not beside this repository")
        return
    reference = json.loads(reference_file.read_text())
    models = {"safetensors": model, "q4_k_m": program.quantize(model, scratch / "q4_k_m.gguf", "q4_k_m")}
    for adapter in sorted((SHARED / "models" / "adapters").iterdir()):
        name, text = adapter.name, SHARED / "eval" / "adapters" / f"{adapter.name}.txt"
        expected = reference[f"adapters/{name}"][f"rainier-33m+{name}"]
        for kind, limit in LIMITS.items():
            ours = program.perplexity(models[kind], text, "--adapter", adapter)
            assert ours["tokens"] == expected["tokens"], (name, ours, expected)
            print(f"{name} on {kind}: perplexity {ours['perplexity']:.4f}, top1 {ours['top1']:.5f}", flush=True)
            program.expect("relative difference", ours["perplexity"] / expected["perplexity"] - 1, limit)
        merged = program.merge(model, adapter, scratch / "merged.gguf", "--type", "f32")
        pair = [program.perplexity(source, text, "--windows", 2, *more)["perplexity"]
                for source, more in ((model, ("--adapter", adapter)), (merged, ()))]
        program.expect("relative difference of the merged model", pair[1] / pair[0] - 1, MERGED)


def main():
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        tiny_models(scratch)
        llama_cpp()
        trained_adapters(scratch)


if __name__ == "__main__":
    main()
