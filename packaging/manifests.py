#!/usr/bin/env python3
"""Fills in what package managers need to know of a release: its checksums, for Homebrew, winget and install.sh.

    packaging/manifests.py FOLDER --release https://example.org/releases/v1.2.3

FOLDER has the archives that packaging/archive.sh made. Writes SHA256SUMS and the filled-in files beside them. An archive that a
file names and the folder lacks is an error, unless --partial leaves such files out.
"""
import argparse
import hashlib
import pathlib
import re
import tomllib

HERE = pathlib.Path(__file__).parent
TEMPLATES = [HERE / "install.sh", HERE / "homebrew" / "cascadia.rb", *sorted((HERE / "winget").glob("*.yaml"))]


class Missing(Exception):
    """A file names an archive that is not there."""


def fill(text, words, checksums):
    def value(match):
        word, _, suffix = match.group(1).partition(" ")
        if not suffix:
            return words[word]
        found = [checksum for name, checksum in checksums.items() if name.endswith(f"-{suffix}")]
        if len(found) != 1:
            raise Missing(f"{len(found)} archives end in {suffix}")
        return found[0]

    return re.sub(r"@([A-Z0-9]+(?: [a-z0-9_.-]+)?)@", value, text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--release", required=True, help="address of the folder from which archives are fetched")
    parser.add_argument("--partial", action="store_true")
    options = parser.parse_args()

    package = tomllib.loads((HERE.parent / "Cargo.toml").read_text())["workspace"]["package"]
    words = {"RELEASE": options.release.rstrip("/"), "VERSION": package["version"], "LICENSE": package["license"]}
    archives = sorted(path for path in options.folder.iterdir() if path.suffix in (".gz", ".zip", ".deb"))
    checksums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in archives}
    lines = [f"{checksum}  {name}\n" for name, checksum in checksums.items()]
    (options.folder / "SHA256SUMS").write_text("".join(lines))
    for template in TEMPLATES:
        try:
            (options.folder / template.name).write_text(fill(template.read_text(), words, checksums))
        except Missing as error:
            if not options.partial:
                raise SystemExit(f"{template.name}: {error}")
            print(f"{template.name} left out: {error}")


if __name__ == "__main__":
    main()
