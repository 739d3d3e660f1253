#!/usr/bin/env python3
"""Many adapters on one base: a pool that holds few of them, and adapters that are replaced under load.

    bench/adapters.py many PEFT-FOLDER [--model model.gguf] [--count 1000] [--pool 8] --keep bench/runs/DATE-adapters
    bench/adapters.py storm PEFT-FOLDER [--seconds 20] --keep bench/runs/DATE-adapters
    bench/adapters.py beside --model model.gguf --llama-server path/to/llama-server --keep bench/runs/DATE-adapters

`many` makes copies of an adapter with other numbers, and sends requests whose adapters are distributed as Zipf's law says, eight
at a time: to a server whose memory holds `--pool` of them, to one that holds all, and to the latter one request at a time. Every
answer must be that of the run with one request at a time. Adapters borrow idle pages of the KV cache, so that cache is small
(`--ctx`), and what was in memory at most is part of the result; so is what an adapter that is not in memory adds to the time of
the first token, beside the steps of the same run. `storm` replaces one adapter every 100 ms while requests use it: every answer
must be that of the old or of the new weights, whole; a stream with an adapter that stays shows how long a replacement holds up
others, beside the longest waits between replacements. `beside` makes four adapters of `--rank` in llama.cpp's form, and
decodes one and four streams at a time with none, with one for all and with another for each, here and in llama-server, in turns.
There are no draft tokens unless `--draft-tokens` says so. Needs numpy, safetensors and gguf.
"""
import argparse
import concurrent.futures
import json
import pathlib
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
import urllib.request

import gguf
import numpy as np
from safetensors.numpy import save_file

from compare import processor
from serving import ROOT, WORDS, serving

WEIGHTS = "adapter_model.safetensors"
AT_ONCE = 8


def tensors_of(folder):
    """The tensors of an adapter as float32, whatever it stores them in; numpy has no bfloat16."""
    data = (folder / WEIGHTS).read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header, found = json.loads(data[8:start]), {}
    for name, tensor in header.items():
        if name == "__metadata__":
            continue
        first, end = tensor["data_offsets"]
        stored = data[start + first:start + end]
        if tensor["dtype"] == "BF16":
            values = (np.frombuffer(stored, np.uint16).astype(np.uint32) << 16).view(np.float32)
        else:
            values = np.frombuffer(stored, {"F32": np.float32, "F16": np.float16}[tensor["dtype"]]).astype(np.float32)
        found[name] = values.reshape(tensor["shape"])
    return found


def variant(source, tensors, seed, target):
    """A copy of an adapter with a little noise, so that it answers in its own way."""
    chance = np.random.default_rng(seed)
    target.mkdir(parents=True, exist_ok=True)
    shutil.copy(source / "adapter_config.json", target)
    noise = {name: (value + chance.normal(0, 0.3 * value.std(), value.shape)).astype(np.float16)
             for name, value in tensors.items()}
    save_file(noise, target / WEIGHTS)


def requests(count, adapters, seed):
    chance = random.Random(seed)
    weights = [1 / (rank + 1) for rank in range(adapters)]
    pick = chance.choices(range(adapters), weights, k=count)
    prompt = lambda: " ".join(chance.choice(WORDS) for _ in range(4))
    return [(f"a{number}", prompt()) for number in pick]


def post(url, path, body):
    data = json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as reply:
        return json.load(reply)


def base_name(url):
    with urllib.request.urlopen(url + "/v1/models", timeout=30) as reply:
        return json.load(reply)["data"][0]["id"]


def ask(url, base, adapter, prompt, tokens=48):
    body = {"model": f"{base}:{adapter}", "prompt": prompt, "max_tokens": tokens, "temperature": 0}
    return post(url, "/v1/completions", body)["choices"][0]["text"]


def run(url, wanted, at_once):
    """Texts of all answers, and seconds."""
    base = base_name(url)
    begin = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(at_once) as threads:
        texts = list(threads.map(lambda one: ask(url, base, *one), wanted))
    return texts, time.perf_counter() - begin


def serve(options, folder, memory):
    model = [options.model] if options.model else []
    return serving([options.cascadia, "serve", *model, "--adapters", folder, "--adapter-memory", memory, "--parallel", AT_ONCE,
                    "--ctx", options.ctx, "--draft-tokens", options.draft_tokens, "--log-level", "error"], "/v1/models")


def metrics(url):
    with urllib.request.urlopen(url + "/metrics", timeout=30) as reply:
        lines = (line.split() for line in reply.read().decode().splitlines() if line[:1] != "#" and "{" not in line)
        return {name.removeprefix("cascadia_"): float(value) for name, value in lines}


def mean_step(before, after):
    """Milliseconds of a step between two looks at the metrics."""
    return 1e3 * (after["step_seconds_total"] - before["step_seconds_total"]) / (after["steps_total"] - before["steps_total"])


class Residents:
    """Looks at how many adapters are in memory, four times a second."""

    def __init__(self, url):
        self.url, self.ended, self.most, self.borrowed = url, threading.Event(), 0, 0
        self.thread = threading.Thread(target=self.look)

    def look(self):
        while not self.ended.wait(0.25):
            found = metrics(self.url)
            self.most = max(self.most, int(found["adapters_in_memory"]))
            self.borrowed = max(self.borrowed, int(found["adapter_bytes_borrowed"]))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()


def adapter_bytes(url):
    with urllib.request.urlopen(url + "/v1/adapters", timeout=30) as reply:
        return json.load(reply)["data"][0]["bytes"]


def activation(url, numbers):
    """Milliseconds until the first token of requests with adapters that are not in memory, and with the same ones again."""
    base, times = base_name(url), ([], [])
    prompts = random.Random(2)
    for number in numbers:
        for found in times:
            prompt = " ".join(prompts.choice(WORDS) for _ in range(4))
            begin = time.perf_counter()
            ask(url, base, f"a{number}", prompt, 1)
            found.append(1e3 * (time.perf_counter() - begin))
    cold, warm = map(statistics.median, times)
    return {"cold": cold, "in_memory": warm, "activation": cold - warm, "all_cold": times[0], "all_in_memory": times[1]}


def many(options, folder):
    tensors = tensors_of(options.adapter)
    for number in range(options.count):
        variant(options.adapter, tensors, number, folder / f"a{number}")
    wanted = requests(options.requests, options.count, 1)
    result = {"processor": processor(), "adapters": options.count, "pool": options.pool, "requests": options.requests}
    with serve(options, folder, "64G") as url:
        each = adapter_bytes(url)
        run(url, wanted[:50], AT_ONCE)
        solo, solo_seconds = run(url, wanted, 1)
        resident, resident_seconds = run(url, wanted, AT_ONCE)
    with serve(options, folder, str(each * options.pool)) as url:
        run(url, wanted[:50], AT_ONCE)
        before = metrics(url)
        with Residents(url) as residents:
            pooled, pooled_seconds = run(url, wanted, AT_ONCE)
        step = mean_step(before, metrics(url))
        first_token = activation(url, range(options.count - 40, options.count))
        alone = 1e3 / decode_speed(url, [{"model": f"{base_name(url)}:a0", "prompt": "the river", "max_tokens": 48, "temperature": 0}])
    result |= {"adapter_bytes": each, "ctx": options.ctx, "most_in_memory": residents.most, "most_bytes_borrowed": residents.borrowed,
               "first_token_ms": first_token, "step_ms": {"one_stream": alone, "under_load": step},
               "activation_in_steps": first_token["activation"] / step,
               "different_resident": sum(one != other for one, other in zip(solo, resident)),
               "different_pooled": sum(one != other for one, other in zip(solo, pooled)),
               "distinct_answers": len(set(solo)),
               "requests_per_second": {"one at a time": len(wanted) / solo_seconds,
                                       "all in memory": len(wanted) / resident_seconds,
                                       "pool": len(wanted) / pooled_seconds},
               "pool_beside_all_in_memory": resident_seconds / pooled_seconds,
               "pool_beside_one_at_a_time": solo_seconds / pooled_seconds}
    return result


def storm(options, folder):
    tensors, prompt = tensors_of(options.adapter), " ".join(WORDS)
    for number in range(2):
        variant(options.adapter, tensors, number, folder / "kept" / str(number))
    shown = folder / "shown"
    shutil.copytree(folder / "kept" / "0", shown / "changing")
    shutil.copytree(folder / "kept" / "0", shown / "v0")
    shutil.copytree(folder / "kept" / "1", shown / "v1")
    ended = threading.Event()
    replacements, tokens = [], []
    with serve(options, shown, "1G") as url:
        base = base_name(url)
        whole = {ask(url, base, name, prompt, 64) for name in ("v0", "v1")}

        def replace():
            while not ended.wait(0.1):
                begin = time.perf_counter()
                post(url, "/v1/adapters", {"name": "changing", "path": f"v{len(replacements) % 2}"})
                replacements.append((begin, time.perf_counter()))

        def listen():
            body = {"model": f"{base}:v0", "prompt": prompt, "max_tokens": 64, "temperature": 0, "ignore_eos": True}
            while not ended.is_set():
                tokens.append(token_times(url, body))

        threads_beside = [threading.Thread(target=work) for work in (replace, listen)]
        for thread in threads_beside:
            thread.start()
        end, answers = time.perf_counter() + options.seconds, []
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as threads:
            while time.perf_counter() < end:
                answers += threads.map(lambda _: ask(url, base, "changing", prompt, 64), range(AT_ONCE))
        ended.set()
        for thread in threads_beside:
            thread.join()
    between = [(one[1], other[0]) for one, other in zip(replacements, replacements[1:])]
    return {"processor": processor(), "replaced": len(replacements), "answers": len(answers), "versions": len(whole),
            "neither_old_nor_new": sum(answer not in whole for answer in answers),
            "replacement_ms": spread([1e3 * (end - begin) for begin, end in replacements]),
            "between_tokens_ms": spread([1e3 * (end - begin) for begin, end in waits(tokens)]),
            "longest_wait_ms": {"while_replacing": spread(longest_waits(tokens, replacements)),
                                "between": spread(longest_waits(tokens, between))}}


def waits(streams):
    """From each token of a stream to the next one."""
    return [pair for times in streams for pair in zip(times, times[1:])]


def longest_waits(streams, spans):
    """Milliseconds of the longest wait for a token that overlaps each span, of those that a stream was there for."""
    found = ([end - begin for begin, end in waits(streams) if begin < last and end > first] for first, last in spans)
    return [1e3 * max(overlapping) for overlapping in found if overlapping]


def spread(values):
    ordered = sorted(values)
    at = lambda share: ordered[min(int(share * len(ordered)), len(ordered) - 1)]
    return {"count": len(ordered), "median": at(0.5), "p95": at(0.95), "max": ordered[-1]}


def gguf_adapter(model, rank, targets, seed, path):
    """A random adapter in llama.cpp's form."""
    chance = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_string("general.type", "adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", float(rank))
    for tensor in gguf.GGUFReader(model).tensors:
        if tensor.name.startswith("blk.") and tensor.name.split(".")[2] in targets:
            inputs, outputs = (int(size) for size in tensor.shape)
            for part, shape in (("a", (rank, inputs)), ("b", (outputs, rank))):
                writer.add_tensor(f"{tensor.name}.lora_{part}", chance.normal(0, 0.02, shape).astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def token_times(url, body):
    """When the tokens of a streamed answer came."""
    data = json.dumps(body | {"stream": True}).encode()
    request = urllib.request.Request(url + "/v1/completions", data, {"content-type": "application/json"})
    times = []
    with urllib.request.urlopen(request, timeout=120) as reply:
        for line in reply:
            if line.startswith(b"data: {"):
                times.append(time.perf_counter())
    return times


def decode_speed(url, bodies):
    """Tokens per second of all streams from the first token to the last: llama-server does not run different adapters together."""
    with concurrent.futures.ThreadPoolExecutor(len(bodies)) as threads:
        streams = list(threads.map(lambda body: token_times(url, body), bodies))
    begin, end = min(times[0] for times in streams), max(times[-1] for times in streams)
    return (len(bodies) * bodies[0]["max_tokens"] - 1) / (end - begin)


ATTENTION = ("attn_q", "attn_k", "attn_v", "attn_output")
ALL = (*ATTENTION, "ffn_gate", "ffn_up", "ffn_down")


def beside(options, folder):
    """Decode speed by number of streams and by their adapters, of both servers."""
    result = {"processor": processor(), "rank": options.rank, "tokens": options.tokens, "turns": options.turns}
    for kind, targets in (("attention", ATTENTION), ("all", ALL)):
        shown = folder / kind
        paths = [shown / f"a{number}" / "adapter.gguf" for number in range(4)]
        for number, path in enumerate(paths):
            path.parent.mkdir(parents=True)
            gguf_adapter(options.model, options.rank, targets, number, path)
        prompts = [" ".join(WORDS[number:] + WORDS[:number]) for number in range(4)]
        common = {"max_tokens": options.tokens, "temperature": 0, "ignore_eos": True}
        choices = [("none", [None] * 4), ("one for all", [0] * 4), ("four", [0, 1, 2, 3])]
        cases = [(1, name, chosen[:1]) for name, chosen in choices[:2]] + [(4, *choice) for choice in choices]
        speeds = {}
        for _ in range(options.turns):
            with serving([options.cascadia, "serve", options.model, "--adapters", shown, "--parallel", 4, "--draft-tokens", 0,
                          "--adapter-memory", "2G", "--log-level", "error"], "/v1/models") as url:
                base = base_name(url)
                name_of = lambda adapter: base if adapter is None else f"{base}:a{adapter}"
                measure("cascadia", url, cases, lambda adapter: {"model": name_of(adapter)}, (prompts, common), speeds)
            lora = ["--lora", ",".join(map(str, paths)), "--lora-init-without-apply"]
            with serving([options.llama_server, "-m", options.model, "-np", 4, "-t", options.threads, "-c", 4 * 512, *lora],
                         "/health") as url:
                scales = lambda adapter: {"lora": [{"id": number, "scale": float(number == adapter)} for number in range(4)]}
                measure("llama.cpp", url, cases, scales, (prompts, common), speeds)
        result[kind] = [{"program": program, "streams": streams, "adapters": name, "tokens_per_second": statistics.median(found),
                         "all": found} for (program, streams, name), found in speeds.items()]
    return result


def measure(program, url, cases, choose, request, speeds):
    prompts, common = request
    for streams, name, chosen in cases:
        bodies = [common | {"prompt": prompt} | choose(adapter) for prompt, adapter in zip(prompts, chosen)]
        decode_speed(url, [body | {"max_tokens": 4} for body in bodies])
        speeds.setdefault((program, streams, name), []).append(decode_speed(url, bodies))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["many", "storm", "beside"])
    parser.add_argument("adapter", type=pathlib.Path, nargs="?", help="a PEFT folder for the model")
    parser.add_argument("--cascadia", type=pathlib.Path, default=ROOT / "target" / "release" / "cascadia")
    parser.add_argument("--llama-server", type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=2, help="of llama-server")
    parser.add_argument("--rank", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--draft-tokens", type=int, default=0)
    parser.add_argument("--model", help="a model; the one in the program if not given")
    parser.add_argument("--ctx", type=int, default=256, help="tokens of the longest sequence")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--pool", type=int, default=8)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for what was measured")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = {"many": many, "storm": storm, "beside": beside}[options.what](options, pathlib.Path(folder))
    text = json.dumps(result, indent=1)
    print(text)
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
        (options.keep / f"{options.what}.json").write_text(text + "\n")
    wrong = [key for key in ("different_resident", "different_pooled", "neither_old_nor_new") if result.get(key)]
    sys.exit(f"answers differ: {wrong}" if wrong else 0)


if __name__ == "__main__":
    main()
