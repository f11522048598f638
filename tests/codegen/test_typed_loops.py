"""Inner loops of kernels over any storage type, and over one other than float32: what test_inner_loops.py says, and that numbers are converted,
or multiplied as they are, by whole vectors and once for all rows."""

import math
import re

import pytest

from assembly import INSTRUCTION_SETS, innermost_loops, straight_runs
from kernel_assembly import (
    LINE_BITS,
    LINE_FLOATS,
    SSE4A,
    STORED_NAME,
    TYPED_NAME,
    expect_rows_one_by_one,
    expected_blocks,
    goes_by_quads,
    has_few_rows,
    kernel_names,
)

REGISTERS = {"x86_avx2": "ymm", "x86_avx512": "zmm"}
# Of flash: up to so many sums of scores take so many elements of the head in one pass, see schedules/simd/rows_in_lanes.cpp.
FEW_SUMS, DOT_UNROLL = 12, 4


@pytest.mark.parametrize("name", kernel_names(STORED_NAME, ("",)))
def test_kernels_for_any_storage(name, emit):
    """Every type has loops that convert whole vectors, and no element is gathered or inserted."""
    match = STORED_NAME.match(name)
    isa = INSTRUCTION_SETS[match["target"]]
    register = REGISTERS[match["target"]]
    text = emit(name, isa)
    assert "gather" not in text, f"{name} gathers"
    loops = innermost_loops(text, isa)
    conversions = {
        "float16": rf"\bvcvtph2ps\b.*%{register}",
        "bfloat16": rf"\bvpmovzxwd\b.*%{register}",
        "int8": rf"\bvpmovsxbd\b.*%{register}",
        "int4": rf"\bvpsrlvd\b.*%{register}",
    }
    clean = [loop for loop in loops if not loop.count(r"\bvp?(insr|insert|extr)\w*") and loop.count(isa.stack) <= 2]
    for dtype, pattern in conversions.items():
        found = any(loop.count(pattern) for loop in clean)
        assert found, f"{name}: no loop over vectors converts {dtype}"
    if match["kind"] == "flash":
        block = int(match["v"]) * int(match["u"])
        fmas = block * DOT_UNROLL if block <= FEW_SUMS else block
        assert any(loop.is_register_block and loop.fmas == fmas for loop in loops), f"{name}: scores spill"


def asks_for_bytes(text):
    """Rows of other types are asked for as bytes: an address that is scaled to elements of float32 is four times too far."""
    fetches = re.findall(r"\bprefetch\w+\s.*", text)
    return fetches and not any(re.search(r",[248]\)", fetch) for fetch in fetches)


@pytest.mark.parametrize("name", [name for name in kernel_names(STORED_NAME, ("",)) if name.startswith("stored_split_kv_")])
def test_stored_lines_are_where_the_bytes_are(name, emit):
    assert asks_for_bytes(emit(name, INSTRUCTION_SETS[STORED_NAME.match(name)["target"]]))


BITS = {"float16": 16, "bfloat16": 16, "int8": 8, "int4": 4}
# Of two bfloat16 numbers in a word a shift makes one float32, and a mask, or zeros between, the other.
CONVERSIONS = {"float16": r"\bvcvtph2ps\b", "bfloat16": r"\bvpslld\b|\bvp?and(ps|[dq])?\b|\bvpblendw\b", "int8": r"\bvpmovsxbd\b", "int4": r"\bvcvtdq2ps\b"}
STEPS = {"float16": LINE_FLOATS, "int8": 32, "int4": 64}  # elements of a key in a pass


def elements_of_pass(dtype, isa):
    return 2 * isa.lanes if dtype == "bfloat16" else STEPS[dtype]


def test_there_are_kernels_for_one_type():
    found = {(match["dtype"], match["target"]) for match in map(TYPED_NAME.match, kernel_names(TYPED_NAME, ("",)))}
    assert found == {(dtype, target) for dtype in BITS for target in REGISTERS}


def has_integers(name):
    return BITS[TYPED_NAME.match(name)["dtype"]] < 16


def multiplies_integers(name):
    return has_integers(name) and TYPED_NAME.match(name)["target"] == "x86_avx512"


INTEGER_PRODUCT = r"\bvpdpwssd\b.*%zmm\d+$"
SCORE_PRODUCT = r"\bvpmaddwd\b.*%ymm\d+$"
INTO_FLOAT32 = r"\bvcvtdq2ps\b"  # sums of a block of a key's elements, which have a scale; others are brought behind the products


def expect_block(name, blocks, products, clean, what, product=INTEGER_PRODUCT):
    found = "\n".join(block.text() for block in blocks)
    assert any(block.count(product) == products and clean(block) for block in blocks), f"{name}: no {what} of {products} products:\n{found}"


def expect_integer_keys_by_row(name, match, runs, isa):
    """Of heads of 128 and 64 elements a block of keys is multiplied in one run without a jump, which asks for all their lines, and maybe for one
    of scales."""
    rows, keys, bits = int(match["v"]), int(match["u"]), BITS[match["dtype"]]
    for head in (128, 64):
        lines = keys * math.ceil(head * bits / LINE_BITS)
        scores = rows * keys * head // (2 * isa.lanes)
        sums = rows * keys * head // STEPS[match["dtype"]]

        def asks(run, lines=lines):
            return run.count(isa.kept) in (lines, lines + 1)

        expect_block(name, runs, scores, lambda run: not run.fmas and asks(run) and not run.count(isa.vector_stack), f"clean run over {head} elements")

        # The first of several products with scales is none to add to.
        def has_scales(run, sums=sums, asks=asks):
            return run.fmas + run.count(r"\bvmulps\b") == run.count(INTO_FLOAT32) == sums and asks(run)

        expect_block(name, runs, scores, has_scales, f"run with scales over {head} elements")


@pytest.mark.parametrize("name", [name for name in kernel_names(TYPED_NAME, ("",)) if multiplies_integers(name)])
def test_kernels_that_multiply_integers(name, emit):
    """Both loops multiply pairs of integers by the instruction for it, on sums in registers. Vectors of two values' rows are interleaved by
    two instructions, once for all rows, and a line of the next keys is asked for with each pair of values, or, of one or two rows, all lines of
    both."""
    match = TYPED_NAME.match(name)
    isa = INSTRUCTION_SETS[match["target"]]
    text = emit(name, isa)
    assert "gather" not in text, f"{name} gathers"
    assert not re.search(SSE4A, text), f"{name} needs SSE4a"
    assert "bf16" not in text, f"{name} needs bfloat16"
    rows, keys, vectors_of_values = (int(match[part]) for part in "vud")
    loops = [loop for loop in innermost_loops(text, isa) if loop.count(INTEGER_PRODUCT)]
    if has_few_rows(match):
        expect_integer_keys_by_row(name, match, straight_runs(text, isa), isa)
        asked = 2 * vectors_of_values * isa.lanes * BITS[match["dtype"]] // LINE_BITS
    else:
        scores = rows * keys * {"int8": 1, "int4": 2}[match["dtype"]]  # with each vector of a key, in a pass
        expect_block(
            name, loops, scores, lambda loop: not loop.fmas and not loop.count(INTO_FLOAT32) and not loop.count(isa.vector_stack), "clean loop"
        )
        expect_block(
            name, loops, scores, lambda loop: loop.fmas == loop.count(isa.whole_fma) == loop.count(INTO_FLOAT32) == rows * keys, "loop with scales"
        )
        asked = 1
    interleaved = {rf"\bvpunpck{half}wd\b": vectors_of_values // 2 for half in "lh"}
    expect_block(
        name,
        loops,
        rows * vectors_of_values,
        lambda loop: {half: loop.count(half) for half in interleaved} == interleaved and loop.count(isa.fetch) == asked and not loop.count(isa.vector_stack),
        "clean loop over values",
    )


def converts_by_row(name):
    match = TYPED_NAME.match(name)
    return match["dtype"] in ("float16", "bfloat16") and has_few_rows(match)


@pytest.mark.parametrize("name", list(filter(converts_by_row, kernel_names(TYPED_NAME, ("",)))))
def test_kernels_for_one_type_go_by_row(name, emit):
    match = TYPED_NAME.match(name)
    isa = INSTRUCTION_SETS[match["target"]]
    text = emit(name, isa)
    assert asks_for_bytes(text)
    # Past the end of a row too.
    assert match["dtype"] != "bfloat16" or not re.search(r"\bvpinsrw\b", text), f"{name} loads elements one by one"
    expect_rows_one_by_one(name, match, text, isa, BITS[match["dtype"]], CONVERSIONS[match["dtype"]])


def without_inserts(loops, isa):
    return [loop for loop in loops if loop.fmas == loop.count(isa.whole_fma) > 0 and not loop.count(r"\bvp?(insr|insert|extr)[bwdqp]")]


def expect_values_converted_once(name, match, loops, isa, asked):
    _, values = expected_blocks(match)
    products = [loop for loop in without_inserts(loops, isa) if loop.count(isa.fetch) == asked and not loop.count(isa.vector_stack)]
    conversion = CONVERSIONS[match["dtype"]]
    once = any(loop.count(conversion) * values == int(match["d"]) * loop.fmas for loop in products if loop.fmas % values == 0)
    found = "\n".join(loop.text() for loop in loops if loop.fmas)
    assert once, f"{name}: no loop of {values} FMAs that converts values once for all rows:\n{found}"


def multiplies_words(match):
    """Of int8 a single row is not."""
    return not (match["dtype"] == "int8" and match["rows"] == "1")


def expect_words_interleaved_once(name, match, loops, isa):
    """Words of two values by two instructions, shifted apart for all rows."""
    rows, vectors = int(match["v"]), int(match["d"])
    halves = [rf"\bvpunpck{half}wd\b" for half in "lh"]
    one_by_one = r"\bvp?(insr|insert|extr)[bwdq]|\bvpblend(w|vb)\b|\bvpbroadcastw\b"
    expect_block(
        name,
        loops,
        rows * vectors,
        lambda loop: all(loop.count(half) == 1 for half in halves) and not loop.count(one_by_one) and not loop.count(isa.vector_stack),
        "clean loop over values",
        SCORE_PRODUCT,
    )


@pytest.mark.parametrize("name", [name for name in kernel_names(TYPED_NAME, ("",)) if has_integers(name) and not multiplies_integers(name)])
def test_kernels_whose_scores_are_of_integers(name, emit):
    """Two products of 16 bits and their sum are one instruction, on sums in registers; a block's sums come into float32 with their scales, others behind
    the loop. Values are multiplied so as well, or are converted once for all rows."""
    match = TYPED_NAME.match(name)
    isa = INSTRUCTION_SETS[match["target"]]
    text = emit(name, isa)
    assert "gather" not in text, f"{name} gathers"
    assert asks_for_bytes(text)
    rows, keys = int(match["v"]), int(match["u"])
    loops = innermost_loops(text, isa)
    of_scores = [loop for loop in loops if loop.count(SCORE_PRODUCT)]
    products = rows * keys * 2  # of 32 elements

    def expect(clean, what):
        expect_block(name, of_scores, products, lambda loop: clean(loop) and not loop.count(isa.vector_stack), what, SCORE_PRODUCT)

    expect(lambda loop: not loop.fmas and not loop.count(INTO_FLOAT32), "clean loop")
    expect(lambda loop: loop.fmas == loop.count(isa.whole_fma) == loop.count(INTO_FLOAT32) == rows * keys, "loop with scales")
    if multiplies_words(match):
        expect_words_interleaved_once(name, match, of_scores, isa)
    else:
        expect_values_converted_once(name, match, loops, isa, asked=0)


def converts_before_it_multiplies(name):
    return goes_by_quads(TYPED_NAME.match(name))


@pytest.mark.parametrize("name", list(filter(converts_before_it_multiplies, kernel_names(TYPED_NAME, ("",)))))
def test_kernels_that_convert_a_block_of_keys(name, emit):
    """A key of a usual head in one run, by whole vectors, and lines of all keys of a block with each line of float32 that is multiplied."""
    match = TYPED_NAME.match(name)
    isa = INSTRUCTION_SETS[match["target"]]
    text = emit(name, isa)
    assert "gather" not in text, f"{name} gathers"
    assert asks_for_bytes(text)
    conversion = CONVERSIONS[match["dtype"]]
    runs = straight_runs(text, isa)
    for head in (128, 64):
        vectors = head // isa.lanes
        assert any(
            run.count(conversion) == run.count(r"\bvmov\w+\s+%zmm\d+, .*\(") == vectors and not run.fmas for run in runs
        ), f"{name}: no run of {vectors} conversions of a key of {head} elements"
    expect_values_converted_once(name, match, innermost_loops(text, isa), isa, asked=0)


def converts_in_registers(name):
    return not (has_integers(name) or converts_by_row(name) or converts_before_it_multiplies(name))


@pytest.mark.parametrize("name", list(filter(converts_in_registers, kernel_names(TYPED_NAME, ("",)))))
def test_kernels_for_one_type(name, emit):
    """A pass over a line of float32 asks for the part of a line that these keys have, and no element is gathered or inserted.

    With one or two rows it does so for values alone; keys of the next chunk are asked for with each value that is multiplied."""
    match = TYPED_NAME.match(name)
    isa = INSTRUCTION_SETS[match["target"]]
    text = emit(name, isa)
    assert "gather" not in text, f"{name} gathers"
    assert asks_for_bytes(text)
    step = elements_of_pass(match["dtype"], isa)
    vectors = step // isa.lanes  # of a key, in a pass
    keys = int(match["u"])
    in_passes = int(match["rows"]) <= 2
    asked = (1 if in_passes else 2) * max(1, keys * step * BITS[match["dtype"]] // LINE_BITS)
    conversion = CONVERSIONS[match["dtype"]]
    loops = innermost_loops(text, isa)
    found = "\n".join(loop.text() for loop in loops if loop.fmas)
    # Each vector of keys is converted once for all rows.
    passes = [loop for loop in without_inserts(loops, isa) if (loop.count(conversion), loop.count(isa.fetch)) == (keys * vectors, asked)]
    assert passes, f"{name}: no loop of {keys * vectors} conversions and {asked} fetches; loops with FMAs:\n{found}"
    fmas = int(match["v"]) * keys * vectors
    assert any(loop.fmas == fmas and not loop.count(isa.vector_stack) for loop in passes), f"{name}: no loop of {fmas} FMAs:\n{found}"
    expect_values_converted_once(name, match, loops, isa, asked=in_passes)
