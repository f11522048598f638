"""merge_states(): against the oracle, and attention over split keys merged again."""

import ml_dtypes
import numpy as np
import pytest

import hattn
import oracle
from helpers import assert_close, assert_same_bits, random_qkv
from stored import FLOATS


@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_against_oracle(rng, count):
    outs = [rng.standard_normal((2, 3, 4, 17), np.float32) for _ in range(count)]
    lses = [rng.standard_normal((2, 3, 4), np.float32) * 5 for _ in range(count)]
    out, lse = hattn.merge_states(outs, lses)
    expected, expected_lse = oracle.merge_states(outs, lses)
    assert_close(out, expected)
    assert_close(lse, expected_lse, "lse")


@pytest.mark.parametrize("dtypes", [("float16",), ("bfloat16",), ("bfloat16", "float32", "float16"), ("float32", "bfloat16")])
def test_storage_types(rng, dtypes):
    """Of the numbers that are stored, rounded once to the type of the first."""
    outs = [rng.standard_normal((2, 3, 40, 17), np.float32).astype(FLOATS[dtypes[n % len(dtypes)]]) for n in range(4)]
    outs[1] = outs[1].transpose(0, 2, 1, 3).copy().transpose(0, 2, 1, 3)
    lses = [rng.standard_normal((2, 3, 40), np.float32) * 5 for _ in outs]
    out, lse = hattn.merge_states(outs, lses)
    assert out.dtype == FLOATS[dtypes[0]] and lse.dtype == np.float32
    expected, expected_lse = oracle.merge_states([array.astype(np.float32) for array in outs], lses)
    half_ulp = float(ml_dtypes.finfo(out.dtype).eps) / 2
    assert np.all(np.abs(out.astype(np.float64) - expected) <= half_ulp * np.abs(expected) + 1e-5)
    assert_close(lse, expected_lse, "lse")


def test_given_outputs(rng):
    outs = [rng.standard_normal((2, 3, 4, 17), np.float32) for _ in range(3)]
    lses = [rng.standard_normal((2, 3, 4), np.float32) for _ in range(3)]
    expected = hattn.merge_states(outs, lses)
    out, lse = np.empty((2, 3, 4, 17), np.float32), np.empty((2, 3, 4), np.float32)
    made = hattn.merge_states(outs, lses, out=out, lse=lse)
    assert made[0] is out and made[1] is lse
    assert_same_bits(out, expected[0])
    assert_same_bits(lse, expected[1])
    assert_same_bits(hattn.merge_states(outs, lses, out=out)[1], expected[1])
    with pytest.raises(ValueError, match="out: its memory, from .*, overlaps that of outs"):
        hattn.merge_states(outs, lses, out=outs[1])
    with pytest.raises(ValueError, match=r"lse: extent\[2\] .* is 3, but that of out is 4"):
        hattn.merge_states(outs, lses, lse=lse[:, :, :3])
    with pytest.raises(ValueError, match="stream: is given, but outs live on the host"):
        hattn.merge_states(outs, lses, stream=0)


def test_too_many_states():
    outs, lses = [np.ones((1, 1, 1, 65536), np.float32)] * 1100, [np.zeros((1, 1, 1), np.float32)] * 1100
    with pytest.raises(NotImplementedError, match="^outs: the number of states is 1100, which with a head dimension of 65536"):
        hattn.merge_states(outs, lses)


@pytest.mark.parametrize("cuts", [(3,), (0, 4), (1, 2, 7), (9,)])
def test_split_keys(rng, algorithm, cuts):
    q, k, v = random_qkv(rng, keys=9)
    whole, whole_lse = hattn.attention(q, k, v, return_lse=True)
    edges = (0, *cuts, 9)
    states = [
        hattn.attention(q, k[:, :, a:b], v[:, :, a:b], algorithm=algorithm, return_lse=True)
        for a, b in zip(edges, edges[1:])
    ]
    out, lse = hattn.merge_states(*zip(*states))
    assert_close(out, whole)
    assert_close(lse, whole_lse, "lse")


def test_empty_states_weigh_nothing(rng):
    out = rng.standard_normal((1, 2, 3, 4), np.float32)
    lse = rng.standard_normal((1, 2, 3), np.float32)
    poison = np.full_like(out, np.nan)
    nothing = np.full_like(lse, -np.inf)
    merged, merged_lse = hattn.merge_states([poison, out, poison], [nothing, lse, nothing])
    assert_close(merged, out)
    assert_close(merged_lse, lse, "lse")
    merged, merged_lse = hattn.merge_states([poison, poison], [nothing, nothing])
    assert np.all(merged == 0) and np.all(merged_lse == -np.inf)


def test_stacked_states(rng):
    outs = rng.standard_normal((3, 1, 2, 3, 4), np.float32)
    lses = rng.standard_normal((3, 1, 2, 3), np.float32)
    out, lse = hattn.merge_states(outs, lses)
    expected, expected_lse = oracle.merge_states(outs, lses)
    assert_close(out, expected)
    assert_close(lse, expected_lse, "lse")


def test_large_differences(rng):
    out = rng.standard_normal((1, 1, 2, 4), np.float32)
    lses = [np.full((1, 1, 2), value, np.float32) for value in (1e4, -1e4)]
    merged, lse = hattn.merge_states([out, np.full_like(out, 3)], lses)
    assert_close(merged, out)
    assert np.all(lse == 1e4)
