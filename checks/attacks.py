#!/usr/bin/env python3
"""Attacks on the released program, each with its bound and what was measured; docs/security.md has the table.

Without arguments all of them once, in under a minute, part of CI: counts, bytes and statuses are asserted, times only
shown beside their targets. `--write` puts the table into docs/security.md. `--long` has more of each and the attacks
that take their time. `--minutes N --keep bench/runs/DATE-hostile` runs all attackers at once beside four honest
tenants, in turns with the honest tenants alone (checks/mixed.py). Run the long forms on a machine that does nothing
else. The letters are rows of the plan: H2 combinations of options, H3 bodies, H4 formats, H6 readers, H7 keys, C4 a
flood beside a conversation, W5 connections to others, K7 memory.
"""
import argparse
import http.client
import json
import os
import pathlib
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import hostile
import program
import serving
from serving import Background, text

MIB = 1 << 20
MEMORY = 1024 * MIB
HONEST, ATTACKER = 0, 4
TENANTS, CROWD = 6, 12  # so many more keys has the last tenant
CROWD_KEYS = range(TENANTS, TENANTS + CROWD)
DOCUMENT = program.ROOT / "docs" / "security.md"
BEGIN, END = "<!-- made by checks/attacks.py --write -->", "<!-- end -->"
ONE_TOKEN = {"prompt": text(20, 1), "max_tokens": 1, "temperature": 0}
# What a tenant sends to have everything: all answers a request may have, as long as they may be.
GREEDY = {"prompt": text(500, 2), "n": 8, "max_tokens": 900, "stream": True, "temperature": 1}


def close(connections):
    for one in connections:
        one.close()


def seconds_of(action):
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def one_token(server):
    status = server.request("POST", "/v1/completions", ONE_TOKEN, HONEST)[0]
    if status != 200:
        raise SystemExit(f"an honest client was answered with {status}")


def growth(server, action):
    """By how many MiB the memory grew at its peak while something was done."""
    before = server.reset_peak()
    action()
    return (server.memory("VmHWM") - before) / MIB


def starvation(server, findings, long):
    """All places taken by the long answers of one tenant, of one key and of many: another is served within a few steps."""
    rounds = 40 if long else 8
    alone = statistics.median(seconds_of(lambda: one_token(server)) for _ in range(rounds))
    for who, keys in (("", [ATTACKER] * 3), (f" beside {CROWD} keys of one tenant", CROWD_KEYS)):
        steps, times, running = short_requests_beside(server, keys, rounds)
        findings.add(f"starvation: long answers of others running meanwhile{who}", running, running >= 4, "≥ 4")
        findings.add(f"starvation: steps until a short request is answered{who}", steps, steps <= 20, "4; asserted 20")
        findings.add(f"starvation: times as long as alone{who}", times / alone)
        server.settle()


def short_requests_beside(server, keys, rounds):
    """(steps, seconds, answers of others) while a short request is answered beside greedy ones of these keys, in the median."""
    flood = [server.send("POST", "/v1/completions", GREEDY, key) for key in keys]
    readers = [threading.Thread(target=read_all, args=(one,)) for one in flood]
    [reader.start() for reader in readers]
    while server.metrics()["running"] < 8:
        time.sleep(0.01)
    steps, times, counted = [], [], lambda: int(server.metrics()["steps_total"])
    for _ in range(rounds):
        begin = counted()
        looking = counted() - begin
        begin = counted()
        times.append(seconds_of(lambda: one_token(server)))
        steps.append(counted() - begin - looking)
    running = int(server.metrics()["running"])
    close(flood)
    [reader.join() for reader in readers]
    return statistics.median(steps), statistics.median(times), running


def read_all(connection):
    """Reads until the connection is closed, here or there."""
    try:
        while connection.recv(1 << 16):
            pass
    except OSError:
        pass


def large_texts(server, findings, long):
    """Texts that no context holds, to be tokenised."""
    for size in (8 * MIB - 100, 2 * MIB):
        statuses = []
        ask = lambda: statuses.append(server.request("POST", "/tokenize", {"prompt": "a b " * (size // 4)}, ATTACKER)[0])
        grown = growth(server, ask)
        findings.add(f"large texts: status of {size / MIB:.0f} MiB for /tokenize", statuses[0], statuses == [400], "400")
        findings.add(f"large texts: memory of it, MiB", grown, grown <= 64, "64")
    alone = statistics.median(seconds_of(lambda: one_token(server)) for _ in range(8))
    body = json.dumps({"prompt": "a b " * (MIB // 2)})  # made once: it takes this program longer than the server
    ask = lambda: server.request("POST", "/tokenize", body, ATTACKER)
    with Background(ask), Background(ask), Background(ask):
        beside = statistics.median(seconds_of(lambda: one_token(server)) for _ in range(8))
    findings.add("large texts: an honest request beside three clients of them, times as long", beside / alone)


def echoed_fields(server, findings, long):
    """Fields that answers repeat, in answers that nobody reads."""
    # Few tokens: pages of the KV cache that are used for the first time would count too.
    body = {"input": "a", "max_output_tokens": 16, "stream": True, "metadata": {"k": "v" * (7 * MIB)}}
    status = server.request("POST", "/v1/responses", body, ATTACKER)[0]
    findings.add("echoed fields: status of 7 MiB of metadata", status, status == 400, "400")
    body["metadata"] = {f"key-{n}": "v" * 512 for n in range(16)}
    unread = []
    grown = growth(server, lambda: (unread.extend(server.send("POST", "/v1/responses", body, ATTACKER) for _ in range(40)),
                                    server.metrics(), time.sleep(2)))
    close(unread)
    findings.add("echoed fields: memory of 40 unread streams with the most allowed, MiB", grown, grown <= 32, "32")
    server.settle()


LITERAL = "".join(f"{n} is not {7 * n + 3}; " for n in range(6000))[:12_000]
# Rules without a choice that repeat a literal 65,536 times, behind a first choice that the compiler cannot see through.
REPEATED = ("start: /[xy]/ a0\n" + "".join(f"a{n}: a{n + 1} a{n + 1}\n" for n in range(16)) + f'a16: "{"z" * 10_000}"\n')
AMBIGUOUS = 'start: start start | " "' + "".join(f' | "{chr(97 + n)}"' for n in range(26))


def formats(server, findings, long):
    """H4: output formats that are as much work as possible."""

    def generate(form, tokens):
        body = {"messages": [{"role": "user", "content": "a"}], "max_tokens": tokens, "response_format": form}
        return server.request("POST", "/v1/chat/completions", body, ATTACKER)

    before, work = server.metrics(), lambda name: server.metrics()[name] - before[name]
    status, _, answer = generate({"type": "choice", "choices": [LITERAL]}, 400)
    answer = json.loads(answer)["choices"][0]["message"]["content"] if status == 200 else ""
    right = len(answer) > 400 and LITERAL.startswith(answer)
    too_long = generate({"type": "choice", "choices": ["x" * 90_000]}, 1)[0]
    findings.add("formats: status of a literal of 90 KB", too_long, too_long == 400, "400")
    findings.add("formats: a forced literal of 12 KB is what comes", "yes" if right else "no", right, "yes")
    per_token = work("format_tokenized_bytes_total") / max(work("format_tokens_total"), 1)
    findings.add("formats: bytes of it tokenised per token", per_token, 0 < per_token <= 100, "100")
    statuses = [generate({"type": "grammar", "grammar": grammar}, 50)[0] for grammar in (REPEATED, AMBIGUOUS)]
    findings.add("formats: status of a grammar that repeats a literal 65,536 times", statuses[0], statuses[0] == 200, "200")
    findings.add("formats: status of one with too many readings", statuses[1], statuses[1] in (200, 400), "400")
    waiting, body = [], {**CHAT, "n": 8, "max_tokens": 900, "stream": True, "temperature": 1,
                         "response_format": {"type": "choice", "choices": [LITERAL]}}
    grown = growth(server, lambda: (waiting.extend(server.send("POST", "/v1/chat/completions", body, ATTACKER)
                                                   for _ in range(16)), time.sleep(2)))
    close(waiting)
    server.settle()
    findings.add("formats: memory of 128 answers with a literal of 12 KB, MiB", grown, grown <= 256, "8 at a time; 256")
    count = 10_000 if long else 150

    def unique(numbers):
        for number in numbers:
            schema = {"type": "object", "properties": {f"field{number}": {"enum": ["a"]}}, "required": [f"field{number}"]}
            if (status := generate({"type": "json_schema", "schema": schema}, 1)[0]) != 200:
                raise SystemExit(f"a schema was answered with {status}")

    unique(range(100))
    grown = growth(server, lambda: unique(range(100, 100 + count)))
    findings.add(f"formats: memory of {count:,} more schemas, MiB", grown, grown <= 32, "32")
    generate({"type": "json_object"}, 60)
    items = work("format_items_total") / max(work("format_masks_total"), 1)
    findings.add("formats: parser items per mask of all these", items, 0 < items <= 10_000, "10,000")


TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"enum": [1]}}}}}
ODD_CHATS = {
    "response_format": [{"type": "json_object"}, {"type": "json_schema", "json_schema": {"schema": {"enum": ["a", 1]}}},
                        {"type": "choice", "choices": ["", "a" * 5000]}, {"type": "grammar", "grammar": AMBIGUOUS},
                        {"type": "regex", "pattern": "(a|b)*a(a|b){14}"}, {"type": "regex", "pattern": "("}, "json"],
    "tools": [[TOOL], [TOOL] * 40, [], [{}], "f"], "tool_choice": ["required", "none", "auto", {"type": "function"}, 3],
    "n": [1, 8, 0, 9], "logprobs": [True, False, 3], "top_logprobs": [0, 20, 21], "stream": [True, False],
    "max_tokens": [1, 0, 64, 2**63], "temperature": [0, 2, -1], "seed": [0, 2**64], "stop": ["a", ["b"] * 17, ""],
    "parallel_tool_calls": [True, False, "no"], "logit_bias": [{"1": 100}, {"-1": 1}], "priority": ["high", "now"],
    "messages": [[], [{"role": "tool", "content": "x"}], [{"role": "assistant", "content": "{"}], "hello"],
    "chat_template_kwargs": [{"messages": []}, {"add_generation_prompt": False}, 3],
}
CHAT = {"messages": [{"role": "user", "content": "a list: a, b, a, b, a, b"}], "max_tokens": 8}


def combinations(server, findings, long):
    """H2: options of a chat that are odd, or odd together, beside an honest load."""
    odd, statuses = hostile.odd_requests(3, ODD_CHATS, CHAT), {}
    sizes = ["--prompt", "8..200", "--answer", "8..48", "--temp", "0,0.8", "--seed", 21, "--chat", "--tenants", 4]
    count = 64 if long else 12
    alone = server.load(*sizes, "--requests", count, "--clients", 1)

    def disturb():
        status = server.request("POST", "/v1/chat/completions", next(odd), ATTACKER)[0]
        statuses[status] = statuses.get(status, 0) + 1

    with Background(disturb):
        beside = server.load(*sizes, "--requests", count, "--clients", 4)
    for _ in range(2000 if long else 60):
        disturb()
    both, different = serving.same_texts(alone, beside)
    findings.add("combinations: odd chats sent", sum(statuses.values()))
    wrong = sum(n for status, n in statuses.items() if status >= 500)
    findings.add("combinations: of them answered with 5xx", wrong, wrong == 0, "0")
    findings.add("combinations: honest answers beside them that differ", len(different), both and not different, "0")
    panics = int(server.metrics()["panics_total"])
    findings.add("combinations: panics", panics, panics == 0, "0")


def endless_body(server, findings, long):
    """H3: a body of 2 GiB in chunks, and bodies that never end."""
    sent, status = [0], [0]

    def push():
        one = socket.create_connection(("127.0.0.1", server.port), timeout=60)
        one.sendall(f"POST /tokenize HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {server.keys[ATTACKER]}\r\n"
                    "transfer-encoding: chunked\r\n\r\n".encode())
        chunk = b"100000\r\n" + b" " * MIB + b"\r\n"
        try:
            for _ in range(2048):
                one.sendall(chunk)
                sent[0] += 1
        except OSError:
            pass  # cut off, as it should be
        try:
            status[0] = int(one.recv(64).split()[1])
        except (OSError, IndexError, ValueError):
            pass  # the answer may be lost with the connection
        one.close()

    grown = growth(server, push)
    findings.add("endless body: MiB of 2,048 taken from a chunked body", sent[0], sent[0] <= 32, "8 and buffers; 32")
    findings.add("endless body: its status, 0 where the cut came first", status[0], status[0] in (0, 413), "413")
    findings.add("endless body: memory of it, MiB", grown, grown <= 24, "24")
    head = f"POST /tokenize HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {server.keys[ATTACKER]}\r\ncontent-length: {7 * MIB}\r\n\r\n"
    held = []

    def hold():
        for one in server.connect(30):
            held.append(one)
            try:
                one.settimeout(5)
                one.sendall(head.encode() + b" " * (6 * MIB))
            except OSError:
                pass  # refused: the memory for bodies is used up

    grown = growth(server, hold)
    close(held)
    findings.add("endless body: memory of 30 bodies of 7 MiB without an end, MiB", grown, grown <= 100, "64; asserted 100")
    server.settle()


def readers(server, findings, long):
    """H6: clients that do not read, and clients that leave."""
    body = {"prompt": "a", "max_tokens": 300, "n": 8, "stream": True, "logprobs": 5}
    unread = []
    grown = growth(server, lambda: (unread.extend(server.send("POST", "/v1/completions", body, ATTACKER) for _ in range(4)),
                                    time.sleep(3)))
    findings.add("readers: memory of 4 unread streams of 8 answers, MiB", grown, grown <= 64, "64")
    if long:
        begin = time.perf_counter()
        while server.metrics()["connections"] > 1 and time.perf_counter() - begin < 120:
            time.sleep(0.1)
        seconds = time.perf_counter() - begin
        findings.add("readers: seconds until they are cut", seconds, seconds <= 90, "30 without a byte read")
    close(unread)
    server.settle()
    unread_answers(server, findings)
    times = []
    for n in range(20 if long else 5):
        one = server.send("POST", "/v1/completions", {**body, "prompt": text(300, 50 + n)}, ATTACKER)
        while server.metrics()["kv_pages_held"] == 0:
            pass
        one.close()
        begin = time.perf_counter()
        while server.metrics()["kv_pages_held"] > 0:
            if time.perf_counter() - begin > 10:
                raise SystemExit("a client that left holds pages after 10 s")
        times.append(time.perf_counter() - begin)
    findings.add("readers: ms until a client that left holds no page", max(times) * 1e3, max(times) <= 10,
                 "250; asserted 10,000")


def unread_answers(server, findings):
    """Answers that are sent at once, of clients that do not read them."""
    tokens = json.dumps({"tokens": [300] * (1 << 18)})
    status = server.request("POST", "/detokenize", tokens, ATTACKER)[0]
    findings.add("readers: status of 262,144 tokens for /detokenize", status, status == 400, "400")
    collected = {"prompt": "a", "max_tokens": 300, "n": 8, "logprobs": 5, "temperature": 1}
    for what, path, body, count in (("/detokenize", "/detokenize", tokens.encode(), 60),
                                    ("8 answers with log-probabilities", "/v1/completions", collected, 4)):
        unread = []

        def leave_unread():
            for _ in range(count):
                try:
                    unread.append(server.send("POST", path, body, ATTACKER, window=4096))
                except OSError:
                    pass  # refused: the memory for clients is used up
            while (now := server.metrics())["running"] + now["waiting"]:
                time.sleep(0.05)

        grown = growth(server, leave_unread)
        findings.add(f"readers: memory of {count} unread answers of {what}, MiB", grown, grown <= 64, "64")
        close(unread)
        server.settle()


def cached_conversation(server, findings, long):
    """C4: the cached conversation of one tenant beside long prompts of another."""
    inner = serving.Findings(quiet=True)
    hostile.flood(server, inner, long)
    alone, beside = (next(row["value"] for row in inner.rows if part in row["what"]) for part in ("alone", "same under"))
    kept = next(row["value"] for row in inner.rows if "still cached" in row["what"])
    findings.add("flood: part of another tenant's conversation still cached", kept, kept > 0.9, "> 0.9")
    findings.add("flood: first token of it, times as long as alone", beside / alone, None, "target 1.5")


def connections(server, findings, long):
    """More connections than there are slots."""
    held = server.connect(1500)
    most = max(int(server.metrics()["connections"]) for _ in range(5))
    findings.add("connections: open after 1,500 idle ones came", most, most <= 900, "900")
    close(held)
    server.settle()


def keys(server, findings, long):
    """H7: requests without a key, with wrong ones, and with one that was revoked."""
    routes = json.loads(server.request("GET", "/openapi.json")[2])["paths"]
    asked = [(method.upper(), path.replace("{id}", "default").replace("{*file}", "app.js"))
             for path, methods in routes.items() for method in methods]
    shown = {}
    for method, path in asked:
        for header in (None, "Bearer ", "Bearer csk-", f"Bearer {server.keys[0]}0", "Basic " + server.keys[0]):
            if status_without(server, method, path, header) != 401:
                shown[path] = True
    findings.add("keys: routes asked without a valid key", len(asked))
    findings.add("keys: of them open", ", ".join(sorted(shown)) or "none",
                 set(shown) <= {"/livez", "/", "/page/app.js"}, "/livez, the page")
    mode = oct((pathlib.Path(server.folder.name) / "keys.json").stat().st_mode & 0o777)
    findings.add("keys: mode of the key file", mode, mode == "0o600", "0o600")
    status = json.loads(server.request("GET", "/status", tenant=HONEST)[2])
    findings.add("keys: tenants that /status shows", len(status["tenants"]), len(status["tenants"]) <= 1, "≤ 1")
    program.run("keys", "revoke", "tenant-5", "--file", pathlib.Path(server.folder.name) / "keys.json")
    status = server.request("GET", "/status", tenant=5)[0]
    findings.add("keys: status of the next request of a revoked key", status, status == 401, "401")


def status_without(server, method, path, header):
    headers = {"authorization": header} if header else {}
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request(method, path, "{}" if method == "POST" else None, headers)
    status = connection.getresponse().status
    connection.close()
    return status


def outbound(server, findings, long):
    """W5: connections that the server opened itself."""
    own = {os.readlink(link)[8:-1] for link in pathlib.Path(f"/proc/{server.process.pid}/fd").iterdir()
           if os.path.islink(link) and os.readlink(link).startswith("socket:[")}
    lines = [line.split() for table in ("tcp", "tcp6", "udp", "udp6")
             for line in pathlib.Path(f"/proc/{server.process.pid}/net/{table}").read_text().splitlines()[1:]]
    others = [line for line in lines if line[9] in own and int(line[1].split(":")[1], 16) != server.port]
    findings.add("outbound: sockets of the server on other ports than its own", len(others), not others, "0")


def run_quietly(*arguments, **more):
    """Exit code of one command of the program."""
    command = [str(program.BINARY), *map(str, arguments)]
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=30, **more).returncode
    except subprocess.TimeoutExpired:
        return 0  # it serves


def configurations(server, findings, long):
    """Options that would serve plain text, and commands that would destroy files."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        half = folder / "serve.json"
        half.write_text(json.dumps({"tls-cert": str(folder / "cert.pem"), "port": 0}))
        key_file = folder / "keys.json"
        program.run("keys", "new", "--file", key_file, "--name", "anna")
        refused = [run_quietly("serve", "--config", half), run_quietly("serve", "--host", "0.0.0.0", "--port", 0),
                   run_quietly("serve", "--host", "0.0.0.0", "--port", 0, "--keys", key_file)]
        findings.add("configurations: half TLS, no keys, no TLS on a public address: refused", sum(map(bool, refused)),
                     all(refused), "3 of 3")
        model = folder / "model.gguf"
        model.write_bytes(program.EMBEDDED_MODEL.read_bytes())
        size = model.stat().st_size
        code = run_quietly("quantize", model, model, "--type", "q8_0")
        kept = code != 0 and model.stat().st_size == size
        findings.add("configurations: a model that is quantised onto itself", "kept" if kept else "lost", kept, "kept")
        run_quietly("fleet", "status", env={**os.environ, "HOME": str(folder)})
        left = sorted(path.name for path in folder.iterdir() if path.name.startswith("."))
        findings.add("configurations: hidden files left by refused commands", len(left), not left, "0")


def pressure(findings, long):
    """K7: more work than `--memory` has room for, in a control group where one can be made."""
    limit = 216 * MIB  # next to the least that this model can do with
    with serving.Server("--memory", f"{limit // MIB}MiB", "--parallel", 64, "--queue", 4, tenants=4) as server:
        kills, remove_group, _, _ = control_group(server.process.pid, int(limit * 1.1))
        run = server.load("--clients", 80, "--prompt", "100..200", "--answer", "8..32", "--duration", 20 if long else 1)
        peak = server.memory("VmHWM")
        told = sum(r["status"] in (429, 503) and r["retry_after"] is None for r in run["requests"])
        findings.add("memory: requests beyond what fits", run["sent"])
        findings.add("memory: of them refused", run["refused"])
        findings.add("memory: answers that paused for others", int(server.metrics()["preemptions_total"]))
        findings.add("memory: refused without Retry-After", told, told == 0, "0")
        findings.add("memory: of them failed", run["failed"], run["failed"] == 0, "0")
        findings.add("memory: peak, MiB", peak / MIB, peak <= limit, f"--memory {limit // MIB}MiB")
        findings.add("memory: kills in a control group of 110 %", kills(), kills() in (0, "no group here"), "0")
        held = server.settle()["pages_held"]
        findings.add("memory: pages held afterwards", held, held == 0, "0")
    remove_group()
    balloon(findings)


def balloon(findings):
    """Another process fills the control group of a server, and leaves again."""
    limit = 640 * MIB
    with serving.Server("--memory", "216MiB", tenants=1) as server:
        one_token(server)
        _, remove_group, add, used = control_group(server.process.pid, limit)
        hold = "held = bytearray(int(input())); held[::4096] = b'x' * len(held[::4096]); print('full', flush=True); input()"
        filler = subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        has_group = add(filler.pid)
        full, again = "no group here", "no group here"
        if has_group:
            # All but 3 % of the group. What the server took before it came there does not count there.
            filler.stdin.write(f"{int(0.97 * limit) - used()}\n")
            filler.stdin.flush()
            filler.stdout.readline()
            full = wait_for_status(server, 503)
        filler.kill()
        filler.wait()
        if has_group:
            again = wait_for_status(server, 200)
        findings.add("memory: status while others fill the control group", full, full in (503, "no group here"), "503")
        findings.add("memory: status once they are gone", again, again in (200, "no group here"), "200")
    remove_group()


def wait_for_status(server, wanted):
    """Asks until the answer has this status, for at most ten seconds; the last status."""
    end = time.monotonic() + 10
    while (status := server.request("POST", "/v1/completions", ONE_TOKEN, HONEST)[0]) != wanted and time.monotonic() < end:
        time.sleep(0.1)
    return status


def control_group(pid, limit):
    """Puts a process under a limit of memory; how to count kills there, to remove it, to add another, and to ask what is used."""
    root = pathlib.Path("/sys/fs/cgroup")
    first = (root / "memory") if (root / "memory").is_dir() else root
    folder = first / f"cascadia-check-{pid}"
    try:
        folder.mkdir()
        name = "memory.limit_in_bytes" if first != root else "memory.max"
        (folder / name).write_text(str(limit))
        (folder / "cgroup.procs").write_text(str(pid))
    except OSError:
        return lambda: "no group here", lambda: folder.is_dir() and folder.rmdir(), lambda pid: False, lambda: 0
    events = folder / ("memory.oom_control" if first != root else "memory.events")
    count_kills = lambda: int(re.search(r"oom_kill (\d+)", events.read_text())[1])
    used = lambda: int((folder / ("memory.usage_in_bytes" if first != root else "memory.current")).read_text())
    return count_kills, folder.rmdir, lambda pid: (folder / "cgroup.procs").write_text(str(pid)) > 0, used


# Attacks that a program outside cannot show, or not in a minute, and the tests that do.
BY_TEST = [
    ("panic in a receiver, or where no job is concerned", "its own job fails, or none; the server serves on",
     "crates/engine/tests/service/panics.rs"),
    ("panic in stages, logits, embeddings or the draft model", "at most one job fails; the tokens of others stay; the server serves on",
     "crates/engine/src/service/panics.rs"),
    ("worker that beats and does not compute", "its standby's answer within a few usual steps",
     "crates/fleet/tests/fleet/hanging_machines.rs"),
    ("fleet keys that were replaced, statements that are forged, reordered, truncated, expired or of another fleet",
     "refused; a crash at any write leaves the old keys or the new ones", "crates/fleet/src/workers/key_tests/"),
    ("worker whose machine or control group runs out of memory", "releases what does not compute at 92 %, leaves at 95 %; the same tokens",
     "crates/fleet/tests/fleet/memory_pressure.rs"),
    ("server whose machine or control group runs out of memory", "releases prefixes, unused adapters and free pages at 92 %, refuses at 95 %",
     "crates/engine/tests/service/memory.rs"),
    ("clients that send or read nothing", "cut after exactly their time; what they held is free",
     "crates/server/src/http/accept.rs"),
    ("client that leaves", "its pages are free in the next step", "crates/engine/tests/service/jobs.rs"),
    ("long texts to be tokenised", "memory said before, counted by the allocator; the tokens of the whole",
     "crates/text/tests/tokenizing_memory.rs"),
    ("half-open connections to the fleet port", "shares per address; members connect at once",
     "crates/fleet/tests/fleet/sockets.rs"),
    ("shard larger than a worker's quota or disk", "refused; nothing that is stored is removed for it",
     "crates/fleet/tests/fleet/pushing.rs"),
    ("flood of long prompts and answers beside another tenant's answer", "steps a quarter longer on average; both requests of a pair find a place",
     "crates/engine/tests/schedule/places.rs"),
    ("link that is slow, loses packets, dribbles or stalls", "99th percentile of the others' time between tokens at most 1.5 times as long",
     "crates/fleet/tests/fleet/slow_links.rs"),
    ("worker that tries to open files, run programs or listen", "refused by the kernel (Linux)",
     "crates/fleet/tests/sandbox.rs"),
    ("redirect of a download to another host, compressed reply", "no credential follows; nothing is decompressed",
     "crates/hub/tests/hub/transfer.rs"),
    ("page that says where it is computed", "true from the first paint", "checks/page.py"),
    ("times that tell about a key", "hashes are compared in constant time", "crates/server/src/http/keys.rs"),
    ("thousands of formats", "memory as before, counted by the allocator", "crates/text/tests/grammar_memory.rs"),
]

ATTACKS = (starvation, large_texts, echoed_fields, formats, combinations, endless_body, readers, cached_conversation,
           connections, keys, outbound, configurations)


def write(findings):
    """Puts the tables into the document."""
    by_test = ["| Attack | Bound | Test |", "|---|---|---|"] + [f"| {a} | {b} | `{c}` |" for a, b, c in BY_TEST]
    tables = f"{findings.table()}\n\nShown by tests of their own:\n\n" + "\n".join(by_test)
    document = DOCUMENT.read_text()
    before, rest = document.split(BEGIN)
    DOCUMENT.write_text(f"{before}{BEGIN}\n{tables}\n{END}{rest.split(END)[1]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--long", action="store_true", help="more of each, and attacks that take their time")
    parser.add_argument("--only", help="one attack: " + ", ".join(one.__name__ for one in ATTACKS) + " or pressure")
    parser.add_argument("--write", action="store_true", help="put the table into docs/security.md")
    parser.add_argument("--minutes", type=float, help="all attackers at once beside honest tenants, for so long")
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for everything that was measured")
    options = parser.parse_args()
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
    findings = serving.Findings()
    if options.minutes:
        import mixed
        mixed.run(options.minutes, findings, options.keep)
    else:
        with serving.Server("--memory", f"{MEMORY // MIB}MiB", tenants=TENANTS, crowd=CROWD) as server:
            one_token(server)
            start = server.settle()
            for attack in ATTACKS:
                if options.only in (None, attack.__name__):
                    print(f"{attack.__name__}: {attack.__doc__}")
                    seconds = seconds_of(lambda: attack(server, findings, options.long))
                    print(f"  {seconds:.1f} s")
            after = server.settle(fds=start["fds"])
            findings.add("afterwards: highest memory, MiB", server.peak() / MIB, server.peak() <= MEMORY,
                         f"--memory {MEMORY // MIB}MiB")
            findings.add("afterwards: pages held", after["pages_held"], after["pages_held"] == 0, "0")
            findings.add("afterwards: descriptors more than before", max(after["fds"] - start["fds"], 0),
                         after["fds"] <= start["fds"], "0")
        if options.only in (None, "pressure"):
            print(f"pressure: {pressure.__doc__}")
            print(f"  {seconds_of(lambda: pressure(findings, options.long)):.1f} s")
    if options.keep:
        (options.keep / "attacks.json").write_text(json.dumps(findings.rows, indent=1))
    if options.write:
        write(findings)
    findings.end()


if __name__ == "__main__":
    main()
