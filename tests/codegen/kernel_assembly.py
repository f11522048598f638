"""Kernels for CPUs by name, and what their assembly is: that of the objects that the build made, where there are any, and compiled for
the test otherwise. Beside it what tests of several kinds of kernels expect."""

import os
import pathlib
import re
import subprocess

import disassembly
from assembly import INSTRUCTION_SETS, gathers, innermost_loops, straight_runs

ROOT = pathlib.Path(__file__).resolve().parents[2]
KERNELGEN = pathlib.Path(os.environ.get("HATTN_KERNELGEN", ROOT / "build/release/generators/hattn-kernelgen"))
TREES = {"x86-64": KERNELGEN.parents[1], "aarch64": KERNELGEN.parents[2] / "aarch64"}
NAME = re.compile(r"(?P<kind>flash|split_kv)_(?P<target>x86_avx\w+?|arm_neon)_r(?P<rows>\d+)k(?P<keys>\d+)v(?P<v>\d+)u(?P<u>\d+)d(?P<d>\d+)(?P<hooks>\w*)$")
STORED_NAME = re.compile(r"stored_(?P<kind>flash|split_kv)_(?P<target>x86_avx\w+?)_r(?P<rows>\d+)k\d+v(?P<v>\d+)u(?P<u>\d+)d(?P<d>\d+)(?P<hooks>\w*)$")
MEMORY_NAME = re.compile(r"(?P<into>memory|ahead)_(?P<other>(?P<family>\w*split_kv)_(?P<target>x86_avx\w+?)_r(?P<rows>\d+)k\d+v\d+u\d+d\d+)(?P<hooks>\w*)$")
TYPED_NAME = re.compile(
    r"(?P<dtype>float16|bfloat16|int8|int4)_split_kv_(?P<target>x86_avx\w+?)_r(?P<rows>\d+)k\d+v(?P<v>\d+)u(?P<u>\d+)d(?P<d>\d+)(?P<hooks>\w*)$"
)
HOOK_SETS = ("", "_softcap_bias_alibi_mask")
LINE_FLOATS = 16  # of a cache line
LINE_BITS = 512
QUAD = 4
ARCHITECTURES = sorted({isa.architecture for isa in INSTRUCTION_SETS.values()})
SSE4A = r"\b(extrq|insertq|movnts[sd])\b"  # which the instructions are compiled for and Intel's CPUs lack


def kernelgen(architecture, *arguments):
    command = [KERNELGEN, "--architecture", architecture, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def kernel_names(pattern=NAME, hook_sets=HOOK_SETS):
    """Of all architectures. hook_sets: of which the pattern's group `hooks` is one; None: it has no such group."""
    if not KERNELGEN.exists():
        return []
    names = [name for architecture in ARCHITECTURES for name in kernelgen(architecture, "list").split()]
    return [name for name in names if (match := pattern.match(name)) and (hook_sets is None or match["hooks"] in hook_sets)]


def built_assembly(name, target, isa):
    """From the object of the kernel's family. None if there is no such object, or if it is older than what would make it."""
    family = name[: name.index(f"_{target}")]
    path = TREES[isa.architecture] / "kernels" / f"{family}_{target.replace('_', '-')}.o"
    if not path.exists() or path.stat().st_mtime < KERNELGEN.stat().st_mtime or not disassembly.can_disassemble(isa.architecture):
        return None
    return disassembly.functions(path, isa.architecture).get(f"hattnkernel_{name}")


def goes_by_quads(match):
    """Vectors of four elements for each of four rows, see schedules/simd/quads.h."""
    return bool(re.match("((bfloat|float)16_)?split_kv_x86_avx512_r8k", match[0]))


def expected_blocks(match):
    """FMAs of one pass of the score loop and of the value loop: (vectors of) rows held in registers by the other side."""
    rows, keys = int(match["v"]), int(match["u"])
    return rows * keys * QUAD // LINE_FLOATS if goes_by_quads(match) else rows * keys, rows * int(match["d"])


def expect_no_gathers(name, text, isa, lane_by_lane):
    """x86 has instructions for it, which no kernel needs. On ARM a vector is gathered lane by lane, and `lane_by_lane` vectors in a loop may
    be: of the state of rows, or where a head ends within a vector."""
    assert "gather" not in text, f"{name} gathers"
    loop = gathers(text, isa, lane_by_lane)
    assert loop is None, f"{name} loads more than {lane_by_lane} vectors lane by lane:\n{loop.text()}"


def has_few_rows(match):
    """One or two, on a target whose decode takes all lines of a key before the next key."""
    return match["target"] == "x86_avx512" and int(match["rows"]) <= 2


def asks_by_stride(name):
    """More rows, there: lines are asked for where as many are multiplied, and found without tables. Of float32 and pairs of bfloat16 alone."""
    match = NAME.match(re.sub("^bfloat16_(rows|pairs)_", "", name))
    return bool(match) and match["kind"] == "split_kv" and match["target"] == "x86_avx512" and not has_few_rows(match)


def has_rows_in_lanes(name):
    match = NAME.match(name)
    return match["kind"] == "flash" or int(match["rows"]) > 8


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
