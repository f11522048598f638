"""Shared by the Python tests: inputs, comparison with the oracle, a DLPack tensor that is not a NumPy array."""

from __future__ import annotations

import types

import numpy as np

# Errors of fp32 accumulation over the sizes used here stay below a quarter of this.
RTOL = 2e-5
ATOL = 2e-5


def random_qkv(rng, batch=2, heads=4, kv_heads=2, queries=5, keys=7, key_dim=16, value_dim=None):
    """q, k, v of standard normal float32 values, in [B, H, S, D]."""
    shapes = (
        (batch, heads, queries, key_dim),
        (batch, kv_heads, keys, key_dim),
        (batch, kv_heads, keys, value_dim or key_dim),
    )
    return tuple(rng.standard_normal(shape, np.float32) for shape in shapes)


def assert_close(actual, expected, name="out", rtol=RTOL, atol=ATOL):
    """Infinities must agree exactly, everything else within the tolerance."""
    assert actual.shape == expected.shape, name
    assert actual.dtype == np.float32, name
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol, err_msg=name)


def assert_same_bits(actual, expected):
    """Bit equality, signs of zero and NaN payloads included."""
    assert actual.shape == expected.shape
    assert actual.tobytes() == expected.tobytes()


def ends(lengths):
    """cu_seqlens of sequences one behind the other."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


def pack(array, lengths):
    """[B, H, S, D] to [1, H, sum(lengths), D]."""
    return np.concatenate([array[b : b + 1, :, :n] for b, n in enumerate(lengths)], axis=2)


class Tensor:
    """A foreign tensor: it speaks DLPack and the array API's namespace, and nothing else."""

    def __init__(self, array, device=(1, 0)):
        self._array = array
        self._device = device

    def __dlpack__(self, **arguments):
        return self._array.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self._device

    def __array_namespace__(self, api_version=None):
        return types.SimpleNamespace(from_dlpack=lambda other: Tensor(np.from_dlpack(other)))

    def numpy(self):
        return self._array


class BareTensor:
    """A foreign tensor that offers no way to make another one."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **arguments):
        return self._array.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


def device_row(name):
    """What info() says about a device; None if the build has no kernels for it."""
    import hattn

    return next((row for row in hattn.info()["devices"] if row["name"] == name), None)


def random_states(rng, count=3):
    """Outputs and log-sum-exps of as many partial attentions, lists."""
    outs = [rng.standard_normal((2, 3, 5, 16), np.float32) for _ in range(count)]
    return outs, [rng.standard_normal((2, 3, 5), np.float32) * 5 for _ in range(count)]
