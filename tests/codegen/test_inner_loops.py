"""The two inner loops of attention kernels, scores and values, compile to what their schedules mean.

Halide's failures are silent: a gather, a guard or a spilled accumulator costs a factor and no error. So the assembly is read:
every FMA the register block asks for, no stack traffic, no gathers, full vector width. It is that of the objects that the build made,
where there are any, and compiled for the test otherwise.
"""

import math
import os
import pathlib
import re
import subprocess

import pytest

import disassembly
from assembly import INSTRUCTION_SETS, gathers, innermost_loops, straight_runs

ROOT = pathlib.Path(__file__).resolve().parents[2]
KERNELGEN = pathlib.Path(os.environ.get("HATTN_KERNELGEN", ROOT / "build/release/generators/hattn-kernelgen"))
NAME = re.compile(r"(?P<kind>flash|split_kv)_(?P<target>x86_avx\w+?|arm_neon)_r(?P<rows>\d+)k(?P<keys>\d+)v(?P<v>\d+)u(?P<u>\d+)d(?P<d>\d+)(?P<hooks>\w*)$")
UNFUSED_NAME = re.compile(r"unfused_(?P<kind>scores|values)_(?P<target>x86_avx\w+?|arm_neon)_r(?P<rows>\d+)k\d+v(?P<v>\d+)u(?P<u>\d+)d(?P<d>\d+)(?P<hooks>\w*)$")
HOOK_SETS = ("", "_softcap_bias_alibi_mask")
UNFUSED_HOOK_SETS = (*HOOK_SETS, "_bias_mask")
LINE_FLOATS = 16  # of a cache line
LINE_BITS = 512
LINE_BYTES = 64  # of a mask, a byte for each key
ARCHITECTURES = sorted({isa.architecture for isa in INSTRUCTION_SETS.values()})


def kernelgen(architecture, *arguments):
    command = [KERNELGEN, "--architecture", architecture, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def kernel_names(pattern=NAME, hook_sets=HOOK_SETS):
    if not KERNELGEN.exists():
        return []
    names = [name for architecture in ARCHITECTURES for name in kernelgen(architecture, "list").split()]
    return [name for name in names if (match := pattern.match(name)) and match["hooks"] in hook_sets]


def test_there_are_kernels_to_read():
    names = kernel_names()
    for kind in ("flash", "split_kv"):
        for target in INSTRUCTION_SETS:
            assert any(name.startswith(f"{kind}_{target}_") for name in names), f"no {kind} kernel for {target} in {KERNELGEN}"


TREES = {"x86-64": KERNELGEN.parents[1], "aarch64": KERNELGEN.parents[2] / "aarch64"}


def built_assembly(name, target, isa):
    """From the object of the kernel's family. None if there is no such object, or if it is older than what would make it."""
    family = name[: name.index(f"_{target}_")]
    path = TREES[isa.architecture] / "kernels" / f"{family}_{target.replace('_', '-')}.o"
    if not path.exists() or path.stat().st_mtime < KERNELGEN.stat().st_mtime or not disassembly.can_disassemble(isa.architecture):
        return None
    return disassembly.functions(path, isa.architecture).get(f"hattnkernel_{name}")


@pytest.fixture(scope="module")
def emit(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kernels")

    def assembly_of(name, isa):
        target = next(target for target, of_target in INSTRUCTION_SETS.items() if of_target is isa)
        if text := built_assembly(name, target, isa):
            return text
        path = folder / f"{name}.s"
        if not path.exists():
            kernelgen(isa.architecture, "emit", name, folder)
        return path.read_text()

    return assembly_of


def expected_blocks(match):
    """FMAs of one pass of the score loop and of the value loop: (vectors of) rows held in registers by the other side."""
    return int(match["v"]) * int(match["u"]), int(match["v"]) * int(match["d"])


def expect_no_gathers(name, text, isa, lane_by_lane):
    """x86 has instructions for it, which no kernel needs. On ARM a vector is gathered lane by lane, and `lane_by_lane` vectors in a loop may
    be: of the state of rows, or where a head ends within a vector."""
    assert "gather" not in text, f"{name} gathers"
    loop = gathers(text, isa, lane_by_lane)
    assert loop is None, f"{name} loads more than {lane_by_lane} vectors lane by lane:\n{loop.text()}"


def has_few_rows(match):
    """One or two, on a target whose decode takes all lines of a key before the next key."""
    return match["target"] == "x86_avx512" and int(match["rows"]) <= 2


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
        whole_lines = next(loop for loop in innermost_loops(text, isa) if loop.fmas >= scores and len(loop.instructions) <= 2.1 * loop.fmas)
        assert not whole_lines.count(isa.spill), f"{name}: accumulators on the stack:\n{whole_lines.text()}"


def has_rows_in_lanes(name):
    match = NAME.match(name)
    return match["kind"] == "flash" or int(match["rows"]) > 8


@pytest.mark.parametrize("name", list(filter(has_rows_in_lanes, kernel_names())))
def test_fetches_once_per_line(name, emit):
    """Each line of a block's dot products asks for one line of each key and value row: beside the loop over its elements, not in it."""
    match = NAME.match(name)
    isa = INSTRUCTION_SETS[match["target"]]
    text = emit(name, isa)
    fetches = len(re.findall(isa.fetch, text))
    per_line = 2 * int(match["u"])
    assert len(re.findall(isa.kept, text)) == fetches, f"{name}: lines are asked for that caches do not keep"
    # And once each chunk for what the next has of a row of the bias, and of the mask. Of the loop over lines there is a copy for whole ones
    # and one for the rest of a head that is none; of all of it one copy, or two with softcap and without.
    keys = int(match["keys"])
    operands = math.ceil(keys / LINE_BYTES) + keys // LINE_FLOATS if match["hooks"] else 0
    # Flash asks with each line for one of two rows of the next tile's queries and of its own output.
    of_rows = 4 if match["kind"] == "flash" else 0
    expected = {copies * 2 * (per_line + of_rows) + operands for copies in (1, 2)}
    assert fetches in expected, f"{name}: {fetches} fetches, {per_line} a line, {operands} for operands of hooks"
    for loop in innermost_loops(text, isa):
        assert not (loop.fmas and loop.count(isa.fetch)), f"{name} fetches for every element:\n{loop.text()}"


def expect_rows_one_by_one(name, match, text, isa, bits=32, conversion=None):
    """Of heads of 128 and of 64 elements the lines of a block's keys are multiplied and asked for in one run without a jump, in which all of
    a key's queries stay in registers; the value loop asks for every line that it reads of a key."""
    expect_no_gathers(name, text, isa, 0)
    rows, keys, vectors = int(match["v"]), int(match["u"]), int(match["d"])
    runs = straight_runs(text, isa)
    vectors_of_line = LINE_BITS // (LINE_FLOATS * bits)
    for head in (128, 64):
        of_key = head // LINE_FLOATS
        # The first product of a sum is none to add to.
        found = [run for run in runs if run.fmas == rows * keys * (of_key - 1) and run.count(isa.kept) == keys * of_key // vectors_of_line]
        assert found, f"{name}: no run over heads of {head}"
        for run in found:
            queries = run.count(r"vmov\w+\s+-?\w*\(%r(?!sp)\w+\), %zmm")
            assert queries <= (keys + rows) * of_key, f"{name}: {queries} vectors loaded, keys and queries:\n{run.text()}"
            assert conversion is None or run.count(conversion) == keys * of_key, f"{name}: keys are not converted once:\n{run.text()}"
    # With hooks that may hide a key its values are jumped over.
    values = runs if match["hooks"] else innermost_loops(text, isa)
    lines = vectors // vectors_of_line
    asked = [run for run in runs if run.count(isa.kept) == lines]
    found = [run for run in values if run.fmas == rows * vectors and not run.count(isa.vector_stack) and not run.count(isa.arithmetic)]
    assert asked and found, f"{name}: no clean loop of {rows * vectors} FMAs, or none that asks for {lines} lines"
    assert match["hooks"] or any(run.count(isa.kept) == lines for run in found), f"{name}: values are not asked for where they are read"


@pytest.mark.parametrize("name", list(filter(goes_by_row, kernel_names())))
def test_decode_of_few_rows_goes_by_row(name, emit):
    match = NAME.match(name)
    isa = INSTRUCTION_SETS[match["target"]]
    expect_rows_one_by_one(name, match, emit(name, isa), isa)


@pytest.mark.parametrize("name", [name for name in kernel_names() if not has_rows_in_lanes(name) and not goes_by_row(name)])
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


STORED_NAME = re.compile(r"stored_(?P<kind>flash|split_kv)_(?P<target>x86_avx\w+?)_r(?P<rows>\d+)k\d+v(?P<v>\d+)u(?P<u>\d+)d(?P<d>\d+)(?P<hooks>\w*)$")
REGISTERS = {"x86_avx2": "ymm", "x86_avx512": "zmm"}
DOT_UNROLL = {"x86_avx2": 4, "x86_avx512": 1}  # of flash: elements of the head in one pass of the score loop, see schedules/simd/rows_in_lanes.cpp


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
        assert any(loop.is_register_block and loop.fmas == DOT_UNROLL[match["target"]] * block for loop in loops), f"{name}: scores spill"


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


def asks_for_bytes(text):
    """Rows of other types are asked for as bytes: an address that is scaled to elements of float32 is four times too far."""
    fetches = re.findall(r"\bprefetch\w+\s.*", text)
    return fetches and not any(re.search(r",[248]\)", fetch) for fetch in fetches)


@pytest.mark.parametrize("name", [name for name in kernel_names(STORED_NAME, ("",)) if name.startswith("stored_split_kv_")])
def test_stored_lines_are_where_the_bytes_are(name, emit):
    assert asks_for_bytes(emit(name, INSTRUCTION_SETS[STORED_NAME.match(name)["target"]]))


TYPED_NAME = re.compile(
    r"(?P<dtype>float16|bfloat16|int8|int4)_split_kv_(?P<target>x86_avx\w+?)_r(?P<rows>\d+)k\d+v(?P<v>\d+)u(?P<u>\d+)d(?P<d>\d+)(?P<hooks>\w*)$"
)
BITS = {"float16": 16, "bfloat16": 16, "int8": 8, "int4": 4}
CONVERSIONS = {"float16": r"\bvcvtph2ps\b", "bfloat16": r"\bvpmovzxwd\b", "int8": r"\bvpmovsxbd\b", "int4": r"\bvcvtdq2ps\b"}
STEPS = {"float16": LINE_FLOATS, "bfloat16": LINE_FLOATS, "int8": 32, "int4": 64}  # elements of a key in a pass


def test_there_are_kernels_for_one_type():
    found = {(match["dtype"], match["target"]) for match in map(TYPED_NAME.match, kernel_names(TYPED_NAME, ("",)))}
    assert found == {(dtype, target) for dtype in BITS for target in REGISTERS}


SSE4A = r"\b(extrq|insertq|movnts[sd])\b"  # which the instructions are compiled for and Intel's CPUs lack


def multiplies_integers(name):
    match = TYPED_NAME.match(name)
    return BITS[match["dtype"]] < 16 and match["target"] == "x86_avx512"


@pytest.mark.parametrize("name", [name for name in kernel_names(TYPED_NAME, ("",)) if multiplies_integers(name)])
def test_kernels_that_multiply_integers(name, emit):
    """Both loops multiply pairs of integers by the instruction for it, on sums in registers. Vectors of two values' rows are interleaved by
    two instructions, once for all rows, and a line of the next keys is asked for with each pair of values, or, of one or two rows, all lines of
    both. Of heads of 128 and 64 elements these multiply and ask for whole keys in one run without a jump."""
    match = TYPED_NAME.match(name)
    isa = INSTRUCTION_SETS[match["target"]]
    text = emit(name, isa)
    assert "gather" not in text, f"{name} gathers"
    assert not re.search(SSE4A, text), f"{name} needs SSE4a"
    assert "bf16" not in text, f"{name} needs bfloat16"
    rows, keys, vectors_of_values = (int(match[part]) for part in "vud")
    bits = BITS[match["dtype"]]
    product = r"\bvpdpwssd\b.*%zmm\d+$"
    in_loops = [loop for loop in innermost_loops(text, isa) if loop.count(product)]
    runs = [run for run in straight_runs(text, isa) if run.count(product)]

    def expect(blocks, products, clean, what):
        found = "\n".join(block.text() for block in blocks)
        assert any(block.count(product) == products and clean(block) for block in blocks), f"{name}: no {products} {what}:\n{found}"

    def sums_scaled(block):  # of a block of keys' elements; others have none
        return block.count(r"\bvcvtdq2ps\b")

    if has_few_rows(match):
        # A run of usual heads asks for all lines of a block's keys, and maybe for one of scales.
        heads = {head: keys * math.ceil(head * bits / LINE_BITS) for head in (128, 64)}
    else:
        heads = {32 * 32 // (8 * bits) * 2: None}  # elements of a step
    for head, lines in heads.items():
        blocks = in_loops if lines is None else runs
        scores = rows * keys * head // (2 * isa.lanes)

        def asks(block, lines=lines):
            return lines is None or block.count(isa.kept) in (lines, lines + 1)

        def alone(block):
            return not block.fmas and asks(block) and not block.count(isa.vector_stack)

        expect(blocks, scores, alone, f"products alone in a clean run over {head} elements")
        # The first of several sums is none to add to.
        expect(
            blocks,
            scores,
            lambda block: block.fmas == block.count(isa.whole_fma) > 0 and sums_scaled(block) >= rows * keys,
            f"products with scales over {head} elements",
        )
    values = rows * vectors_of_values
    interleaved = {rf"\bvpunpck{half}wd\b": vectors_of_values // 2 for half in "lh"}
    asked = 2 * vectors_of_values * isa.lanes * bits // LINE_BITS if has_few_rows(match) else 1
    expect(
        in_loops,
        values,
        lambda loop: {half: loop.count(half) for half in interleaved} == interleaved and loop.count(isa.fetch) == asked and not loop.count(isa.vector_stack),
        "products of values in a clean loop",
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
    expect_rows_one_by_one(name, match, text, isa, BITS[match["dtype"]], CONVERSIONS[match["dtype"]])


@pytest.mark.parametrize("name", [name for name in kernel_names(TYPED_NAME, ("",)) if not multiplies_integers(name) and not converts_by_row(name)])
def test_kernels_for_one_type(name, emit):
    """A pass over a line of float32 asks for the part of a line that these keys have, and no element is gathered or inserted.

    With one or two rows over 16 bits it does so for values alone; keys of the next chunk are asked for with each value that is multiplied."""
    match = TYPED_NAME.match(name)
    isa = INSTRUCTION_SETS[match["target"]]
    text = emit(name, isa)
    assert "gather" not in text, f"{name} gathers"
    assert asks_for_bytes(text)
    _, values = expected_blocks(match)
    step = STEPS[match["dtype"]]
    vectors = step // isa.lanes  # of a key, in a pass
    keys = int(match["u"])
    in_passes = BITS[match["dtype"]] == 16 and int(match["rows"]) <= 2
    asked = (1 if in_passes else 2) * max(1, keys * step * BITS[match["dtype"]] // LINE_BITS)
    conversion = CONVERSIONS[match["dtype"]]
    loops = innermost_loops(text, isa)
    found = "\n".join(loop.text() for loop in loops if loop.fmas)
    whole = [loop for loop in loops if loop.fmas == loop.count(isa.whole_fma) > 0 and not loop.count(r"\bvp?(insr|insert|extr)[bwdqp]")]
    # Each vector of keys is converted once for all rows.
    passes = [loop for loop in whole if (loop.count(conversion), loop.count(isa.fetch)) == (keys * vectors, asked)]
    assert passes, f"{name}: no loop of {keys * vectors} conversions and {asked} fetches; loops with FMAs:\n{found}"
    fmas = int(match["v"]) * keys * vectors
    if match["dtype"] in ("float16", "bfloat16"):
        assert any(loop.fmas == fmas and not loop.count(isa.vector_stack) for loop in passes), f"{name}: no loop of {fmas} FMAs:\n{found}"
    else:  # with one scale for all keys, which multiplies nothing here; some numbers find no register
        assert any(loop.fmas == fmas and not loop.count(r"\bvmulps\b") for loop in passes), f"{name}: no loop of {fmas} FMAs alone:\n{found}"
        assert not any(loop.count(r"\bvpsr\w+d\b") for loop in passes), f"{name} shifts words down:\n{found}"
    products = [loop for loop in whole if loop.count(isa.fetch) == in_passes and not loop.count(isa.vector_stack)]
    once = any(loop.count(conversion) * values == int(match["d"]) * loop.fmas for loop in products if loop.fmas % values == 0)
    assert once, f"{name}: no loop of {values} FMAs that converts values once for all rows:\n{found}"


BFLOAT16_NAME = re.compile(r"bfloat16_flash_(?P<target>x86_avx512)_r(?P<rows>\d+)k\d+v(?P<v>\d+)u(?P<u>\d+)d(?P<d>\d+)(?P<hooks>\w*)$")
PAIR_GROUP = 4  # pairs along the head in one pass of the score loop, see generators/attention_stages.cpp


def test_there_are_bfloat16_kernels_to_read():
    names = kernel_names(BFLOAT16_NAME)
    assert len(names) >= len(HOOK_SETS) or not KERNELGEN.exists()


@pytest.mark.parametrize("name", kernel_names(BFLOAT16_NAME))
def test_kernels_for_bfloat16(name, emit):
    """Both loops multiply pairs by the instruction for it: whole vectors on accumulators in registers, an operand loaded per vector of
    rows, the other broadcast once per key or head element, and little else."""
    match = BFLOAT16_NAME.match(name)
    isa = INSTRUCTION_SETS[match["target"]]
    text = emit(name, isa)
    assert "gather" not in text, f"{name} gathers"
    assert not re.search(SSE4A, text), f"{name} needs SSE4a"
    v, u, d = (int(match[part]) for part in "vud")
    loops = [loop for loop in innermost_loops(text, isa) if loop.count(r"\bvdpbf16ps\b")]
    others = (isa.fma, isa.arithmetic, isa.gather, r"\(%r[sb]p\).*%zmm|%zmm.*\(%r[sb]p\)")
    for products, broadcasts, vectors in ((v * u * PAIR_GROUP, u * PAIR_GROUP, v * PAIR_GROUP), (v * d, d, v)):
        clean = [
            loop
            for loop in loops
            if loop.count(r"\bvdpbf16ps\b.*%zmm\d+$") == products
            and loop.count(r"\bvbroadcastss\b") == broadcasts
            and not any(map(loop.count, others))
            and loop.count(isa.stack) <= 1  # the loop's end
            and len(loop.instructions) <= products + broadcasts + vectors + 4  # the loop's own
        ]
        found = "\n".join(loop.text() for loop in loops)
        assert clean, f"{name}: no clean loop of {products} vdpbf16ps; loops with any:\n{found}"


AMX_NAME = re.compile(
    r"amx_(?P<of>float32_|stored_|halves_|)flash_(?P<target>x86_avx512)_r(?P<rows>\d+)k\d+v\d+u\d+d\d+(?P<hooks>\w*)$"
)


def test_there_are_amx_kernels_to_read():
    tiles = {AMX_NAME.match(name).group("of", "rows") for name in kernel_names(AMX_NAME)}
    assert len(tiles) == 12 or not KERNELGEN.exists()


@pytest.mark.parametrize("name", kernel_names(AMX_NAME))
def test_kernels_for_amx(name, emit):
    """Both products are those of matrices, four sums in a loop that loads sides for them, see schedules/x86/matrix_tiles.h:
    two by two for one product each, in tiles of 16 rows two or four that share one side, and for the six of sums of three
    terms seven by two, for the four and three of two terms fewer, since each pair of terms shares one with the pair before;
    none is kept in memory, none fell back to vectors. Of terms there are rooms after eight products, of two after four as well. Numbers that change places do so by the vector, see
    simd/turned_stores.h."""
    isa = INSTRUCTION_SETS["x86_avx512"]
    text = emit(name, isa)
    assert not re.search(r"\bvdpbf16ps\b", text), f"{name} multiplies pairs"
    assert not re.search(r"\b(extrq|insertq|movnts[sd])\b", text), f"{name} needs SSE4a"
    parts = AMX_NAME.match(name)
    of_one = [(2, 3), (4, 5)] if parts["rows"] == "16" else [(4, 4)]
    of_three = [(24, 14), (8, 6), (8, 4)]
    expected = {"": of_one, "halves_": [(8, 6), (8, 4), (4, 4)]}.get(parts["of"], of_three)
    # That of values is on a condition, and no innermost loop then.
    runs = [run for run in straight_runs(text, isa) if run.count(r"\btdpbf16ps\b")]
    assert len(runs) >= 2, f"{name}: scores and values need a run of tdpbf16ps each, but there are {len(runs)}"
    for run in runs:
        found = run.text()
        counts = run.count(r"\btdpbf16ps\b"), run.count(r"\btileloadd\b")
        assert counts in expected, found
        assert not run.count(r"%[xyz]mm|\btilestored\b"), found
    turned = [loop for loop in innermost_loops(text, isa) if loop.count(r"\bvperm[it]2(d|ps)\b") >= 64]
    assert len(turned) >= 2, f"{name}: queries and weights are turned in registers, but {len(turned)} loops do"
    single = [loop for loop in innermost_loops(text, isa) if loop.count(r"\bvpextrw\b") > 8]
    assert not single, f"{name} stores number by number:\n" + "\n".join(loop.text() for loop in single)


IN_BANDS = [name for name in kernel_names(AMX_NAME) if AMX_NAME.match(name)["of"] or AMX_NAME.match(name)["rows"] == "256"]


@pytest.mark.parametrize("name", IN_BANDS)
def test_weights_are_computed_among_products(name, emit):
    """Loops of weights, which are brought into terms at once and ask for the next chunk, stand among products of scores and of weighted values, that of
    the state among the latter, see schedules/x86/overlapped_bands.h. No tile is kept in memory for it, and no weight either."""
    isa = INSTRUCTION_SETS["x86_avx512"]
    text = emit(name, isa)
    stores = re.findall(r"\btilestored\b.*\(%r[sb]p", text)
    assert not stores, f"{name} keeps tiles on the stack: {stores}"
    lines = text.splitlines()
    products = [number for number, line in enumerate(lines) if re.search(r"\btdpbf16ps\b", line)]
    assert products, f"{name} multiplies no matrices"
    # Behind a product, up to the next one or the end of its tile of sums.
    rooms = []
    for first, last in zip(products, [*products[1:], len(lines)]):
        ends = (n for n in range(first, last) if re.search(r"\btile(zero|stored)\b|^\s+ret", lines[n]))
        rooms.append("\n".join(lines[first : next(ends, last)]))
    for what, pattern, least in (
        ("weights", r"\bvpslld\s+\$(23|0x17),\s*%zmm", 2),
        ("their terms", r"\bvperm[ti]2w\b[^$]*%zmm", 2),
        ("lines of the next chunk", r"\bprefetcht0\b", 2),
        ("state", r"\bvfmadd\w+ps\b[^$]*\(%r[^$]*%zmm", 1),
    ):
        count = sum(bool(re.search(pattern, room)) for room in rooms)
        assert count >= least, f"{name}: {what} in {count} rooms of {len(rooms)}, not in {least} or more"
