#!/usr/bin/env python3
"""Speed of serving: many streams beside llama-server, a cached conversation, guessing ahead while a text is edited.

    bench/serving.py decode model.gguf --turns 3 --llama-server path/to/llama-server --keep bench/runs/DATE-serving
    bench/serving.py prefix model.gguf --keep bench/runs/DATE-serving
    bench/serving.py edit --keep bench/runs/DATE-serving

`decode` sends the same eight requests at once to both servers, in turns, and counts tokens while all eight streams run:
from the last first token to the first end. Servers are started for each turn, so that only one is in memory. The load
generator is `cascadia bench serve` for both. Needs nothing but Python.
"""
import argparse
import contextlib
import json
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORDS = "the river and a town by night with lights over the water where nobody goes to sleep before ships".split()


@contextlib.contextmanager
def serving(command, path):
    """The address of a server that runs for as long as the block does."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen([*map(str, command), "--port", str(port)], stdin=subprocess.DEVNULL, stdout=log,
                                   stderr=log)
        url = f"http://127.0.0.1:{port}"
        try:
            for _ in range(3000):  # a thousand adapters take minutes to be checked
                with contextlib.suppress(OSError):
                    urllib.request.urlopen(url + path, timeout=5).read()
                    break
                if process.poll() is not None:
                    log.seek(0)
                    raise SystemExit(f"{command[0]} did not start: {log.read()[-2000:]}")
                time.sleep(0.1)
            else:
                raise SystemExit(f"{command[0]} did not start in five minutes")
            yield url
        finally:
            process.terminate()
            process.wait(timeout=60)


def ours(options, *more):
    model = [options.model] if options.model else []
    return serving([options.cascadia, "serve", *model, "--threads", options.threads, "--log-level", "error", *more], "/livez")


def theirs(options):
    streams, context = options.streams, options.context * options.streams
    return serving([options.llama_server, "-m", options.model, "-np", streams, "-t", options.threads, "-c", context],
                   "/health")


def load(options, url, *arguments):
    command = [options.cascadia, "bench", "serve", url, *arguments, "--json"]
    return subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout


def together(run):
    """Tokens per second of all streams while all of them run."""
    streams = []
    for request in run["requests"]:
        if request["outcome"] != "done":
            raise SystemExit(f"a request ended with {request['outcome']}: {request['error']}")
        times = [request["start_s"] + request["first_token_s"]]
        for gap in request["inter_token_s"]:
            times.append(times[-1] + gap)
        # Text may come in fewer pieces than tokens.
        streams.append((times, request["tokens"] / len(times)))
    begin, end = max(times[0] for times, _ in streams), min(times[-1] for times, _ in streams)
    inside = sum(tokens * sum(begin < time <= end for time in times) for times, tokens in streams)
    return inside / (end - begin)


def decode(options):
    asked = ["--clients", options.streams, "--requests", options.streams, "--prompt", options.prompt, "--answer",
             options.answer, "--temp", options.temperature]
    programs = {"cascadia": lambda: ours(options, "--parallel", options.streams, "--ctx", options.context)}
    if options.llama_server:
        programs["llama-server"] = lambda: theirs(options)
    wanted = options.program.split(",") if options.program else list(programs)
    for turn in range(options.turns):
        for name in wanted:
            with programs[name]() as url:
                text = load(options, url, *asked)
                run = json.loads(text)
                words = {"tok_s": together(run), "first_token_p50_s": run["first_token_s"]["p50"],
                         "tokens": sum(request["tokens"] for request in run["requests"])}
                print(json.dumps({"program": name, "turn": turn, **words}), flush=True)
                keep(options, f"decode-{name}-{int(time.time())}.json", text)


def stream(url, prompt, tokens):
    """(seconds to the first text, seconds in all, usage, text) of a completion."""
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True,
            "stream_options": {"include_usage": True}}
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(),
                                     {"content-type": "application/json"})
    begin, first, usage, text = time.perf_counter(), None, None, ""
    for line in urllib.request.urlopen(request, timeout=600):
        if line.startswith(b"data: {"):
            event = json.loads(line[6:])
            piece = event["choices"][0]["text"] if event.get("choices") else ""
            first = first or (piece and time.perf_counter() - begin) or None
            text, usage = text + piece, event.get("usage") or usage
    return first, time.perf_counter() - begin, usage, text


def tokens_in(url, text):
    request = urllib.request.Request(url + "/tokenize", json.dumps({"prompt": text}).encode(),
                                     {"content-type": "application/json"})
    return len(json.load(urllib.request.urlopen(request))["tokens"])


def prefix(options):
    """A conversation of --prompt tokens, and the same with a few words more."""
    found = []
    with ours(options, "--parallel", 2, "--ctx", options.context) as url:
        stream(url, "warm", 4)
        per_word = tokens_in(url, " ".join(WORDS * 10)) / len(WORDS * 10)
        for turn in range(options.turns):
            words = (WORDS[(n * (turn + 3) + n // 7) % len(WORDS)] for n in range(int(options.prompt / per_word)))
            conversation = f"Conversation {turn}. " + " ".join(words)
            cold, _, usage, _ = stream(url, conversation, 8)
            hit, _, more, _ = stream(url, conversation + " and?", 2)
            found.append({"turn": turn, "tokens": usage["prompt_tokens"], "cold_s": cold, "hit_s": hit,
                          "times": cold / hit, "hit_tokens": more})
            print(json.dumps(found[-1]), flush=True)
    keep(options, f"prefix-{int(time.time())}.json", json.dumps(found, indent=1))
    print("times as fast:", statistics.median(one["times"] for one in found))


def edit(options):
    """A text that is to be repeated: most of the answer stands in the prompt."""
    paragraph = ("The harbour was quiet that night. A few lights moved slowly over the water, and the boats lay close "
                 "together behind the old wall. Nobody spoke. The keeper climbed the stairs of the tower, lit the lamp, "
                 "and looked out over the sea until the morning came. ")
    prompt = paragraph * 4
    found = []
    for turn in range(options.turns):
        for name, more in (("guessing", []), ("plain", options.plain.split())):
            with ours(options, *more) as url:
                stream(url, "warm", 4)
                first, total, usage, text = stream(url, prompt, options.answer)
                status = json.load(urllib.request.urlopen(url + "/status"))["service"]
                speed = (usage["completion_tokens"] - 1) / (total - first)
                found.append({"turn": turn, "how": name, "tok_s": speed, "tokens": usage["completion_tokens"],
                              "drafted": status["drafted_tokens_total"], "accepted": status["accepted_tokens_total"],
                              "text": text})
                print(json.dumps({k: v for k, v in found[-1].items() if k != "text"}), flush=True)
    if len({one["text"] for one in found}) != 1:
        raise SystemExit("answers differ")
    keep(options, f"edit-{int(time.time())}.json", json.dumps(found, indent=1))


def keep(options, name, text):
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
        (options.keep / name).write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("decode", "prefix", "edit"))
    parser.add_argument("model", nargs="?")
    parser.add_argument("--cascadia", type=pathlib.Path, default=ROOT / "target" / "release" / "cascadia")
    parser.add_argument("--llama-server", type=pathlib.Path)
    parser.add_argument("--program", help="only these of cascadia,llama-server")
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=64, help="words of `decode`, tokens of `prefix`")
    parser.add_argument("--context", type=int, default=512, help="tokens of a stream")
    parser.add_argument("--answer", type=int, default=64)
    parser.add_argument("--temperature", default="0.8")
    parser.add_argument("--plain", default="--draft-tokens 0", help="flags of a server that guesses nothing")
    parser.add_argument("--keep", type=pathlib.Path)
    options = parser.parse_args()
    {"decode": decode, "prefix": prefix, "edit": edit}[options.what](options)


if __name__ == "__main__":
    sys.exit(main())
