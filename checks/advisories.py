#!/usr/bin/env python3
"""Compares the crates of Cargo.lock with the RustSec advisory database, of which checks/advisories.json is an extract.

Fails when a version has a known vulnerability. Crates that are unmaintained or unsound are shown, and fail too unless
ACCEPTED says why they stay. The extract is refreshed from a clone of https://github.com/rustsec/advisory-db:

    git clone https://github.com/rustsec/advisory-db && checks/advisories.py --refresh advisory-db
"""
import argparse
import datetime
import io
import json
import pathlib
import re
import subprocess
import sys
import tarfile
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
EXTRACT = pathlib.Path(__file__).with_suffix(".json")
# The age at which the extract is called old. It is only shown: time alone breaks no build.
OLD_DAYS = 90
# Informational advisories that do not fail the check: id, and why the crate stays.
ACCEPTED = {
    "RUSTSEC-2024-0436": "paste is a finished procedural macro of tokenizers; it runs at build time on source code alone",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--refresh", metavar="CLONE", type=pathlib.Path, help="rewrite the extract from a clone")
    parser.add_argument("--self-test", action="store_true", help="show that vulnerable versions are found")
    options = parser.parse_args()
    if options.refresh:
        EXTRACT.write_text(refreshed(options.refresh))
    extract = json.loads(EXTRACT.read_text())
    if options.self_test:
        return self_test(extract)
    found = findings(extract, lock_packages((ROOT / "Cargo.lock").read_text()))
    wrong = [finding for finding in found if not finding["accepted"]]
    for finding in found:
        print(describe(finding))
    unused = set(ACCEPTED) - {finding["id"] for finding in found}
    for advisory in sorted(unused):
        print(f"{advisory} is accepted, but no crate has it: remove it from ACCEPTED")
    age = (datetime.date.today() - datetime.date.fromisoformat(extract["date"])).days
    advice = "; refresh it, see checks/advisories.py" if age > OLD_DAYS else ""
    count = sum(len(advisories) for advisories in extract["crates"].values())
    print(f"{len(found)} findings in {count} advisories of {extract['date']}, {age} days old{advice}")
    return 1 if wrong or unused else 0


def describe(finding):
    accepted = f"; accepted: {finding['accepted']}" if finding["accepted"] else ""
    what = f"{finding['crate']} {finding['version']}: {finding['title']} ({finding['kind']})"
    return f"{what}, https://rustsec.org/advisories/{finding['id']}{accepted}"


def findings(extract, packages):
    """Advisories that packages of the registry have."""
    found = []
    for name, version in packages:
        for advisory in extract["crates"].get(name, []):
            safe = advisory.get("patched", []) + advisory.get("unaffected", [])
            if not any(matches(requirement, version) for requirement in safe):
                kind = advisory.get("kind", "vulnerability")
                accepted = ACCEPTED.get(advisory["id"]) if kind != "vulnerability" else None
                found.append({"crate": name, "version": version, "id": advisory["id"], "kind": kind,
                              "title": advisory["title"], "accepted": accepted})
    return found


def lock_packages(text):
    """Names and versions of the packages of a lock file that come from a registry."""
    packages = tomllib.loads(text)["package"]
    return [(package["name"], package["version"]) for package in packages if "source" in package]


def parse_version(text):
    """A version as a key for comparison: a pre-release is below its release, numbers are below words."""
    match = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?", text)
    if not match:
        raise ValueError(f"{text} is no version")
    *numbers, before = match.groups()
    parts = [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in before.split(".")] if before else []
    return tuple(map(int, numbers)), (0, parts) if before else (1, [])


def matches(requirement, version):
    """Whether a version satisfies every part of a requirement such as `>= 1.2, < 2`. As RustSec does, pre-releases are
    compared by their order alone."""
    return all(matches_part(part.strip(), version) for part in requirement.split(","))


def matches_part(part, version):
    if part == "*":
        return True
    operator, bound = re.fullmatch(r"(>=|<=|>|<|=|\^|~)?\s*(\S+)", part).groups()
    numbers = re.match(r"\d+(\.\d+){0,2}", bound).group()
    count = numbers.count(".") + 1
    version, low = parse_version(version), parse_version(numbers + ".0" * (3 - count) + bound[len(numbers):])
    # The first version that is no longer meant by fewer than three numbers.
    parts = low[0]
    after = [(parts[0] + 1, 0, 0), (parts[0], parts[1] + 1, 0), (parts[0], parts[1], parts[2] + 1)]
    beyond = lambda place: (after[place], (0, []))  # noqa: E731 -- below every pre-release of that version
    if operator == ">=":
        return version >= low
    if operator == "<":
        return version < low
    if operator == ">":
        return version > low if count == 3 else version >= beyond(count - 1)
    if operator == "<=":
        return version <= low if count == 3 else version < beyond(count - 1)
    if operator == "=":
        return version == low if count == 3 else low <= version < beyond(count - 1)
    if operator == "~":
        return low <= version < beyond(min(count, 2) - 1)
    # A caret, or nothing: up to the next change of the first number that is not zero.
    significant = next((place for place in range(count) if parts[place]), count - 1)
    return low <= version < beyond(significant)


def refreshed(clone):
    """The extract of a clone, which may have no work tree."""
    git = ["git", "-C", str(clone)]
    commit, date = subprocess.check_output([*git, "log", "-1", "--format=%H %cs"], text=True).split()
    archive = [*git, "archive", "--format=tar", commit, "crates"]
    crates = {}
    with tarfile.open(fileobj=io.BytesIO(subprocess.check_output(archive))) as files:
        for member in files:
            if member.isfile() and member.name.endswith(".md"):
                name, advisory = read_advisory(files.extractfile(member).read().decode())
                if advisory:
                    crates.setdefault(name, []).append(advisory)
    lines = [f'{json.dumps(name)}: {json.dumps(sorted(crates[name], key=lambda advisory: advisory["id"]))}'
             for name in sorted(crates)]
    return (f'{{"source": "https://github.com/rustsec/advisory-db", "commit": "{commit}", "date": "{date}", "crates": {{\n'
            + ",\n".join(lines) + "\n}}\n")


def read_advisory(text):
    """The crate of an advisory and what is kept of it; nothing of one that was withdrawn."""
    header, body = re.fullmatch(r"```toml\n(.*?)```\n(.*)", text, re.DOTALL).groups()
    data = tomllib.loads(header)
    advisory, versions = data["advisory"], data.get("versions", {})
    if "withdrawn" in advisory:
        return advisory["package"], None
    title = re.search(r"^# (.*)$", body, re.MULTILINE).group(1).strip()
    kept = {"id": advisory["id"], "title": title, "kind": advisory.get("informational"),
            "patched": versions.get("patched"), "unaffected": versions.get("unaffected")}
    return advisory["package"], {key: value for key, value in kept.items() if value}


def self_test(extract):
    """Shows that requirements are read as they should be, and that the check can fail."""
    for requirement, inside, outside in [
        (">= 1.2.3", "1.2.3 1.2.4 1.3.0-rc.1 2.0.0", "1.2.2 1.2.3-rc.1 0.9.0"),
        ("> 1.2.3", "1.2.4 2.0.0", "1.2.3 1.2.3-rc.1"),
        ("> 1.2", "1.3.0 2.0.0", "1.2.0 1.2.9"),
        ("< 1.2.3", "1.2.2 1.2.3-rc.1 0.1.0", "1.2.3 1.10.0"),
        ("< 1.2.3-beta.2", "1.2.3-beta.1 1.2.3-alpha 1.2.3-beta.1.9", "1.2.3-beta.2 1.2.3-beta.11 1.2.3"),
        ("<= 1.2", "1.2.9 1.1.0", "1.3.0"),
        ("= 1.2.3", "1.2.3 1.2.3+build", "1.2.4 1.2.3-rc.1"),
        ("= 1.2", "1.2.0 1.2.7", "1.3.0"),
        ("^1.2.3", "1.2.3 1.9.0", "1.2.2 2.0.0 2.0.0-rc.1"),
        ("^0.2.3", "0.2.3 0.2.9", "0.2.2 0.3.0"),
        ("^0.0.3", "0.0.3", "0.0.2 0.0.4"),
        ("^0.0", "0.0.1 0.0.9", "0.1.0"),
        ("1", "1.0.0 1.9.9", "2.0.0 0.9.0"),
        ("~1.2.3", "1.2.3 1.2.9", "1.3.0 1.2.2"),
        ("~1.2", "1.2.0 1.2.9", "1.3.0"),
        ("~1", "1.0.0 1.9.9", "2.0.0"),
        (">= 0.3.2, < 0.4", "0.3.2 0.3.99", "0.3.1 0.4.0"),
        ("*", "0.0.1 9.9.9", ""),
    ]:
        for versions, expected in [(inside, True), (outside, False)]:
            for version in versions.split():
                assert matches(requirement, version) == expected, f"{version} in {requirement}: {not expected}"
    for advisories in extract["crates"].values():
        for advisory in advisories:
            for requirement in advisory.get("patched", []) + advisory.get("unaffected", []):
                matches(requirement, "1.0.0")
    lock = "".join(
        f'[[package]]\nname = "{name}"\nversion = "{version}"\nsource = "registry+x"\n\n'
        for name, version in [("h2", "0.3.0"), ("memmap2", "0.2.0"), ("bytes", "1.11.0"), ("rustls", "0.23.4"),
                              ("tokio", "1.7.1"), ("atty", "0.2.14"), ("serde", "1.0.228"), ("h2", "99.0.0")]
    ) + '[[package]]\nname = "openssl"\nversion = "0.10.0"\n'
    found = {(finding["crate"], finding["version"], finding["kind"]) for finding in findings(extract, lock_packages(lock))}
    for expected in [("h2", "0.3.0", "vulnerability"), ("rustls", "0.23.4", "vulnerability"),
                     ("tokio", "1.7.1", "vulnerability"), ("bytes", "1.11.0", "vulnerability"),
                     ("atty", "0.2.14", "unmaintained")]:
        assert expected in found, f"{expected} is not found in {sorted(found)}"
    names = {(name, version) for name, version, _ in found}
    assert not names & {("serde", "1.0.228"), ("h2", "99.0.0"), ("openssl", "0.10.0")}, sorted(names)
    print(f"{len(found)} findings in a lock file that should have some")
    return 0


if __name__ == "__main__":
    sys.exit(main())
