"""What test_inner_loops.py cannot say of every architecture: lanes of NEON, and its conversions of stored keys and values."""

import re

import pytest

from assembly import INSTRUCTION_SETS, gathers, innermost_loops
from kernel_assembly import KERNELGEN, kernel_names


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
# Of four elements: what shifts a half where a float32 has its bits, and what makes the upper byte or nibble a number.
CONVERSIONS_ON_ARM = {
    "float16": r"\bushll\s+v\d+\.4s, v\d+\.4h, #13$",
    "bfloat16": r"\bshll\s+v\d+\.4s, v\d+\.4h, #16$",
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
