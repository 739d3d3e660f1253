#!/usr/bin/env python3
"""Makes decoded.txt and ggml_rmse.txt, the reference data of decode.rs and quantize.rs.

    python3 make.py                    writes decoded.txt; needs numpy and gguf from PyPI
    python3 make.py libggml-base.so    also writes ggml_rmse.txt with the quantiser of that library

decoded.txt holds a line per format: its name and, for each piece of 4096 numbers in blocks of random bytes, a digest of
what gguf-py decodes them to. ggml_rmse.txt holds one line per distribution and format: the root mean square error of
llama.cpp's quantiser on the numbers that `samples` (here and in quantize.rs) makes.
"""
import ctypes
import math
import pathlib
import struct
import sys

import gguf
import numpy as np

HERE = pathlib.Path(__file__).parent
FORMATS = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_K", "Q5_K", "Q6_K", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K",
           "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS", "TQ1_0", "TQ2_0",
           "MXFP4"]
# Enough numbers to meet every one of the 2048 lattice points of IQ1 some sixteen times.
PIECES, PIECE = 64, 4096


def kind(name):
    return gguf.GGMLQuantizationType[name]


def storage(name, count):
    elements, size = gguf.GGML_QUANT_SIZES[kind(name)]
    return count // elements * size


def words(seed):
    """SplitMix64."""
    mask = (1 << 64) - 1
    state = seed
    while True:
        state = (state + 0x9E3779B97F4A7C15) & mask
        word = state
        word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & mask
        word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & mask
        yield word ^ (word >> 31)


def blocks(name):
    """Random bytes; scales may be anything, subnormal, infinite and NaN included."""
    size = storage(name, PIECE * PIECES)
    source = words(FORMATS.index(name))
    data = b"".join(struct.pack("<Q", next(source)) for _ in range((size + 7) // 8))
    return np.frombuffer(data[:size], dtype=np.uint8)


def digests(name):
    """32 bits that depend on all bits of the numbers of a piece, for each piece; every NaN counts as the same."""
    with np.errstate(all="ignore"):
        numbers = gguf.quants.dequantize(blocks(name), kind(name)).astype("<f4").reshape(PIECES, PIECE)
    bits = np.where(np.isnan(numbers), np.uint32(0x7FC00000), numbers.view(np.uint32)).astype(np.uint64)
    out = np.zeros(PIECES, dtype=np.uint64)
    for column in bits.T:
        out = (out ^ column) * np.uint64(0x9E3779B97F4A7C15)
        out ^= out >> np.uint64(32)
    return out & np.uint64(0xFFFFFFFF)


def decoded():
    lines = (f"{name} " + "".join(f"{digest:08x}" for digest in digests(name)) for name in FORMATS)
    return "\n".join(lines) + "\n"


def uniforms(seed):
    """SplitMix64 as numbers in (0, 1)."""
    for word in words(seed):
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
        for name in ("Q8_0", "Q4_0", "Q5_0", "IQ4_NL", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS"):
            out = np.zeros(storage(name, values.size), dtype=np.uint8)
            pointer = lambda array: array.ctypes.data_as(ctypes.c_void_p)
            long = ctypes.c_int64
            ggml.ggml_quantize_chunk(kind(name).value, pointer(values), pointer(out), long(0), long(64), long(512), None)
            error = gguf.quants.dequantize(out, kind(name)).ravel().astype(np.float64) - values
            lines.append(f"{distribution} {name} {math.sqrt((error**2).mean()):.9e}\n")
    (HERE / "ggml_rmse.txt").write_text("".join(lines))


if __name__ == "__main__":
    (HERE / "decoded.txt").write_text(decoded())
    if len(sys.argv) > 1:
        rmse(sys.argv[1])
