"""Kernels for decode compute the keys of a chunk that there are, not all that it has room for: chunks of 512 keys serve short sequences too."""

import re

import pytest

from kernel_assembly import kernel_names, kernelgen
from statement_numbers import Numbers

# One of each way to multiply, and of integers, whose stages use places of keys twice, of more rows.
NAMES = re.compile(
    r"(split_kv_x86_avx512_r[28]k\d+|(float16|bfloat16|int8|int4|int8_lines|int4_lines)_split_kv_x86_avx512_r2k512"
    r"|(bfloat16|int[48](_lines)?)_split_kv_x86_avx512_r8k\d+|bfloat16_rows_split_kv_x86_avx512_r4k\d+|amx_int[48]_split_kv_x86_avx512_r8k\d+"
    r"|int[48]_split_kv_x86_avx2_r[128]k\d+)v\d+u\d+d\d+(?P<hooks>)$"
)
# Of one key in heads of 128 elements, with scales of blocks.
ARGUMENTS = {
    "key_count": 1,
    "key_skip": 0,
    "query.extent.1": 1,
    "query.extent.2": 8,
    **{f"{side}.extent.0": 128 for side in ("key", "value")},
    **{f"{side}_block_scales.stride.{dimension}": stride for side in ("key", "value") for dimension, stride in enumerate((1, 4, 64))},
}
GRANULE, BYTE_MATRIX = 16, 64  # keys that are there if one of them is


@pytest.mark.parametrize("name", kernel_names(NAMES))
def test_loops_over_keys_end_with_those_that_there_are(name, tmp_path):
    kernelgen("x86-64", "emit", name, tmp_path)
    statement = (tmp_path / f"{name}.stmt").read_text()
    most = BYTE_MATRIX if name.startswith("amx_") else GRANULE
    numbers = Numbers(statement, ARGUMENTS)
    for loops in (r".*\.s0\.k\b", r".*\.s1\.over_(granules|keys|key_pairs|key_quads|digits|blocks|scales|lane_scales)\$"):
        passes = numbers.passes(loops)
        assert passes, f"{name} has no loop over keys like {loops}"
        assert all(count <= most for _, count in passes), f"{name} computes keys that are not there: {passes}"
