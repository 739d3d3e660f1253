#!/usr/bin/env python3
"""The chat of `cascadia run` in a terminal: lines that end between words, several lines at once, commands, completion, and the
history of an earlier run.

    .venv/bin/python checks/terminal.py

Uses nothing but the built program and its embedded model.
"""
import fcntl
import os
import pathlib
import pty
import re
import select
import struct
import tempfile
import termios
import time

import program

COLUMNS = 40
PATIENCE = 120
# At the beginning of a line; while a line is typed, the prompt is printed again and again, but on the same one.
PROMPT = "\n> "
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """The program in a terminal of its own, with its own folders."""

    def __init__(self, home, *arguments):
        self.process, self.screen = pty.fork()
        if self.process == 0:
            os.environ.update(XDG_STATE_HOME=str(home), XDG_CACHE_HOME=str(home), TERM="xterm")
            os.execv(program.BINARY, [str(program.BINARY), "run", *arguments])
        fcntl.ioctl(self.screen, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
        self.said = ""
        self.wait_for("Ctrl-D leaves")
        self.wait_for(PROMPT)

    def wait_for(self, text):
        """What it said up to a text, which is taken out of what it said."""
        end = time.monotonic() + PATIENCE
        while text not in self.plain():
            if time.monotonic() > end or not self.read(end - time.monotonic()):
                raise SystemExit(f"waited for {text!r}, and it said {self.plain()[-600:]!r}")
        before, self.said = self.plain().split(text, 1)
        return before

    def plain(self):
        return ESCAPE.sub("", self.said).replace("\r", "")

    def read(self, seconds):
        if not select.select([self.screen], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self.screen, 65536)
        except OSError:
            return False
        self.said += data.decode(errors="replace")
        return bool(data)

    def type(self, text):
        os.write(self.screen, text.encode())

    def ask(self, text):
        """Types a line; what was said after it, up to the next prompt. Before that, the program does not read."""
        self.type(text + "\r")
        return self.wait_for(PROMPT)

    def leave(self, text="/bye\r"):
        """Leaves it, which ends well."""
        self.type(text)
        while self.read(PATIENCE):
            pass
        # Without its terminal it ends in any case.
        os.close(self.screen)
        _, status = os.waitpid(self.process, 0)
        if status != 0:
            raise SystemExit(f"it ended with {status}: {self.plain()[-600:]!r}")


def check(true, what):
    if not true:
        raise SystemExit(f"wrong: {what}")


def main():
    with tempfile.TemporaryDirectory() as home:
        home = pathlib.Path(home)
        settings = ["--seed", "3", "--temp", "0", "-n", "80"]
        first = Terminal(home, *settings)
        lines = first.ask("Tell me of the sea.").split("\n")
        speed = lines.index(next(line for line in lines if line.startswith("[prompt")))
        lines = lines[1:speed]
        check(len(lines) > 3 and all(len(line) <= COLUMNS for line in lines), f"lines of an answer: {lines}")
        expected = program.run("run", "-p", "Tell me of the sea.", *settings).split()
        check(" ".join(lines).split() == expected, f"{lines} is not {expected}")
        first.type('"""\r/reset is a word here\r')
        check("afresh" not in first.ask('and another line"""'), "a command within quotes was obeyed")
        check("There is no system prompt" in first.ask("/system"), "a bare /system")
        first.ask("/set temperature 0.5")
        check("temperature          0.5" in first.ask("/set"), "a setting")
        first.type("/sa\t")
        first.wait_for("/save ")
        check("4 messages" in first.ask(f"{home}/chat.json"), "saving")
        first.leave()
        mode = (home / "cascadia" / "history").stat().st_mode & 0o777
        check(mode == 0o600, f"others may read the history: {mode:o}")

        second = Terminal(home, *settings)
        check("4 messages" in second.ask(f"/load {home}/chat.json"), "loading")
        second.type("\x1b[A\x1b[A\x1b[A")
        second.wait_for("/save ")
        second.type("\x03")
        second.wait_for(PROMPT)
        second.leave("\x04")
    print("the chat does what it should in a terminal")


if __name__ == "__main__":
    main()
