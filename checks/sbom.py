#!/usr/bin/env python3
"""Writes the software bill of materials of the program: CycloneDX 1.6, as JSON.

    python3 checks/sbom.py [--output target/cascadia.cdx.json] [--target TRIPLE]

It lists the crates that `cargo build --release` compiles for the target: those inside the program as `required`, those
that only build it (procedural macros, build scripts) as `excluded`, and the embedded model. The same commit gives the
same bytes: nothing is random, and the time is that of the commit, or `SOURCE_DATE_EPOCH`.
`--validate` also checks it against the schema, with cyclonedx-python-lib from `.venv`.
"""
import argparse
import datetime
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = "cascadia"
MODEL = ROOT / "crates/cascadia/model/rainier-33m-q4_k_m.gguf"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "target/cascadia.cdx.json")
    parser.add_argument("--target", help="the target triple; this machine's by default")
    parser.add_argument("--validate", action="store_true", help="check the result against the schema")
    options = parser.parse_args()
    target = options.target or next(
        line.removeprefix("host: ") for line in output("rustc", "-vV").splitlines() if line.startswith("host: "))
    bom = bill(target)
    text = json.dumps(bom, indent=1, ensure_ascii=False) + "\n"
    if options.validate:
        check_graph(bom, target)
        validate(text)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(text)
    required = sum(component["scope"] == "required" for component in bom["components"])
    print(f"{options.output}: {required} components in the program, {len(bom['components']) - required} to build it")


def output(*command):
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def tree(target, edges):
    """Names and versions that `cargo build` compiles along these edges, with the features that it selects."""
    lines = output("cargo", "tree", "--locked", "-p", PROGRAM, "--target", target, "--edges", edges,
                   "--prefix", "none", "--format", "{p}").splitlines()
    return {(name, version.removeprefix("v")) for name, version in (line.split()[:2] for line in lines if line)}


def bill(target):
    metadata = json.loads(output("cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", target))
    built = tree(target, "normal,build")
    inside = tree(target, "normal,no-proc-macro")
    packages = {package["id"]: package for package in metadata["packages"]
                if (package["name"], package["version"]) in built}
    checksums = {(package["name"], package["version"]): package.get("checksum")
                 for package in tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]}
    components, dependencies = [], []
    for node in metadata["resolve"]["nodes"]:
        if package := packages.get(node["id"]):
            used = [packages[edge["pkg"]] for edge in node["deps"] if edge["pkg"] in packages and
                    any(kind["kind"] != "dev" for kind in edge["dep_kinds"])]
            references = {reference(package) for package in used}
            if package["name"] == PROGRAM:
                references.add(MODEL.stem)
                program = component(package, "required", None)
            else:
                key = (package["name"], package["version"])
                scope = "required" if key in inside else "excluded"
                components.append(component(package, scope, checksums[key]))
            dependencies.append({"ref": reference(package), "dependsOn": sorted(references)})
    components.append(model())
    dependencies.append({"ref": MODEL.stem, "dependsOn": []})
    tools = [{"type": "application", "name": name, "version": output(name, "--version").split()[1]}
             for name in ("cargo", "rustc")]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": timestamp(),
            "tools": {"components": tools},
            "component": {**program, "type": "application"},
            "properties": [{"name": "cascadia:target", "value": target}],
        },
        "components": sorted(components, key=lambda component: component["bom-ref"]),
        "dependencies": sorted(dependencies, key=lambda dependency: dependency["ref"]),
    }


def reference(package):
    """Crates of the registry are named by their package URL, our own by name and version."""
    is_own = package["source"] is None
    return f"{package['name']}@{package['version']}" if is_own else f"pkg:cargo/{package['name']}@{package['version']}"


def component(package, scope, checksum):
    described = {
        "type": "library",
        "bom-ref": reference(package),
        "name": package["name"],
        "version": package["version"],
        "description": " ".join((package["description"] or "").split()),
        "scope": scope,
        # Older crates separate alternatives by a slash.
        "licenses": [{"expression": package["license"].replace("/", " OR ")}],
    }
    if checksum:
        described["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        described["purl"] = reference(package)
    if package["repository"]:
        described["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return described


def model():
    return {
        "type": "machine-learning-model",
        "bom-ref": MODEL.stem,
        "name": MODEL.stem,
        "scope": "required",
        "licenses": [{"expression": "Apache-2.0"}],
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(MODEL.read_bytes()).hexdigest()}],
    }


def timestamp():
    seconds = os.environ.get("SOURCE_DATE_EPOCH") or output("git", "log", "-1", "--format=%ct")
    return datetime.datetime.fromtimestamp(int(seconds), datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def check_graph(bom, target):
    """Every crate of the build is there once, with its checksum, and every edge leads to one."""
    root = bom["metadata"]["component"]
    references = [component["bom-ref"] for component in [root, *bom["components"]]]
    assert len(set(references)) == len(references), "a component is listed twice"
    assert sorted(references) == [dependency["ref"] for dependency in bom["dependencies"]], "a component has no edges"
    reached, next_ones = set(), {root["bom-ref"]}
    edges = {dependency["ref"]: set(dependency["dependsOn"]) for dependency in bom["dependencies"]}
    while next_ones:
        reached |= next_ones
        next_ones = set().union(*(edges[reference] for reference in next_ones)) - reached
    assert reached == set(references), f"not reached from the program: {sorted(set(references) - reached)}"
    named = {(component["name"], component["version"]) for component in [root, *bom["components"]] if "version" in component}
    assert named == tree(target, "normal,build"), "other crates than cargo builds"
    registry = [component for component in bom["components"] if component["bom-ref"].startswith("pkg:")]
    assert all("hashes" in component for component in registry), "a crate has no checksum"


def validate(text):
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    validator = JsonStrictValidator(SchemaVersion.V1_6)
    if problem := validator.validate_str(text):
        sys.exit(f"not valid CycloneDX 1.6: {problem}")
    # A validator that accepts anything proves nothing.
    if not validator.validate_str(text.replace('"bomFormat": "CycloneDX"', '"bomFormat": "none"')):
        sys.exit("the validator accepts a document that is none")


if __name__ == "__main__":
    main()
