#!/usr/bin/env python3
"""Our quantiser beside llama.cpp's on the same model, measured by one program. Not part of check.sh: it takes a quarter of an hour.

    python3 checks/quantisation.py MODEL CALIBRATION TEXT LLAMA_BIN [--types Q4_K_M,Q3_K_M] [--windows 16]

MODEL is a folder or GGUF file in f16, bf16 or f32; CALIBRATION and TEXT are two different texts; LLAMA_BIN is a folder
with llama-quantize and llama-imatrix. Prints the table of docs/quantisation.md: size, growth of perplexity in percent
and divergence in thousandths of a nat, each plain and with importances, ours and theirs.
"""
import argparse
import pathlib
import subprocess
import tempfile

import program

TYPES = ["Q8_0", "Q6_K", "Q5_K_M", "Q5_K_S", "Q5_0", "Q4_K_M", "Q4_K_S", "Q4_0", "IQ4_NL", "IQ4_XS", "Q3_K_L", "Q3_K_M",
         "Q3_K_S", "Q2_K", "NF4", "INT4"]
OURS_ONLY = {"NF4", "INT4"}


def tool(folder, name, *arguments):
    done = subprocess.run([str(folder / name), *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{name} failed:\n{done.stderr[-2000:]}")


def row(options, folder, source, imatrix, kind):
    files = {}
    for label, extra in (("plain", []), ("calibrated", ["--calibrate", options.calibration])):
        files[f"ours {label}"] = folder / f"ours-{label}-{kind}.gguf"
        program.run("quantize", source, files[f"ours {label}"], "--type", kind.lower(), "--force", *extra)
    if kind not in OURS_ONLY:
        for label, extra in (("plain", []), ("calibrated", ["--imatrix", imatrix])):
            files[f"theirs {label}"] = folder / f"theirs-{label}-{kind}.gguf"
            tool(options.llama, "llama-quantize", *extra, source, files[f"theirs {label}"], kind)
    found = program.perplexity_of_files(list(files.values()), options.text, source, options.windows)
    sizes = {label: path.stat().st_size / 1e6 for label, path in files.items()}
    for path in files.values():
        path.unlink()
    return {label: (sizes[label], *numbers) for label, numbers in zip(files, found)}


def cell(numbers):
    return "–" if numbers is None else f"{numbers[1]:+.2f} {numbers[2]:.2f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("calibration", type=pathlib.Path)
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("llama", type=pathlib.Path)
    parser.add_argument("--types", default=",".join(TYPES))
    parser.add_argument("--windows", type=int, default=16)
    options = parser.parse_args()
    columns = ["ours plain", "theirs plain", "ours calibrated", "theirs calibrated"]
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        source = program.quantize(options.model, folder / "f16.gguf", "f16")
        imatrix = folder / "imatrix.gguf"
        tool(options.llama, "llama-imatrix", "-m", source, "-f", options.calibration, "-c", 512, "--chunks", 32, "-o", imatrix)
        print(f"| type | MB | {' | '.join(columns)} |\n|---|--:|{'--:|' * len(columns)}", flush=True)
        for kind in options.types.split(","):
            found = row(options, folder, source, imatrix, kind)
            cells = " | ".join(cell(found.get(column)) for column in columns)
            print(f"| {kind} | {found['ours plain'][0]:.1f} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
