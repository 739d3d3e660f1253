"""Makes the fixtures of this folder with implementations that are not ours: gguf-py and the safetensors package.

Run as `python make.py` with `gguf`, `numpy`, `safetensors` and `torch` installed; the output does not vary.
"""

import json
from pathlib import Path

import gguf
import numpy
import torch
from gguf import GGMLQuantizationType as Kind
from safetensors.torch import save_file

HERE = Path(__file__).parent


def make_gguf() -> dict:
    """One file with metadata as converters write it and a tensor in each of our formats."""
    random = numpy.random.default_rng(7)
    path = HERE / "foreign.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("foreign fixture")
    writer.add_block_count(2)
    writer.add_context_length(2048)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([b"<s>", b"\xff\xfe", "Grüße".encode(), *(f"token{i}".encode() for i in range(200))])
    writer.add_token_scores([0.5 * i for i in range(203)])
    writer.add_token_types([3, 6, *([1] * 201)])
    writer.add_token_merges(["t o", "k e", "n n"])
    writer.add_bos_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_chat_template("{% for message in messages %}{{ message.content }}{% endfor %}")

    expected = {}

    def add(name: str, kind: Kind, raw: numpy.ndarray, shape: list[int]) -> None:
        writer.add_tensor(name, raw, raw_dtype=None if raw.dtype in (numpy.float32, numpy.float16) else kind)
        expected[name] = {"dtype": kind.name, "shape": shape, "bytes": raw.tobytes().hex()}

    values = random.standard_normal((3, 256), dtype=numpy.float32)
    add("output_norm.weight", Kind.F32, values[0, :7].copy(), [7])
    add("blk.0.attn_q.weight", Kind.F16, values.astype(numpy.float16), [3, 256])
    for name, kind in [("blk.0.attn_k.weight", Kind.BF16), ("blk.0.attn_v.weight", Kind.Q8_0), ("blk.0.ffn_up.weight", Kind.Q4_0)]:
        add(name, kind, gguf.quants.quantize(values, kind), [3, 256])
    # gguf-py cannot quantise these, but it can store them.
    for name, kind, row_bytes in [("blk.1.a.weight", Kind.Q4_K, 144), ("blk.1.b.weight", Kind.Q5_K, 176), ("blk.1.c.weight", Kind.Q6_K, 210)]:
        add(name, kind, random.integers(0, 256, (2, row_bytes), dtype=numpy.uint8), [2, 256])
    add("blk.1.cube.weight", Kind.F32, numpy.arange(24, dtype=numpy.float32).reshape(2, 3, 4), [2, 3, 4])

    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return expected


def make_split() -> dict:
    """The same kind of file in three parts."""
    folder = HERE / "split"
    folder.mkdir(exist_ok=True)
    writer = gguf.GGUFWriter(folder / "tiny.gguf", "llama", split_max_tensors=2)
    writer.add_name("split fixture")
    writer.add_block_count(5)
    expected = {}
    for layer in range(5):
        values = numpy.arange(layer, layer + 8, dtype=numpy.float32)
        writer.add_tensor(f"blk.{layer}.attn_norm.weight", values)
        expected[f"blk.{layer}.attn_norm.weight"] = {"dtype": "F32", "shape": [8], "bytes": values.tobytes().hex()}
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return expected


def make_safetensors() -> dict:
    """A sharded folder as `save_pretrained` leaves it."""
    torch.manual_seed(7)
    folder = HERE / "sharded"
    folder.mkdir(exist_ok=True)
    shards = {
        "model-00001-of-00002.safetensors": {
            "model.embed_tokens.weight": torch.randn(5, 8),
            "model.layers.0.mlp.up_proj.weight": torch.randn(4, 8).half(),
            "model.layers.0.rotary.position_ids": torch.arange(6).reshape(1, 6),
        },
        "model-00002-of-00002.safetensors": {
            "model.norm.weight": torch.randn(8).bfloat16(),
            "model.mask": torch.tensor([True, False]),
            "lm_head.weight": torch.randn(5, 8).bfloat16(),
        },
    }
    expected = {}
    weight_map = {}
    names = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
    for file, tensors in shards.items():
        save_file(tensors, folder / file, metadata={"format": "pt"})
        for name, tensor in tensors.items():
            weight_map[name] = file
            if tensor.dtype in names:
                raw = tensor.view(torch.uint8).numpy().tobytes()
                expected[name] = {"dtype": names[tensor.dtype], "shape": list(tensor.shape), "bytes": raw.hex()}
    total = sum(tensor.nbytes for tensors in shards.values() for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "hidden_size": 8}) + "\n")
    return expected


if __name__ == "__main__":
    expected = {"foreign.gguf": make_gguf(), "sharded": make_safetensors(), "split": make_split()}
    (HERE / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
