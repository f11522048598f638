"""Numbers that are loaded one by one, at ends of heads and of operands without unit stride, take a loop each, see simd/turned_stores.h; the
last keys of operands end under masks."""

import re

import pytest

from assembly import INSTRUCTION_SETS, straight_runs
from kernel_assembly import kernel_names

NAME = re.compile(r"(amx_|amx_float32_|amx_stored_|amx_halves_|bfloat16_|)flash_x86_avx512_r\d+k\d+v\d+u\d+d\d+(?P<hooks>\w*)$")
ISA = INSTRUCTION_SETS["x86_avx512"]
INSERTED = r"\b(vinsertps|vpinsr[bwdq])\b"
MOST = 48  # of three vectors; turned, 16 rows are 192 and more


@pytest.mark.parametrize("name", kernel_names(NAME, ("", "_bias", "_mask", "_softcap_bias_alibi_mask")))
def test_numbers_are_not_loaded_one_by_one_for_many_rows(name, emit):
    text = emit(name, ISA)
    longest = max(straight_runs(text, ISA), key=lambda run: run.count(INSERTED))
    assert longest.count(INSERTED) <= MOST, f"{name}:\n{longest.text()}"


@pytest.mark.parametrize("hook, bits", [("bias", 32), ("mask", 8)])
@pytest.mark.parametrize("name", kernel_names(re.compile(r"(flash|naive)_x86_avx512_r\d+k\d+v\d+u\d+d\d+(?P<hooks>\w*)$"), ("",)))
def test_the_last_keys_of_operands_are_loaded_under_masks(name, hook, bits, emit):
    """Of 16 rows at once, as those before them."""
    load = rf"\bvmovdqu{bits}\s+.*\(%r.*\).*\{{%k\d\}}"
    most = max(run.count(load) for run in straight_runs(emit(f"{name}_{hook}", ISA), ISA))
    assert most == 16, f"{name}_{hook} has {most} such loads in a run"
