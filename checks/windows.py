"""What the Windows program answers under Wine, beside the Linux program: texts, logits, a server, a fleet of both.

Called by checks/windows.sh, which builds both and says in BUILT where they are.
"""
import contextlib
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import time

import openai

import program

BUILT = pathlib.Path(os.environ["BUILT"])
LINUX = [str(BUILT / "release" / "cascadia")]
WINDOWS = ["wine", str(BUILT / "x86_64-pc-windows-gnu" / "release" / "cascadia.exe")]
PROMPT = "It was a dark and stormy night, and"
TYPES = ["q8_0", "q4_0", "q4_k_m", "iq4_nl", "nf4", "int4"]
PATIENCE = 120


def run(system, *arguments, folder=None):
    command = [*system, *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=600)
    if done.returncode != 0:
        raise SystemExit(f"exit code {done.returncode} from {' '.join(command)}\n{done.stderr.decode(errors='replace')}")
    return done.stdout.decode().replace("\r\n", "\n")


def same(what, answers):
    linux, windows = map(answers, (LINUX, WINDOWS))
    if linux != windows:
        raise SystemExit(f"{what}: Linux and Windows differ")
    print(f"  {what}: the same", flush=True)


def texts():
    same("version", lambda system: run(system, "--version"))
    for temperature in 0, 0.8:
        options = ["--raw", "-p", PROMPT, "--seed", 7, "--temp", temperature, "--max-tokens", 100]
        same(f"text of the built-in model at temperature {temperature}", lambda system: run(system, "run", *options))


def logits(folder):
    """Of every model among the fixtures, and of one that was quantised by either program."""
    def of(model, *options, tokens=range(5, 65)):
        tokens = ",".join(map(str, tokens))

        def found(system):
            run(system, "eval", "logits", model, "--tokens", tokens, "--out", "logits.npy", *options, folder=folder)
            return (folder / "logits.npy").read_bytes()
        return found

    for path in sorted((program.ROOT / "fixtures").glob("*/tokens.json")):
        fixture, tokens = program.fixture(path.parent.name)
        same(f"logits of {fixture.name}", of(fixture, tokens=tokens))
    model = program.ROOT / "fixtures" / "llama3"
    for kind in TYPES:
        def quantised(system):
            run(system, "quantize", model, "quantised.gguf", "--type", kind, "--force", folder=folder)
            return (folder / "quantised.gguf").read_bytes()
        same(f"llama3 quantised to {kind}", quantised)
        same("its logits", of(folder / "quantised.gguf"))
    same("logits of the built-in model", of(program.EMBEDDED_MODEL))
    same("the same with a quantised cache", of(program.EMBEDDED_MODEL, "--kv", "int8/int4"))
    same("the same with activations of sixteen bits", of(program.EMBEDDED_MODEL, "--activations", "int16"))


@contextlib.contextmanager
def running(system, folder, *arguments, until, ends=True):
    """A program that runs as long as the block does, from when its output has `until`; Ctrl-C ends it."""
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen([*system, *map(str, arguments)], cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=out)

        def said():
            return os.pread(out.fileno(), 1 << 20, 0).decode(errors="replace")

        try:
            end = time.monotonic() + PATIENCE
            while not (found := re.search(until, said())):
                if process.poll() is not None or time.monotonic() > end:
                    raise SystemExit(f"{' '.join(map(str, arguments))} did not say {until}, but: {said()}")
                time.sleep(0.05)
            yield found[0]
        finally:
            process.send_signal(signal.SIGINT)
            code = process.wait(PATIENCE)
        if ends and code != 0:
            raise SystemExit(f"Ctrl-C ended it with {code}: {said()}")


def answers(url):
    """To a question, whole and streamed."""
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", timeout=PATIENCE)
    question = dict(model="default", messages=[{"role": "user", "content": "Tell me about a harbour at night."}], max_tokens=32, seed=7)
    whole = client.chat.completions.create(**question).choices[0].message.content
    events = client.chat.completions.create(**question, stream=True)
    streamed = "".join(event.choices[0].delta.content or "" for event in events if event.choices)
    assert whole and whole == streamed, (whole, streamed)
    return whole


def served(system, folder, *arguments):
    with running(system, folder, "serve", *arguments, "--port", 0, "--ctx", 512, until=r"http://127\.0\.0\.1:\d+") as url:
        return answers(url)


def fleet(folder):
    """A Linux coordinator that runs the last layers, and a Windows worker that runs the first."""
    model = program.EMBEDDED_MODEL
    run(LINUX, "export", model, "--stages", 2, "--precision", "keep", "--out", "shards", folder=folder)
    # A port that was free a moment ago: the worker has to find the coordinator there twice.
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    init = ["fleet", "init", "--home", "coordinator", "--listen", address, "--address", address, "--no-announce"]
    with running(LINUX, folder, *init, until=r"cas1-\S+", ends=False) as invitation:
        run(WINDOWS, "join", invitation, "--name", "windows", "--home", "worker", folder=folder)
    worker = ["worker", "start", "--home", "worker", "--threads", 1, "--priority", "normal"]
    with running(WINDOWS, folder, *worker, until="sandbox"):
        run(LINUX, "fleet", "push", "shards", "windows:stage-0", "here:stage-1", "--home", "coordinator", folder=folder)
        both = served(LINUX, folder, "--fleet", "all", "--home", "coordinator")
    if both != served(LINUX, folder, model):
        raise SystemExit("a fleet of both systems gives another answer")
    print("  a fleet of a Linux coordinator and a Windows worker: the tokens of one machine")


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    texts()
    same("answers of a server, which Ctrl-C ends", lambda system: served(system, folder))
    fleet(folder)
    logits(folder)
