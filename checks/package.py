#!/usr/bin/env python3
"""The Debian package is whole: it installs into a folder of its own, its program runs, its services are ones that systemd
accepts, and nothing of it is left after it was removed.

    .venv/bin/python checks/package.py

Uses the built program, without its symbols. Where there is no dpkg-deb it says so and checks nothing.
"""
import os
import pathlib
import shutil
import subprocess
import tempfile

import program

SCRIPT = program.ROOT / "packaging" / "deb.sh"
FILES = ["usr/bin/cascadia", "etc/cascadia/serve.json", "lib/systemd/system/cascadia-worker.service",
         "usr/share/man/man1/cascadia-fleet-init.1.gz", "usr/share/bash-completion/completions/cascadia",
         "usr/share/doc/cascadia/copyright.katex"]


def run(*command, **environment):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=dict(os.environ, **environment))
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def build(folder):
    """The package, out of a program without symbols."""
    stripped = folder / "cascadia"
    run("strip", "-o", stripped, program.BINARY)
    packages = [pathlib.Path(run(SCRIPT, stripped, folder / name, COMPRESSION="gzip").strip()) for name in ("one", "other")]
    if packages[0].read_bytes() != packages[1].read_bytes():
        raise SystemExit("the same program gives packages that differ")
    return packages[0]


def check_services(root):
    """systemd finds nothing wrong with the services where they lie."""
    if not shutil.which("systemd-analyze"):
        print("SKIPPED, PART OF THIS CHECK: there is no systemd-analyze; services are not verified")
        return
    services = sorted(root.glob("lib/systemd/system/*.service"))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", f"--root={root}", *[service.name for service in services]],
                          capture_output=True, text=True)
    # The folder has none of the units of a real system.
    said = [line for line in done.stderr.splitlines() if "cascadia" in line and "not found" not in line]
    if said:
        raise SystemExit("systemd says: " + "; ".join(said))


def main():
    if not all(map(shutil.which, ["dpkg-deb", "dpkg", "strip"])):
        print("SKIPPED: dpkg-deb or strip is not installed")
        return
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        package, root = build(folder), folder / "root"
        for name in ["updates", "info", "triggers"]:
            (root / "var/lib/dpkg" / name).mkdir(parents=True)
        (root / "var/lib/dpkg/status").touch()
        (root / "var/lib/dpkg/available").touch()
        dpkg = ["dpkg", f"--root={root}", "--force-not-root", "--force-depends", "--log=/dev/null"]
        run(*dpkg, "--install", package)
        missing = [name for name in FILES if not (root / name).exists()]
        if missing:
            raise SystemExit(f"the package lacks {missing}")
        answer = run(root / "usr/bin/cascadia", "run", "-p", "A ship", "-n", "4", "--seed", "1")
        check_services(root)
        run(*dpkg, "--purge", "cascadia")
        left = [path for path in root.rglob("*") if path.is_file() and "var/lib/dpkg" not in str(path)]
        if left:
            raise SystemExit(f"left after it was removed: {left}")
        print(f"{package.name}, {package.stat().st_size / 1e6:.0f} MB; its program says {answer.strip()!r}")


if __name__ == "__main__":
    main()
