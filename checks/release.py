#!/usr/bin/env python3
"""What a release is made of: an archive installs with install.sh and its program runs, a changed archive is refused, the files for
Homebrew and winget name archives with their checksums, workflows are well-formed, and the container starts.

    .venv/bin/python checks/release.py

Uses the built program, without its symbols. Each part whose tools are missing says so.
"""
import functools
import hashlib
import http.server
import os
import pathlib
import platform
import re
import shutil
import subprocess
import tempfile
import threading

import yaml

import program

PACKAGING = program.ROOT / "packaging"
WORKFLOWS = sorted((program.ROOT / ".github/workflows").glob("*.yml"))
# As many as the workflow builds.
TARGETS = {"x86_64-unknown-linux-musl": "tar.gz", "aarch64-unknown-linux-musl": "tar.gz", "x86_64-apple-darwin": "tar.gz",
           "aarch64-apple-darwin": "tar.gz", "x86_64-pc-windows-msvc": "zip"}


def run(*command, fails=False, **environment):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=dict(os.environ, **environment))
    if (done.returncode != 0) != fails:
        raise SystemExit(f"{' '.join(map(str, command))} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def check_installing(folder):
    """install.sh puts the program of an archive into a folder, unless a byte of the archive has changed."""
    stripped = folder / "cascadia"
    run("strip", "-o", stripped, program.BINARY)
    target = f"{platform.machine()}-unknown-linux-musl"
    release, other = folder / "release", folder / "other"
    archives = [pathlib.Path(run(PACKAGING / "archive.sh", stripped, target, out).strip()) for out in (release, other)]
    if archives[0].read_bytes() != archives[1].read_bytes():
        raise SystemExit("the same program gives archives that differ")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=release))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    run(PACKAGING / "manifests.py", release, "--release", address, "--partial")
    home = folder / "home"
    home.mkdir()
    said = run("sh", release / "install.sh", HOME=str(home))
    answer = run(home / ".local/bin/cascadia", "run", "-p", "A ship", "-n", "4", "--seed", "1")

    installed = (home / ".local/bin/cascadia").read_bytes()
    archive = bytearray(archives[0].read_bytes())
    archive[len(archive) // 2] ^= 1
    archives[0].write_bytes(archive)
    refused = run("sh", release / "install.sh", HOME=str(home), fails=True)
    if "checksum" not in refused or (home / ".local/bin/cascadia").read_bytes() != installed:
        raise SystemExit(f"a changed archive was installed: {refused}")
    archives[0].unlink()
    missing = run("sh", release / "install.sh", HOME=str(home), fails=True)
    if "cannot be fetched" not in missing:
        raise SystemExit(f"a missing archive gives: {missing}")
    server.shutdown()
    print(f"install.sh: {said.splitlines()[1]!r}, {archives[1].stat().st_size / 1e6:.0f} MB; its program says {answer.strip()!r}")


def check_manifests(folder):
    """Every archive that a file names is one that the workflow builds, with its own checksum."""
    built = {entry["target"] for entry in yaml.safe_load((program.ROOT / ".github/workflows/release.yml").read_text())
             ["jobs"]["program"]["strategy"]["matrix"]["include"]}
    if built != set(TARGETS):
        raise SystemExit(f"the workflow builds {sorted(built)}")
    version = run(program.BINARY, "--version").split()[1]
    for target, suffix in TARGETS.items():
        (folder / f"cascadia-{version}-{target}.{suffix}").write_text(target)
    run(PACKAGING / "manifests.py", folder, "--release", "https://example.org/v1")
    texts = {path.name: path.read_text() for path in folder.iterdir() if path.suffix in (".rb", ".yaml", ".sh")}
    left = {name: words for name, text in texts.items() if (words := re.findall(r"@[A-Z0-9]+(?: [a-z0-9_.-]+)?@", text))}
    if left:
        raise SystemExit(f"words are not filled in: {left}")
    for name, text in texts.items():
        for archive, checksum in re.findall(r"/(cascadia-[^/\"\s]+)\"?\s+(?:sha256 \"|InstallerSha256: )([0-9a-f]+)", text):
            if hashlib.sha256((folder / archive).read_bytes()).hexdigest() != checksum:
                raise SystemExit(f"{name} has another checksum for {archive}")
    if sum(text.count("sha256 \"") + text.count("InstallerSha256") for text in texts.values()) != len(TARGETS):
        raise SystemExit("not every archive is in a file of a package manager")
    for name, text in texts.items():
        if name.endswith(".yaml"):
            yaml.safe_load(text)
    run("sh", "-n", folder / "install.sh")
    if shutil.which("ruby"):
        run("ruby", "-c", folder / "cascadia.rb")
    else:
        print("SKIPPED, PART OF THIS CHECK: there is no ruby; the formula's syntax is not checked")


def check_workflows():
    """They are well-formed, and the scripts that they run exist."""
    for path in WORKFLOWS:
        jobs = yaml.safe_load(path.read_text())["jobs"]
        for command in [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]:
            for script in re.findall(r"(?:\./|packaging/)[a-z_]+\.(?:sh|py)", command):
                if not os.access(program.ROOT / script, os.X_OK):
                    raise SystemExit(f"{path.name} runs {script}, which is no program")


def check_container():
    """It can be built, and its program answers."""
    engine = next((name for name in ("podman", "docker")
                   if shutil.which(name) and subprocess.run([name, "info"], capture_output=True).returncode == 0), None)
    if not engine:
        print("SKIPPED, PART OF THIS CHECK: no container engine answers; the container is not built")
        return
    run(engine, "build", "-t", "cascadia-check", "-f", PACKAGING / "Containerfile", program.ROOT)
    print("container:", run(engine, "run", "--rm", "cascadia-check", "run", "-p", "A ship", "-n", "4", "--seed", "1").strip())


def main():
    if platform.system() != "Linux" or not all(map(shutil.which, ["strip", "tar", "gzip"])):
        print("SKIPPED: this check needs Linux, strip, tar and gzip")
        return
    check_workflows()
    with tempfile.TemporaryDirectory() as folder:
        check_installing(pathlib.Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        check_manifests(pathlib.Path(folder))
    check_container()


if __name__ == "__main__":
    main()
