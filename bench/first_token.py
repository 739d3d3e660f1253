#!/usr/bin/env python3
"""From the start of `cascadia serve` to the first token that a client receives.

    bench/first_token.py model.gguf [--turns 9]

The client tries to connect every two milliseconds. The first turn reads the file and times the kernels where the machine has not
seen the model; the others show a stored model that is warm. Needs nothing but Python.
"""
import argparse
import http.client
import json
import pathlib
import socket
import statistics
import subprocess
import time

from compare import ROOT, processor

BODY = json.dumps({"model": "default", "prompt": "The sea", "max_tokens": 4, "stream": True})


def first_token(cascadia, model):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    begin = time.perf_counter()
    server = subprocess.Popen([cascadia, "serve", model, "--port", str(port), "--log-level", "error"], stderr=subprocess.DEVNULL)
    try:
        while server.poll() is None:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            try:
                connection.request("POST", "/v1/completions", BODY, {"content-type": "application/json"})
                reply = connection.getresponse()
                while not reply.readline().startswith(b"data:"):
                    pass
                return time.perf_counter() - begin
            except ConnectionRefusedError:
                time.sleep(0.002)
        raise SystemExit(f"the server ended with {server.returncode}")
    finally:
        server.terminate()
        server.wait(timeout=60)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--cascadia", type=pathlib.Path, default=ROOT / "target" / "release" / "cascadia")
    given = parser.parse_args()
    times = [first_token(given.cascadia, given.model) for _ in range(given.turns)]
    print(f"{given.model.name}, {processor()}, seconds from start to first token: {', '.join(f'{one:.3f}' for one in times)}")
    print(f"median without the first {statistics.median(times[1:]):.3f}")


if __name__ == "__main__":
    main()
