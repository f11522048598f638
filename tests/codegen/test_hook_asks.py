"""Rows of a bias or a mask are asked for a few at a time, with blocks of keys: to ask for many lines at once gains little, see docs/decisions/0103."""

import re

import pytest

from kernel_assembly import kernel_names, kernelgen

NAMES = re.compile(r"(stored_|bfloat16_)?flash_(?P<target>x86_avx\w+?|arm_neon)_r(?P<rows>\d+)k(?P<keys>\d+)v\d+u(?P<u>\d+)d\d+(?P<hooks>_bias|_mask|_bias_alibi_mask)$")
LINE_BYTES = 64
ELEMENT_BYTES = {"bias": 4, "mask": 1}
PRODUCE = re.compile(r"^(?P<indent> *)produce (?P<operand>bias|mask)_tile_fetched \{$")


def blocks_around(lines, at):
    """The beginnings of the blocks that a line is in, from the innermost one on."""
    indent = len(lines[at]) - len(lines[at].lstrip())
    for line in reversed(lines[:at]):
        of_line = len(line) - len(line.lstrip())
        if line.endswith("{") and of_line < indent:
            indent = of_line
            yield line.strip()


def lines_within(lines, at):
    end = next(i for i in range(at + 1, len(lines)) if lines[i].strip() == "}" and len(lines[i]) - len(lines[i].lstrip()) <= len(lines[at]) - len(lines[at].lstrip()))
    return lines[at + 1 : end]


@pytest.mark.parametrize("name", kernel_names(NAMES, ("_bias", "_mask", "_bias_alibi_mask")))
def test_asks_are_spread_over_blocks_of_keys(name, tmp_path):
    match = NAMES.match(name)
    rows, keys, unroll = (int(match[number]) for number in ("rows", "keys", "u"))
    kernelgen("aarch64" if match["target"] == "arm_neon" else "x86-64", "emit", name, tmp_path)
    lines = (tmp_path / f"{name}.stmt").read_text().splitlines()
    asks = [(at, found["operand"]) for at, line in enumerate(lines) if (found := PRODUCE.match(line))]
    assert {operand for _, operand in asks} == set(match["hooks"].split("_")) - {"", "alibi"}
    blocks = keys // unroll
    for at, operand in asks:
        assert any(re.match(r"for \(logits\S*\.k_block", block) for block in blocks_around(lines, at)), f"{name} asks for a {operand} outside of its blocks of keys"
        of_block = lines_within(lines, at)
        assert sum("prefetch" in line for line in of_block) == -(-keys * ELEMENT_BYTES[operand] // LINE_BYTES)
        loops = [loop[1] for line in of_block if (loop := re.search(r"for \(\S+, 0, (.*)\) \{", line))]
        of_part = -(-rows // blocks)
        if of_part * blocks == rows:
            assert loops == [str(of_part)] * (of_part > 1), f"{name} asks for {loops} rows of a {operand} with a block of keys"
        else:  # the last blocks for fewer, or none
            ends = [loop for loop in loops if not loop.isdigit()] + [line for line in of_block if line.strip().startswith("if (")]
            assert len(ends) == 1, f"{name} asks for {loops} rows of a {operand} with a block of keys"
