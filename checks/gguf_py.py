#!/usr/bin/env python3
"""gguf-py opens what `cascadia quantize` writes, and we open what gguf-py writes, with equal results.

In both directions the quantised file is compared with its twin: the same numbers, dequantised by gguf-py and
written back as F32. A format that either side reads differently shows up as other logits. Random blocks of every type
that gguf-py can decode become exactly the numbers that it makes of them.
"""
import pathlib
import tempfile

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Kind
from gguf import quants

import program


def values_of(tensor):
    """Numbers of one tensor, outermost dimension first."""
    shape = [int(size) for size in reversed(tensor.shape)]
    values = quants.dequantize(tensor.data, tensor.tensor_type).reshape(shape).astype(np.float32)
    assert np.isfinite(values).all(), tensor.name
    return values


def rewrite(source, target, kind_of):
    """A copy of a GGUF file by gguf-py with each tensor in the type that `kind_of(name, values)` names."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.get_field("general.architecture").contents())
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=inner)
    for tensor in reader.tensors:
        values = values_of(tensor)
        kind = kind_of(tensor.name, values)
        writer.add_tensor(tensor.name, quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def compare_with_twin(title, path, tokens, scratch, limits):
    print(title, flush=True)
    twin = rewrite(path, scratch / "twin.gguf", lambda name, values: Kind.F32)
    exact = program.log_probabilities(program.logits(twin, tokens))
    rounded = program.log_probabilities(program.logits(path, tokens))
    program.compare(exact, rounded, tokens, limits)


def read_by_gguf_py(name, kind, scratch, weight_error):
    """Our file holds the source's numbers as far as the format can, under the names and keys of the format."""
    folder, tokens = program.fixture(name)
    ours = program.quantize(folder, scratch / "ours.gguf", kind)
    written = {tensor.name: tensor for tensor in gguf.GGUFReader(ours).tensors}
    source = {tensor.name: tensor for tensor in gguf.GGUFReader(program.ROOT / "fixtures" / f"{name}-gguf" / "model.gguf").tensors}
    assert written.keys() == source.keys(), written.keys() ^ source.keys()
    assert any(tensor.tensor_type == Kind[kind.upper()] for tensor in written.values())
    for tensor in written.values():
        expected = values_of(source[tensor.name])
        error = np.abs(values_of(tensor) - expected).max() / np.abs(expected).max()
        assert error <= weight_error, f"{tensor.name} as {tensor.tensor_type.name} is off by {error}"
    compare_with_twin(f"{name} written by us as {kind}", ours, tokens, scratch, program.ROUNDED)


def finite_blocks(kind, count, random):
    """Random blocks whose numbers are finite, as bytes and as gguf-py decodes them."""
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    blocks, values = [], []
    while len(blocks) < count // elements:
        block = random.integers(0, 256, size, dtype=np.uint8)
        with np.errstate(all="ignore"):
            numbers = quants.dequantize(block, kind).astype(np.float32)
        if np.isfinite(numbers).all():
            blocks.append(block)
            values.append(numbers)
    return np.concatenate(blocks), np.concatenate(values)


def every_type(scratch):
    """Blocks of random bytes in every type, read by us and written back as F32."""
    random = np.random.default_rng(5)
    # Integers are no weights, Q8_1 and Q8_K exist in memory only, and the last three are not read yet.
    others = {"F64", "I8", "I16", "I32", "I64", "Q8_1", "Q8_K", "NVFP4", "Q1_0", "Q2_0"}
    kinds = [kind for kind in gguf.GGML_QUANT_SIZES if kind.name not in others]
    writer, expected = gguf.GGUFWriter(scratch / "types.gguf", "llama"), {}
    for kind in kinds:
        blocks, values = finite_blocks(kind, 4 * 512, random)
        expected[f"{kind.name}.weight"] = values
        writer.add_tensor(f"{kind.name}.weight", blocks.reshape(4, -1), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    read = gguf.GGUFReader(program.quantize(scratch / "types.gguf", scratch / "floats.gguf", "f32")).tensors
    assert {tensor.name for tensor in read} == expected.keys()
    for tensor in read:
        ours = np.asarray(tensor.data, dtype=np.float32).ravel()
        assert (ours.view(np.uint32) == expected[tensor.name].view(np.uint32)).all(), f"{tensor.name} differs"
    print(f"{len(kinds)} types decode to the bits of gguf-py: {', '.join(kind.name for kind in kinds)}", flush=True)


def real_model(scratch):
    """The k-quants need rows of 256, which only the embedded model has."""
    print(f"{program.EMBEDDED_MODEL.name} on {program.PASSAGE.name}", flush=True)
    twin = rewrite(program.EMBEDDED_MODEL, scratch / "twin.gguf", lambda name, values: Kind.F32)
    rounded, exact = (program.perplexity(path, program.PASSAGE, "--windows", 1, "--window", 200)["perplexity"]
                      for path in (program.EMBEDDED_MODEL, twin))
    # 8-bit activations cost 0.4 % on these 200 tokens, in llama.cpp as here; over thousands of tokens under 0.05 %.
    program.expect("relative difference of perplexity", rounded / exact - 1, 1e-2)


def main():
    # Half-precision numbers widen exactly, so such a file and its twin must give the same bits.
    identical, rounded = {"perplexity": 0, "divergence": 0}, program.ROUNDED
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        every_type(scratch)
        for name in ("llama3", "qwen2"):
            read_by_gguf_py(name, "q8_0", scratch, 0.005)
            read_by_gguf_py(name, "q4_0", scratch, 0.13)
        model, tokens = program.fixture("llama3-gguf")
        for kind, limits in ((Kind.F16, identical), (Kind.BF16, identical), (Kind.Q8_0, rounded), (Kind.Q4_0, rounded)):
            matrices = lambda name, values: kind if values.ndim == 2 else Kind.F32
            path = rewrite(model / "model.gguf", scratch / "theirs.gguf", matrices)
            compare_with_twin(f"llama3 written by gguf-py as {kind.name}", path, tokens, scratch, limits)
        real_model(scratch)


if __name__ == "__main__":
    main()
