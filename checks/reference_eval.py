#!/usr/bin/env python3
"""Perplexity of rainier-33m on three held-out texts, against what transformers computes in float32.

The texts and the original weights are not part of this repository. Where they lie beside it, as `../shared/eval` and
`../shared/models`, the check runs; elsewhere it says that it did not.
"""
import json
import pathlib
import tempfile

import program

SHARED = program.ROOT.parent / "shared"
TEXTS = ("books", "docs", "unseen-book")
# Largest relative difference of perplexity from the reference.
LIMITS = {"safetensors": 0.0002, "q8_0": 0.001, "q4_k_m": 0.007}


def main():
    reference_file, model = SHARED / "eval" / "reference.json", SHARED / "models" / "rainier-33m"
    if not reference_file.exists() or not model.exists():
        print("SKIPPED: ../shared/eval and ../shared/models/rainier-33m are not beside this repository")
        return
    reference = json.loads(reference_file.read_text())
    with tempfile.TemporaryDirectory() as scratch:
        for kind, limit in LIMITS.items():
            source = model
            if kind != "safetensors":
                source = program.quantize(model, pathlib.Path(scratch) / f"{kind}.gguf", kind)
            for text in TEXTS:
                expected = reference[text]["rainier-33m"]
                ours = program.perplexity(source, SHARED / "eval" / f"{text}.txt")
                assert ours["tokens"] == expected["tokens"], (text, ours, expected)
                print(f"{kind} on {text}: perplexity {ours['perplexity']:.4f}, top1 {ours['top1']:.5f}", flush=True)
                program.expect("relative difference", ours["perplexity"] / expected["perplexity"] - 1, limit)
                if kind == "safetensors":
                    program.expect("difference of top1", ours["top1"] - expected["top1"], 0.0005)


if __name__ == "__main__":
    main()
