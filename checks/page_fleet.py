"""The dashboard of a fleet: two stages and a standby, all on this machine."""
import json
import pathlib
import subprocess
import tempfile
import threading
import urllib.request

import program
from browser import free_port, until
from serving import Server

MACHINES = ["reception", "workshop", "library"]
CARD = "section[aria-label=Fleet]"


class Fleet:
    """A coordinator that serves, and its workers, which end with the `with` block."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        folder = pathlib.Path(self.folder.name)
        shards, home = folder / "shards", folder / "coordinator"
        program.run("export", program.EMBEDDED_MODEL, "--splits", "0,5", "--precision", "keep", "--out", shards)
        listen = f"127.0.0.1:{free_port()}"
        line = program.run("fleet", "init", "--home", home, "--listen", listen, "--no-wait", "--machines", 3).strip()
        self.workers = []
        # The server answers only when all stages have a machine, so these join meanwhile.
        joining = threading.Thread(target=self.join, args=(line, folder, shards))
        joining.start()
        try:
            self.server = Server("--fleet", shards, "--home", home, tenants=0)
        finally:
            joining.join()

    def join(self, line, folder, shards):
        for number, name in enumerate(MACHINES):
            home = folder / name
            until(lambda: self.joins(line, home, name), f"{name} to join")
            command = [program.BINARY, "worker", "start", "--home", home, "--threads", 1, "--shard",
                       shards / f"stage-{min(number, 1)}"]
            self.workers.append(subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL,
                                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def joins(self, line, home, name):
        command = [program.BINARY, "join", line, "--home", home, "--name", name]
        return subprocess.run(list(map(str, command)), capture_output=True).returncode == 0

    def end(self, number):
        self.workers[number].kill()
        self.workers[number].wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.server.__exit__()
        finally:
            for number in range(len(self.workers)):
                self.end(number)
            self.folder.cleanup()


def ask(fleet):
    request = urllib.request.Request(fleet.server.url + "/v1/completions", b'{"prompt": "A ship", "max_tokens": 60}',
                                        {"content-type": "application/json"})
    urllib.request.urlopen(request, timeout=300).close()


def shows_a_fleet(page, fleet, check):
    """Machines, their layers, where time goes, and who takes over."""
    # The page says who computes before the dashboard was ever opened.
    page.open(fleet.server.url + "/")
    place = lambda: page.text("#privacy")
    until(lambda: place().startswith("Computed") and all(name in place() for name in MACHINES), "all machines to be named")
    check("stays on" not in place(), f"the page promises {place()!r}")
    page.open(fleet.server.url + "/#dashboard")
    ask(fleet)
    until(lambda: page.count(f"{CARD}:not([hidden]) .part") == 2, "the map of layers")
    check(page.count("section[aria-label=Stages]:not([hidden])") == 0, "the card of one machine is shown too")
    label = page.run("return document.querySelector('.layer-map').getAttribute('aria-label')")
    check(label.startswith("layers 0–4 on reception, layers 5–8 on "), f"the map says {label!r}")
    widths = page.run("return [...document.querySelectorAll('.part')].map((part) => part.getBoundingClientRect().width)")
    check(abs(widths[0] / widths[1] - 5 / 4) < 0.02, f"five layers and four are {widths} wide")
    standby = f"{CARD} tbody tr:nth-child(2) td:nth-child(4)"
    lockstep = [f"{name} (lockstep)" for name in MACHINES[1:]]
    until(lambda: page.text(standby) in lockstep, "a standby in lockstep")
    until(lambda: page.count(f"{CARD} .time-bar") == 3, "the times of a step")
    said = page.run("return [...document.querySelectorAll('.time-bar')].map((bar) => bar.getAttribute('aria-label'))")
    check("computing" in said[0] and "network" in said[1] and "rest" in said[2], f"bars say {said}")
    computing, waiting = page.text(f"{CARD} tbody tr:nth-child(2) td:nth-child(3)"), page.text(standby).split()[0]
    fleet.end(MACHINES.index(computing))
    ask(fleet)
    until(lambda: f"{waiting} runs stage 1" in page.text(".events"), "the event to be shown")
    until(lambda: f"Not connected: {computing}" in page.text(CARD), "the machine to be missed")
    check(page.text(f"{CARD} tbody tr:nth-child(2) td:nth-child(5)") == "1", "the loss is not counted")
    plan = {"stages": [{"seconds": 0.001, "network_seconds": 0.002}] * 2, "ends_seconds": 0.5}
    page.run("""window.realFetch = window.fetch;
        window.fetch = async (path, options) => {
            const status = await (await realFetch(path, options)).json();
            return Response.json({...status, fleet: {...status.fleet, plan: JSON.parse(plan)}});
        };""".replace("plan)", f"{json.dumps(json.dumps(plan))})"))
    until(lambda: page.count(".time-bar .expected") == 3, "what was expected")
    check(page.text(f"{CARD} tbody tr:nth-child(1) td:nth-child(7)") == "3 ms", "another time was expected")
    page.run("window.fetch = window.realFetch")
    until(lambda: page.count(".time-bar .expected") == 0, "no expectation without a plan")
