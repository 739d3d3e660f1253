#!/usr/bin/env python3
"""A real model, SmolLM2-135M-Instruct, beside `transformers` and llama.cpp: perplexity, and greedy answers to twenty prompts.

The file is Q4_1, which `cascadia pull` keeps under target/. Its F16 twin is compared with what `transformers` computes from the
same weights as 32-bit floats (smollm2.json, made by `smollm2.py --make`, which needs torch), and with llama.cpp on the same file.
Skipped, loudly, where the model cannot be had. A minute.
"""
import argparse
import hashlib
import json
import pathlib
import tempfile

import program

REFERENCE = pathlib.Path(__file__).with_suffix(".json")
MODEL = "smollm2:135m"
# Greedy answers of floats differ after a while where two tokens are about as likely: sums have another order.
TOKENS, LEAST_EQUAL = 40, 17
PROMPTS = [
    "What is the capital of France?", "Who wrote Romeo and Juliet?", "Why is the sky blue?", "What causes the seasons?",
    "How does a refrigerator keep food cold?", "What is photosynthesis?", "What is the chemical symbol for gold?",
    "How far is the moon from the Earth?", "What language is spoken in Brazil?", "How many legs does a spider have?",
    "What is 17 plus 25?", "Is 91 a prime number?", "Write a poem of four lines about the sea.", "Name three primary colours.",
    "Translate 'good morning' into Spanish.", "What is the opposite of 'ancient'?", "Explain gravity to a child.",
    "Give me a recipe for pancakes.", "Write a short story about a lost dog.", "What should I see in London?",
]


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def make(path):
    """What `transformers` says, computed with the weights of the file as 32-bit floats."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    where = dict(pretrained_model_name_or_path=str(path.parent), gguf_file=path.name)
    tokenizer = AutoTokenizer.from_pretrained(**where)
    model = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32).eval()
    tokens = tokenizer(program.PASSAGE.read_text(), add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        logits = model(torch.tensor([[tokenizer.bos_token_id, *tokens]])).logits[0, :-1].double()
    chosen = torch.log_softmax(logits, -1)[torch.arange(len(tokens)), torch.tensor(tokens)]
    perplexity = float(torch.exp(-chosen.mean()))
    answers = []
    for prompt in PROMPTS:
        chat = [{"role": "user", "content": prompt}]
        asked = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        with torch.no_grad():
            told = model.generate(**asked, max_new_tokens=TOKENS, do_sample=False)[0, asked["input_ids"].shape[1]:]
        answers.append(tokenizer.decode(told, skip_special_tokens=True))
    found = {"sha256": digest(path), "tokens": len(tokens), "perplexity": perplexity, "answers": dict(zip(PROMPTS, answers))}
    REFERENCE.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


def our_answers(path):
    ask = lambda prompt: json.loads(program.run("run", path, prompt, "-n", TOKENS, "--temp", 0, "--json"))["text"]
    return [ask(prompt) for prompt in PROMPTS]


def their_answers(llama):
    """Those of llama.cpp, which renders the same template."""
    def ask(prompt):
        rendered = llama.post("/apply-template", {"messages": [{"role": "user", "content": prompt}]})["prompt"]
        return llama.post("/completion", {"prompt": rendered, "n_predict": TOKENS, "temperature": 0, "top_k": 1})["content"]
    return [ask(prompt) for prompt in PROMPTS]


def compare_answers(what, ours, theirs):
    equal = sum(one.strip() == other.strip() for one, other in zip(ours, theirs, strict=True))
    print(f"  greedy answers equal to those of {what}: {equal} of {len(PROMPTS)} (at least {LEAST_EQUAL})", flush=True)
    for prompt, one, other in zip(PROMPTS, ours, theirs):
        if one.strip() != other.strip():
            print(f"    {prompt}\n      ours:   {one!r}\n      theirs: {other!r}")
    assert equal >= LEAST_EQUAL, what


def perplexity(path, tokens):
    found = program.perplexity(path, program.PASSAGE, "--windows", 1, "--window", tokens)
    assert found["tokens"] == tokens, (found, tokens)
    return found["perplexity"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--make", action="store_true", help="write the reference again")
    wanted, path = parser.parse_args(), program.stored_model(MODEL)
    if path is None:
        return
    if wanted.make:
        return make(path)
    from llama_cpp import LlamaCpp
    reference = json.loads(REFERENCE.read_text())
    assert digest(path) == reference["sha256"], "the reference was made from another file"
    with tempfile.TemporaryDirectory() as scratch:
        exact = program.quantize(path, pathlib.Path(scratch) / "f16.gguf", "f16")
        ours = perplexity(exact, reference["tokens"])
        program.expect("F16: relative difference of perplexity to transformers", ours / reference["perplexity"] - 1, 5e-4)
        # Of either program, beside the same weights without rounded activations.
        llama = LlamaCpp(path, context=1024)
        bos, tokens = 1, llama.tokenize(program.PASSAGE.read_text())
        their_loss = llama.perplexity([bos, *tokens]) / reference["perplexity"] - 1
        program.expect("Q4_1 in llama.cpp: loss", their_loss, None)
        program.expect("Q4_1: loss", perplexity(path, reference["tokens"]) / reference["perplexity"] - 1, 1e-2)
        answers = our_answers(exact)
        compare_answers("transformers", answers, [reference["answers"][prompt] for prompt in PROMPTS])
        compare_answers("llama.cpp", answers, their_answers(LlamaCpp(exact, context=1024)))


if __name__ == "__main__":
    main()
