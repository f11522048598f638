"""KVCache in every storage type: what it keeps, and attention over it."""

import numpy as np
import pytest

import hattn
import oracle
import stored
from helpers import ATOL, RTOL, assert_same_bits
from stored import kept

BATCH, KV_HEADS, HEADS, DIM = 2, 2, 4, 40
KINDS = {"contiguous": {}, "paged": {"page_size": 16}, "ring": {"window": 96}}


def rows(rng, count, dim=DIM, dtype=np.float32):
    return rng.standard_normal((BATCH, KV_HEADS, count, dim), np.float32).astype(dtype)


def make(dtype, capacity=128, dim=DIM, **options):
    return hattn.KVCache(BATCH, KV_HEADS, capacity, dim, dtype=dtype, **options)


@pytest.mark.parametrize("source", stored.FLOATS)
@pytest.mark.parametrize("dtype", stored.TYPES)
def test_what_is_kept(rng, dtype, source):
    """Rounded once, to nearest even; integers with a scale for each 32 elements of a key."""
    k, v = rows(rng, 21, dtype=stored.FLOATS[source]), rows(rng, 21, dtype=stored.FLOATS[source])
    k[0, 0, 3] = 0
    cache = make(dtype)
    cache.append(k[:, :, :5], v[:, :, :5])
    cache.append(k[:, :, 5:], v[:, :, 5:])
    for given, view, scale in zip((k, v), cache.view(), cache.scales):
        expected, scales, _ = kept(given.astype(np.float32), dtype)
        assert view.dtype == expected.dtype
        np.testing.assert_array_equal(view[:, :, :21], expected)
        if scales is not None:
            np.testing.assert_array_equal(scale[:, :, :21], scales)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", stored.TYPES)
@pytest.mark.parametrize("dim", [DIM, 64])  # decode over one type has kernels of its own for heads of multiples of 32
def test_attend(rng, dim, dtype, kind):
    """A prompt in chunks, then decoding; every kind of storage gives the same bits."""
    k, v, q = rows(rng, 90, dim), rows(rng, 90, dim), rng.standard_normal((BATCH, HEADS, 90, dim), np.float32)
    cache, plain = make(dtype, dim=dim, **KINDS[kind]), make(dtype, dim=dim)
    sides = [kept(array, dtype) for array in (k, v)]
    for begin, end in ((0, 37), (37, 88), (88, 89), (89, 90)):
        options = {"causal": True, "window": (95, -1)}
        for each in (cache, plain):
            each.append(k[:, :, begin:end], v[:, :, begin:end])
        out = cache.attend(q[:, :, begin:end], **options)
        numbers = [side[2][:, :, :end] for side in sides]
        expected = oracle.attention(q[:, :, begin:end], *numbers, **options)
        more = stored.integer_rounding(expected, q[:, :, begin:end], *numbers, sides[1][1]) if sides[1][1] is not None else 0
        assert (np.abs(out - expected.out) <= RTOL * np.abs(expected.out) + ATOL + more).all()
        assert_same_bits(out, plain.attend(q[:, :, begin:end], **options))


@pytest.mark.parametrize("kind", ["contiguous", "paged"])
@pytest.mark.parametrize("dtype", ["bfloat16", "int8", "int4"])
def test_fork_and_truncate(rng, dtype, kind):
    k, v, q = rows(rng, 50), rows(rng, 50), rng.standard_normal((BATCH, HEADS, 1, DIM), np.float32)
    cache = make(dtype, **KINDS[kind])
    cache.append(k[:, :, :40], v[:, :, :40])
    cache.fork(0, 1, 25)
    cache.append(k[:, :, 40:], v[:, :, 40:])
    cache.truncate([45, 30])
    joined = [np.stack([side[0, :, :45], np.concatenate([side[0, :, :25], side[1, :, 40:45], side[1, :, :15]], 1)]) for side in (k, v)]
    numbers = [kept(side, dtype)[2] for side in joined]
    expected = oracle.attention(q, *numbers, kv_lengths=[45, 30]).out
    np.testing.assert_allclose(cache.attend(q), expected, rtol=RTOL, atol=ATOL)


def test_given_scales_saturate(rng):
    k, v = 3 * rows(rng, 9), 3 * rows(rng, 9)
    per_head, per_channel = np.float32([0.01, 0.05]), rng.uniform(0.3, 2, (KV_HEADS, DIM)).astype(np.float32)
    cache = make("int8", value_dtype="int4", k_scale=per_head, v_scale=per_channel)
    cache.append(k, v)
    keys, values = cache.view()
    expected = np.clip(np.rint(k / per_head[None, :, None, None]), -127, 127)
    np.testing.assert_array_equal(keys[:, :, :9], expected)
    assert np.abs(expected).max() == 127
    expected = np.clip(np.rint(v / per_channel[None, :, None]), -7, 7)
    np.testing.assert_array_equal(stored.unpack(values[:, :, :9], DIM), expected)
    np.testing.assert_array_equal(cache.scales[0].reshape(-1), per_head)
    q = rng.standard_normal((BATCH, HEADS, 1, DIM), np.float32)
    numbers = keys[:, :, :9] * stored.widen(per_head, k.shape), expected * stored.widen(per_channel, v.shape)
    np.testing.assert_allclose(cache.attend(q), oracle.attention(q, *numbers).out, rtol=RTOL, atol=ATOL)


def test_infinities_and_subnormals_are_kept_in_bounds():
    """A block with an infinity has the scale of the largest finite number; one of subnormals does not divide by zero."""
    k = np.ones((BATCH, KV_HEADS, 2, DIM), np.float32)
    k[:, :, 0, 3] = np.inf
    k[:, :, 1] = 1e-44
    cache = make("int8")
    cache.append(k, k)
    integers, scales = cache.view()[0][:, :, :2], cache.scales[0][:, :, :2]
    assert np.all(np.isfinite(scales))
    assert np.all(integers[:, :, 0, 3] == 127)
    assert np.all(np.abs(integers.astype(np.int32)) <= 127)


@pytest.mark.parametrize("dtype", ["int8", "int4"])
@pytest.mark.parametrize("side", ["k", "v"])
def test_a_nan_is_the_scale_of_its_block(rng, dtype, side):
    """Other rows are not lost, and of values those that see it are; of keys nothing is promised."""
    k, v = rows(rng, 20), rows(rng, 20)
    {"k": k, "v": v}[side][:, 1, 3, 5] = np.nan
    cache = make(dtype)
    cache.append(k, v)
    scales = cache.scales[("k", "v").index(side)]
    expected = np.zeros(scales.shape, bool)
    expected[:, 1, 3, 0] = True
    np.testing.assert_array_equal(np.isnan(scales[:, :, :20]), expected[:, :, :20])
    q = rng.standard_normal((BATCH, HEADS, 1, DIM), np.float32)
    lost = np.isnan(cache.attend(q)).any(axis=(0, 2, 3))
    assert not lost[: HEADS // KV_HEADS].any()
    assert side == "k" or lost[HEADS // KV_HEADS :].all()
    assert np.all(np.isfinite(cache.attend(q, causal=True, window=(8, 0))))


def test_mixed_types_rope_and_16_bit_rows(rng):
    """Keys are turned before they are rounded."""
    rope = hattn.Rope()
    k, v = rows(rng, 33, dtype=np.float16), rows(rng, 33, dtype=np.float16)
    cache = make("int8", value_dtype="bfloat16")
    cache.append(k, v, rope=rope)
    turned = hattn.apply_rope(k.astype(np.float32), rope)
    np.testing.assert_array_equal(cache.view()[0][:, :, :33], kept(turned, "int8")[0])
    np.testing.assert_array_equal(cache.view()[1][:, :, :33], kept(v.astype(np.float32), "bfloat16")[0])


@pytest.mark.parametrize("capacity", [1, 40])
@pytest.mark.parametrize("dim", [8, 32, 33])
@pytest.mark.parametrize("dtype", stored.LIMITS)
def test_one_key_of_one_sequence(rng, dtype, dim, capacity):
    """Its scales have the shape of scales for heads, of up to 32 elements; they are the key's all the same."""
    q, k, v = (rng.standard_normal((2, heads, 1, dim), np.float32) for heads in (HEADS, KV_HEADS, KV_HEADS))
    v[0, 0, 0, 0] = np.nan
    alone, paged, both = (
        hattn.KVCache(batch, KV_HEADS, capacity, dim, dtype=dtype, **options)
        for batch, options in ((1, {}), (1, {"page_size": 16}), (2, {}))
    )
    for cache, batch in ((alone, 1), (paged, 1), (both, 2)):
        cache.append(k[:batch], v[:batch])
    for options in ({}, {"mask": np.zeros((1, 1, 1, 1), bool)}):
        expected = both.attend(q, **options)
        assert np.isfinite(expected[0, HEADS // KV_HEADS :]).all()
        for cache in (alone, paged):
            assert_same_bits(cache.attend(q[:1], **options), expected[:1])
    assert not expected.any()  # a key that no row sees has no effect


def test_scales_of_one_cache_for_another(rng):
    """As a list, and as the first cache has them."""
    k, v = rows(rng, 5), rows(rng, 5)
    first = make("int8", k_scale=[0.02, 0.03], v_scale=0.5)
    again = make("int8", k_scale=first.scales[0], v_scale=first.scales[1])
    for cache in (first, again):
        cache.append(k, v)
    for one, other in zip(first.view(), again.view()):
        np.testing.assert_array_equal(one[:, :, :5], other[:, :, :5])


def test_dtypes_of_pytorch():
    class Named:
        def __str__(self):
            return "torch.bfloat16"

    assert make(Named()).view()[0].dtype == make("bfloat16").view()[0].dtype
    with pytest.raises(TypeError, match="dtype: expected a name or a NumPy dtype, got object"):
        make(object())
