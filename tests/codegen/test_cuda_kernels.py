"""CUDA kernels as PTX, without a GPU: what they do is what was recorded, and ptxas fits all of them into registers.

A build with HATTN_DEVICES=cuda has all of them, one with cuda:few some, and the rest for the emulator's tests; what is missing all the
same is compiled here.
"""

import json
import re
import subprocess

import pytest

import cuda_tools
from cuda_kernels import GOLDEN, counts, launches, ptx_of
from cuda_sass import assembled, registers, with_capabilities
from test_inner_loops import KERNELGEN

PTXAS = cuda_tools.find("ptxas")
TREE = KERNELGEN.parents[1]
BUILT = launches(sorted([*(TREE / "device").glob("cuda_*"), *(TREE / "tests/cpp/emulated_cuda/rest").glob("cuda_*")]))
ASSEMBLED = TREE / "ptxas"  # what it made
ROWS = json.loads(GOLDEN.read_text())

# Of a multiprocessor, and of a block of threads on compute capability 8.0, which kernels are compiled for (CUDA C++ Programming
# Guide, compute capabilities). Later GPUs have more, but for 8.6, 8.9 and 12.0, which have 99 KiB: there plans take the kernels that
# fit (shared_memory_test).
REGISTERS = 65536
SHARED_BYTES = 227 * 1024  # of capability 9.0; plans take what fits the GPU

pytestmark = pytest.mark.skipif(not KERNELGEN.exists(), reason="the build has no hattn-kernelgen")


@pytest.fixture(scope="module")
def ptx(tmp_path_factory):
    """Path of the PTX of a kernel; one that the build has not is there without its early start."""
    directory = tmp_path_factory.mktemp("ptx")

    def path_of(name):
        if name in BUILT:
            return BUILT[name]["ptx"]
        path = directory / name
        if not path.exists():
            subprocess.run([KERNELGEN, "emit", name, directory], check=True)
        return path

    return path_of


def test_every_kernel_is_recorded():
    names = subprocess.run([KERNELGEN, "list"], check=True, capture_output=True, text=True).stdout.split()
    assert sorted(name for name in names if re.match(r"\w+?_cuda_r\d", name)) == sorted(ROWS)


@pytest.mark.parametrize("name", sorted(ROWS))
def test_ptx_is_what_was_recorded(ptx, name):
    row = dict(ROWS[name])
    launch = {key: row.pop(key) for key in ("threads", "shared_bytes")}
    assert counts(ptx_of(ptx(name))) == row
    if name in BUILT:
        assert {key: BUILT[name][key] for key in launch} == launch


@pytest.mark.parametrize("name", sorted(ROWS))
def test_what_is_recorded_fits_a_multiprocessor(name):
    row = ROWS[name]
    assert row["local"] == 0, "arrays of a thread belong into registers"
    assert row["threads"] <= 1024
    assert row["shared_bytes"] <= SHARED_BYTES


@pytest.mark.parametrize("name", sorted(name for name in ROWS if "_warpgroups" in name))
def test_a_warpgroup_multiplies_whole_matrices(name):
    """64 rows by all keys of a chunk, and by all elements of a head: an instruction for 16 elements of the head, and for 16 keys. What
    they read of shared memory has been shown to them wherever copies are waited for."""
    keys, head = map(int, re.search(r"_r\d+k(\d+)s4t2h(\d+)_", name).groups())
    row = ROWS[name]
    assert row["warpgroup_products"] == head // 16 + keys // 16
    assert row["matrix_products"] == row["matrix_loads"] == 0
    assert row["proxy_fences"] == row["waits"]


@pytest.mark.parametrize("name", sorted(name for name in ROWS if re.search(r"float16(?!_warpgroups)", name)))
def test_matrices_are_loaded_once_for_several_products(name):
    rows, keys, slices, thread_rows, head = map(int, re.search(r"_r(\d+)k(\d+)s(\d+)t(\d+)h(\d+)_", name).groups())
    row = ROWS[name]
    parts = slices // 4  # of keys and of the head, for a warp each
    tiles = thread_rows // 2  # of 16 rows, which a warp has
    # Of such a tile, 16 x 8 x 16 each.
    scores, outputs = keys // parts // 8 * (head // 16), head // parts // 8 * (keys // 16)
    assert row["matrix_products"] == tiles * (scores + outputs)
    queries, weights = head // 16, keys // 16 if parts > 1 else 0  # of one part, weights are in registers
    assert row["matrix_loads"] == tiles * (queries + weights) + (scores + outputs) // 2
    # Where rows are aligned, 16 bytes at once from memory, four or in turns, in a loop. Keys are copied, for the first chunk
    # and for the next one, and values but where hooks hide keys.
    blocks = head // 8
    in_turns = blocks // (blocks & -blocks)  # of a row that is no power of two of them long
    at_once = [in_turns if in_turns > 1 else min(4, n * blocks // row["threads"]) for n in (rows, keys)]
    hides_keys = "mask" in name
    # For each of two layouts of rows, of which LLVM makes one where they are alike; and one or two queries of a tile of
    # few rows it loads word by word.
    of_values = at_once[1] if hides_keys else 0
    assert of_values <= row["wide_loads"] <= 2 * (at_once[0] + of_values)
    copied_queries = 0 if hides_keys or parts > 1 else rows * blocks // row["threads"]
    copies = at_once[1] * (2 if hides_keys else 3) + copied_queries
    assert copies < row["copies"] <= 2 * copies
    assert row["waits"] == (1 if hides_keys else 3 if copied_queries else 2)  # one for queries where there is no chunk


# What is known to be spilled, in bytes of loads in the text for each capability, and no more: float32 flash over heads of
# 128 whose rows lie in columns lacks registers for hooks (decision 0044), others for a word that is used behind the loop
# over chunks alone (0092). docs/devices.md lists them.
SPILLED = {
    "split_kv_cuda_r2k64s16t2h128": {"sm_90": 4},
    "flash_cuda_r128k64s4t4h96_bfloat16": {"sm_90": 4},
    "flash_cuda_r128k64s4t4h96_float16": {"sm_90": 4},
    "flash_cuda_r64k64s16t8h128_softcap": {"sm_90": 16},
    "flash_cuda_r64k64s16t8h128_bias_alibi_mask": {"sm_80": 44, "sm_90": 8},
    "flash_cuda_r64k64s16t8h128_softcap_bias_alibi_mask": {"sm_80": 76, "sm_90": 56},
}


@pytest.mark.skipif(PTXAS is None, reason="there is no ptxas")
@pytest.mark.parametrize(("name", "capability"), with_capabilities(sorted(ROWS)))
def test_ptxas_spills_nothing(ptx, name, capability):
    _, report = assembled(name, ptx_of(ptx(name), capability), capability, ASSEMBLED)
    spilled = int(re.search(r"(\d+) bytes spill loads", report)[1])
    assert spilled <= SPILLED.get(name, {}).get(capability, 0), report
    assert registers(report) * ROWS[name]["threads"] <= REGISTERS, report
