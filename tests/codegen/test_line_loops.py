"""Inner loops of decode over whole lines of int4, see docs/decisions/0073."""

import re

import pytest

from assembly import INSTRUCTION_SETS, innermost_loops
from kernel_assembly import SSE4A, kernel_names

NAME = re.compile(r"int4_lines_split_kv_(?P<target>x86_avx512)_r(?P<rows>\d+)k\d+v(?P<v>\d+)u(?P<u>\d+)d(?P<d>\d+)(?P<hooks>\w*)$")
NAMES = kernel_names(NAME, ("",))
PRODUCT = r"\bvpdpbusd\b.*%zmm\d+$"
DIGITS = NIBBLES = 2  # each of a key's bytes is two elements, each of a query's or a weight's integers two digits
KEYS = 4  # at once; and values
VALUES_ASKED_WITH_SCORES = 2
PANELS = 8  # of 16 elements, in a line


def test_there_are_kernels():
    assert [int(NAME.match(name)["rows"]) for name in NAMES] == [1, 2]


def loops_of(name, emit):
    isa = INSTRUCTION_SETS[NAME.match(name)["target"]]
    text = emit(name, isa)
    assert "gather" not in text, f"{name} gathers"
    assert not re.search(SSE4A, text), f"{name} needs SSE4a"
    assert "bf16" not in text, f"{name} needs bfloat16"
    return [loop for loop in innermost_loops(text, isa) if loop.count(PRODUCT)], isa


def expect(name, loops, holds, what):
    assert any(map(holds, loops)), f"{name}: no {what}:\n" + "\n".join(loop.text() for loop in loops)


@pytest.mark.parametrize("name", NAMES)
def test_scores(name, emit):
    """A pass takes four keys of a head of 128, each as one line that is loaded once for all rows and digits, and asks for as many lines of
    keys, for some of values and for their scales. Integers are summed up within quarters: only what remains is brought into float32 and
    multiplied by scales, a vector for each row."""
    loops, isa = loops_of(name, emit)
    rows = int(NAME.match(name)["rows"])
    products = rows * KEYS * DIGITS * NIBBLES
    asked = KEYS + VALUES_ASKED_WITH_SCORES + 1

    def takes_lines_once(loop):
        nibbles = loop.count(r"\bvgf2p8affineqb\b|\bvpsllw\b") == loop.count(r"\bvpternlogd\b") == KEYS
        return loop.count(PRODUCT) == products and nibbles and loop.count(isa.kept) == asked and loop.count(r"\bvcvtdq2ps\b") == rows

    def spills(loop):  # beyond a constant
        return loop.count(isa.spill) > 1

    for scaled, what in ((0, "loop without scales"), (rows, "loop with scales")):
        expect(
            name,
            loops,
            lambda loop, scaled=scaled: takes_lines_once(loop) and loop.count(r"\bvmulps\b.*%zmm") == scaled and not spills(loop),
            f"{what} of {products} products",
        )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("of_blocks", [False, True])
def test_values(name, of_blocks, emit):
    """A pass takes four values: bytes are interleaved once for all rows and digits, and neither sums nor elements are on the stack."""
    loops, isa = loops_of(name, emit)
    match = NAME.match(name)
    rows, panels = int(match["rows"]), int(match["d"])
    products = rows * panels * DIGITS
    parts = PANELS // panels
    interleaved = {"bw": KEYS // parts, "wd": panels // NIBBLES}
    weights = r"\bvperm[dq]\b|\bvpermps\b" if of_blocks else r"\bvpbroadcastd\b"

    def is_clean(loop, asked):
        shuffles = {kind: loop.count(rf"\bvpunpck[lh]{kind}\b") for kind in interleaved} == interleaved
        return loop.count(PRODUCT) == products and shuffles and loop.count(isa.kept) == asked and not loop.count(isa.spill) and loop.count(weights) >= rows * DIGITS

    for asked in (KEYS - VALUES_ASKED_WITH_SCORES, 0)[:parts]:
        expect(name, loops, lambda loop, asked=asked: is_clean(loop, asked), f"clean loop of {products} products that asks for {asked} lines")
