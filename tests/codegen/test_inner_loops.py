"""The two inner loops of attention kernels, scores and values, compile to what their schedules mean.

Halide's failures are silent: a gather, a guard or a spilled accumulator costs a factor and no error. So the assembly is read:
every FMA the register block asks for, no stack traffic, no gathers, full vector width.
"""

import os
import pathlib
import re
import subprocess

import pytest

from assembly import innermost_loops

ROOT = pathlib.Path(__file__).resolve().parents[2]
KERNELGEN = pathlib.Path(os.environ.get("HATTN_KERNELGEN", ROOT / "build/release/generators/hattn-kernelgen"))
TARGETS = {"x86_avx2": "ymm", "x86_avx512": "zmm"}
NAME = re.compile(r"(?P<kind>flash|split_kv)_(?P<target>x86_avx\w+?)_r(?P<rows>\d+)k(?P<keys>\d+)v(?P<v>\d+)u(?P<u>\d+)d(?P<d>\d+)(?P<hooks>\w*)$")
UNFUSED_NAME = re.compile(r"unfused_(?P<kind>scores|values)_(?P<target>x86_avx\w+?)_r(?P<rows>\d+)k\d+v(?P<v>\d+)u(?P<u>\d+)d(?P<d>\d+)(?P<hooks>\w*)$")
HOOK_SETS = ("", "_softcap_bias_alibi_mask")
UNFUSED_HOOK_SETS = (*HOOK_SETS, "_bias_mask")
LANES = {"x86_avx2": 8, "x86_avx512": 16}


def kernel_names(pattern=NAME, hook_sets=HOOK_SETS):
    if not KERNELGEN.exists():
        return []
    names = subprocess.run([KERNELGEN, "list"], check=True, capture_output=True, text=True).stdout.split()
    return [name for name in names if (match := pattern.match(name)) and match["hooks"] in hook_sets]


def test_there_are_kernels_to_read():
    names = kernel_names()
    for kind in ("flash", "split_kv"):
        for target in TARGETS:
            assert any(name.startswith(f"{kind}_{target}_") for name in names), f"no {kind} kernel for {target} in {KERNELGEN}"


@pytest.fixture(scope="module")
def emit(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kernels")

    def assembly_of(name):
        path = folder / f"{name}.s"
        if not path.exists():
            subprocess.run([KERNELGEN, "emit", name, folder], check=True, capture_output=True, text=True)
        return path.read_text()

    return assembly_of


def expected_blocks(match):
    """FMAs of one pass of the score loop and of the value loop: (vectors of) rows held in registers by the other side."""
    return int(match["v"]) * int(match["u"]), int(match["v"]) * int(match["d"])


@pytest.mark.parametrize("name", kernel_names())
def test_inner_loops(name, emit):
    match = NAME.match(name)
    text = emit(name)
    assert "gather" not in text, f"{name} gathers"
    register = TARGETS[match["target"]]
    scores, values = expected_blocks(match)
    loops = [loop for loop in innermost_loops(text) if is_register_block(loop, register)]
    # The score block reads its second operand along the head, the value block along the keys; a loop may hold several blocks.
    found = "\n".join(loop.text() for loop in innermost_loops(text) if loop.fmas)
    assert any(loop.fmas % scores == 0 for loop in loops), f"{name}: no clean loop of {scores} FMAs; loops with FMAs:\n{found}"
    assert any(loop.fmas % values == 0 for loop in loops), f"{name}: no clean loop of {values} FMAs; loops with FMAs:\n{found}"
    assert len(loops) >= 2, f"{name}: scores and values need a clean loop each; loops with FMAs:\n{found}"


@pytest.mark.parametrize("name", kernel_names(UNFUSED_NAME, UNFUSED_HOOK_SETS))
def test_inner_loop_of_unfused(name, emit):
    match = UNFUSED_NAME.match(name)
    text = emit(name)
    assert "gather" not in text, f"{name} gathers"
    rows, v, u, d = (int(match[part]) for part in ("rows", "v", "u", "d"))
    if match["kind"] == "values":
        expected = v * d
    else:
        # Small tiles have the head in the lanes, and the block holds all their rows.
        expected = rows * u if rows < LANES[match["target"]] else v * u
    loops = [loop.fmas for loop in innermost_loops(text) if is_register_block(loop, TARGETS[match["target"]])]
    assert expected in loops, f"{name}: no clean loop of {expected} FMAs among {loops}"


STORED_NAME = re.compile(r"stored_(?P<kind>flash|split_kv)_(?P<target>x86_avx\w+?)_r(?P<rows>\d+)k\d+v(?P<v>\d+)u(?P<u>\d+)d(?P<d>\d+)(?P<hooks>\w*)$")


@pytest.mark.parametrize("name", kernel_names(STORED_NAME, ("",)))
def test_kernels_for_any_storage(name, emit):
    """Every type has loops that convert whole vectors, and no element is gathered or inserted."""
    match = STORED_NAME.match(name)
    text = emit(name)
    register = TARGETS[match["target"]]
    assert "gather" not in text, f"{name} gathers"
    loops = innermost_loops(text)
    conversions = {
        "float16": rf"\bvcvtph2ps\b.*%{register}",
        "bfloat16": rf"\bvpmovzxwd\b.*%{register}",
        "int8": rf"\bvpmovsxbd\b.*%{register}",
        "int4": rf"\bvpsrlvd\b.*%{register}",
    }
    clean = [loop for loop in loops if not loop.count(r"\bvp?(insr|insert|extr)\w*") and loop.spills <= 2]
    for dtype, pattern in conversions.items():
        assert any(loop.count(pattern) for loop in clean), f"{name}: no loop over vectors converts {dtype}"
    if match["kind"] == "flash":
        block = int(match["v"]) * int(match["u"])
        assert any(is_register_block(loop, register) and loop.fmas == block for loop in loops), f"{name}: scores spill"


def is_register_block(loop, register):
    """FMAs of full width on accumulators that stay in registers: the loop loads, multiplies and does nothing else with vectors."""
    whole = loop.count(rf"\bvfn?m(add|sub)\d+ps\b.*%{register}\d+")
    other = loop.count(rf"\bv(mul|add|sub|div|max|min|cmp\w*|blendv)ps\b") + loop.count(rf"\bvmov[au]ps\s+%{register}\d+, [^%]")
    return loop.fmas > 0 and whole == loop.fmas and other == 0 and loop.spills == 0
