#!/usr/bin/env python3
"""Hours of load with a fault every minute: the answers stay the same, and memory and descriptors do not grow.

`checks/soak.py --hours 24 --keep bench/runs/DATE-soak`, by hand, on a machine that does nothing else. Every minute the same
honest requests are sent, which must get the answers of the first minute, while one fault happens: the server is frozen,
hundreds of clients leave or do not read, texts and bodies are too long, a key is made and revoked. Then the server comes to rest
and is measured. From an hour on, the slope of its memory has a limit. For the machines of a fleet there is `cascadia bench chaos`.
"""
import argparse
import json
import os
import pathlib
import random
import signal
import threading
import time

import attacks
import mixed
import program
import serving

LOAD_SECONDS = 40  # of each minute; the rest is for coming to rest
FAULT_AFTER = 5
VERDICT_HOURS = 1  # before, memory still grows to what it is going to be
SLOPE_LIMIT = 4  # MiB per hour


def frozen(server, chance):
    """As a suspended machine."""
    os.kill(server.process.pid, signal.SIGSTOP)
    time.sleep(2 + 3 * chance.random())
    os.kill(server.process.pid, signal.SIGCONT)


def key_change(server, chance):
    """A key is made, used and revoked."""
    path, name = pathlib.Path(server.folder.name) / "keys.json", f"guest-{chance.randrange(10**9)}"
    server.keys.append(program.run("keys", "new", "--file", path, "--name", name).strip())
    status = server.request("POST", "/v1/completions", attacks.ONE_TOKEN, len(server.keys) - 1)[0]
    program.run("keys", "revoke", name, "--file", path)
    again = server.request("POST", "/v1/completions", attacks.ONE_TOKEN, len(server.keys) - 1)[0]
    server.keys.pop()
    if (status, again) != (200, 401):
        raise SystemExit(f"a new key was answered with {status}, and with {again} when it was revoked")


def many(attack):
    """The attack, ten times one after the other."""

    def repeated(server, chance):
        for _ in range(10):
            try:
                attack(server, chance)
            except OSError:
                pass  # cut off or refused, as attackers may be

    repeated.__name__ = attack.__name__
    return repeated


FAULTS = (frozen, key_change, *map(many, (mixed.leaving, mixed.unread_answers, mixed.endless_body, mixed.large_texts,
                                          mixed.embeddings, mixed.crowd, mixed.dribbling, mixed.formats)))


def minute(server, fault, seed):
    """The honest load, beside a fault if there is one."""
    chance, problems = random.Random(seed), []

    def strike():
        time.sleep(FAULT_AFTER)
        try:
            fault(server, chance)
        except BaseException as problem:  # noqa: SystemExit of a check must reach the main thread too
            problems.append(problem)

    thread = threading.Thread(target=strike if fault else lambda: None)
    thread.start()
    run = server.load(*mixed.HONEST_LOAD, "--duration", LOAD_SECONDS, "--seed", 7)
    thread.join()
    if problems:
        raise problems[0]
    return run


def slope(samples, what):
    """Growth per hour, by least squares over the later half."""
    later = samples[len(samples) // 2:]
    hours, values = [one["hours"] for one in later], [one[what] for one in later]
    mean = lambda numbers: sum(numbers) / len(numbers)
    spread = sum((hour - mean(hours)) ** 2 for hour in hours)
    return sum((hour - mean(hours)) * (value - mean(values)) for hour, value in zip(hours, values)) / (spread or 1)


def run(hours, findings, keep):
    samples, compared, different, failed = [], 0, 0, 0
    with serving.Server("--memory", f"{attacks.MEMORY // attacks.MIB}MiB", tenants=attacks.TENANTS, crowd=attacks.CROWD) as server:
        reference, begin, number = minute(server, None, 0), time.monotonic(), 0
        start = server.settle()
        while time.monotonic() - begin < hours * 3600:
            fault, due = FAULTS[number % len(FAULTS)], time.monotonic() + 60
            one = minute(server, fault, number)
            at_rest = server.settle(seconds=60, fds=start["fds"])
            both, wrong = serving.same_texts(reference, one)
            compared, different = compared + len(both), different + len(wrong)
            failed += one["failed"] + len(one["problems"])
            samples.append({"hours": (time.monotonic() - begin) / 3600, "rss": at_rest["rss"] / attacks.MIB, "fds": at_rest["fds"],
                            "pages_held": at_rest["pages_held"], "fault": fault.__name__})
            print(f"  {json.dumps(samples[-1])}, {compared} answers compared, {different} different", flush=True)
            if keep:
                (keep / "soak.json").write_text(json.dumps(samples, indent=1))
            number += 1
            time.sleep(max(due - time.monotonic(), 0))
        peak, counted = server.peak(), server.metrics()
    growth, is_judged = slope(samples, "rss"), hours >= VERDICT_HOURS
    add = findings.add
    add("soak: faults", number)
    add("soak: honest answers compared", compared, compared > 0, "> 0")
    add("soak: of them different from the first minute", different, different == 0, "0")
    add("soak: honest requests failed", failed, failed == 0, "0")
    add("soak: panics", int(counted["panics_total"]), counted["panics_total"] == 0, "0")
    add("soak: highest memory, MiB", peak / attacks.MIB, peak <= attacks.MEMORY, f"--memory {attacks.MEMORY // attacks.MIB}MiB")
    add("soak: growth of memory, MiB per hour", growth, growth <= SLOPE_LIMIT if is_judged else None,
        str(SLOPE_LIMIT) if is_judged else "from an hour on")
    most = max(one["fds"] for one in samples) - start["fds"]
    add("soak: descriptors more than before", most, most <= 0, "0")
    held = max(one["pages_held"] for one in samples)
    add("soak: pages held at rest", held, held == 0, "0")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hours", type=float, required=True, help="how long, at least a minute")
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for what was measured")
    options = parser.parse_args()
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
    findings = serving.Findings()
    run(options.hours, findings, options.keep)
    findings.end()


if __name__ == "__main__":
    main()
