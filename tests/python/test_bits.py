"""Neither threads nor the batch a sequence sits in change a bit of the results; the same call repeats exactly."""

import numpy as np
import pytest

import hattn
from helpers import assert_same_bits, random_qkv

SHAPES = [
    dict(heads=4, kv_heads=2, queries=1, keys=700, key_dim=32),
    dict(heads=3, kv_heads=1, queries=67, keys=200, key_dim=24, value_dim=40),
    dict(heads=2, kv_heads=2, queries=5, keys=5, key_dim=64),
]


def call(arrays, algorithm, threads=None, **options):
    results = hattn.attention(
        *arrays,
        algorithm=algorithm,
        threads=threads,
        causal=True,
        return_lse=True,
        return_scores="probabilities",
        **options,
    )
    return [np.ascontiguousarray(result) for result in results]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_threads(rng, algorithm, shape):
    arrays = random_qkv(rng, batch=3, **shape)
    one = call(arrays, algorithm, threads=1)
    for threads in (1, 2, 3, None):
        for result, expected in zip(call(arrays, algorithm, threads=threads), one):
            assert_same_bits(result, expected)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_batch_position(rng, algorithm, shape):
    arrays = random_qkv(rng, batch=4, **shape)
    keys = shape["keys"]
    lengths = np.array([keys, keys // 2, 0, keys - 1])
    together = call(arrays, algorithm, kv_lengths=lengths)
    for b in range(4):
        alone = call([array[b : b + 1] for array in arrays], algorithm, kv_lengths=lengths[b : b + 1])
        for result, expected in zip(together, alone):
            assert_same_bits(result[b : b + 1], expected)


def test_reversed_batch(rng, algorithm):
    arrays = random_qkv(rng, batch=5, **SHAPES[1])
    forward = call(arrays, algorithm)
    backward = call([array[::-1] for array in arrays], algorithm)
    for result, expected in zip(backward, forward):
        assert_same_bits(np.ascontiguousarray(result[::-1]), expected)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("dim", [24, 72, 80, 128, 130])
@pytest.mark.parametrize("heads", [5, 16, 40])
def test_place_in_a_tile(rng, algorithm, heads, dim, dtype):
    """Query heads of one kv head are rows of tiles: equal ones have equal outputs, whichever vector and block of rows they lie in."""
    q, k, v = random_qkv(rng, heads=1, kv_heads=1, queries=1, keys=300, key_dim=dim)
    q, k, v = np.repeat(q, heads, axis=1), k.astype(dtype), v.astype(dtype)
    out = np.asarray(hattn.attention(q, k, v, algorithm=algorithm))
    assert_same_bits(out, np.repeat(out[:, :1], heads, axis=1))
