"""The two inner loops of attention kernels, scores and values, compile to what their schedules mean.

Halide's failures are silent: a gather, a guard or a spilled accumulator costs a factor and no error. So the assembly is read:
every FMA the register block asks for, no stack traffic, no gathers, full vector width. Kernels over other types than float32 are in
test_typed_loops.py and test_matrix_loops.py.
"""

import math
import re

import pytest

from assembly import INSTRUCTION_SETS, innermost_loops, straight_runs
from kernel_assembly import (
    HOOK_SETS,
    KERNELGEN,
    LINE_FLOATS,
    NAME,
    QUAD,
    STORED_NAME,
    TYPED_NAME,
    asks_by_stride,
    expect_no_gathers,
    expect_rows_one_by_one,
    expected_blocks,
    goes_by_quads,
    has_few_rows,
    has_rows_in_lanes,
    kernel_names,
)

UNFUSED_NAME = re.compile(
    r"unfused_(?P<kind>scores|values)_(?P<target>x86_avx\w+?|arm_neon)_r(?P<rows>\d+)k\d+v(?P<v>\d+)u(?P<u>\d+)d(?P<d>\d+)(?P<hooks>\w*)$"
)
UNFUSED_HOOK_SETS = (*HOOK_SETS, "_bias_mask")
LINE_BYTES = 64  # of a mask, a byte for each key


def test_there_are_kernels_to_read():
    names = kernel_names()
    for kind in ("flash", "split_kv"):
        for target in INSTRUCTION_SETS:
            assert any(name.startswith(f"{kind}_{target}_") for name in names), f"no {kind} kernel for {target} in {KERNELGEN}"


def goes_by_row(name):
    match = NAME.match(name)
    return match["kind"] == "split_kv" and has_few_rows(match)


@pytest.mark.parametrize("name", [name for name in kernel_names() if not goes_by_row(name)])
def test_inner_loops(name, emit):
    match = NAME.match(name)
    isa = INSTRUCTION_SETS[match["target"]]
    text = emit(name, isa)
    expect_no_gathers(name, text, isa, 1 if has_rows_in_lanes(name) else int(match["d"]))
    scores, values = expected_blocks(match)
    loops = [loop for loop in innermost_loops(text, isa) if loop.is_register_block]
    # The score block reads its second operand along the head, the value block along the keys; a loop may hold several blocks.
    found = "\n".join(loop.text() for loop in innermost_loops(text, isa) if loop.fmas)
    assert any(loop.fmas % scores == 0 for loop in loops), f"{name}: no clean loop of {scores} FMAs; loops with FMAs:\n{found}"
    assert any(loop.fmas % values == 0 for loop in loops), f"{name}: no clean loop of {values} FMAs; loops with FMAs:\n{found}"
    assert len(loops) >= 2, f"{name}: scores and values need a clean loop each; loops with FMAs:\n{found}"
    if has_rows_in_lanes(name):
        # The first is over whole lines of keys; others may be for the ends of heads, which look for where each element is.
        most = 2.2 if asks_by_stride(name) else 2.1
        whole_lines = next(loop for loop in innermost_loops(text, isa) if loop.fmas >= scores and len(loop.instructions) <= most * loop.fmas)
        assert not whole_lines.count(isa.spill), f"{name}: accumulators on the stack:\n{whole_lines.text()}"


@pytest.mark.parametrize("name", [name for name in kernel_names() if has_rows_in_lanes(name) and not asks_by_stride(name)])
def test_fetches_once_per_line(name, emit):
    """Each line of a block's dot products asks for one line of each key and value row: beside the loop over its elements, not in it."""
    match = NAME.match(name)
    isa = INSTRUCTION_SETS[match["target"]]
    text = emit(name, isa)
    fetches = len(re.findall(isa.fetch, text))
    per_line = 2 * int(match["u"])
    assert len(re.findall(isa.kept, text)) == fetches, f"{name}: lines are asked for that caches do not keep"
    # And once with each block of keys for what the next chunk has of a row of the bias, and of the mask. Of the loop over lines there is a
    # copy for whole ones and one for the rest of a head that is none; of all of it one copy, or two with softcap and without, each once more
    # for blocks of keys that the first vectors of rows do not see, for as many of them as that may be.
    keys = int(match["keys"])
    operands = math.ceil(keys / LINE_BYTES) + keys // LINE_FLOATS if match["hooks"] else 0
    # Flash asks with each line for one of some rows of the next tile's queries and of its own output, in a loop. Lines of dense rows and of
    # others are asked for apart, but for the last, which both end in; where two elements are taken at a time, one copy or two keep their own.
    of_rows = 2 if match["kind"] == "flash" else 0
    of_blocks = 1 + len(rows_that_see_less(match))
    kept = (1, 2) if name in single_vectors() else (0,)
    expected = {copies * (of_blocks * 2 * (2 * per_line - 1 + of_rows) + operands) + own for copies in (1, 2) for own in kept}
    assert fetches in expected, f"{name}: {fetches} fetches, {per_line} a line, {operands} for operands of hooks"
    dense = [run for run in straight_runs(text, isa) if per_line - 1 <= run.count(isa.fetch) <= per_line and not run.count(isa.table_entry)]
    assert any(len(run.instructions) <= 3 * per_line for run in dense), f"{name}: dense rows are looked up in tables"
    for loop in innermost_loops(text, isa):
        assert not (loop.fmas and loop.count(isa.fetch)), f"{name} fetches for every element:\n{loop.text()}"


FEWEST_UNSEEN_ROWS = 8


def rows_that_see_less(match):
    """Numbers of vectors, of the first rows, that do not multiply keys hidden from all of them."""
    lanes, vectors = INSTRUCTION_SETS[match["target"]].lanes, int(match["v"])
    joined = match["kind"] == "flash" and int(match["rows"]) == vectors * lanes
    step = max(FEWEST_UNSEEN_ROWS // lanes, 1)
    return range(step, vectors, step) if joined else range(0)


@pytest.mark.parametrize("name", [name for name in kernel_names() if rows_that_see_less(NAME.match(name))])
def test_rows_that_see_no_key_are_not_multiplied(name, emit):
    match = NAME.match(name)
    isa = INSTRUCTION_SETS[match["target"]]
    loops = [loop for loop in innermost_loops(emit(name, isa), isa) if loop.is_register_block]
    vectors = int(match["v"])
    for block in expected_blocks(match):
        for unseen in rows_that_see_less(match):
            of_others = block * (vectors - unseen) // vectors
            found = [loop for loop in loops if loop.sums == of_others]
            assert found, f"{name}: no loop of {of_others} of {block} sums; loops with FMAs:\n" + "\n".join(loop.text() for loop in loops)
            assert not any(loop.count(isa.spill) for loop in found), f"{name}: accumulators on the stack"


@pytest.mark.parametrize("name", [name for name in kernel_names() if re.match(r"flash_x86_avx512_r\d+k\d+v\d+u\d+d\d+$", name)])
def test_sums_of_values_go_from_registers_to_the_state(name, emit):
    """Between two loops over granules of keys, and before they are added to the state, none is stored on the stack: see own_slots.h."""
    match = NAME.match(name)
    isa = INSTRUCTION_SETS[match["target"]]
    _, values = expected_blocks(match)
    for run in straight_runs(emit(name, isa), isa):
        assert run.count(isa.spill) < values, f"{name}: sums are stored on the stack:\n{run.text()}"


def single_vectors():
    """Decode with as many rows as a vector of AVX-512 has lanes."""
    names = kernel_names() + kernel_names(STORED_NAME)
    return [name for name in names if "split_kv_x86_avx512_r16" in name]


@pytest.mark.parametrize("name", single_vectors())
def test_what_is_loaded_is_multiplied_twice(name, emit):
    """Ten loads for sixteen products: scores with two elements of a key for half as many rows in a vector, values with the head in the lanes."""
    isa = INSTRUCTION_SETS["x86_avx512"]
    loops = [loop for loop in innermost_loops(emit(name, isa), isa) if loop.fmas == 16]
    most = 36 if asks_by_stride(name) else 32  # by stride with what is asked for, and operands of hooks in fewer registers
    for broadcast in (r"\bvbroadcastsd\b", r"\bvbroadcastss\b"):
        found = [loop for loop in loops if loop.count(broadcast) == 8]
        assert any(len(loop.instructions) <= most and not loop.count(isa.spill) for loop in found), (
            f"{name}: no loop of 16 FMAs and 8 broadcasts; loops with 16 FMAs:\n" + "\n".join(loop.text() for loop in loops)
        )


def by_quads():
    matches = [*map(NAME.match, kernel_names()), *map(TYPED_NAME.match, kernel_names(TYPED_NAME))]
    return [match[0] for match in matches if goes_by_quads(match)]


@pytest.mark.parametrize("name", by_quads())
def test_four_elements_of_a_key_are_loaded_for_sixteen_products(name, emit):
    """Ten loads for sixteen products, and no sums across vectors but of four lanes, for four keys at once."""
    isa = INSTRUCTION_SETS["x86_avx512"]
    text = emit(name, isa)
    loops = [loop for loop in innermost_loops(text, isa) if loop.count(r"\bvbroadcast[fi](32x4|128)\b") == 8]
    assert any(loop.fmas == 16 and len(loop.instructions) <= 34 and not loop.count(isa.spill) for loop in loops), (
        f"{name}: no loop of 16 FMAs and 8 broadcasts; loops with 8:\n" + "\n".join(loop.text() for loop in loops)
    )
    # Of sixteen vectors.
    added = [run for run in straight_runs(text, isa) if run.count(r"\bvshufps\b") == 24]
    assert any(run.count(r"\bvaddps\b") == 12 and not run.fmas for run in added), f"{name}: no sums of four keys at once"


@pytest.mark.parametrize("name", [name for name in kernel_names() if name.startswith("flash_x86_")])
def test_weights_of_prefill_take_twelve_instructions(name, emit):
    """Of a vector: the difference to the maximum, at least -127; two sums and a difference, a shift, and six products for 2^x. None converts."""
    match = NAME.match(name)
    isa = INSTRUCTION_SETS[match["target"]]
    vectors = int(match["rows"]) // isa.lanes
    loops = [loop for loop in innermost_loops(emit(name, isa), isa) if loop.count(r"\bvpslld\b") == vectors]
    assert any(
        (loop.fmas, loop.count(r"\bv(add|sub|mul|max)ps\b"), loop.count(r"\bvcvt")) == (5 * vectors, 6 * vectors, 0) for loop in loops
    ), f"{name}: no loop of {vectors} exponentials by sums:\n" + "\n".join(loop.text() for loop in loops)


def flash_beside_products():
    """Of float32 on AVX-512, without hooks and with some; a bool mask or a bias may hide values, whose weights others read first."""
    return [name for name in kernel_names(NAME, ("", "_softcap", "_alibi")) if name.startswith("flash_x86_avx512_")]


@pytest.mark.parametrize("name", flash_beside_products())
def test_weights_stand_beside_the_first_block_of_values(name, emit):
    """With the products of a key the exponentials of one a granule ahead, in registers: see weights_beside_values.h."""
    match = NAME.match(name)
    isa = INSTRUCTION_SETS[match["target"]]
    vectors = int(match["rows"]) // isa.lanes
    _, values = expected_blocks(match)
    loops = [loop for loop in innermost_loops(emit(name, isa), isa) if loop.count(r"\bvpslld\b") == vectors and loop.fmas > 5 * vectors]
    assert any(
        loop.fmas == values + 5 * vectors and loop.count(r"\bvaddps\b") == 3 * vectors and not loop.count(isa.spill) for loop in loops
    ), f"{name}: no clean loop of {values} products and {vectors} exponentials with their sums:\n" + "\n".join(loop.text() for loop in loops)


@pytest.mark.parametrize("name", flash_beside_products())
def test_maxima_are_taken_of_registers(name, emit):
    """Of a block's scores, where they are stored: see maxima_beside_scores.h."""
    match = NAME.match(name)
    isa = INSTRUCTION_SETS[match["target"]]
    scores, _ = expected_blocks(match)
    found = [run.count(r"\bvmaxps\s+%zmm") for run in straight_runs(emit(name, isa), isa)]
    assert any(count >= scores for count in found), f"{name}: no run with {scores} maxima of registers, but {sorted(set(found))}"


@pytest.mark.parametrize("name", list(filter(goes_by_row, kernel_names())))
def test_decode_of_few_rows_goes_by_row(name, emit):
    match = NAME.match(name)
    isa = INSTRUCTION_SETS[match["target"]]
    expect_rows_one_by_one(name, match, emit(name, isa), isa)


@pytest.mark.parametrize("name", list(filter(asks_by_stride, kernel_names())))
def test_decode_asks_for_lines_one_by_one(name, emit):
    """With as many products as a line is asked for with, and two constants: keys in the score loop, values in the value loop, of 32 rows both in
    the former. No more than these two at once, but for hooks' operands."""
    match = NAME.match(name)
    isa = INSTRUCTION_SETS[match["target"]]
    text = emit(name, isa)
    rows, (scores, values) = int(match["rows"]), expected_blocks(match)
    if rows <= 8:  # a line, or with each four elements a quarter of one, of each of u keys, and of d vectors of a value, which may end in one more
        expected = [(scores, int(match["u"]) // (QUAD if goes_by_quads(match) else 1)), (values, int(match["d"]) + 1)]
    elif rows == 16:  # two elements of a key, and 8 rows and two vectors of a value
        expected = [(2 * scores, 1), (2 * values, 3)]
    else:
        expected = [(2 * scores, 2)]
    loops = [loop for loop in innermost_loops(text, isa) if loop.is_register_block and loop.count(isa.fetch)]
    found = [(loop.fmas, loop.count(isa.fetch)) for loop in loops]
    for block in expected:
        assert found.count(block) >= expected.count(block), f"{name}: no clean loop of {block} FMAs and fetches, but {found}"
    if not match["hooks"]:
        beside = [run for run in straight_runs(text, isa) if run.count(isa.fetch) > 2 and not run.fmas]
        assert not beside, f"{name} asks beside its products:\n" + "\n".join(run.text() for run in beside)


@pytest.mark.parametrize(
    "name", [name for name in kernel_names() if not has_rows_in_lanes(name) and not goes_by_row(name) and not asks_by_stride(name)]
)
def test_decode_fetches_while_it_multiplies(name, emit):
    """A pass of the loop over lines of the head multiplies a line of each key and asks for as many lines of keys and of values."""
    match = NAME.match(name)
    isa = INSTRUCTION_SETS[match["target"]]
    scores, _ = expected_blocks(match)
    loops = [loop for loop in innermost_loops(emit(name, isa), isa) if loop.count(isa.kept)]
    expected = (scores * LINE_FLOATS // isa.lanes, 2 * int(match["u"]))
    assert any(loop.is_register_block and (loop.fmas, loop.count(isa.fetch)) == expected for loop in loops), (
        f"{name}: no clean loop of {expected} FMAs and fetches; loops with fetches:\n" + "\n".join(loop.text() for loop in loops)
    )


@pytest.mark.parametrize("name", kernel_names(UNFUSED_NAME, UNFUSED_HOOK_SETS))
def test_inner_loop_of_unfused(name, emit):
    match = UNFUSED_NAME.match(name)
    isa = INSTRUCTION_SETS[match["target"]]
    text = emit(name, isa)
    expect_no_gathers(name, text, isa, int(match["d"]) if match["kind"] == "values" else 0)
    rows, v, u, d = (int(match[part]) for part in ("rows", "v", "u", "d"))
    if match["kind"] == "values":
        expected = v * d
    else:
        # Small tiles have the head in the lanes, and the block holds all their rows.
        expected = rows * u if rows < isa.lanes else v * u
    if match["kind"] == "scores" and has_few_rows(match):
        expected = rows  # key after key, of which usual heads have a run of their own
        products = [run.fmas + run.count(r"\bvmulps\b") for run in straight_runs(text, isa)]
        assert rows * u * 128 // LINE_FLOATS in products, f"{name}: no run over heads of 128 among {products}"
    loops = [loop.fmas for loop in innermost_loops(text, isa) if loop.is_register_block]
    assert any(fmas % expected == 0 for fmas in loops), f"{name}: no clean loop of {expected} FMAs among {loops}"


# Elements from memory, one by one.
ELEMENTS = r"\bv(insertps|pinsr[bwdq])\b.*\("
MASKED = r"\bv(mov|pmov)\w+\s.*\{z\}"


def decodes_under_masks():
    """On AVX-512, with the head in the lanes."""
    names = kernel_names(NAME, ("",)) + kernel_names(STORED_NAME, ("",))
    return [name for name in names if "_avx512_" in name and not has_rows_in_lanes(name.removeprefix("stored_"))]


@pytest.mark.parametrize("name", decodes_under_masks())
def test_ends_of_rows_are_loaded_under_masks(name, emit):
    match = NAME.match(name) or STORED_NAME.match(name)
    isa = INSTRUCTION_SETS[match["target"]]
    text = emit(name, isa)
    assert re.search(MASKED, text), f"{name} has no masks"
    for loop in innermost_loops(text, isa):
        assert not (loop.fmas and loop.count(ELEMENTS)), f"{name} loads elements one by one:\n{loop.text()}"
