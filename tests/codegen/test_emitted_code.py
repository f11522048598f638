"""What `hattn-kernelgen emit` writes for reading is the code that the library has."""

import re
from collections import Counter

import pytest

from assembly import INSTRUCTION_SETS
from kernel_assembly import built_assembly, kernelgen

ISA = INSTRUCTION_SETS["x86_avx512"]
# Of decode, which takes liberties with sums, and of prefill, which is compiled strictly.
NAMES = ("split_kv_x86_avx512_r2k512v2u4d8", "int4_lines_split_kv_x86_avx512_r2k512v2u4d4", "flash_x86_avx512_r32k128v2u8d8")


def vector_instructions(text):
    return Counter(match[1] for match in re.finditer(r"^\s+(v\w+)", text, re.MULTILINE))


@pytest.mark.parametrize("name", NAMES)
def test_emitted_code_is_the_librarys(name, tmp_path):
    built = built_assembly(name, "x86_avx512", ISA)
    if built is None:
        pytest.skip("the build has no object of this kernel")
    kernelgen(ISA.architecture, "emit", name, tmp_path)
    kernel, end, _ = (tmp_path / f"{name}.s").read_text().partition(".Lfunc_end0")
    assert end
    emitted = vector_instructions(kernel)
    assert emitted.total() > 1000
    assert emitted == vector_instructions(built)
