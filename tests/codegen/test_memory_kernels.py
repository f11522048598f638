"""Kernels for keys and values in memory are the others of their tile but for the caches that they ask for lines into, and how far ahead."""

import re

import pytest

from assembly import INSTRUCTION_SETS
from kernel_assembly import MEMORY_NAME, asks_by_stride, kernel_names

NAMES = kernel_names(MEMORY_NAME)


def instructions(text):
    """Without what a kernel's own name is part of, nor labels and directives, nor where constants lie and jumps go."""
    lines = (line.split("#")[0].strip() for line in text.splitlines() if line.startswith((" ", "\t")))
    mnemonics = (line for line in lines if line and not line.startswith("."))
    return [re.sub(r"[-\w.]*\(%rip\)", "(%rip)", line) if not re.match(r"(j\w+|call\w*)\s", line) else line.split()[0] for line in mnemonics]


def test_there_are_kernels_to_read():
    assert {MEMORY_NAME.match(name)["target"] for name in NAMES} == {"x86_avx512"}


@pytest.mark.parametrize("name", NAMES)
def test_lines_are_asked_into_the_second_level_cache(name, emit):
    isa = INSTRUCTION_SETS[MEMORY_NAME.match(name)["target"]]
    other = MEMORY_NAME.match(name)["other"]
    asked, kept = (re.findall(r"\bprefetch\w+", emit(of, isa)) for of in (name, other))
    assert kept and set(kept) == {"prefetcht0"}
    assert asked == ["prefetcht1"] * len(kept)


@pytest.mark.parametrize("name", [name for name in NAMES if not asks_by_stride(MEMORY_NAME.match(name)["other"])])
def test_all_else_is_alike(name, emit):
    """By stride they ask further ahead too, which moves other instructions."""
    isa = INSTRUCTION_SETS[MEMORY_NAME.match(name)["target"]]
    own, others = (instructions(emit(of, isa)) for of in (name, MEMORY_NAME.match(name)["other"]))
    assert len(own) > 100
    assert [line.replace("prefetcht1", "prefetcht0") for line in own] == others
