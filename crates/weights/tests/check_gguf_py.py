"""Checks with gguf-py that a file written by the `write_sample` example holds what it should.

Usage: cargo run --release -p cascadia-weights --example write_sample -- OUT.gguf && python check_gguf_py.py OUT.gguf
"""

import sys

import gguf

VALUES = {
    "general.architecture": "sample",
    "sample.u8": 200,
    "sample.i8": -100,
    "sample.u16": 60_000,
    "sample.i16": -30_000,
    "sample.u32": 4_000_000_000,
    "sample.i32": -2_000_000_000,
    "sample.f32": 0.5,
    "sample.bool": True,
    "sample.u64": 1 << 60,
    "sample.i64": -(1 << 60),
    "sample.f64": 0.1,
    "sample.text": "Grüße, 世界",
    "sample.strings": ["<s>", "", "Grüße"],
    "sample.u32s": [1, 2, 3],
    "sample.i32s": [-1, 0, 1],
    "sample.f32s": [0.25, -0.5],
    "sample.bools": [True, False],
    "sample.i64s": [-1, (1 << 63) - 1],
}
FORMATS = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_K", "Q5_K", "Q6_K"]


def main(path: str) -> None:
    reader = gguf.GGUFReader(path)
    own = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    assert own == VALUES, f"{path}: metadata differs: {own}"
    assert reader.alignment == 32 and reader.fields["GGUF.version"].contents() == 3
    # Formats may be added to the sample, in which case they come after these.
    found = [tensor.name for tensor in reader.tensors]
    assert found[: len(FORMATS)] == [f"matrix.{name}" for name in FORMATS] and found[-1] == "vector", found
    for index, tensor in enumerate(reader.tensors):
        shape = [5] if tensor.name == "vector" else [256, 3]
        assert list(tensor.shape) == shape, f"{tensor.name}: shape {tensor.shape}"
        kind = "F32" if tensor.name == "vector" else tensor.name.removeprefix("matrix.")
        assert tensor.tensor_type.name == kind, f"{tensor.name}: type {tensor.tensor_type.name}"
        raw = tensor.data.tobytes()
        assert len(raw) == tensor.n_bytes
        assert raw == bytes((position * 31 + index * 7) % 251 for position in range(len(raw))), f"{tensor.name}: bytes"
    print(f"{path}: {len(own)} values and {len(found)} tensors as expected")


if __name__ == "__main__":
    main(sys.argv[1])
