#!/usr/bin/env python3
"""llama.cpp opens the GGUF files that `cascadia quantize` writes, and computes the same with them.

llama.cpp comes as the prebuilt `xllamacpp` package, which starts its server inside this process. Asked for every
token's probability after each prefix, it gives a table of log-probabilities to compare with ours.
"""
import json
import pathlib
import shutil
import tempfile
import urllib.request

import numpy as np
import xllamacpp
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

import program


class LlamaCpp:
    """One model file open in llama.cpp, with exact (float32) attention memory, and with an adapter if one is named."""

    def __init__(self, path, context, adapter=None):
        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(path)
        parameters.n_ctx = context
        parameters.n_parallel = 1
        parameters.warmup = False
        parameters.fit_params = False
        parameters.verbosity = -1
        parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1  # two would spin
        parameters.cache_type_k = parameters.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        if adapter is not None:
            parameters.lora_adapters = [xllamacpp.CommonAdapterLoraInfo(str(adapter), 1.0)]
        self.server = xllamacpp.Server(parameters)

    def post(self, path, body):
        address = f"{self.server.listening_address}{path}"
        request = urllib.request.Request(address, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)

    def tokenize(self, text):
        return self.post("/tokenize", {"content": text, "add_special": False})["tokens"]

    def next_token(self, prompt, chosen, reported):
        """What llama.cpp says of the token after `prompt`; the probabilities are those before the bias to `chosen`."""
        body = {"prompt": prompt, "n_predict": 1, "temperature": 0, "cache_prompt": True,
                "n_probs": reported, "logit_bias": [[chosen, 1000.0]]}
        return self.post("/completion", body)["completion_probabilities"][0]

    def log_probabilities(self, tokens, vocabulary):
        """The whole table: one row per position, one column per token."""
        [letter] = self.tokenize("a")  # Probabilities come only with a chosen token that is whole text.
        table = np.full((len(tokens), vocabulary), np.nan)
        for position in range(len(tokens)):
            for entry in self.next_token(tokens[:position + 1], letter, vocabulary)["top_logprobs"]:
                table[position, entry["id"]] = entry["logprob"]
        assert not np.isnan(table).any(), "llama.cpp left out tokens"
        return table

    def perplexity(self, tokens):
        """Perplexity of `tokens` after the first, whose text must be whole characters."""
        answers = [self.next_token(tokens[:end], tokens[end], 1) for end in range(1, len(tokens))]
        assert [answer["id"] for answer in answers] == tokens[1:], "the bias did not choose the tokens"
        return float(np.exp(-np.mean([answer["logprob"] for answer in answers])))


def compare(title, path, tokens, limits):
    print(title, flush=True)
    ours = program.log_probabilities(program.logits(path, tokens))
    theirs = LlamaCpp(path, context=len(tokens) + 8).log_probabilities(tokens, ours.shape[1])
    program.compare(theirs, ours, tokens, limits)


def compare_text(path, limit):
    """A real model on real text: the same tokens, and the same perplexity by our own command."""
    print(f"{path.name} on {program.PASSAGE.name}", flush=True)
    llama = LlamaCpp(path, context=1024)
    tokens = llama.tokenize(program.PASSAGE.read_text())
    ours = program.perplexity(path, program.PASSAGE, "--windows", 1, "--window", len(tokens))
    # One token more or less makes another number of windows or of tokens, so this compares tokenizers too.
    assert ours["tokens"] == len(tokens), (ours, len(tokens))
    bos = 0
    program.expect("relative difference of perplexity", ours["perplexity"] / llama.perplexity([bos, *tokens]) - 1, limit)


# Families that both programs run. Left out is what llama.cpp has not: the ALiBi of Falcon, windows of Qwen3, Phi-3 and
# StarCoder2, scores scaled by other than the head in Gemma 3, and Gemma 3n in sizes other than the published ones.
FAMILIES = ("llama-linear", "qwen3", "phi4", "gemma", "gemma2", "gemma3-new", "gemma4", "gemma4-keys", "falcon",
            "falcon-new", "neox", "neox-in-turn", "mpt", "bloom", "gpt2", "olmo2", "olmo3", "granite", "smollm3",
            "mixtral", "qwen2-moe", "qwen3-moe", "olmoe", "granite-moe", "glm4-moe", "gemma4-moe", "gpt-oss",
            "qwen2-yarn", "phi4-long", "deepseek-v3")

# What a copy of a fixture is changed to where llama.cpp has no word for it: YaRN that starts inside a pair of numbers,
# and bounds on gates other than those of the published models.
CHANGES = {"gpt-oss": {"rope_scaling": {"rope_type": "default"}, "swiglu_limit": 7.0}}


def with_tokenizer(folder, scratch):
    """A copy of a fixture with one token for each of the first letters of GPT-2's alphabet, which llama.cpp asks for."""
    copy = shutil.copytree(folder, scratch / folder.name)
    config = json.loads((folder / "config.json").read_text()) | CHANGES.get(folder.name, {})
    (copy / "config.json").write_text(json.dumps(config))
    size = config["vocab_size"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet(), key=lambda letter: (letter not in "ĠĊ", ord(letter)))
    tokenizer = Tokenizer(models.BPE({letter: index for index, letter in enumerate(alphabet[:size])}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(copy / "tokenizer.json"))
    return copy


def compare_families(scratch):
    """Our conversion of every family, read by llama.cpp."""
    for name in FAMILIES:
        folder, tokens = program.fixture(name)
        path = program.quantize(with_tokenizer(folder, scratch), scratch / f"{name}.gguf", "f32")
        compare(f"{name} written by us as f32", path, tokens, program.EXACT)


def main():
    for name in ("llama3-gguf", "qwen2-gguf"):
        folder, tokens = program.fixture(name)
        compare(f"{name} as gguf-py wrote it", folder / "model.gguf", tokens, program.EXACT)
    with tempfile.TemporaryDirectory() as scratch:
        for name in ("llama3", "qwen2"):
            folder, tokens = program.fixture(name)
            for kind in ("q8_0", "q5_0", "q4_0", "iq4_nl"):
                path = program.quantize(folder, pathlib.Path(scratch) / f"{name}-{kind}.gguf", kind)
                compare(f"{name} written by us as {kind}", path, tokens, program.ROUNDED)
        compare_families(pathlib.Path(scratch))
        # On a few hundred tokens the 8-bit activations of either side move perplexity by a few tenths of a percent.
        compare_text(program.EMBEDDED_MODEL, 5e-3)
        compare_text(program.quantize(program.EMBEDDED_MODEL, pathlib.Path(scratch) / "embedded-f16.gguf", "f16"), 1e-3)
        # The other writable types need rows of 256. Written again from a quantised model they are worse than usual,
        # but both programs must say the same of them; with few bits small differences grow.
        for kind in ("bf16", "q6_k", "q5_k_m", "q3_k_m", "q2_k", "iq4_xs"):
            path = program.quantize(program.EMBEDDED_MODEL, pathlib.Path(scratch) / f"embedded-{kind}.gguf", kind)
            compare_text(path, 1e-2)


if __name__ == "__main__":
    main()
