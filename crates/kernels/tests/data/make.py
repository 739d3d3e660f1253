#!/usr/bin/env python3
"""Makes quants.bin and ggml_rmse.txt, the reference data of decode.rs and quantize.rs.

    python3 make.py                    writes quants.bin; needs numpy and gguf from PyPI
    python3 make.py libggml-base.so    also writes ggml_rmse.txt with the quantiser of that library

quants.bin holds, for each format in the order of FORMATS, a little-endian u32 count of numbers, that many numbers in
blocks of random bytes, and what gguf-py decodes them to as f32. ggml_rmse.txt holds one line per distribution and
format: the root mean square error of llama.cpp's quantiser on the numbers that `samples` (here and in quantize.rs) makes.
"""
import ctypes
import math
import pathlib
import struct
import sys

import gguf
import numpy as np

HERE = pathlib.Path(__file__).parent
FORMATS = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_K", "Q5_K", "Q6_K"]
COUNTS = {"F32": 64, "F16": 1024, "BF16": 512, "Q8_0": 1024, "Q4_0": 1024, "Q4_K": 2048, "Q5_K": 2048, "Q6_K": 2048}
# Where the f16 scales of a block lie, so that special ones can be planted.
SCALES = {"Q8_0": [0], "Q4_0": [0], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}
SPECIAL_HALVES = [0x0000, 0x8000, 0x0001, 0x83FF, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E01, 0x0400]


def kind(name):
    return gguf.GGMLQuantizationType[name]


def storage(name, count):
    elements, size = gguf.GGML_QUANT_SIZES[kind(name)]
    return count // elements * size


def blocks():
    random = np.random.default_rng(2)
    out = b""
    for name in FORMATS:
        count = COUNTS[name]
        data = random.integers(0, 256, storage(name, count), dtype=np.uint8)
        _, size = gguf.GGML_QUANT_SIZES[kind(name)]
        for place in SCALES.get(name, []):
            # Half of the blocks keep random scales, the first ones get the special ones.
            for block, half in enumerate(SPECIAL_HALVES[: data.size // size - 2]):
                data[block * size + place : block * size + place + 2] = list(struct.pack("<H", half))
        if name in ("F16", "BF16"):
            data[: 2 * len(SPECIAL_HALVES)] = np.array(SPECIAL_HALVES, dtype="<u2").view(np.uint8)
        with np.errstate(all="ignore"):
            numbers = gguf.quants.dequantize(data, kind(name)).astype("<f4").ravel()
        assert numbers.size == count
        out += struct.pack("<I", count) + data.tobytes() + numbers.tobytes()
    (HERE / "quants.bin").write_bytes(out)


def uniforms(seed):
    """SplitMix64 as numbers in (0, 1)."""
    mask = (1 << 64) - 1
    state = seed
    while True:
        state = (state + 0x9E3779B97F4A7C15) & mask
        word = state
        word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & mask
        word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & mask
        word ^= word >> 31
        yield ((word >> 11) + 0.5) / 2.0**53


def samples(distribution, count):
    uniform = uniforms(7)
    out = []
    for index in range(count):
        first, second = next(uniform), next(uniform)
        if distribution == "laplace":
            value = -math.log(first) if second < 0.5 else math.log(first)
        else:
            value = math.sqrt(-2.0 * math.log(first)) * math.cos(2.0 * math.pi * second)
        if distribution == "outlier" and index % 97 == 0:
            value *= 8.0
        if distribution == "shifted":
            value = value * 0.3 + 1.0
        out.append(0.02 * value)
    return np.array(out, dtype=np.float64).astype(np.float32)


def rmse(library):
    ggml = ctypes.CDLL(library)
    ggml.ggml_quantize_chunk.restype = ctypes.c_size_t
    lines = []
    for distribution in ("gaussian", "laplace", "outlier", "shifted"):
        values = samples(distribution, 64 * 512)
        for name in ("Q8_0", "Q4_0", "Q4_K", "Q5_K", "Q6_K"):
            out = np.zeros(storage(name, values.size), dtype=np.uint8)
            pointer = lambda array: array.ctypes.data_as(ctypes.c_void_p)
            long = ctypes.c_int64
            ggml.ggml_quantize_chunk(kind(name).value, pointer(values), pointer(out), long(0), long(64), long(512), None)
            error = gguf.quants.dequantize(out, kind(name)).ravel().astype(np.float64) - values
            lines.append(f"{distribution} {name} {math.sqrt((error**2).mean()):.9e}\n")
    (HERE / "ggml_rmse.txt").write_text("".join(lines))


if __name__ == "__main__":
    blocks()
    if len(sys.argv) > 1:
        rmse(sys.argv[1])
