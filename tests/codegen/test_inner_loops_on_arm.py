"""What test_inner_loops.py cannot say of every architecture: lanes of NEON, and its conversions of stored keys and values."""

import re

import pytest

import disassembly
from assembly import INSTRUCTION_SETS, gathers, innermost_loops
from kernel_assembly import KERNELGEN, kernel_names, kernelgen


def test_lane_by_lane_is_a_gather():
    """What compilers write for a load of four elements that do not follow each other, beside a multiply-add."""
    lanes = "".join(f"\tld1\t{{v1.s}}[{lane}], [x{lane}]\n" for lane in (1, 2, 3))
    text = ".LBB0_1:\n\tldr\ts1, [x0]\n{}\tfmla\tv0.4s, v1.4s, v2.s[0]\n\tb.ne\t.LBB0_1\n"
    isa = INSTRUCTION_SETS["arm_neon"]
    assert gathers(text.format(lanes), isa).fmas == 1
    assert gathers(text.format(lanes), isa, 1) is None
    assert gathers(text.format(2 * lanes), isa, 1) is not None
    assert gathers(text.format("\tldr\tq1, [x0]\n"), isa) is None


@pytest.mark.parametrize("name", [name for name in kernel_names(hook_sets=("",)) if name.startswith("flash_arm_neon_")])
def test_scalars_are_lanes_of_multiply_adds_on_arm(name, emit):
    """An FMA of NEON takes its scalar from a lane of a register: loading it is enough, without a copy to all lanes."""
    isa = INSTRUCTION_SETS["arm_neon"]
    for loop in innermost_loops(emit(name, isa), isa):
        if loop.is_register_block:
            assert loop.count(r"\bfmla\b.*\.s\[\d\]$") == loop.fmas, f"{name}:\n{loop.text()}"


STORED_ON_ARM_NAME = re.compile(
    r"stored_(?P<kind>flash|split_kv|unfused_scores|unfused_values)_(?P<target>arm_neon)_r(?P<rows>\d+)k\d+v(?P<v>\d+)u(?P<u>\d+)d(?P<d>\d+)(?P<hooks>\w*)$"
)
# Of four elements: what widens a half, and what makes the upper byte or nibble a number.
CONVERSIONS_ON_ARM = {
    "float16": r"\bfcvtl2?\s+v\d+\.4s, v\d+\.[48]h$",
    "bfloat16": r"\bshll2?\s+v\d+\.4s, v\d+\.[48]h, #16$",
    "int8": r"\bscvtf\s+v\d+\.4s, v\d+\.4s, #24$",
    "int4": r"\bsshr\s+v\d+\.4s, v\d+\.4s, #28$",
}


def test_there_are_kernels_for_any_storage_on_arm():
    found = {STORED_ON_ARM_NAME.match(name)["kind"] for name in kernel_names(STORED_ON_ARM_NAME, ("",))}
    assert found == {"flash", "split_kv", "unfused_scores", "unfused_values"} or not KERNELGEN.exists()


@pytest.mark.parametrize("dtype", sorted(CONVERSIONS_ON_ARM))
@pytest.mark.parametrize("name", kernel_names(STORED_ON_ARM_NAME, ("",)))
def test_kernels_for_any_storage_on_arm(name, dtype, emit):  # noqa: F811
    """Keys and values of every type have a loop each that loads and converts whole vectors, beside those that end within one. Where
    the head is in the lanes and for values it is the loop of the products."""
    match = STORED_ON_ARM_NAME.match(name)
    text = emit(name, INSTRUCTION_SETS["arm_neon"])
    # The loop for halves may select either kind of them.
    others = [p for other, p in CONVERSIONS_ON_ARM.items() if other != dtype and (dtype, other) != ("float16", "bfloat16")]
    loops = innermost_loops(text, INSTRUCTION_SETS["arm_neon"])
    of_type = [loop for loop in loops if loop.count(CONVERSIONS_ON_ARM[dtype]) and not any(map(loop.count, others))]
    clean = [loop for loop in of_type if not loop.count(loop.isa.gather)]
    found = "\n".join(loop.text() for loop in of_type)
    sides = 1 if match["kind"].startswith("unfused") else 2
    assert len(clean) >= sides, f"{name}: {len(clean)} loops convert whole vectors of {dtype}; loops that convert:\n{found}"
    if match["kind"] == "unfused_values" or match["kind"] == "split_kv" and int(match["rows"]) <= 8:
        assert sum(loop.fmas >= int(match["v"]) * int(match["d"]) for loop in clean) >= sides, f"{name}: no product is among\n{found}"


ONE_TYPE_NAME = re.compile(r"(?P<dtype>float16|bfloat16|int8|int4)_split_kv_arm_neon_r(?P<rows>\d+)k\d+v(?P<v>\d+)u(?P<u>\d+)d(?P<d>\d+)(?P<hooks>\w*)$")
OF_HALVES = [name for name in kernel_names(ONE_TYPE_NAME, ("",)) if "float16" in name]
OF_INTEGERS = [name for name in kernel_names(ONE_TYPE_NAME, ("",)) if "int" in name]


def test_there_are_kernels_for_one_type_on_arm():
    rows = {(match["dtype"], int(match["rows"])) for match in map(ONE_TYPE_NAME.match, OF_HALVES + OF_INTEGERS)}
    assert rows == {(dtype, n) for dtype in CONVERSIONS_ON_ARM for n in (1, 2, 4, 8)} or not KERNELGEN.exists()


@pytest.mark.parametrize("name", OF_HALVES)
def test_halves_on_arm(name, emit):
    """Both products: each vector of keys or values is widened by one instruction, once for all rows of the block, and nothing goes through
    the stack."""
    match = ONE_TYPE_NAME.match(name)
    rows, keys, vectors = int(match["v"]), int(match["u"]), int(match["d"])
    loops = innermost_loops(emit(name, INSTRUCTION_SETS["arm_neon"]), INSTRUCTION_SETS["arm_neon"])
    conversion = CONVERSIONS_ON_ARM[match["dtype"]]
    for widened in (4 * keys, vectors):
        found = [loop for loop in loops if loop.fmas == rows * widened and loop.count(conversion) == widened and not loop.count(loop.isa.stack)]
        assert found, f"{name}: no loop that widens {widened} vectors"


DOT = r"\bsdot\b"
DIGITS = 2  # of queries and weights
STEP_VECTORS = 2  # of the 32 elements that share a scale


@pytest.mark.parametrize("name", OF_INTEGERS)
def test_scores_of_integers_on_arm(name, emit):
    """A pass takes a step of a block of keys, as bytes that are loaded once for all rows and digits; of int4 a shift makes each half of them a
    number. Without scales nothing is brought into float32, with them one vector of each row and key."""
    match = ONE_TYPE_NAME.match(name)
    isa = INSTRUCTION_SETS["arm_neon"]
    rows, keys = int(match["v"]), int(match["u"])
    loops = [loop for loop in innermost_loops(emit(name, isa), isa) if loop.count(DOT) == rows * keys * DIGITS * STEP_VECTORS]
    for numbers in (0, rows * keys):
        found = [loop for loop in loops if loop.count(r"\bscvtf\b") == loop.fmas == numbers and not loop.count(isa.vector_stack)]
        nibbles = STEP_VECTORS * keys if match["dtype"] == "int4" else 0
        clean = [loop for loop in found if loop.count(r"\bsshr\b") == nibbles and not loop.count(isa.gather)]
        assert clean, f"{name}: no clean loop with {numbers} conversions among\n" + "\n".join(loop.text() for loop in loops)


@pytest.mark.parametrize("name", OF_INTEGERS)
def test_values_of_integers_on_arm(name, emit):
    """A pass takes four values: their bytes are interleaved once for all rows and digits, a weight of each row and digit is one load, and if
    all rows of the tile are in one block a line of keys is asked for."""
    match = ONE_TYPE_NAME.match(name)
    isa = INSTRUCTION_SETS["arm_neon"]
    rows, vectors = int(match["v"]), int(match["d"])
    loops = [loop for loop in innermost_loops(emit(name, isa), isa) if loop.count(r"\bzip[12]\b")]

    def is_clean(loop):
        interleaved = loop.count(r"\bzip[12]\b") == 2 * vectors and loop.count(r"\bld1r\b") == rows * DIGITS
        asks = loop.count(isa.fetch) == (rows == int(match["rows"]))
        return interleaved and loop.count(DOT) == rows * vectors * DIGITS and asks and not loop.count(isa.vector_stack)

    assert any(map(is_clean, loops)), f"{name}: no clean loop among\n" + "\n".join(loop.text() for loop in loops)


PAIRS_NAME = re.compile(r"bfloat16_flash_arm_neon_r(?P<rows>\d+)k\d+v(?P<v>\d+)u(?P<u>\d+)d(?P<d>\d+)(?P<hooks>\w*)$")
PAIR_GROUP = 4  # of a key, in one pass


@pytest.mark.parametrize("name", kernel_names(PAIRS_NAME, ("", "_bias_alibi_mask")))
def test_pairs_on_arm(name, emit):
    """Both products are of pairs of bfloat16 numbers, on sums that stay in registers, with a load for each vector of rows and each pair of a
    key or a value."""
    match = PAIRS_NAME.match(name)
    isa = INSTRUCTION_SETS["arm_neon"]
    rows, keys, elements = int(match["v"]), int(match["u"]), int(match["d"])
    loops = innermost_loops(emit(name, isa), isa)
    for groups, block in ((PAIR_GROUP, keys), (1, elements)):
        found = [loop for loop in loops if loop.count(r"\bbfdot\b") == groups * rows * block]
        clean = [loop for loop in found if not loop.count(isa.spill) and loop.count(r"\bld1r\b") == groups * block and not loop.count(r"\bshll")]
        assert clean, f"{name}: no clean loop of {rows} x {block} sums among\n" + "\n".join(loop.text() for loop in found)


def test_packs_for_arm(tmp_path, monkeypatch):
    """A pack of kernels of both kinds has dot products of bytes where they are of bytes, and of bfloat16 pairs where these are meant."""
    if not (KERNELGEN.exists() and disassembly.can_disassemble("aarch64")):
        pytest.skip("needs hattn-kernelgen and binutils for ARM")
    for variable, tool in (("HATTN_AS", "as"), ("HATTN_LD", "ld")):
        monkeypatch.setenv(variable, f"aarch64-linux-gnu-{tool}")
    names = ["bfloat16_flash_arm_neon_r48k48v6u3d4", "int8_split_kv_arm_neon_r2k32v2u4d4"]
    kernelgen("aarch64", "pack", tmp_path / "pack.so", *names)
    functions = disassembly.functions(tmp_path / "pack.so", "aarch64")
    counts = [[functions[f"hattnkernel_{name}"].count(word) for word in ("bfdot", "sdot")] for name in names]
    assert [[count > 0 for count in of_kernel] for of_kernel in counts] == [[True, False], [False, True]]


# Arithmetic on float16, which CPUs of Armv8.0 lack; they have conversions alone.
HALF_ARITHMETIC = r"\bf(?!cvt[ln]2?\s)\w+\s+v\d+\.[48]h|\bf(?!cvt\s)\w+\s+h\d+|\bf(mov|cvt\w+)\s+[wx]\d+, h\d+|\b[su]cvtf\s+(h\d+|v\d+\.[48]h)|\bfml[as]l2?\b"


def test_arithmetic_on_halves_is_seen():
    of_halves = ("fadd v0.8h, v1.8h, v2.8h", "fmov h0, w1", "fmov w1, h0", "fmul h0, h1, h2", "fcvtzs v0.8h, v1.8h", "fcvtns v0.8h, v1.8h")
    for instruction in (*of_halves, "fcvtzs w0, h1", "scvtf v0.8h, v1.8h", "ucvtf h0, w1", "fmlal v0.4s, v1.4h, v2.4h"):
        assert re.search(HALF_ARITHMETIC, instruction), instruction
    conversions = ("fcvtl v0.4s, v1.4h", "fcvtl2 v0.4s, v1.8h", "fcvtn v0.4h, v1.4s", "fcvt s0, h1", "fcvt h0, s1")
    for instruction in (*conversions, "fmla v0.4s, v1.4s, v2.4s", "scvtf v0.4s, v1.4s"):
        assert not re.search(HALF_ARITHMETIC, instruction), instruction


ANY_ON_ARM = re.compile(r"\w+_arm_neon(?:_r\d+k\d+v\d+u\d+d\d+\w*)?$")


@pytest.mark.parametrize("name", kernel_names(ANY_ON_ARM, None))
def test_kernels_on_arm_need_what_they_say(name, emit):
    """They are compiled for CPUs that compute in float16, for its conversions' sake, and run on all; dot products say that they need them."""
    text = emit(name, INSTRUCTION_SETS["arm_neon"])
    assert not re.search(HALF_ARITHMETIC, text), f"{name} computes in float16"
    assert bool(re.search(DOT, text)) == bool((match := ONE_TYPE_NAME.match(name)) and "int" in match["dtype"]), f"{name}: dot products"
    assert bool(re.search(r"\bbfdot\b", text)) == bool(PAIRS_NAME.match(name)), f"{name}: products of bfloat16 pairs"
