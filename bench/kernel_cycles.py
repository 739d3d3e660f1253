#!/usr/bin/env python3
"""Cycles that the decode kernels need per block of weights, beside the time in which memory delivers the block.

Takes the inner loops out of compiled files and gives them to llvm-mca, which models a core whose loads all hit the L1
cache. Prints Markdown tables; --write puts them between the markers in docs/kernels.md. Needs Python and LLVM's tools
(Debian's llvm-19: older ones know neither Zen 4 nor the P cores of Alder Lake).

    cargo build --release
    cargo build --release -p cascadia-kernels --target aarch64-unknown-linux-gnu     # needs no linker
    bench/kernel_cycles.py target/release/cascadia \\
        target/aarch64-unknown-linux-gnu/release/libcascadia_kernels.rlib --write

How a loop is found: a way through a function of the format's modules that returns to where a backward jump leads, calls
nothing, passes through no other loop, advances a pointer by N blocks, multiplies (F16: widens) exactly the weights of N
blocks of four rows, and has as many fused multiply-adds as the format demands. Of those that read ahead into the L2
cache, each line once per turn, the shortest; if there are none, the shortest of all. So the instructions themselves prove
which format a loop is for and how many bytes it reads. Code for ARM may count blocks instead of advancing a pointer; then
it must read ahead, which only the loops for one column do.
"""
import argparse
import collections
import dataclasses
import math
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "kernels.md"
BEGIN, END = "<!-- begin: bench/kernel_cycles.py -->", "<!-- end: bench/kernel_cycles.py -->"
ROWS = 4
LINE = 64
MOST_BLOCKS = 8
LONGEST_LOOP = 1500
ITERATIONS = 200


@dataclasses.dataclass(frozen=True)
class Format:
    name: str
    weights: int
    bytes: int
    # Modules whose functions may hold its loop.
    modules: tuple
    # Fused multiply-adds per block of four rows; floats have as many as their registers make.
    sums: int | None


FORMATS = [
    Format("Q4_K", 256, 144, ("block256",), 2),
    Format("Q5_K", 256, 176, ("block256",), 2),
    Format("Q6_K", 256, 210, ("block256",), 1),
    Format("Q8_0", 32, 34, ("block32",), 1),
    Format("Q4_0", 32, 18, ("four_blocks", "block32"), 1),
    Format("Q4_1", 32, 20, ("four_blocks", "codes32", "block32"), 2),
    Format("INT4_G128", 128, 66, ("four_blocks", "codes32", "block32"), 4),
    Format("F16", 16, 32, ("float",), None),
]


@dataclasses.dataclass(frozen=True)
class Core:
    # The name of the core to llvm-mca, and a typical machine that has it.
    name: str
    machine: str
    gigahertz: float
    # What one core reads from memory, and whether that was measured.
    gigabytes: float
    measured: bool
    triple: str = "x86_64"
    # Instructions that it can start per cycle, where llvm-mca's model has more.
    width: int | None = None


ICE_LAKE = Core("icelake-server", "Ice Lake server, vCPU", 2.8, 12.5, True)
ZEN_4 = Core("znver4", "EPYC 9004, vCPU", 2.6, 25, True)
ALDER_LAKE = Core("alderlake", "Core i7-12700K, P core, DDR5-4800", 3.6, 30, False)
SKYLAKE = Core("skylake", "Core i7-6700, DDR4-2133", 3.4, 20, False)
ZEN_3 = Core("znver3", "Ryzen 7 5800X, DDR4-3200", 3.8, 25, False)
NEOVERSE_N1 = Core("neoverse-n1", "Graviton2", 2.5, 20, False, "aarch64", width=4)
NEOVERSE_V2 = Core("neoverse-v2", "Graviton4", 2.8, 30, False, "aarch64", width=8)

# A table of kernels, the modules that it takes them from in order, and the cores that run it.
TABLES = [
    ("AVX-512 VNNI", ("avx512",), (ICE_LAKE, ZEN_4)),
    ("AVX-VNNI", ("avx_vnni", "avx2"), (ALDER_LAKE,)),
    ("AVX2", ("avx2",), (SKYLAKE, ZEN_3, ICE_LAKE, ZEN_4)),
    ("NEON with dot products", ("neon",), (NEOVERSE_N1, NEOVERSE_V2)),
]


@dataclasses.dataclass
class Instruction:
    text: str
    # Where it may jump to, and whether the next instruction may follow it.
    target: int | None
    continues: bool
    # Weights that it multiplies as bytes, and that it widens from halves.
    products: int
    halves: int
    fused: bool
    prefetches: bool
    # What it may add to a pointer, and whether it may add one to an index of blocks.
    step: int
    next_block: bool


REGISTER_BYTES = {"x": 16, "y": 32, "z": 64}
JUMP = re.compile(r"^(j\w+|b|b\.\w+|cbn?z|tbn?z)\s+(?:.*,\s*)?(0x[0-9a-f]+)\s*<")
LEAVES = re.compile(r"(jmp|b|ret\w*|ud2|brk|udf|br)\b(?!\.)")
CALLS = re.compile(r"(call\w*|blr?)\b(?!\.)")
# Those that repeat four bytes of one factor multiply sums of x with minima, and no weights.
BYTE_PRODUCT = re.compile(r"^(?:vpdpbusd|vpmaddubsw)\s.*%([xyz])mm\d+$|^[us]dot\s+v\d+\.4s, v\d+\.16b, v\d+\.16b$")
WIDENED_HALVES = re.compile(r"^vcvtph2ps\s.*%([xyz])mm\d+$|^fcvtl2?\s+v\d+\.4s")
FUSED = re.compile(r"vfn?m(?:add|sub)\w+ps\s|fml[as]\s+v\d+\.4s")
PREFETCH = re.compile(r"prefetcht1\b|prfm\s+pldl2keep")
STEP = re.compile(r"^(?:add|sub)\w?\s.*[$#]-?(0x[0-9a-f]+)|^lea\w?\s+-?(0x[0-9a-f]+)\(|\],\s*#-?(0x[0-9a-f]+)$")
# An index of blocks that is multiplied by their length, as only the code for ARM has it.
INDEX_STEP = re.compile(r"add\s+(x\d+), \1, #0x1$")


def instruction(text):
    text = re.sub(r"\s+(?:#|//) .*$", "", text)
    jump, product, halves, step = (rule.search(text) for rule in (JUMP, BYTE_PRODUCT, WIDENED_HALVES, STEP))
    width = lambda found: REGISTER_BYTES[found[1]] if found and found[1] else 16 if found else 0
    return Instruction(
        text=re.sub(r"0x[0-9a-f]+ <.*>$", "loop", text) if jump else text,
        target=int(jump[2], 16) if jump else None,
        continues=not LEAVES.match(text) and not CALLS.match(text),
        products=width(product),
        halves=width(halves) // 4,
        fused=bool(FUSED.match(text)),
        prefetches=bool(PREFETCH.match(text)),
        step=int(next(filter(None, step.groups())), 16) if step else 0,
        next_block=bool(INDEX_STEP.match(text)),
    )


class Tools:
    """LLVM's tools of one version."""

    def __init__(self, suffix):
        self.suffix = suffix

    def run(self, name, *options, text=None):
        command = [f"llvm-{name}{self.suffix}", *map(str, options)]
        done = subprocess.run(command, input=text, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(command)}\n{done.stderr}\n{text or ''}")
        return done.stdout

    def functions(self, binary, modules):
        """The functions of some modules of the kernels: module, name, and a dictionary of instructions by address."""
        names = self.run("nm", "--format=just-symbols", "--defined-only", binary).split()
        names = sorted({name for name in names if "cascadia_kernels" in name})
        paths = self.run("cxxfilt", text="\n".join(names)).splitlines()
        places = {name: path.split("::")[1:4] for name, path in zip(names, paths)}
        wanted = {name: place for name, place in places.items() if "::".join(place[:2]) in modules}
        listing = self.run("objdump", "--disassemble", "--no-show-raw-insn", "--print-imm-hex",
                           "--disassemble-symbols=" + ",".join(wanted), binary) if wanted else ""
        code = {}
        for line in listing.splitlines():
            if title := re.match(r"[0-9a-f]+ <(.*)>:$", line):
                code = {}
                yield *wanted[title[1]], code
            elif part := re.match(r"\s*([0-9a-f]+):\s+(.*\S)", line):
                code[int(part[1], 16)] = instruction(part[2])

    def cycles(self, core, loop):
        """Cycles of one turn of a loop."""
        text = "loop:\n" + "\n".join(step.text for step in loop) + "\n"
        report = self.run("mca", f"-mtriple={core.triple}", f"-mcpu={core.name}", f"-iterations={ITERATIONS}",
                          f"-dispatch={core.width or 0}", text=text)
        return int(re.search(r"Total Cycles:\s+(\d+)", report)[1]) / ITERATIONS


def heads(code):
    return sorted({step.target for at, step in code.items() if step.target in code and step.target <= at})


def way_to(state, before):
    way = []
    while state:
        way.append(state[0])
        state = before[state]
    return way[::-1]


def loop_on(code, way):
    """The instructions of a way, unless it passes through another loop."""
    place = {at: index for index, at in enumerate(way)}
    inner = len(place) < len(way) or any(0 < place.get(code[at].target, 0) <= index for index, at in enumerate(way))
    return None if inner else [code[at] for at in way]


def loop_from(code, head, form, ahead):
    """The shortest way from an instruction back to it that is a loop of a format, and how many blocks it advances."""
    following = dict(zip(code, list(code)[1:]))
    start = (head, 0, 0, frozenset(), 0)
    queue, before = collections.deque([(start, 0)]), {start: None}
    while queue:
        state, length = queue.popleft()
        at, weights, sums, advanced, prefetches = state
        step = code[at]
        weights += step.products if form.sums else step.halves
        sums += step.fused and form.sums is not None
        advanced |= {step.step // form.bytes} if step.step and step.step % form.bytes == 0 else set()
        advanced |= {1} if step.next_block and ahead else set()
        prefetches += step.prefetches
        if weights > ROWS * MOST_BLOCKS * form.weights or length > LONGEST_LOOP:
            continue
        for to in {step.target, following.get(at) if step.continues else None}:
            if to == head:
                blocks = weights // (ROWS * form.weights)
                whole = weights == ROWS * form.weights * blocks and blocks in advanced
                lines = ROWS * math.ceil(blocks * form.bytes / LINE) if ahead else 0
                fits = whole and sums == blocks * (form.sums or 0) and prefetches == lines
                if fits and (loop := loop_on(code, way_to(state, before))):
                    return loop, blocks
            elif to in code and (state_there := (to, weights, sums, advanced, prefetches)) not in before:
                before[state_there] = state
                queue.append((state_there, length + 1))
    return None


def may_hold(name, form):
    """Whether a function is not named after another format."""
    return not re.search(r"_b?[qf]\d", name) or name.endswith(form.name.lower())


def find_loop(functions, kinds, form):
    """The loop of a format in the first kind of kernels that has one."""
    for kind in kinds:
        mine = [code for found, module, name, code in functions
                if found == kind and module in form.modules and may_hold(name, form)]
        for ahead in (True, False):
            loops = [loop_from(code, head, form, ahead) for code in mine for head in heads(code)]
            if loops := [loop for loop in loops if loop]:
                return min(loops, key=lambda loop: len(loop[0]))
    return None


def cell(core, form, cycles):
    needed, given = cycles / core.gigahertz, form.bytes / core.gigabytes
    mark = "**" if needed > given else ""
    return f"{cycles:.1f}: {mark}{needed:.1f}{mark} / {given:.1f}"


def table(tools, functions, title, kinds, cores):
    lines = [f"**{title}**", "", f"| format | bytes | instructions | {' | '.join(core.name for core in cores)} |",
             "|---|--:|--:|" + "--:|" * len(cores)]
    for form in FORMATS:
        found = find_loop(functions, kinds, form)
        if not found:
            lines.append(f"| {form.name} | {form.bytes} | no such loop |" + " – |" * len(cores))
            continue
        loop, blocks = found
        cells = [cell(core, form, tools.cycles(core, loop) / ROWS / blocks) for core in cores]
        all_of_them, prefetches = (count / ROWS / blocks for count in (len(loop), sum(step.prefetches for step in loop)))
        lines.append(f"| {form.name} | {form.bytes} | {all_of_them:.1f} ({prefetches:.1f}) | {' | '.join(cells)} |")
    return "\n".join(lines)


def machines(cores):
    lines = ["| core | machine | GHz | GB/s of one core |", "|---|---|--:|--:|"]
    for core in cores:
        source = "measured" if core.measured else "assumed"
        lines.append(f"| {core.name} | {core.machine} | {core.gigahertz} | {core.gigabytes:g}, {source} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binaries", nargs="*", type=pathlib.Path, default=[ROOT / "target" / "release" / "cascadia"])
    parser.add_argument("--llvm", default="-19", metavar="SUFFIX", help="what the names of LLVM's tools end in")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/kernels.md")
    options = parser.parse_args()
    tools = Tools(options.llvm)
    modules = {f"{kind}::{module}" for _, kinds, _ in TABLES for kind in kinds for form in FORMATS for module in form.modules}
    functions = [function for binary in options.binaries for function in tools.functions(binary, modules)]
    parts = [table(tools, functions, *entry) for entry in TABLES]
    parts.append(machines(dict.fromkeys(core for _, _, cores in TABLES for core in cores)))
    text = "\n\n".join(parts)
    if options.write:
        page = DOCUMENT.read_text()
        before, after = page[:page.index(BEGIN) + len(BEGIN)], page[page.index(END):]
        DOCUMENT.write_text(f"{before}\n\n{text}\n\n{after}")
    else:
        print(text)


if __name__ == "__main__":
    main()
