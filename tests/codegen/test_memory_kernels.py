"""Kernels for keys and values in memory are the others of their tile but for the caches that they ask for lines into, or how far ahead."""

import re

import pytest

from assembly import INSTRUCTION_SETS
from kernel_assembly import MEMORY_NAME, asks_by_stride, kernel_names, kernelgen

NAMES = kernel_names(MEMORY_NAME)
ISA = INSTRUCTION_SETS["x86_avx512"]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """As LLVM writes it, both kernels: a disassembly has other names for the same instructions."""
    folder = tmp_path_factory.mktemp("kernels")

    def assembly_of(name):
        path = folder / f"{name}.s"
        if not path.exists():
            kernelgen(ISA.architecture, "emit", name, folder)
        return path.read_text()

    return assembly_of


def instructions(text):
    """Without labels and directives, nor where constants lie and jumps go, which a kernel's own name is part of."""
    lines = (line.split("#")[0].strip() for line in text.splitlines() if line.startswith((" ", "\t")))
    mnemonics = (line for line in lines if line and not line.startswith("."))
    return [re.sub(r"[-\w.]*\(%rip\)", "(%rip)", line) if not re.match(r"(j\w+|call\w*)\s", line) else line.split()[0] for line in mnemonics]


def arithmetic_of(lines):
    """Which instructions, whatever registers they take: of a multiply-add, which of its operands is the sum."""
    names = (line.split()[0] for line in lines if re.search(ISA.fma + "|" + ISA.arithmetic + r"|\bvdpbf16ps\b", line))
    return [re.sub(r"^(vf\w+?)(132|213|231)", r"\1", name) for name in names if not name.startswith("vmov")]


def test_there_are_kernels_to_read():
    rows = {}
    for match in map(MEMORY_NAME.match, NAMES):
        rows.setdefault((match["into"], match["family"]), set()).add(int(match["rows"]))
    of_one_type = {("memory", f"{dtype}split_kv"): {1, 2, 4, 8} for dtype in ("float16_", "bfloat16_", "int8_lines_")}
    of_floats = {("memory", "split_kv"): {1, 2, 4, 8, 16}, ("ahead", "split_kv"): {4, 8, 16}}
    assert rows == {**of_floats, ("memory", "bfloat16_rows_split_kv"): {4, 8}, **of_one_type}
    assert all(MEMORY_NAME.match(name)["target"] == "x86_avx512" for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_lines_are_asked_into_the_second_level_cache_or_ahead(name, emit):
    match = MEMORY_NAME.match(name)
    asked, kept = (re.findall(r"\bprefetch\w+", emit(of, ISA)) for of in (name, match["other"]))
    assert kept and set(kept) == {"prefetcht0"}
    assert asked == ["prefetcht1" if match["into"] == "memory" else "prefetcht0"] * len(kept)


@pytest.mark.parametrize("name", NAMES)
def test_all_else_is_alike(name, compiled):
    """By stride, and over floats that lie apart, they ask further ahead too, which moves other instructions: there arithmetic is the same,
    in the same order."""
    match = MEMORY_NAME.match(name)
    other = match["other"]
    own, others = instructions(compiled(name)), instructions(compiled(other))
    assert len(own) > 100
    if asks_by_stride(other) or "int8" not in match["family"]:
        assert own != others, f"{name} asks no further ahead"
        own, others = (arithmetic_of(lines) for lines in (own, others))
    assert [line.replace("prefetcht1", "prefetcht0") for line in own] == others
