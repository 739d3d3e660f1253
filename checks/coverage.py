#!/usr/bin/env python3
"""Write the tables of docs/models.md that say which families and formats are tested, and by what.

The tables come from what the tests themselves name: fixture folders, lists in test files, lists in checks.

    python3 checks/coverage.py            # write them into docs/models.md
    python3 checks/coverage.py --check    # fail if they are out of date
"""
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = "docs/models.md"
BEGIN, END = "<!-- made by checks/coverage.py -->\n", "<!-- end -->"


def read(path):
    return (ROOT / path).read_text()


def names_in(text, start, end):
    """Quoted words between two marks."""
    return re.findall(r'"([^"]+)"', text.split(start, 1)[1].split(end, 1)[0])


def families():
    """(title, names) of every file that describes a family; the title is the start of its first line."""
    for path in sorted((ROOT / "crates/model/src/arch").glob("*.rs")):
        text = path.read_text()
        names = [name for group in re.findall(r"names: &\[([^\]]*)\]", text) for name in re.findall(r'"([^"]+)"', group)]
        if names:
            line = text.split("\n", 1)[0].removeprefix("//! ")
            title = re.split(r":| \(|\.$|, also|, and what", line, maxsplit=1)[0]
            yield title, names


def fixtures():
    """Fixture folder -> the `model_type` of its configuration."""
    types = {}
    for path in sorted((ROOT / "fixtures").glob("*/config.json")):
        config = json.loads(path.read_text())
        types[path.parent.name] = config.get("text_config", config)["model_type"]
    return types


def family_table():
    tests = "".join(path.read_text() for path in sorted((ROOT / "crates/model/tests").glob("*.rs")))
    compared = set(re.findall(r'"([a-z0-9-]+)" ""', tests))
    llama_cpp = set(names_in(read("checks/llama_cpp.py"), "FAMILIES = (", ")\n")) | {"llama3", "qwen2"}
    types = fixtures()
    lines = ["| Family | Fixtures whose logits match `transformers`, bit-identical however they are run | GGUF round trips (F32, Q8_0, Q4_0) | llama.cpp agrees on our GGUF |",
             "|---|---|---|---|"]
    for title, names in families():
        own = [folder for folder, kind in types.items() if kind in names]
        if not own and (ROOT / "fixtures" / "encoders" / names[0].replace("_bert", "")).exists():
            continue
        listed = [folder for folder in own if folder in compared]
        agreed = [folder for folder in own if folder in llama_cpp]
        cell = " ".join(f"`{folder}`" for folder in listed)
        lines.append(f"| {title} | {cell or '–'} | {len(own) or '–'} | {' '.join(f'`{f}`' for f in agreed) or '–'} |")
    return lines


def encoder_table():
    """Encoders have fixtures of their own: hidden states, and embeddings or ranks."""
    folder, tests = ROOT / "fixtures" / "encoders", read("crates/cascadia/tests/embeddings.rs")
    types = {path.parent.name: json.loads(path.read_text())["model_type"] for path in sorted(folder.glob("*/config.json"))}
    hidden = set(re.findall(r'check_encoder\("([a-z-]+)"\)', read("crates/model/tests/encoders.rs")))
    embedded = set(re.findall(r'check\("([a-z-]+)"\)', tests))
    ranked = set(names_in(tests, "fn pairs_are_ranked", "] {"))
    lines = ["| Encoder | Hidden states match `transformers` | Embeddings match `sentence-transformers` | Ranks match its `CrossEncoder` |",
             "|---|---|---|---|"]
    for title, names in families():
        own = [fixture for fixture, kind in types.items() if kind in names]
        cells = [" ".join(f"`{fixture}`" for fixture in own if fixture in group) or "–" for group in (hidden, embedded, ranked)]
        if own:
            lines.append(f"| {title}: {', '.join(names)} | {' | '.join(cells)} |")
    return lines


def format_table():
    spelled = dict(re.findall(r'Dtype::(\w+) => \("(\w+)"', read("crates/kernels/src/dtype.rs")))
    listed = read("crates/kernels/src/dtype.rs").split("pub const ALL", 1)[1].split("];", 1)[0]
    every = [spelled[name] for name in re.findall(r"Dtype::(\w+)", listed)]
    exact = {line.split(" ", 1)[0] for line in read("crates/kernels/tests/data/decoded.txt").splitlines()}
    targets = read("crates/kernels/src/quantize/mod.rs").split("pub const TARGETS", 1)[1].split("];", 1)[0]
    written = {spelled[name] for name in re.findall(r"Dtype::(\w+)", targets)}
    whole = read("crates/model/tests/golden.rs").split("fn quantised_weights_give", 1)[1].split("\n}\n", 1)[0]
    run = {spelled[name] for name in re.findall(r"Dtype::(\w+)", whole)} | {"F32", "F16", "BF16"}
    sources = (ROOT / "checks").glob("llama_cpp.py")
    opened = {kind for path in sources for group in re.findall(r'for kind in \(([^)]*)\)', path.read_text())
              for kind in re.findall(r'"([^"]+)"', group)} | {"f32", "f16", "q4_k_m"}
    opened = {re.sub(r"_[MSL]$", "", kind.upper()) for kind in opened}
    mark = lambda condition: "yes" if condition else "–"
    lines = ["| Format | Values equal gguf-py | Kernels equal the scalar kernels | Whole models tested | `quantize` writes it | llama.cpp opens it |",
             "|---|---|---|---|---|---|"]
    for name in every:
        cells = [mark(name in exact), "yes", mark(name in run), mark(name in written), mark(name in opened)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def tables():
    behind = ("Tests: `crates/model/tests/{golden,experts,latent}.rs` (fixture names); "
              "`crates/quantize/tests/quantize.rs` (number of fixtures); `checks/llama_cpp.py`.")
    formats = ("Tests: `crates/kernels/tests/decode.rs`; `crates/kernels/tests/parity.rs`; `crates/model/tests/golden.rs`; "
               "`crates/kernels/tests/quantize.rs`; `checks/llama_cpp.py`.")
    encoders = "Tests: `crates/model/tests/encoders.rs`; `crates/cascadia/tests/embeddings.rs`."
    return "\n".join([*family_table(), "", behind, "", *encoder_table(), "", encoders, "", *format_table(), "", formats, ""])


def main():
    page = read(PAGE)
    before, rest = page.split(BEGIN, 1)
    made = before + BEGIN + tables() + END + rest.split(END, 1)[1]
    if sys.argv[1:] == ["--check"]:
        if made != page:
            raise SystemExit(f"the tables of {PAGE} are out of date: run python3 checks/coverage.py")
        print(f"the tables of {PAGE} are up to date")
    else:
        (ROOT / PAGE).write_text(made)


if __name__ == "__main__":
    main()
