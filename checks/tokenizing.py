#!/usr/bin/env python3
"""Our tokenizers give the ids of the `tokenizers` package on 10,000 random and adversarial strings per kind.

Each small vocabulary of fixtures/tokenizers is read from tokenizer.json and, where it is no encoder's, from GGUF. All strings are read as plain
text, and again with the names of special tokens recognised where they contain any. Decoding gives the string back;
where a tokenizer normalises text, it gives what the normaliser made of it.
"""
import concurrent.futures
import json
import pathlib
import subprocess
import sys

import tokenizers

import program

FIXTURES = program.ROOT / "fixtures" / "tokenizers"
sys.path.insert(0, str(FIXTURES))
import reference  # noqa: E402
import strings  # noqa: E402

COUNT = 10_000


def ours(path, texts, *options):
    """Ids and decoded text of each string."""
    command = [str(program.BINARY), "tokenize", str(path), "--json", "--no-bos", *options]
    lines = "".join(json.dumps(text) + "\n" for text in texts)
    done = subprocess.run(command, input=lines.encode(), capture_output=True, timeout=300)
    if done.returncode != 0:
        raise SystemExit(f"exit code {done.returncode} from {' '.join(command)}\n{done.stderr.decode()}")
    return [json.loads(line) for line in done.stdout.decode().split("\n")[:-1]]


def round_trip(document, text):
    """What remains of a text that was tokenised and decoded."""
    if document["model"]["type"] != "BPE":
        return None  # WordPiece keeps no spaces, and the normalizers of encoders change much.
    if document["model"]["byte_fallback"]:
        text = text.replace("▁", " ")
        # GGUF cannot say it, tokenizer.json can: a text that begins with a space gets no second one, and loses its own.
        lost = (document["pre_tokenizer"] or {}).get("type") == "Metaspace" and text.startswith(" ")
        return text[1:] if lost else text
    return tokenizers.normalizers.NFC().normalize_str(text) if document["normalizer"] else text


def compare(what, texts, expected, answers):
    assert len(answers) == len(texts), f"{what}: {len(answers)} answers for {len(texts)} strings"
    for text, ids, answer in zip(texts, expected, answers):
        if answer.get("ids") != ids:
            raise SystemExit(f"{what}: {text!r}\n  expected {ids}\n  but got  {answer}")


def check(folder):
    document = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    names = [token["content"] for token in document["added_tokens"]]
    texts = strings.strings(COUNT, folder.name, names)
    named = [text for text in texts if any(name in text for name in names)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for source, expected in (("tokenizer.json", document), ("vocabulary.gguf", reference.as_gguf(document))):
            path = folder / source
            if not path.exists():
                continue
            as_text = pool.submit(ours, path, texts, "--plain")
            as_tokens = pool.submit(ours, path, named)
            if source == "tokenizer.json" or expected != document:
                plain = reference.encode(reference.plain(expected), texts)
                parsed = reference.encode(tokenizers.Tokenizer.from_str(json.dumps(expected)), named)
            compare(f"{folder.name} from {source}, plain", texts, plain, as_text.result())
            compare(f"{folder.name} from {source}, special tokens parsed", named, parsed, as_tokens.result())
            for text, answer in zip(texts, as_text.result()):
                if round_trip(expected, text) not in (None, answer["text"]):
                    raise SystemExit(f"{folder.name} from {source}: {text!r} decodes to {answer['text']!r}")
    print(f"  {folder.name}: {len(texts)} strings, {len(named)} of them with special tokens", flush=True)


def main():
    folders = sorted(path.parent for path in FIXTURES.glob("*/tokenizer.json"))
    print(f"{len(folders)} kinds of vocabulary against tokenizers {tokenizers.__version__}", flush=True)
    for folder in folders:
        check(folder)


if __name__ == "__main__":
    main()
