#!/usr/bin/env python3
"""Clients that mean harm, while others are served: the others must not notice, and get exactly the same answers.

Without arguments a run of half a minute, part of CI, without limits on times. `checks/hostile.py --long` has more of
everything, limits on times, and a fuzzer that reads /openapi.json (`pip install schemathesis`); run it on a machine
that does nothing else. The letters are rows of the plan: H2 combinations, H5 dribbling sockets, pipelining and idle
connections, C3 what times tell about other tenants, C4 a flood beside a conversation.
"""
import argparse
import itertools
import json
import pathlib
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time

import serving
from serving import text

# Every value is odd or wrong; pairs of them meet in one request.
ODD = {
    "n": [1, 8, 0, -1, 10**6], "max_tokens": [1, 0, -1, 2**31, 2**63], "temperature": [0, 2, -1, 1e308, "hot"],
    "top_p": [0, 1, -0.1, 1.1], "top_k": [-1, 0, 1, 2**40], "min_p": [0, 1, 2], "seed": [0, -1, 2**63 - 1, 2**64],
    "stop": ["", "e", ["a"] * 16, ["a"] * 17, [""], 7], "logprobs": [0, 20, 21, -1, True], "stream": [True, False, "no"],
    "logit_bias": [{"0": -100}, {"5": 100}, {"999999999": 1}, {"x": 1}, {"1": 1e9}],
    "presence_penalty": [-2, 2, 9], "frequency_penalty": [-2, 2, None], "repetition_penalty": [0.1, 10, 0],
    "prompt": ["", "a", [], [1], [-1], [2**40], ["a", "b"], ["a"] * 17, "\x00" * 3, text(3000, 1)],
    "stream_options": [{"include_usage": True}, {}, 3], "model": ["default", "other", 5], "suffix": ["", "z"],
    "priority": ["high", "low", "now"], "response_format": [{"type": "json_object"}, {"type": "text"}, "json"],
}


def odd_requests(seed, odd=ODD, usual={"prompt": "once", "max_tokens": 2}):
    """Requests with two odd values each, for ever."""
    chance = random.Random(seed)
    pairs = list(itertools.combinations(odd, 2))
    while True:
        body = dict(usual)
        for name in chance.choice(pairs):
            body[name] = chance.choice(odd[name])
        yield body


def identity(server, findings, long):
    """H2: the answers of a load, alone and beside other loads and odd requests."""
    count = 64 if long else 16
    sizes = ["--prompt", "8..1500", "--answer", "8..256"] if long else ["--prompt", "8..200", "--answer", "8..48"]
    asked = ["--requests", count, "--temp", "0,0.8", "--seed", 11, *sizes]
    alone = server.load(*asked, "--clients", 1)
    odd, statuses, answers = odd_requests(5), {}, []

    def disturb():
        status = server.request("POST", "/v1/completions", next(odd), tenant=1)[0]
        statuses[status] = statuses.get(status, 0) + 1

    def other_load():
        answers.append(server.load("--requests", count // 2, "--clients", 8, "--cancel", "40%", "--seed", 12, *sizes))

    with serving.Background(disturb), serving.Background(other_load):
        beside = server.load(*asked, "--clients", 12)
    both, different = serving.same_texts(alone, beside)
    failed, refused = (alone[what] + beside[what] for what in ("failed", "refused"))
    findings.add("H2: requests that failed", failed, failed == 0, "0")
    # A slow machine refuses some of what comes at once, and says so.
    findings.add("H2: answers compared", len(both), len(both) == count if long else len(both) >= count - refused,
                 str(count))
    findings.add("H2: answers that differ beside others", len(different), not different, "0")
    wrong = {status: n for status, n in statuses.items() if status >= 500}
    findings.add("H2: odd requests", sum(statuses.values()))
    findings.add("H2: odd requests answered with 5xx", sum(wrong.values()), not wrong, "0")


def first_token(server, seed, tenant=0, words=40):
    begin = time.perf_counter()
    body = {"prompt": text(words, seed), "max_tokens": 1, "temperature": 0}
    status = server.request("POST", "/v1/completions", body, tenant)[0]
    return status, time.perf_counter() - begin


def probes(server, count, seed):
    """Times of short requests one after the other; a status other than 200 fails the check."""
    times = []
    for n in range(count):
        status, seconds = first_token(server, seed + n)
        if status != 200:
            raise SystemExit(f"a client was answered with {status} beside hostile ones")
        times.append(seconds)
    return times


def high(times):
    return sorted(times)[int(0.99 * (len(times) - 1))]


def dribbling(server, findings, long):
    """H5: sockets that send the head of a request byte by byte."""
    count, rounds = (2000, 400) if long else (1500, 40)
    before = high(probes(server, rounds, 1000))
    held = server.resources()["rss"]
    sockets = server.connect(count)
    head, sent = b"GET /livez HTTP/1.1\r\nhost: localhost\r\nx-slow: " + b"a" * 4000, [0]

    def dribble():
        for one in sockets:
            try:
                one.send(head[sent[0]:sent[0] + 1])
            except OSError:
                pass
        sent[0] += 1
        time.sleep(0.2)

    with serving.Background(dribble):
        beside = high(probes(server, rounds, 5000))
        grown = server.resources()["rss"] - held
    for one in sockets:
        one.close()
    findings.add(f"H5: {count} dribbling sockets: others p99, times as long", beside / before,
                 beside <= 1.1 * before if long else None, "1.1")
    findings.add("H5: memory for each of them, KiB", grown / count / 1024)
    server.settle()


def idle(server, findings, long):
    """Connections that say nothing."""
    sockets = server.connect(4000 if long else 1500)
    probes(server, 10, 9000)
    findings.add("idle connections beside which others are served", len(sockets))
    for one in sockets:
        one.close()
    server.settle()


def pipelining(server, findings, long):
    """Ten thousand requests on one connection, sent before the first answer is read."""
    count, done = 10_000, 0
    one = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    request = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"
    one.settimeout(0.0)
    waiting, answers = request * count, bytearray()
    begin, others = time.perf_counter(), []
    while done < count and time.perf_counter() - begin < 600:
        try:
            waiting = waiting[one.send(waiting[:1 << 16]):] if waiting else waiting
        except BlockingIOError:
            pass
        try:
            answers += one.recv(1 << 20)
            done += answers.count(b"HTTP/1.1 200")
            del answers[:max(len(answers) - 12, 0)]
            # An answer whose first bytes came last is counted with the rest of it.
            done -= answers.count(b"HTTP/1.1 200")
        except BlockingIOError:
            time.sleep(0.001)
        if len(others) < 5 and done > len(others) * count / 5:
            others += probes(server, 1, 7000 + len(others))
    done += answers.count(b"HTTP/1.1 200")
    one.close()
    findings.add("pipelined requests answered", done, done == count, str(count))


def kolmogorov_smirnov(one, other):
    """The chance of a difference at least this large between two samples of the same distribution."""
    one, other = sorted(one), sorted(other)
    below = lambda sample, value: sum(x <= value for x in sample) / len(sample)
    distance = max(abs(below(one, value) - below(other, value)) for value in one + other)
    size = (len(one) * len(other) / (len(one) + len(other))) ** 0.5
    scaled = (size + 0.12 + 0.11 / size) * distance
    return min(1.0, max(0.0, 2 * sum((-1) ** (k - 1) * 2.718281828459045 ** (-2 * k * k * scaled * scaled)
                                     for k in range(1, 101))))


def foreign_cache(server, findings, long):
    """C3: what another tenant has sent is not found in the cache, and times do not tell about it; one's own do."""
    prompt = {"prompt": text(300, 19_999), "max_tokens": 1, "temperature": 0}
    found = [server.stream(prompt, tenant)[1]["prompt_tokens_details"]["cached_tokens"] for tenant in (0, 1, 0)]
    findings.add("C3: cached tokens of a prompt another tenant has sent", found[1], found[1] == 0, "0")
    findings.add("C3: cached tokens of a prompt sent before", found[2], found[2] > 200, "> 200")
    if not long:
        return
    count, own, foreign, fresh = 500, [], [], []
    for n in range(count):
        cached, new = 20_000 + n, 60_000 + n
        first_token(server, cached, tenant=0, words=300)
        # In turns, so that what else the machine does meets both alike.
        for sample, seed in [(foreign, cached), (fresh, new)][::1 if n % 2 else -1]:
            sample.append(first_token(server, seed, tenant=1, words=300)[1])
        own.append(first_token(server, cached, tenant=0, words=300)[1])
    chance = kolmogorov_smirnov(foreign, fresh)
    findings.add(f"C3: foreign prefix told from new, p of {count} pairs", chance, chance > 0.01, "> 0.01")
    control = kolmogorov_smirnov(own, fresh)
    findings.add("C3: own prefix told from new (control)", control, control < 0.01, "< 0.01")


def flood(server, findings, long):
    """C4: a tenant with a conversation, while another sends long prompts that fill the cache."""
    rounds = 40 if long else 4
    conversation = {"prompt": text(600, 3), "max_tokens": 1, "temperature": 0}
    server.stream(conversation, tenant=2)
    alone = [server.stream(conversation, tenant=2)[0] for _ in range(rounds)]
    flooding = ["--clients", 4, "--tenants", 1, "--prompt", "900", "--answer", "4", "--requests", 40 if long else 4]
    seeds = itertools.count(100)
    with serving.Background(lambda: server.load(*flooding, "--seed", next(seeds))):
        time.sleep(10 if long else 1)
        beside = [server.stream(conversation, tenant=2) for _ in range(rounds)]
        fresh = [server.stream({**conversation, "prompt": text(600, 400 + n)}, tenant=2)[0] for n in range(rounds)]
    kept = [usage["prompt_tokens_details"]["cached_tokens"] / usage["prompt_tokens"] for _, usage, _ in beside]
    findings.add("C4: part of the conversation still cached", min(kept), min(kept) > 0.9, "> 0.9")
    middle = lambda times: sorted(times)[len(times) // 2] * 1e3
    findings.add("C4: time to first token alone, ms", middle(alone))
    findings.add("C4: the same under a flood, ms", middle([first for first, _, _ in beside]))
    findings.add("C4: under a flood and not cached, ms", middle(fresh))


def fuzz(server, findings):
    """No request that fits or misfits the description of the API is answered with 5xx."""
    beside = pathlib.Path(sys.executable).parent / "schemathesis"
    program = str(beside) if beside.exists() else shutil.which("schemathesis")
    if not program:
        raise SystemExit("schemathesis is not installed; pip install schemathesis")
    command = [program, "run", f"{server.url}/openapi.json", "--checks", "not_a_server_error", "--max-examples", "50",
               "--phases", "examples,coverage,fuzzing", "--seed", "1", "--no-color", "--workers", "2",
               "-H", f"Authorization: Bearer {server.keys[0]}"]
    with tempfile.TemporaryDirectory() as folder:  # the fuzzer leaves notes where it runs
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    print(done.stdout[-6000:] if done.returncode else "\n".join(done.stdout.splitlines()[-12:]))
    findings.add("schemathesis: server errors", "none" if done.returncode == 0 else "some", done.returncode == 0, "none")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--long", action="store_true", help="more of everything, with limits on times")
    parser.add_argument("--only", help="one part: identity, dribbling, idle, pipelining, foreign_cache, flood or fuzz")
    parser.add_argument("--keep", type=pathlib.Path, help="a file for what was measured")
    options = parser.parse_args()
    findings = serving.Findings()
    parts = (identity, dribbling, idle, pipelining, foreign_cache, flood)
    with serving.Server() as server:
        for part in parts:
            if options.only in (None, part.__name__):
                part(server, findings, options.long)
        if options.only == "fuzz" or options.long and not options.only:
            fuzz(server, findings)
        held = server.settle()["pages_held"]
        findings.add("pages held afterwards", held, held == 0, "0")
    if options.keep:
        options.keep.write_text(json.dumps(findings.rows, indent=1))
    findings.end()


if __name__ == "__main__":
    main()
