"""hattn-bench-builds: builds beside each other, and what it refuses."""
import re
import subprocess
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "build" / "release" / "bench"
SNAPSHOT = BENCH / "libhattn_snapshot.so"
pytestmark = pytest.mark.skipif(not SNAPSHOT.exists(), reason="the benchmarks are not built")


def run(*arguments):
    return subprocess.run([BENCH / "hattn-bench-builds", *arguments], capture_output=True, text=True)


def figures(finished):
    """{case: [cells]} of the table."""
    assert finished.returncode == 0, finished.stderr
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in finished.stdout.splitlines() if line.startswith("|")]
    return {cells[0]: cells[1:] for cells in rows[2:]}


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
@pytest.mark.parametrize("keys", ["float32", "float16", "bfloat16", "int8", "int4"])
def test_a_build_beside_itself_has_the_same_bits(keys, layout):
    cells = figures(run("--shape=1x4x2x1x300x128", "--shape=1x2x1x70x70x64", f"--keys={keys}", f"--layout={layout}", "--seconds=0", SNAPSHOT, SNAPSHOT))
    assert set(cells) == {"1x4x2x1x300x128", "1x2x1x70x70x64"}
    for kernel, milliseconds, beside in cells.values():
        assert re.fullmatch(r"[a-z0-9_]+", kernel)
        assert float(milliseconds.removesuffix(" ms")) > 0
        fastest, median, bits = beside.split(", ")
        assert float(fastest) > 0 and float(median) > 0 and bits == "same bits"


def test_hooks_are_those_of_the_kernel():
    (kernel, _, beside), = figures(run("--shape=1x2x1x70x70x64", "--hooks=softcap,sink", "--seconds=0", SNAPSHOT, SNAPSHOT)).values()
    assert kernel.endswith("_softcap") or "_softcap_" in kernel
    assert beside.endswith("same bits")


def test_keys_in_pages():
    finished = run("--shape=2x4x2x1x300x128", "--pages=16", "--seconds=0", SNAPSHOT, SNAPSHOT)
    (kernel, _, beside), = figures(finished).values()
    assert "split_kv" in kernel and beside.endswith("same bits") and "float32, in pages of 16" in finished.stdout


def test_a_forced_choice_is_another_kernel_and_named():
    finished = run("--filter=^prefill_s512$", "--seconds=0", f"{SNAPSHOT}@target=generic", SNAPSHOT)
    (kernel, _, beside), = figures(finished).values()
    assert "_generic_" in kernel and "libhattn_snapshot.so@target=generic" in finished.stdout
    difference, other = re.search(r"differ by (\S+), by (\S+)$", beside).groups()
    assert float(difference) < 1e-4 and other != kernel and "_generic_" not in other


def test_kernels_of_a_pack_beside_those_of_the_library(tmp_path):
    kernel, pack = "flash_generic_r8k64v1u1d1", tmp_path / "pack.so"
    subprocess.run([BENCH.parent / "generators" / "hattn-kernelgen", "pack", pack, kernel], check=True, capture_output=True)
    finished = run("--shape=1x2x1x70x70x64", "--seconds=0", SNAPSHOT, f"{SNAPSHOT}+{pack}@kernel={kernel}")
    (_, _, beside), = figures(finished).values()
    assert beside.endswith(f"by {kernel}") and f"libhattn_snapshot.so+{pack}@kernel={kernel}" in finished.stdout
    without = run("--shape=1x2x1x70x70x64", "--seconds=0", SNAPSHOT, f"{SNAPSHOT}@kernel={kernel}")
    assert without.returncode == 1 and kernel in without.stderr


def test_a_file_with_a_plus_in_its_name_is_a_build(tmp_path):
    build = tmp_path / "c++.so"
    build.symlink_to(SNAPSHOT)
    (_, _, beside), = figures(run("--shape=1x2x1x70x70x64", "--seconds=0", SNAPSHOT, build)).values()
    assert beside.endswith("same bits")


@pytest.mark.parametrize("arguments, message", [
    ((), "BUILD: there are 0, but must be 2 or more"),
    ((SNAPSHOT, SNAPSHOT), "neither --filter nor --shape"),
    (("--shape=1x2x3", SNAPSHOT, SNAPSHOT), '--shape: is "1x2x3", but must be BxHqxHkvxSqxSkxD'),
    (("--filter=nothing_like_it", SNAPSHOT, SNAPSHOT), '--filter: is "nothing_like_it"'),
    (("--filter=(", SNAPSHOT, SNAPSHOT), "--filter"),
    (("--hooks=mask,tanh", "--shape=1x1x1x1x1x8", SNAPSHOT, SNAPSHOT), '--hooks: is "tanh", but must be one of softcap, bias, alibi, mask, sink'),
    (("--keys=int5", "--shape=1x1x1x1x1x8", SNAPSHOT, SNAPSHOT), '--keys: is "int5", but must be one of float32, float16'),
    (("--layout=sbhd", SNAPSHOT, SNAPSHOT), '--layout: is "sbhd", but must be bhsd or bshd'),
    (("--pages=24", "--shape=1x1x1x1x1x8", SNAPSHOT, SNAPSHOT), '--pages: is "24", but must be 16, 32, 64 or 128'),
    (("--pages=16", "--keys=int8", "--shape=1x1x1x1x1x8", SNAPSHOT, SNAPSHOT), '--keys: is "int8", but must be float32 with --pages'),
    (("--pages=16", "--layout=bshd", "--shape=1x1x1x1x1x8", SNAPSHOT, SNAPSHOT), '--layout: is "bshd", but must be bhsd with --pages'),
    (("--threads=1.5", SNAPSHOT, SNAPSHOT), '--threads: is "1.5", but must be a whole number from 1 to 1024'),
    (("--threads=0", SNAPSHOT, SNAPSHOT), '--threads: is "0", but must be a whole number from 1'),
    (("--seconds=soon", SNAPSHOT, SNAPSHOT), '--seconds: is "soon"'),
    (("--shape=1x1x1x1x1x8", SNAPSHOT, "nowhere.so"), "nowhere.so: No such file"),
    (("--shape=1x1x1x1x1x8", SNAPSHOT, __file__), "invalid ELF header"),
    (("--shape=1x3x2x1x1x8", SNAPSHOT, SNAPSHOT), "query_heads: is 3"),
    (("--shape=1x1x1x1x1x8", SNAPSHOT, f"{SNAPSHOT}@kernel=none"), "none"),
    (("--sometimes", SNAPSHOT, SNAPSHOT), "--help"),
])
def test_what_is_refused(arguments, message):
    finished = run(*arguments)
    assert finished.returncode == 1
    assert message in finished.stderr, finished.stderr
