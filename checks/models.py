#!/usr/bin/env python3
"""Several models in one process and one memory: loaded when requests name them, unloaded while others answer.

The built-in model and SmolLM2-135M, which `cascadia pull` keeps under target/; where it cannot be had, a copy of the built-in
model stands in for it, loudly. Once with memory for both, once with memory for one at a time. Half a minute.
"""
import json
import shutil
import threading
import time
import pathlib
import tempfile

import program
from serving import Server

PROMPTS = ["The lighthouse keeper", "A letter from the mountains:", "Once the snow had melted,"]
TOKENS = 24
PATIENCE = 60


class Client(threading.Thread):
    """Asks one model for the same answers again and again; keeps what went wrong."""

    def __init__(self, server, model, expected, pause):
        super().__init__()
        self.server, self.model, self.expected, self.pause = server, model, expected, pause
        self.stopped, self.problems, self.answers = threading.Event(), [], 0

    def run(self):
        while not self.stopped.is_set():
            for prompt, expected in zip(PROMPTS, self.expected):
                status, answer = ask(self.server, self.model, prompt)
                self.answers += 1
                if status != 200 or answer != expected:
                    self.problems.append((status, answer, expected))
            self.pause()


def ask(server, model, prompt):
    body = {"model": model, "prompt": prompt, "max_tokens": TOKENS, "temperature": 0}
    status, _, data = server.request("POST", "/v1/completions", body, timeout=300)
    return status, json.loads(data)["choices"][0]["text"] if status == 200 else data.decode()


def alone(path):
    """What a model answers that has a server of its own."""
    with Server(model=path, tenants=1) as server:
        return [ask(server, "default", prompt)[1] for prompt in PROMPTS]


def loaded(server):
    shown = json.loads(server.request("GET", "/api/ps")[2])["models"]
    return {model["name"].removesuffix(":latest") for model in shown}


def until(condition, what):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE} s: {what}"
        time.sleep(0.1)


def finish(clients):
    for client in clients:
        client.stopped.set()
    for client in clients:
        client.join()
        assert not client.problems, client.problems[:3]
    return " and ".join(str(client.answers) for client in clients)


def together(paths, names, expected, memory):
    """One model is unloaded again and again while the other answers without a break."""
    with Server(*paths[1:], "--memory", memory, "--keep-alive", "1s", model=paths[0], tenants=1) as server:
        busy = Client(server, names[0], expected[0], lambda: None)
        rare = Client(server, names[1], expected[1], lambda: until(lambda: names[1] not in loaded(server), f"{names[1]} left"))
        busy.start(), rare.start()
        until(lambda: rare.answers > 3 * len(PROMPTS), "three loads")
        answers, peak = finish([busy, rare]), server.peak()
    print(f"  together: {answers} answers, none failed or differed; {names[1]} was unloaded between its own")
    program.expect("share of --memory at the peak", peak / memory, 1)


def in_turn(paths, names, expected, memory):
    """Two clients want two models, and memory has room for one."""
    with Server(*paths[1:], "--memory", memory, model=paths[0], tenants=1) as server:
        clients = [Client(server, *of, lambda: None) for of in zip(names, expected)]
        for client in clients:
            client.start()
        until(lambda: min(client.answers for client in clients) > 3 * len(PROMPTS), "answers of both")
        assert len(loaded(server)) <= 1, "both are in memory"
        answers, peak = finish(clients), server.peak()
    print(f"  in turn: {answers} answers, none failed or differed; never both in memory")
    program.expect("share of --memory at the peak", peak / memory, 1)


def main():
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "copy.gguf"
        other = program.stored_model("smollm2:135m") or pathlib.Path(shutil.copy(program.EMBEDDED_MODEL, copy))
        paths = [program.EMBEDDED_MODEL, other]
        names, expected = [path.stem for path in paths], [alone(path) for path in paths]
        together(paths, names, expected, 1_200_000_000)
        in_turn(paths, names, expected, 400_000_000)


if __name__ == "__main__":
    main()
