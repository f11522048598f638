"""Arrays in the storage types, and the numbers they stand for in float64."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

import ml_dtypes
import numpy as np

FLOATS = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
LIMITS = {"int8": 127, "int4": 7}
TYPES = (*FLOATS, *LIMITS)
BLOCK = 32


class Stored(NamedTuple):
    array: Any
    scale: Optional[Any]  # as k_scale and v_scale take it
    numbers: np.ndarray  # float64


def pack(integers):
    """Two int4 a byte, the first in the low half."""
    odd = integers.shape[-1] % 2
    even = np.concatenate([integers, np.zeros_like(integers[..., :odd])], -1) & 15
    return (even[..., ::2] | even[..., 1::2] << 4).astype(np.uint8)


def unpack(packed, dim):
    """The first `dim` int4 of rows of bytes, as int8."""
    both = np.stack([packed & 15, packed >> 4], -1).reshape(*packed.shape[:-1], 2 * packed.shape[-1])[..., :dim]
    return ((both.astype(np.int8) ^ 8) - 8).astype(np.int8)


def widen(scale, shape):
    """Scales of any form over every element of [B, H, S, D]."""
    scale = np.asarray(scale, np.float64)
    if scale.ndim == 4:
        return np.repeat(scale, BLOCK, -1)[..., : shape[-1]]
    return np.broadcast_to(scale.reshape(1, -1, 1, 1) if scale.ndim < 2 else scale[None, :, None, :], shape)


def store(rng, values, dtype, scales="keys"):
    """float32 [B, H, S, D] in a type; scales of integers: "tensor", "heads", "channels" or "keys"."""
    if dtype in FLOATS:
        array = values.astype(FLOATS[dtype])
        return Stored(array, None, array.astype(np.float64))
    limit = LIMITS[dtype]
    _, heads, _, dim = values.shape
    shape = {
        "tensor": (),
        "heads": (heads,),
        "channels": (heads, dim),
        "keys": (*values.shape[:3], -(-dim // BLOCK)),
    }[scales]
    scale = (rng.uniform(2, 4, shape) / limit).astype(np.float32)
    over_all = widen(scale, values.shape)
    integers = np.clip(np.rint(values / over_all), -limit, limit).astype(np.int8)
    return Stored(integers if dtype == "int8" else pack(integers), scale, integers * over_all)


def kept(array, dtype):
    """(what a cache keeps of float32 rows, its scales, the numbers it stands for)."""
    if dtype in FLOATS:
        exact = array.astype(FLOATS[dtype])
        return exact, None, exact.astype(np.float64)
    limit = np.float32(LIMITS[dtype])
    blocks = -(-array.shape[-1] // BLOCK)
    padded = np.zeros((*array.shape[:-1], blocks * BLOCK), np.float32)
    padded[..., : array.shape[-1]] = array
    scales = np.abs(padded).reshape(*array.shape[:-1], blocks, BLOCK).max(-1) / limit
    over_all = widen(scales, array.shape).astype(np.float32)
    with np.errstate(invalid="ignore"):
        ratio = np.where(over_all > 0, array / over_all, 0)
    integers = np.clip(np.rint(ratio), -limit, limit).astype(np.int8)
    numbers = integers * widen(scales, array.shape)
    return integers if dtype == "int8" else pack(integers), scales, numbers


def counted(array, dtype, dim):
    """Numbers of a storage type, or float32, as whole ones in their order: neighbours differ by 1."""
    if dtype in LIMITS:
        return (array if dtype == "int8" else unpack(array, dim)).astype(np.int64)
    bits = array.view(f"i{array.dtype.itemsize}")
    return np.where(bits < 0, np.iinfo(bits.dtype).min - bits.astype(np.int64), bits)


def integer_rounding(result, q, k, v, v_scale):
    """How much further from the oracle's `result` outputs may be where integers are multiplied, as in tests/cases/oracle.h.

    k, v: what the integers stand for, [B, Hkv, S, D]; v_scale: those of values' blocks.
    """
    unit = 1 / 65534
    group = q.shape[1] // k.shape[1]
    k, v = (np.abs(np.repeat(side, group, 1)) for side in (k, v))
    largest = np.abs(q).max(-1)[..., None]
    relative = np.expm1(unit * largest * k.sum(-1)[:, :, None] / np.sqrt(q.shape[-1]))
    weights = result.scores["probabilities"]
    of_scores = (weights * relative) @ v + np.abs(result.out) * (weights * relative).sum(-1, keepdims=True)
    ratio = v_scale.max() / v_scale[v_scale > 0].min()
    return of_scores + unit * ratio * weights.max(-1, keepdims=True) * ((weights > 0) @ v)
