#!/usr/bin/env python3
"""lm-eval scores a model through the API as it does with `transformers` on the same weights.

    pip install lm-eval[hf] gguf torch
    python checks/lm_eval_api.py MODEL.gguf

Fifty questions with four endings each (checks/lm_eval) are scored twice: by lm-eval's `local-completions` against
`cascadia serve`, and by its `hf` backend on the weights of the same file as 32-bit floats. The two accuracies must be within half
a point, and every log-likelihood close. Takes some minutes and needs packages of several gigabytes, so it is not part of
check.sh.
"""
import argparse
import contextlib
import json
import os
import pathlib
import re
import subprocess
import tempfile

FOLDER = pathlib.Path(__file__).resolve().parent / "lm_eval"
BINARY = FOLDER.parents[1] / "target" / "release" / "cascadia"


@contextlib.contextmanager
def serving(model):
    """The address of a server of this model for as long as the block runs."""
    command = [str(BINARY), "serve", str(model), "--port", "0", "--log-level", "warn", "--ctx", "2048"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        line = process.stderr.readline()
        found = re.search(r"(https?://\S+?)/,", line)
        if not found:
            raise SystemExit(f"no address from {' '.join(command)}: {line}{process.stderr.read()}")
        yield found.group(1)
    finally:
        process.terminate()
        process.wait(timeout=60)


def tokenizer(model, folder):
    """The model's tokenizer as files, made by `transformers`."""
    from transformers import AutoTokenizer
    AutoTokenizer.from_pretrained(str(model.parent), gguf_file=model.name).save_pretrained(folder)


def scored(name, arguments, tasks):
    """Accuracies and log-likelihoods of the questions."""
    import lm_eval
    results = lm_eval.simple_evaluate(
        model=name, model_args=arguments, tasks=["facts"], task_manager=tasks, log_samples=True, bootstrap_iters=0)
    samples = sorted(results["samples"]["facts"], key=lambda sample: sample["doc_id"])
    likelihoods = [[response[0] for response in sample["filtered_resps"]] for sample in samples]
    found = results["results"]["facts"]
    return {key: found[f"{key},none"] for key in ("acc", "acc_norm")}, likelihoods


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=pathlib.Path, help="a GGUF file that `transformers` reads")
    model = parser.parse_args().model.resolve()
    os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TRANSFORMERS_OFFLINE="1", OPENAI_API_KEY="none")
    from lm_eval.tasks import TaskManager
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        tasks, words = folder / "tasks", folder / "tokenizer"
        tasks.mkdir()
        task = (FOLDER / "facts.yaml").read_text().replace("ITEMS", str(FOLDER / "items.jsonl"))
        (tasks / "facts.yaml").write_text(task)
        manager = TaskManager(include_path=str(tasks), include_defaults=False)
        tokenizer(model, words)
        with serving(model) as url:
            arguments = dict(
                model="default", base_url=f"{url}/v1/completions", tokenizer=str(words), tokenizer_backend="huggingface",
                num_concurrent=1, batch_size=16, max_length=2048, tokenized_requests=True)
            ours, our_likelihoods = scored("local-completions", arguments, manager)
        # Read as 32-bit floats from the same file.
        weights = dict(pretrained=str(model.parent), gguf_file=model.name, tokenizer=str(words))
        theirs, their_likelihoods = scored("hf", dict(**weights, dtype="float32", device="cpu"), manager)
    differences = [
        abs(one - other) for ours_of, theirs_of in zip(our_likelihoods, their_likelihoods, strict=True)
        for one, other in zip(ours_of, theirs_of, strict=True)]
    print(json.dumps({"api": ours, "hf": theirs, "log-likelihoods": len(differences),
                      "largest difference": max(differences), "mean difference": sum(differences) / len(differences)}, indent=2))
    assert all(abs(ours[key] - theirs[key]) <= 0.005 for key in ours), "the accuracies differ by more than half a point"
    print("lm-eval: the API and `transformers` agree")


if __name__ == "__main__":
    main()
