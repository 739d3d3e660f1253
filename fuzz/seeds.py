#!/usr/bin/env python3
"""Writes the seeds in fuzz/corpus, from which the fuzz targets begin: small valid inputs of every kind. Always the same
bytes. Inputs that once crashed are no seeds: they are cases of the parser's own tests."""
import hashlib
import json
import pathlib
import random
import shutil
import struct

ROOT = pathlib.Path(__file__).resolve().parent.parent
CORPUS = ROOT / "fuzz/corpus"
FIXTURES = ROOT / "fixtures"
# Value types and tensor types of GGUF.
U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
TENSOR_F32, TENSOR_Q8_0 = 0, 8


def main():
    shutil.rmtree(CORPUS, ignore_errors=True)
    for target, seeds in {
        "gguf": [gguf([], []), gguf(VALUES, [("t", [32, 2], TENSOR_Q8_0, 68)]), tiny_model()],
        "model": [tiny_model(), (FIXTURES / "tokenizers/llama3/vocabulary.gguf").read_bytes()],
        "adapter": adapters(),
        "safetensors": safetensors(),
        "tokenizer": tokenizers(),
        "template": TEMPLATES,
        "grammar": grammars(),
        "imatrix": [(FIXTURES / "imatrix" / f"importance.{form}").read_bytes() for form in ("dat", "gguf")],
        "frames": noise(8),
        "messages": noise(32),
        "manifest": [manifest()],
        "members": members(),
        "http": bodies(),
        "keys": [json.dumps([{"name": "a", "hash": "0" * 64}, {
            "name": "b", "hash": "1" * 64, "tenant": "t", "priority": "low", "max_requests": 2, "max_tokens": 9}])],
    }.items():
        folder = CORPUS / target
        folder.mkdir(parents=True)
        for number, seed in enumerate(seeds):
            (folder / f"{number:02}").write_bytes(seed.encode() if isinstance(seed, str) else seed)
    size = sum(path.stat().st_size for path in CORPUS.rglob("*") if path.is_file())
    print(f"{size} bytes in {CORPUS}")


def string(text):
    return struct.pack("<Q", len(text.encode())) + text.encode()


def value(kind, data):
    if kind == ARRAY:
        element, items = data
        return struct.pack("<IQ", element, len(items)) + b"".join(value(element, item) for item in items)
    return string(data) if kind == STRING else struct.pack({U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}[kind], data)


def gguf(values, tensors):
    """A GGUF file: tensors are name, shape with columns first, type and bytes."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values))
    for key, kind, data in values:
        head += string(key) + struct.pack("<I", kind) + value(kind, data)
    offset, body = 0, b""
    for name, shape, kind, length in tensors:
        head += string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)
        body += bytes(length) + bytes(-length % 32)
        offset = len(body)
    return head + bytes(-len(head) % 32) + body


VALUES = [("general.architecture", STRING, "llama"), ("a", U32, 7), ("b", F32, 0.5), ("c", BOOL, True),
          ("d", ARRAY, (STRING, ["x", "yz"])), ("e", ARRAY, (F32, [1.0, 2.0]))]


def tiny_model():
    """A model of one layer and 24 tokens that opens."""
    width, tokens = 16, ["<unk>", "<s>", "</s>", "\u2581"] + [chr(ord("a") + letter) for letter in range(20)]
    values = [("general.architecture", STRING, "llama"), ("llama.block_count", U32, 1), ("llama.context_length", U32, 64),
              ("llama.embedding_length", U32, width), ("llama.feed_forward_length", U32, width),
              ("llama.attention.head_count", U32, 2), ("llama.attention.layer_norm_rms_epsilon", F32, 1e-5),
              ("tokenizer.ggml.model", STRING, "llama"), ("tokenizer.ggml.tokens", ARRAY, (STRING, tokens)),
              ("tokenizer.ggml.scores", ARRAY, (F32, [0.0] * len(tokens))),
              ("tokenizer.ggml.token_type", ARRAY, (I32, [2, 3, 3] + [1] * 21)),
              ("tokenizer.ggml.bos_token_id", U32, 1), ("tokenizer.ggml.eos_token_id", U32, 2),
              ("tokenizer.chat_template", STRING, TEMPLATES[0])]
    square = [(f"blk.0.{name}.weight", [width, width]) for name in
              ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")]
    norms = [(f"{name}.weight", [width]) for name in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm")]
    shapes = [("token_embd.weight", [width, len(tokens)]), *square, *norms]
    tensors = [(name, shape, TENSOR_F32, 4 * shape[0] * (shape[1:] or [1])[0]) for name, shape in shapes]
    return gguf(values, tensors)


def adapters():
    """An update of rank 2 for the tiny model in each of the three forms, whose number comes first."""
    values = [("general.architecture", STRING, "llama"), ("general.type", STRING, "adapter"), ("adapter.type", STRING, "lora"),
              ("adapter.lora.alpha", F32, 8.0)]
    whole = gguf(values, [("blk.0.attn_q.weight.lora_a", [16, 2], TENSOR_F32, 128),
                          ("blk.0.attn_q.weight.lora_b", [2, 16], TENSOR_F32, 128)])
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["v_proj"]}
    module = "base_model.model.model.layers.0.self_attn.v_proj.lora_"
    header = {f"{module}A.weight": {"dtype": "F32", "shape": [2, 16], "data_offsets": [0, 128]},
              f"{module}B.weight": {"dtype": "F32", "shape": [16, 2], "data_offsets": [128, 256]}}
    name = b"blk.0.ffn_up.weight"
    matrix = lambda rows, columns: struct.pack("<III", 0, rows, columns) + bytes(4 * rows * columns)
    part = (bytes(32) + struct.pack("<III", 2, 1, len(name)) + name + struct.pack("<III", 0, 1, 1)
            + matrix(2, 16) + matrix(16, 2) + struct.pack("<I", 0))
    return [b"\0" + whole, b"\1" + f"{json.dumps(config)}\n{json.dumps(header)}\n".encode() + bytes(256), b"\2" + part]


def safetensors():
    """The header on one line, then the data: the target puts the length before them."""
    small = {"__metadata__": {"format": "pt"}, "a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
             "b": {"dtype": "BF16", "shape": [3], "data_offsets": [16, 22]}}
    packed = {f"w.{name}": {"dtype": kind, "shape": [4], "data_offsets": [8 * at, 8 * at + size]}
              for at, (name, kind, size) in enumerate([("qweight", "I32", 16), ("scale", "F16", 8)])}
    return [json.dumps(small).encode() + b"\n" + bytes(22), json.dumps(packed).encode() + b"\n" + bytes(24), b"{}\n"]


def tokenizers():
    """Files of both kinds; the target takes those that are no JSON for a vocabulary of one token per line."""
    names = ["llama2", "gpt2", "gemma", "qwen2", "phi3"]
    files = [json.dumps(json.loads((FIXTURES / "tokenizers" / name / "tokenizer.json").read_text())) for name in names
             if (FIXTURES / "tokenizers" / name / "tokenizer.json").stat().st_size < 16384]
    pieces = [b"\x02\x00<unk>", b"\x03\x00<s>", *(bytes([1, at]) + text.encode() for at, text in
              enumerate(["\u2581", "h", "e", "l", "o", "he", "ll", "hell", "hello", "\u2581hello"]))]
    pairs = [b"\x01\x00" + text for text in (b"h", b"e", b"he", b"h e", b"\xc4\xa0", b"\xc4\xa0 he")]
    return [*files, b"\x00" + b"\n".join(pieces), b"\x03" + b"\n".join(pairs)]


TEMPLATES = [
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
    "{%- set ns = namespace(found=false) -%}{%- for m in messages[::-1] if m.role == 'user' -%}{%- set ns.found = loop.index -%}"
    "{%- endfor -%}{{ bos_token ~ ns.found }}{% macro show(x, y=1) %}{{ x|trim|upper }}{{ y }}{% endmacro %}{{ show('a ') }}",
    "{{ messages|tojson(indent=2) }}{{ messages|length }}{{ raise_exception('no') if messages[0].role != 'user' }}",
    "{{ strftime_now('%Y-%m-%d') }}{% for i in range(3) %}{{ loop.first }}{% break %}{% endfor %}",
    "{{ 'a,b'.split(',')|join('-') }}{{ messages|map(attribute='role')|list }}{{ {'a': [1, 2.5, none]}.items()|list }}",
    "{% if messages[0].content is string and 'h' in messages[0].content %}{{ messages[0].content[1:-1] * 3 }}{% endif %}",
    "{% generation %}{{ eos_token }}{% endgeneration %}{{ (1 + 2) ** 3 // 4 % 5 }}{{ 'x'|replace('x', 'yy')|safe }}",
]


def grammars():
    """The kind, a choice of tokens, and the source."""
    schema = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 9},
              "b": {"type": "array", "items": {"enum": ["x", "y"]}, "maxItems": 3}, "c": {"$ref": "#/$defs/d"}},
              "required": ["a"], "additionalProperties": False, "$defs": {"d": {"type": "string", "pattern": "^[a-z]{1,4}$"}}}
    other = {"anyOf": [{"const": None}, {"type": "number", "multipleOf": 0.5}, {"type": "string", "format": "date-time"}]}
    sources = [(0, json.dumps(schema)), (0, json.dumps(other)), (0, '{"type":"string","minLength":2}'),
               (1, "(a|b)+[0-9]{2,4}\\d?"), (1, "[^\"\\\\]*\\.(com|org)"), (1, "(?i)yes|no|\\p{Lu}x"),
               (2, 'start: "a" b*\nb: /[0-9]+/ | "(" b ")"\n%ignore / +/'), (2, 'start: json\njson: %json {"type": "object"}\n'),
               (2, 'start: x ~ 2..4\nx: "a".."f" | A\nA: "z"i'), (3, "yes\nno\nmaybe")]
    return [bytes([kind, number]) + source.encode() for number, (kind, source) in enumerate(sources)]


def noise(count):
    """Any bytes are a valid input of targets that make values of them."""
    chance = random.Random(7)
    return [chance.randbytes(16 << (number % 5)) for number in range(count)]


def manifest():
    shard = lambda file, layers, byte: {  # noqa: E731
        "file": file, "digest": bytes([byte] * 32).hex(), "bytes": 9, "layers": layers, "tensors": ["f32 2 a"]}
    ends, stages = shard("token-io.gguf", [0, 0], 1), [shard("stage-0.gguf", [0, 1], 2), shard("stage-1.gguf", [1, 2], 3)]
    # The digest of the digests, as BLAKE3 gives it; Python has none, so it is written down here.
    return json.dumps({"version": 1, "model": MODEL_DIGEST, "name": "m", "precision": "as it is", "numerics": {
        "cache": "f16", "hidden_width": 16, "layers": 2, "context": 64, "window": 0, "stages_need_tokens": False},
        "token_io": ends, "stages": stages}, indent=2)


MODEL_DIGEST = "3656bd82356d3713799cc02c514eaa850ee36da8d8ab68d464022427d2619126"


def members():
    """Which file, and its content."""
    digest = hashlib.sha256(b"a key").hexdigest()
    listed = {"members": [{"name": "node-00", "key": digest}, {"name": "b", "key": "0" * 64, "distrusted": "why"}],
              "invitations": [{"proof_key": digest, "expires": 1 << 40, "uses": 1}]}
    # An Ed25519 key as ring writes it would be a secret in the repository, so this is one of zeros.
    private = bytes.fromhex("302e020100300506032b657004220420") + bytes(32)
    # The coordinator's key, the secret, when it ends, and one address; the target adds the checksum.
    invitation = bytes(32) + bytes(16) + struct.pack("<QII", 1 << 40, 1, 14) + b"127.0.0.1:7420"
    coordinator = {"listen": "127.0.0.1:7420", "pushed": None, "own_stages": [0], "silent": True}
    worker = {"addresses": ["127.0.0.1:7420"], "coordinator": digest, "node": "node-00", "shards": [digest]}
    follows = worker | {"targets": {"key": digest, "version": 1}, "stated": {
        "fleet": digest, "number": 1, "coordinator_expires": 1 << 40, "targets_expires": 1 << 40,
        "previous": [digest, digest], "previous_until": 9}}
    key = {"pin": digest, "issued": 1, "expires": 1 << 40}
    keys = [{"statement": {"fleet": digest, "number": 0, "coordinator": key, "targets": key, "previous_until": 1},
             "old": ["0" * 192] * 2, "new": ["0" * 192] * 2}]
    return [b"\x00" + json.dumps(listed).encode(), b"\x01" + private, b"\x02" + invitation,
            b"\x03" + json.dumps(coordinator).encode(), b"\x03" + json.dumps(worker).encode(),
            b"\x03" + json.dumps(follows).encode(), b"\x03" + json.dumps(keys).encode(), b"\x04[]",
            b"\x04cascadia audit log 1 0 " + b"0" * 64 + b"\n"]


def bodies():
    """The route by its place among those with a body, and the body."""
    message = {"role": "user", "content": "hello"}
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}}
    chat = {"model": "default", "messages": [{"role": "system", "content": "s"}, message], "max_tokens": 5, "n": 2,
            "temperature": 0.5, "top_p": 0.9, "stop": ["x"], "seed": 1, "logprobs": True, "top_logprobs": 2, "stream": True,
            "stream_options": {"include_usage": True}, "logit_bias": {"5": -1.5}}
    called = {"messages": [message, {"role": "assistant", "content": None, "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]},
        {"role": "tool", "tool_call_id": "1", "content": "2"}], "tools": [tool], "tool_choice": "required"}
    formatted = {"messages": [message], "response_format": {"type": "json_schema", "json_schema": {
        "name": "n", "schema": {"type": "object", "properties": {"a": {"type": "string"}}}, "strict": True}}}
    return [bytes([route]) + json.dumps(body).encode() for route, body in [
        (0, chat), (0, called), (0, formatted),
        (1, {"prompt": ["a", "b"], "max_tokens": 3, "echo": False, "logprobs": 1, "suffix": None}),
        (1, {"prompt": [[1, 2], [3]], "best_of": 1, "stream": False}),
        (2, {"input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
             "instructions": "be brief", "metadata": {"k": "v"}, "text": {"format": {"type": "json_object"}}}),
        (3, {"input": ["a", "b"], "encoding_format": "base64", "dimensions": 8}),
        (4, {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}], "system": [{"type": "text", "text": "s"}],
             "max_tokens": 4, "stop_sequences": ["x"], "tools": [{"name": "f", "input_schema": {"type": "object"}}],
             "tool_choice": {"type": "tool", "name": "f"}, "thinking": {"type": "disabled"}}),
        (5, {"messages": [message]}),
        (6, {"messages": [message], "format": "json", "options": {"num_predict": 3, "temperature": 0}, "keep_alive": "5m"}),
        (7, {"prompt": "a", "system": "s", "raw": True, "options": {"stop": ["x"]}, "context": [1, 2]}),
        (8, {"model": "model", "verbose": True}),
        (9, {"prompt": "hello", "add_special_tokens": True}), (9, {"messages": [message]}),
        (10, {"tokens": [1, 2, 3]}),
    ]]


if __name__ == "__main__":
    main()
