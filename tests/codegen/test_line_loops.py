"""Loops of decode over whole lines of int8 and int4, see docs/decisions/0073 and 0078."""

import re

import pytest

from assembly import INSTRUCTION_SETS, innermost_loops, straight_runs
from kernel_assembly import SSE4A, kernel_names

NAME = re.compile(r"(?P<dtype>int8|int4)_lines_split_kv_(?P<target>x86_avx512)_r(?P<rows>\d+)k\d+v(?P<v>\d+)u(?P<u>\d+)d(?P<d>\d+)(?P<hooks>\w*)$")
NAMES = kernel_names(NAME, ("",))
PRODUCT = r"\bvpdpbusd\b.*%zmm\d+(\s+#.*)?$"
PAIRS = r"\bvpdpwssd\b.*%zmm\d+$"  # of values
DIGITS = 2  # of a query's or a weight's integers
KEYS = 4  # at once; and values
ROWS = {"int8": 8, "int4": 4}  # whose scores are computed together
ELEMENTS = 128  # of a head
NIBBLES = {"int8": 1, "int4": 2}  # elements of a byte
LINES = {"int8": 2, "int4": 1}  # of a head
VALUES_ASKED_WITH_SCORES = 2
PANELS = 8  # of 16 elements, in a line


def rows_of(match):
    return int(match["rows"])


def multiplies_digits(name):
    """Of values: few rows of int4."""
    match = NAME.match(name)
    return match["dtype"] == "int4" and rows_of(match) <= 2


BY_DIGITS, BY_PAIRS = ([name for name in NAMES if multiplies_digits(name) == digits] for digits in (True, False))


def test_there_are_kernels():
    for dtype in NIBBLES:
        assert [rows_of(NAME.match(name)) for name in NAMES if name.startswith(dtype)] == [1, 2, 4, 8]


def blocks_of(name, emit, product=PRODUCT, blocks=innermost_loops):
    isa = INSTRUCTION_SETS[NAME.match(name)["target"]]
    text = emit(name, isa)
    assert "gather" not in text, f"{name} gathers"
    assert not re.search(SSE4A, text), f"{name} needs SSE4a"
    assert "bf16" not in text, f"{name} needs bfloat16"
    return [block for block in blocks(text, isa) if block.count(product)], isa


def expect(name, loops, holds, what):
    assert any(map(holds, loops)), f"{name}: no {what}:\n" + "\n".join(loop.text() for loop in loops)


@pytest.mark.parametrize("name", NAMES)
def test_scores(name, emit):
    """A pass takes four keys of a head of 128, whose lines are loaded once for up to four rows, of int8 eight, and their digits. Integers are summed up within
    quarters, of int8 with one scale those of both lines: only what remains is brought into float32 and multiplied by scales, a vector for each
    line and row. Passes of all rows ask for as many lines of keys, of some for lines of values too, for scales of values, and for those of
    keys, where these are not one; of eight rows these asks lie, of int4, before both passes over the same keys."""
    loops, isa = blocks_of(name, emit, blocks=straight_runs)
    match = NAME.match(name)
    dtype, all_rows = match["dtype"], rows_of(match)
    rows, lines = min(all_rows, ROWS[dtype]), LINES[dtype]
    products = rows * KEYS * DIGITS * lines * NIBBLES[dtype]
    asked = KEYS * lines + (VALUES_ASKED_WITH_SCORES if multiplies_digits(name) else 0) + 1
    if all_rows > rows:
        runs = blocks_of(name, emit, isa.kept, straight_runs)[0]
        for lines_asked, what in ((KEYS * lines, "keys"), (1, "values' scales"), (2, "all scales")):
            expect(name, runs, lambda run, asked=lines_asked: run.count(isa.kept) == asked and not run.count(PRODUCT), f"run that asks for lines of {what}")

    def takes_lines_once(loop):
        if dtype == "int4":
            taken = loop.count(r"\bvpslld\s+\$0?x?4,")
            before_both_passes = all_rows > rows and taken == 0
            return (taken == KEYS or before_both_passes) and loop.count(r"\bvpternlogd\b") == 2 * taken and not loop.count(r"\bvgf2p8affineqb\b")
        return loop.count(r"\bvpxor[dq]\b.*%zmm") - loop.count(r"\bvpxor[dq]\b\s+%zmm(\d+), %zmm\1,") <= KEYS * lines

    def spills(loop):  # beyond constants, and of four rows and more some sums
        return loop.count(isa.spill) > (1 if rows < 4 else 4)

    for scales, what in ((0, "loop without scales"), (lines, "loop with scales")):
        converted = rows * max(1, scales)

        def is_clean(loop, scales=scales, converted=converted):
            scaled = loop.count(r"\bvmulps\b.*%zmm") + loop.count(isa.whole_fma) == scales * rows
            expected_asks = 0 if all_rows > rows else asked + (1 if scales else 0)
            expected = loop.count(PRODUCT) == products and loop.count(isa.kept) == expected_asks and loop.count(r"\bvcvtdq2ps\b") == converted
            return takes_lines_once(loop) and expected and scaled and not spills(loop)

        expect(name, loops, is_clean, f"{what} of {products} products")


STORED = re.compile(r"\bvmov\w+\s+%(?P<register>[xyz]mm)\d+, (?P<offset>-?\w*)\(%rsp\)$")
LOADED = re.compile(r"(?P<offset>-?\w*)\(%rsp\), (?:%[xyz]mm\d+, )*%(?P<register>[xyz]mm)\d+$")
BYTES = {"xmm": 16, "ymm": 32, "zmm": 64}


def loads_of_parts(loop):
    """Vectors that are loaded from the stack where smaller ones were stored in the same loop: each waits until the caches have all of them."""
    stored, found = {}, []
    for instruction in loop.instructions:
        text = instruction.split("#")[0].strip()
        if match := STORED.search(text):
            stored[int(match["offset"] or "0", 0)] = BYTES[match["register"]]
        elif (match := LOADED.search(text)) and re.match(r"v(p?perm|mov[au]|movdq|pxor|paddd|shuf|mulps|addps|fmadd|pdp)", text):
            begin, size = int(match["offset"] or "0", 0), BYTES[match["register"]]
            found += [text for at, part in stored.items() if begin <= at and at + part <= begin + size and part < size]
    return found


@pytest.mark.parametrize("name", NAMES)
def test_no_vector_is_put_together_on_the_stack(name, emit):
    """Scales of four keys that lie side by side are one load. Those of the last keys, or apart, may be others.

    They are multiplied with sums, or, of eight rows, stand before these, where words of keys change places."""
    loops, _ = blocks_of(name, emit, product=r"\bvpermps\b.*%zmm", blocks=straight_runs)
    with_scales = [loop for loop in loops if loop.count(r"\b(vcvtdq2ps|vpunpckldq)\b.*%zmm")]
    expect(name, with_scales, lambda loop: not loads_of_parts(loop), "loop that loads scales at once")


@pytest.mark.parametrize("name", BY_DIGITS)
@pytest.mark.parametrize("of_blocks", [False, True])
def test_values(name, of_blocks, emit):
    """A pass takes four values: bytes are interleaved once for all rows and digits, and neither sums nor elements are on the stack."""
    loops, isa = blocks_of(name, emit)
    match = NAME.match(name)
    rows, panels = rows_of(match), int(match["d"])
    products = rows * panels * DIGITS
    parts = PANELS // panels
    interleaved = {"bw": KEYS // parts, "wd": panels // NIBBLES["int4"]}
    weights = r"\bvperm[dq]\b|\bvpermps\b" if of_blocks else r"\bvpbroadcastd\b"

    def is_clean(loop, asked):
        shuffles = {kind: loop.count(rf"\bvpunpck[lh]{kind}\b") for kind in interleaved} == interleaved
        clean = shuffles and not loop.count(isa.spill) and loop.count(weights) >= rows * DIGITS
        return clean and loop.count(PRODUCT) == products and loop.count(isa.kept) == asked

    for asked in (KEYS - VALUES_ASKED_WITH_SCORES, 0)[:parts]:
        expect(name, loops, lambda loop, asked=asked: is_clean(loop, asked), f"clean loop of {products} products that asks for {asked} lines")


@pytest.mark.parametrize("name", BY_PAIRS)
def test_values_in_pairs(name, emit):
    """A pass takes two values, which are brought into 16 bits and interleaved once for all rows, and asks for their lines."""
    loops, isa = blocks_of(name, emit, PAIRS)
    match = NAME.match(name)
    rows, vectors = rows_of(match), int(match["d"])
    asked = 2 * max(1, vectors * 16 // (ELEMENTS // LINES[match["dtype"]]))

    def is_clean(loop):
        return (
            loop.count(PAIRS) == rows * vectors
            and loop.count(r"\bvpunpck[lh]wd\b") == vectors
            and (match["dtype"] == "int4" or loop.count(r"\bvpmovsxbw\b") == vectors)
            and loop.count(isa.kept) == asked
            and not loop.count(isa.spill)
        )

    expect(name, loops, is_clean, f"clean loop of {rows * vectors} products that asks for {asked} lines")
