"""A running `cascadia serve` and the load generator as Python objects, for the checks of serving."""
import http.client
import json
import os
import pathlib
import random
import re
import socket
import subprocess
import tempfile
import threading
import time

import program

WORDS = "the river and a town by night with lights over the water where nobody goes to sleep before the ships".split()


def text(words, seed):
    """Words in an order that only the seed decides."""
    chance = random.Random(seed)
    return " ".join(chance.choice(WORDS) for _ in range(words)) + " "


class Server:
    """A server on a free port with a key for each tenant, or open to all; ends with its `with` block.

    `crowd` says how many more keys the last tenant has.
    """

    def __init__(self, *arguments, model=None, tenants=4, crowd=0, log=None):
        self.folder = tempfile.TemporaryDirectory()
        folder = pathlib.Path(self.folder.name)
        names = [(f"tenant-{n}", f"tenant-{n}") for n in range(tenants)]
        names += [(f"crowd-{n}", f"tenant-{tenants - 1}") for n in range(crowd)]
        made = [program.run("keys", "new", "--file", folder / "keys.json", "--name", name, "--tenant", tenant).strip()
                for name, tenant in names]
        self.keys, self.key_file = made, folder / "keys.txt"
        self.key_file.write_text("\n".join(made[:tenants]))
        command = [program.BINARY, "serve", *([model] if model else []), "--port", 0, "--log-level", "error",
                   *(["--keys", folder / "keys.json"] if tenants else []), *arguments]
        self.log, self.highest = log or folder / "log", 0
        with self.log.open("w") as log:
            self.process = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.port = self.wait_for_port()
        self.url = f"http://127.0.0.1:{self.port}"

    def wait_for_port(self):
        for _ in range(6000):
            found = re.search(r"127\.0\.0\.1:(\d+)/", self.log.read_text())
            if found:
                return int(found[1])
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise SystemExit(f"the server did not start: {self.log.read_text()}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(timeout=60)
        said = "\n".join(line for line in self.log.read_text().splitlines() if not line.startswith("Serving"))
        self.folder.cleanup()
        if self.process.returncode != 0 or "panicked" in said:
            raise SystemExit(f"the server ended with {self.process.returncode}: {said[-2000:]}")

    def request(self, method, path, body=None, tenant=0, timeout=120):
        """(status, headers, bytes) of one request; an object becomes JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            data = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
            headers = {"authorization": f"Bearer {self.keys[tenant]}", "content-type": "application/json"}
            connection.request(method, path, data, headers)
            reply = connection.getresponse()
            return reply.status, dict(reply.headers), reply.read()
        finally:
            connection.close()

    def stream(self, body, tenant=0):
        """(seconds to the first text, usage, text) of a completion."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        body = {**body, "stream": True, "stream_options": {"include_usage": True}}
        begin, first, usage, text = time.perf_counter(), None, None, ""
        headers = {"authorization": f"Bearer {self.keys[tenant]}", "content-type": "application/json"}
        connection.request("POST", "/v1/completions", json.dumps(body), headers)
        reply = connection.getresponse()
        if reply.status != 200:
            raise SystemExit(f"status {reply.status}: {reply.read()[:500]}")
        for line in reply:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            piece = event["choices"][0]["text"] if event.get("choices") else ""
            first = first or (piece and time.perf_counter() - begin) or None
            text, usage = text + piece, event.get("usage") or usage
        connection.close()
        return first, usage, text

    def metrics(self):
        text = self.request("GET", "/metrics")[2].decode()
        plain = (line.split() for line in text.splitlines() if line and line[0] != "#" and "{" not in line)
        return {name.removeprefix("cascadia_"): float(value) for name, value in plain}

    def resources(self):
        """Memory in bytes and open file descriptors of the process, and pages its jobs hold."""
        held = int(self.metrics()["kv_pages_held"])
        # The connection of the last question may take a moment to close.
        fds = min((time.sleep(0.05), len(os.listdir(f"/proc/{self.process.pid}/fd")))[1] for _ in range(10))
        return {"rss": self.memory("VmRSS"), "fds": fds, "pages_held": held}

    def peak(self):
        """The most memory that was used since the start, in bytes."""
        self.highest = max(self.highest, self.memory("VmHWM"))
        return self.highest

    def reset_peak(self):
        """Lets `VmHWM` begin anew; says how much memory is used."""
        self.peak()
        pathlib.Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")
        return self.memory("VmRSS")

    def memory(self, kind):
        """`VmRSS`, what is used now, or `VmHWM`, the most since the last reset, in bytes."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(rf"{kind}:\s+(\d+)", status)[1]) * 1024

    def connect(self, count):
        """Sockets, as many of them as the server lets in or not."""
        return [socket.create_connection(("127.0.0.1", self.port), timeout=30) for _ in range(count)]

    def send(self, method, path, body=b"", tenant=0, window=None):
        """A connection on which a request was sent and nothing was read; `window` is how many bytes it takes unread."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        one = socket.socket()
        one.settimeout(60)
        if window:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        one.connect(("127.0.0.1", self.port))
        head = (f"{method} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {self.keys[tenant]}\r\n"
                f"content-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n")
        one.sendall(head.encode() + data)
        return one

    def settle(self, seconds=300, fds=None):
        """Waits until nothing runs, waits or is connected but this question, and says what is held then.

        With `fds` it also gives connections that were closed the time to go, until no more descriptors are open.
        """
        held, end = None, time.monotonic() + seconds
        while time.monotonic() < end:
            now = self.metrics()
            if now["running"] == now["waiting"] == 0 and now["connections"] <= 1:
                held = self.resources()
                if fds is None or held["fds"] <= fds:
                    return held
            time.sleep(0.1)
        if held is None:
            raise SystemExit(f"the server does not come to rest: {now}")
        return held

    def load(self, *arguments, keep=None):
        """What `cascadia bench serve --json` says of a load; kept in a file if one is named."""
        text = program.run("bench", "serve", self.url, "--keys", self.key_file, *arguments, "--json")
        if keep:
            keep.write_text(text)
        return json.loads(text)


class Background:
    """Calls a function again and again on a thread until the `with` block ends; a failure there is one here."""

    def __init__(self, work):
        self.work, self.stop, self.problem = work, threading.Event(), None
        self.thread = threading.Thread(target=self.loop)

    def loop(self):
        try:
            # Once at least, also where the block ends before this thread has got a core.
            while True:
                self.work()
                if self.stop.is_set():
                    return
        except BaseException as problem:  # noqa: SystemExit of a check must reach the main thread too
            self.problem = problem

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()
        if self.problem:
            raise self.problem


class Findings:
    """Rows of a report: what was measured, its limit, and whether it holds."""

    def __init__(self, quiet=False):
        self.rows, self.quiet = [], quiet

    def add(self, what, value, holds=None, limit=""):
        self.rows.append({"what": what, "value": value, "limit": limit, "holds": holds})
        if self.quiet:
            return
        shown = f"{value:.4g}" if isinstance(value, float) else str(value)
        mark = {True: "ok", False: "FAILS", None: ""}[None if holds is None else bool(holds)]
        print(f"  {what:58} {shown:>14}  {limit:14} {mark}", flush=True)

    def table(self):
        """The rows in Markdown."""
        shown = lambda value: f"{value:,.3g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else value
        rows = [(*row["what"].split(": ", 1), row["limit"] or "shown", shown(row["value"])) for row in self.rows]
        head = ["| Attack | What is measured | Bound | Measured |", "|---|---|--:|--:|"]
        return "\n".join(head + ["| " + " | ".join(row) + " |" for row in rows])

    def end(self):
        broken = [row["what"] for row in self.rows if row["holds"] is not None and not row["holds"]]
        if broken:
            raise SystemExit("does not hold: " + "; ".join(broken))


def same_texts(one, other):
    """Numbers of the requests that were answered whole in both runs, and of those whose answers differ."""
    done = lambda run: {r["number"]: r["text"] for r in run["requests"] if r["outcome"] == "done"}
    one, other = done(one), done(other)
    both = sorted(one.keys() & other.keys())
    return both, [number for number in both if one[number] != other[number]]
