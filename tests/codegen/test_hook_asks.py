"""Rows of a bias or a mask are asked for a few at a time, with blocks of keys: to ask for many lines at once gains little, see docs/decisions/0103."""

import re

import pytest

from kernel_assembly import kernel_names, kernelgen

NAMES = re.compile(
    r"(stored_|bfloat16_)?flash_(?P<target>x86_avx\w+?|arm_neon)_r(?P<rows>\d+)k(?P<keys>\d+)v\d+u(?P<u>\d+)d\d+"
    r"(?P<hooks>_bias|_mask|_bias_alibi_mask)$"
)
LINE_BYTES = 64
ELEMENT_BYTES = {"bias": 4, "mask": 1}
PRODUCE = re.compile(r"^ *produce (?P<operand>bias|mask)_tile_fetched \{$")


def indent_of(line):
    return len(line) - len(line.lstrip())


def blocks_around(lines, at):
    """The beginnings of the blocks that a line is in, from the innermost one on."""
    indent = indent_of(lines[at])
    for line in reversed(lines[:at]):
        if line.endswith("{") and indent_of(line) < indent:
            indent = indent_of(line)
            yield line.strip()


def lines_within(lines, at):
    end = next(i for i in range(at + 1, len(lines)) if lines[i].strip() == "}" and indent_of(lines[i]) <= indent_of(lines[at]))
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
        within = any(re.match(r"for \(logits\S*\.k_block", block) for block in blocks_around(lines, at))
        assert within, f"{name} asks for a {operand} outside of its blocks of keys"
        of_block = lines_within(lines, at)
        assert sum("prefetch" in line for line in of_block) == -(-keys * ELEMENT_BYTES[operand] // LINE_BYTES)
        loops = [loop[1] for line in of_block if (loop := re.search(r"for \(\S+, 0, (.*)\) \{", line))]
        of_part = -(-rows // blocks)
        if of_part * blocks == rows:
            assert loops == [str(of_part)] * (of_part > 1), f"{name} asks for {loops} rows of a {operand} with a block of keys"
        else:  # the last blocks for fewer, or none
            ends = [loop for loop in loops if not loop.isdigit()] + [line for line in of_block if line.strip().startswith("if (")]
            assert len(ends) == 1, f"{name} asks for {loops} rows of a {operand} with a block of keys"


def test_a_chunk_may_be_one_block_of_keys(tmp_path):
    """Of a tile that a tuner may ask for: all rows are asked for with it."""
    name = "flash_x86_avx512_r32k16v2u16d8_bias"
    kernelgen("x86-64", "emit", name, tmp_path)
    lines = (tmp_path / f"{name}.stmt").read_text().splitlines()
    asks = [lines_within(lines, at) for at, line in enumerate(lines) if PRODUCE.match(line)]
    assert asks and all(any(re.search(r"for \(\S+, 0, 32\)", line) for line in block) for block in asks)


BANDS = re.compile(r"amx_\w+_r\d+k(?P<keys>\d+)v1u16d16(?P<hooks>_bias|_mask|_bias_mask)$")


@pytest.mark.parametrize("name", [
    "amx_float32_flash_x86_avx512_r256k128v1u16d16_bias",
    "amx_flash_x86_avx512_r256k128v1u16d16_bias_mask",
])
def test_bands_ask_with_pairs_of_keys(name, tmp_path):
    """Half a row's lines of an operand with each pair: as many pairs as 32 rows have halves."""
    match = BANDS.match(name)
    kernelgen("x86-64", "emit", name, tmp_path)
    lines = (tmp_path / f"{name}.stmt").read_text().splitlines()
    asks = [(at, found["operand"]) for at, line in enumerate(lines) if (found := PRODUCE.match(line))]
    assert {operand for _, operand in asks} == set(match["hooks"].split("_")) - {""}
    for at, operand in asks:
        lines_of_row = int(match["keys"]) * ELEMENT_BYTES[operand] // LINE_BYTES
        assert sum("prefetch" in line for line in lines_within(lines, at)) == lines_of_row // 2
        assert any(re.match(r"for \(weight_pairs\S*pair", block) for block in blocks_around(lines, at))
