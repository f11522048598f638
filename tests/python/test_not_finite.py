"""Numbers that are not finite, in prompts long enough for kernels that multiply sums of bfloat16 numbers, which have none."""

import numpy as np
import pytest

import hattn

KEYS, AT = 600, 520


@pytest.fixture
def prompt():
    rng = np.random.default_rng(62)
    return [rng.standard_normal((1, heads, KEYS, 128), np.float32) for heads in (4, 2, 2)]


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_infinite_values_reach_the_rows_that_see_them(prompt, value):
    q, k, v = prompt
    expected = hattn.attention(q, k, v, causal=True)
    v[0, 0, AT, 3] = value
    out = hattn.attention(q, k, v, causal=True)
    np.testing.assert_array_equal(out[:, :2, AT:, 3], value)
    for head in range(4):  # rows that do not see the key may share a tile with some that do
        finite = [d for d in range(128) if d != 3 or head >= 2]
        np.testing.assert_allclose(out[:, head][..., finite], expected[:, head][..., finite], rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("shift", [-np.inf, -3e38])
def test_keys_far_below_all_others_have_no_weight(prompt, shift):
    q, k, v = prompt
    q[..., 3] = 0.5 + np.abs(q[..., 3])
    mask = np.ones((KEYS, KEYS), bool)
    mask[:, AT] = False
    expected = hattn.attention(q, k, v, mask=mask, causal=True)
    k[:, :, AT, 3] = shift
    np.testing.assert_allclose(hattn.attention(q, k, v, causal=True), expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("dim", [3, 7, 74, 128])
@pytest.mark.parametrize("heads", [1, 2, 4, 8, 16])
def test_keys_far_below_all_others_have_no_weight_for_single_tokens(heads, dim):
    """Whatever takes part in a product beside them: at ends of heads, what is loaded there for others."""
    rng = np.random.default_rng(96)
    q = 0.5 + np.abs(rng.standard_normal((1, heads, 1, dim), np.float32))
    k, v = (rng.standard_normal((1, 1, 300, dim), np.float32) for _ in range(2))
    mask = np.ones((1, 300), bool)
    mask[:, 200] = False
    expected = hattn.attention(q, k, v, mask=mask)
    for element in {0, dim - 3, dim - 2, dim - 1}:
        infinite = k.copy()
        infinite[:, :, 200, element] = -np.inf
        np.testing.assert_allclose(hattn.attention(q, infinite, v), expected, rtol=2e-5, atol=2e-6)
