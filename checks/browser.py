"""A browser to drive: Chromium without a window, over the WebDriver protocol."""
import base64
import json
import random
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request

OPTIONS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
           "--disable-extensions", "--disable-background-networking", "--no-first-run"]
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the name of the protocol for a reference to an element
KEYS = {"enter": "\ue007", "escape": "\ue00c", "tab": "\ue004", "up": "\ue013", "shift": "\ue008", "alt": "\ue00a"}


def free_port():
    """A port below those that the system gives to whoever connects: none takes it before it is listened on."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def is_there():
    return bool(shutil.which("chromium") and shutil.which("chromedriver"))


class Browser:
    def __init__(self):
        port = free_port()
        self.driver = subprocess.Popen(["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL)
        self.base = f"http://127.0.0.1:{port}"
        wanted = {"timeouts": {"script": 300_000, "pageLoad": 300_000},
                  "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
                  "goog:chromeOptions": {"binary": shutil.which("chromium"), "args": OPTIONS}}
        try:
            until(self.answers, "chromedriver to start")
            session = self.send("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        except BaseException:
            self.driver.kill()
            raise
        self.base += f"/session/{session['sessionId']}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.send("DELETE", "")
        finally:
            self.driver.kill()
            self.driver.wait()

    def answers(self):
        try:
            return self.send("GET", "/status")["ready"]
        except urllib.error.URLError:
            return False

    def send(self, method, path, body=None):
        data = json.dumps(body or {}).encode() if method == "POST" else None
        request = urllib.request.Request(self.base + path, data, {"content-type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=330) as response:
                return json.load(response)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{method} {path}: {error.read().decode()[:1000]}") from error

    def command(self, name, **parameters):
        """A command of Chromium's own protocol."""
        return self.send("POST", "/goog/cdp/execute", {"cmd": name, "params": parameters})

    def open(self, address):
        self.send("POST", "/url", {"url": address})

    def run(self, script, *arguments):
        """The value that a script in the page returns; a promise is awaited."""
        return self.send("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def text(self, selector):
        return self.run("return document.querySelector(arguments[0])?.textContent ?? ''", selector)

    def count(self, selector):
        return self.run("return document.querySelectorAll(arguments[0]).length", selector)

    def click(self, selector):
        found = self.send("POST", "/element", {"using": "css selector", "value": selector})
        self.send("POST", f"/element/{found[ELEMENT]}/click")

    def choose(self, selector, path):
        """Gives a file to a field for files."""
        found = self.send("POST", "/element", {"using": "css selector", "value": selector})
        self.send("POST", f"/element/{found[ELEMENT]}/value", {"text": str(path)})

    def press(self, *keys, held=None):
        """Keys pressed one after the other, wherever the focus is; words of several letters name keys."""
        steps = [{"type": kind, "value": KEYS.get(key, key)} for key in keys for kind in ("keyDown", "keyUp")]
        if held:
            steps = [{"type": "keyDown", "value": KEYS[held]}, *steps, {"type": "keyUp", "value": KEYS[held]}]
        self.send("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": steps}]})

    def write(self, text):
        self.press(*text)

    def log(self, kind):
        """Lines of a log since the last call."""
        return self.send("POST", "/se/log", {"type": kind})

    def requests(self):
        """Addresses that the page has asked for since the last call."""
        events = (json.loads(line["message"])["message"] for line in self.log("performance"))
        return [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]

    def size(self, width, height, scale=1):
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale,
                     mobile=width < 600)

    def prefer(self, scheme):
        self.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def screenshot(self, path):
        path.write_bytes(base64.b64decode(self.send("GET", "/screenshot")))


def becomes(true, seconds, pause=0.05):
    """Waits until something is so, or for so long."""
    end = time.monotonic() + seconds
    while not (value := true()) and time.monotonic() < end:
        time.sleep(pause)
    return value


def until(true, what, seconds=120, pause=0.05):
    """Waits until something is so; much longer than it takes, because the machine may have much else to do."""
    value = becomes(true, seconds, pause)
    if not value:
        raise SystemExit(f"waited {seconds} s for {what}")
    return value
