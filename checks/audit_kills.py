#!/usr/bin/env python3
"""Kills the program 500 times while it writes to a fleet's audit log: no act that was acknowledged may be missing.

Takes a minute or two, and is run by hand.
"""
import json
import random
import subprocess
import tempfile
import time

import program

KILLS = 500


def main():
    random.seed(7)
    with tempfile.TemporaryDirectory() as home:
        def cascadia(*words):
            return program.run(*words, "--home", home)

        invite = ("fleet", "init", "--no-wait", "--listen", "127.0.0.1:1")
        begin = time.monotonic()
        acknowledged = int("cas1-" in cascadia(*invite))
        usual = time.monotonic() - begin
        for _ in range(KILLS):
            process = subprocess.Popen([program.BINARY, *invite, "--home", home], stdout=subprocess.PIPE,
                                       stderr=subprocess.DEVNULL, text=True)
            time.sleep(random.random() * 1.3 * usual)
            process.kill()
            acknowledged += "cas1-" in process.communicate()[0]
        cascadia("audit", "verify")
        records = json.loads(cascadia("audit", "show", "--json", "--last", "5000"))["records"]
        verbs = [record["verb"] for record in records]
        written, torn = verbs.count("invite"), verbs.count("recover")
        assert acknowledged <= written <= KILLS + 1, f"{acknowledged} acts were acknowledged, {written} are written down"
        print(f"{KILLS} kills: {acknowledged} acts acknowledged, {written} written down, {torn} torn records mended; the "
              "chain verifies")


if __name__ == "__main__":
    main()
