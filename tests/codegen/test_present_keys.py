"""Kernels for decode compute the keys of a chunk that there are, not all that it has room for: chunks of 512 keys serve short sequences too."""

import re

import pytest

from kernel_assembly import kernel_names, kernelgen

# One of each way to multiply, and of int4, whose stages use places of keys twice, of more rows.
NAMES = re.compile(
    r"(split_kv_x86_avx512_r2k\d+|(float16|bfloat16|int8|int4|int8_lines|int4_lines)_split_kv_x86_avx512_r2k512|int4(_lines)?_split_kv_x86_avx512_r8k\d+"
    r"|bfloat16_rows_split_kv_x86_avx512_r4k\d+|amx_int[48]_split_kv_x86_avx512_r8k\d+)v\d+u\d+d\d+(?P<hooks>)$"
)


@pytest.mark.parametrize("name", kernel_names(NAMES))
def test_loops_over_keys_end_with_those_that_there_are(name, tmp_path):
    kernelgen("x86-64", "emit", name, tmp_path)
    statement = (tmp_path / f"{name}.stmt").read_text()
    extents = re.findall(r"for \((?:logits|weights)\.s0\.k\S*, \S+, (.*)\) \{", statement)
    assert extents, f"{name} has no loop over keys"
    # Within a granule of 16 keys they are known.
    constant = [extent for extent in extents if extent.isdigit() and int(extent) > 2]
    assert not constant, f"{name} computes so many vectors, or granules, of keys whatever there are: {constant}"
