"""All attackers at once beside four honest tenants, in turns with the honest tenants alone; for checks/attacks.py.

The honest load is the same in both kinds of turns: the same requests at the same times, sent by `cascadia bench serve`. One turn
without attackers is followed by six with them.
Attackers run in processes of their own with the lowest priority, so that their own work takes little from the server.
"""
import itertools
import json
import multiprocessing
import os
import random
import socket
import time

import attacks
import hostile
import serving
from serving import text

SLICE = 30  # seconds of a turn
HOSTILE_TURNS = 6  # after each turn of honest tenants alone
HONEST_LOAD = ["--chat", "--tenants", 4, "--rate", 2, "--prompt", "16..128", "--answer", "8..32", "--temp", "0,0.8"]
VERDICT_MINUTES = 60  # a shorter run has too few slow steps for its percentiles to be judged
MIB = attacks.MIB


def ask(server, path, body, tenant=attacks.ATTACKER):
    return server.request("POST", path, body, tenant, timeout=60)


def greedy(server, chance):
    one = server.send("POST", "/v1/completions", {**attacks.GREEDY, "prompt": text(500, chance.random())}, attacks.ATTACKER)
    one.settimeout(2)
    attacks.read_all(one)
    one.close()


def long_prompts(server, chance):
    ask(server, "/v1/completions", {"prompt": text(1800, chance.random()), "max_tokens": 4})


def large_texts(server, chance):
    ask(server, "/tokenize", {"prompt": "a b " * (chance.choice([1, 2, 7]) * MIB // 4)})


def echoes(server, chance):
    metadata = {f"key-{n}": "v" * 512 for n in range(16)} if chance.random() < 0.7 else {"k": "v" * (6 * MIB)}
    body = {"input": "a", "max_output_tokens": 400, "stream": True, "metadata": metadata}
    unread = [server.send("POST", "/v1/responses", body, attacks.ATTACKER) for _ in range(8)]
    time.sleep(2)
    attacks.close(unread)


def formats(server, chance):
    schema = {"type": "object", "properties": {f"field{chance.random()}": {"enum": ["a", "b"]}}}
    chosen = chance.choice([{"type": "choice", "choices": [attacks.LITERAL]}, {"type": "json_schema", "schema": schema},
                            {"type": "grammar", "grammar": attacks.REPEATED},
                            {"type": "grammar", "grammar": attacks.AMBIGUOUS}])
    body = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 100, "response_format": chosen}
    ask(server, "/v1/chat/completions", body)


def combinations(server, chance):
    odd = hostile.odd_requests(chance.random(), attacks.ODD_CHATS, attacks.CHAT)
    for body in itertools.islice(odd, 5):
        ask(server, "/v1/chat/completions", body)


def leaving(server, chance):
    body = {"prompt": text(200, chance.random()), "max_tokens": 500, "n": 4, "stream": True}
    one = server.send("POST", "/v1/completions", body, attacks.ATTACKER)
    time.sleep(chance.random() / 5)
    one.close()


def dribbling(server, chance):
    sockets = server.connect(200)
    for byte in b"GET /livez HTTP/1.1":
        for one in sockets:
            one.send(bytes([byte]))
        time.sleep(0.1)
    attacks.close(sockets)


def endless_body(server, chance):
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as one:
        one.sendall(b"POST /tokenize HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\nauthorization: Bearer "
                    + server.keys[attacks.ATTACKER].encode() + b"\r\n\r\n")
        for _ in range(64):
            one.sendall(b"100000\r\n" + b" " * MIB + b"\r\n")


def wrong_keys(server, chance):
    for _ in range(20):
        attacks.status_without(server, "GET", "/status", f"Bearer csk-{chance.random()}")


def unread_answers(server, chance):
    tokens = {"tokens": [chance.randrange(300, 3000) for _ in range(2000)]}
    collected = {"prompt": "a", "max_tokens": 200, "n": 8, "logprobs": 5, "temperature": 1}
    path, body = chance.choice([("/detokenize", tokens), ("/tokenize", {"prompt": text(1500, chance.random())}),
                                ("/v1/completions", collected)])
    unread = [server.send("POST", path, body, attacks.ATTACKER, window=4096) for _ in range(10)]
    time.sleep(3)
    attacks.close(unread)


def embeddings(server, chance):
    ask(server, "/v1/embeddings", {"input": [text(chance.randrange(1, 200), chance.random()) for _ in range(64)]})


def crowd(server, chance):
    sent = [server.send("POST", "/v1/completions", {**attacks.GREEDY, "max_tokens": 100}, key) for key in attacks.CROWD_KEYS]
    time.sleep(2)
    attacks.close(sent)


def idle(server, chance):
    sockets = server.connect(300)
    time.sleep(5)
    attacks.close(sockets)


ATTACKERS = (greedy, greedy, long_prompts, large_texts, echoes, formats, combinations, leaving, dribbling, endless_body,
             wrong_keys, unread_answers, embeddings, crowd, idle)


def attack_for_ever(server, attack, seed):
    os.nice(19)
    chance = random.Random(seed)
    while True:
        try:
            attack(server, chance)
        except OSError:
            time.sleep(0.05)  # cut off or refused, as attackers may be


class Attackers:
    """All of them, each in a process, until the `with` block ends."""

    def __init__(self, server, seed):
        context = multiprocessing.get_context("fork")
        self.processes = [context.Process(target=attack_for_ever, args=(server, attack, f"{seed} {number}"), daemon=True)
                          for number, attack in enumerate(ATTACKERS)]

    def __enter__(self):
        [process.start() for process in self.processes]

    def __exit__(self, *_):
        [process.terminate() for process in self.processes]
        [process.join() for process in self.processes]


def quantile(times, part):
    return sorted(times)[int(part * (len(times) - 1))] if times else float("nan")


def between_tokens(runs):
    return [seconds for run in runs for request in run["requests"] for seconds in request["inter_token_s"]]


def p99_between(runs):
    return quantile(between_tokens(runs), 0.99)


def run(minutes, findings, keep):
    rounds = max(round(minutes * 60 / (HOSTILE_TURNS * SLICE)), 1)
    calm, beside, different, compared = [], [], 0, 0
    with serving.Server("--memory", f"{attacks.MEMORY // MIB}MiB", tenants=attacks.TENANTS,
                        crowd=attacks.CROWD) as server:
        server.load(*HONEST_LOAD, "--duration", 3)
        start = server.settle()
        for number in range(rounds):
            honest = [*HONEST_LOAD, "--duration", SLICE, "--seed", 100 + number]
            calm.append(server.load(*honest))
            for turn in range(HOSTILE_TURNS):
                with Attackers(server, f"{number} {turn}"):
                    time.sleep(1)
                    beside.append(server.load(*honest))
                server.settle()
                both, wrong = serving.same_texts(calm[-1], beside[-1])
                compared, different = compared + len(both), different + len(wrong)
            print(f"  round {number + 1} of {rounds}: p99 between tokens {p99_between(beside) / p99_between(calm):.2f} times as"
                  f" long so far, {compared} answers compared, {different} different", flush=True)
        after = server.settle(fds=start["fds"])
        peak, counted = server.peak(), server.metrics()
    if keep:
        (keep / "mixed.json").write_text(json.dumps({"calm": calm, "beside": beside}))
    report(findings, calm, beside, minutes >= VERDICT_MINUTES)
    add = findings.add
    add("mixed: honest answers compared", compared, compared > 0, "> 0")
    add("mixed: of them different beside attackers", different, different == 0, "0")
    add("mixed: highest memory, MiB", peak / MIB, peak <= attacks.MEMORY, f"--memory {attacks.MEMORY // MIB}MiB")
    add("mixed: memory after, MiB more than before", (after["rss"] - start["rss"]) / MIB)
    add("mixed: panics", int(counted["panics_total"]), counted["panics_total"] == 0, "0")
    add("mixed: pages held afterwards", after["pages_held"], after["pages_held"] == 0, "0")
    add("mixed: jobs left", int(counted["running"] + counted["waiting"]), counted["running"] + counted["waiting"] == 0, "0")
    add("mixed: descriptors more than before", max(after["fds"] - start["fds"], 0), after["fds"] <= start["fds"], "0")


def report(findings, calm, beside, is_judged):
    requests = lambda runs: [request for run in runs for request in run["requests"]]
    failed = sum(run["failed"] + len(run["problems"]) for run in calm + beside)
    findings.add("mixed: honest requests", len(requests(calm + beside)))
    findings.add("mixed: of them failed", failed, failed == 0, "0")
    findings.add("mixed: refused alone", sum(run["refused"] for run in calm))
    findings.add("mixed: refused beside attackers", sum(run["refused"] for run in beside), None, "target 0")
    for name, times in (("first token", lambda request: [request["first_token_s"]] if request["first_token_s"] else []),
                        ("time between tokens", lambda request: request["inter_token_s"])):
        for part in (0.5, 0.99):
            one, other = (quantile([t for request in requests(runs) for t in times(request)], part) for runs in (calm, beside))
            findings.add(f"mixed: {name} p{part * 100:.0f} alone, ms", one * 1e3)
            holds = other / one <= 1.5 if is_judged and part == 0.99 else None
            findings.add(f"mixed: {name} p{part * 100:.0f} beside attackers, times as long", other / one, holds,
                         ("1.5" if is_judged else "target 1.5") if part == 0.99 else "")
