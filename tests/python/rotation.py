"""Rotary position embedding in float64: what hattn's must be."""

from __future__ import annotations

import numpy as np


def turned(x, positions, dim=None, base=10000.0, scaling_factor=1.0, interleaved=False, cos=None, sin=None):
    """x [B, H, S, D] in float64, as complex numbers turned by positions [B, S] (Su et al., RoFormer, 2021).

    The options are those of hattn.Rope.
    """
    dim = 2 * cos.shape[1] if cos is not None else x.shape[-1] if dim is None else dim
    pairs = np.arange(dim // 2)
    first, second = (2 * pairs, 2 * pairs + 1) if interleaved else (pairs, pairs + dim // 2)
    if cos is None:
        angles = np.asarray(positions, np.float64)[..., None] / scaling_factor * base ** (-2.0 * pairs / dim)
        factors = np.exp(1j * angles)
    else:
        factors = cos[positions].astype(np.float64) + 1j * sin[positions].astype(np.float64)
    out = x.astype(np.float64)
    rotated = (out[..., first] + 1j * out[..., second]) * factors[:, None]
    out[..., first], out[..., second] = rotated.real, rotated.imag
    return out
