"""Inputs that are hard on float32, and how far from float64 a float32 kernel may end up on them.

The bound is that of tests/cases/oracle.h, without bias and sinks. With u = 2^-24, half an ulp of 1, scores s_j,
weights p_j, values v_j and the output o of a row that sees n keys:

    score error   e_j = u ((sqrt(D) / 2 + 4) scale sum_d |q_d k_jd| + 6 |s_j| + 8 softcap)
                  a dot product's rounding grows with the root of its length, relative to the sum of its magnitudes;
                  each later step rounds its operand; tanh adds an absolute error
    weight error  r_j = exp(e_j) - 1 + u (8 + 2 |s_j - lse|)
                  relative: the error of the argument, and the exponential itself
    out           sum_j p_j (|v_j| + |o|) r_j + u (sqrt(n) + 8) sum_j p_j |v_j|
                  errors of the weights in numerator and denominator, and rounding of the two sums
"""

from __future__ import annotations

from typing import Any, Dict, NamedTuple

import numpy as np

_ROUNDOFF = 2.0**-24
_TINY = 1e-35  # weights below 2^-126 may be flushed to zero


class Problem(NamedTuple):
    q: np.ndarray  # [1, Hq, Sq, D] float32
    k: np.ndarray  # [1, Hkv, Sk, D]
    v: np.ndarray
    options: Dict[str, Any]  # of hattn.attention()


def normal(rng, queries, keys, heads=2, kv_heads=1, dim=128) -> Problem:
    """Standard normal q, k and v: scores are standard normal too."""

    def array(count, length):
        return rng.standard_normal((1, count, length, dim), np.float32)

    return Problem(array(heads, queries), array(kv_heads, keys), array(kv_heads, keys), {"causal": True})


def scaled_logits(rng, queries, keys, factor, **shape) -> Problem:
    """Scores of magnitude `factor`."""
    problem = normal(rng, queries, keys, **shape)
    return problem._replace(q=problem.q * np.float32(factor))


def common_offset(rng, queries, keys, offset=1000.0, **shape) -> Problem:
    """All scores of a row have `offset` in common, which the softmax has to take away again."""
    problem = normal(rng, queries, keys, **shape)
    root = np.sqrt(problem.q.shape[3])
    problem.q[..., 0] = np.sqrt(offset)
    problem.k[..., 0] = np.sqrt(offset) * root
    return problem


def softcapped(rng, queries, keys, **shape) -> Problem:
    """Scores of magnitude 100 under a cap of 30."""
    problem = scaled_logits(rng, queries, keys, 100.0, **shape)
    return problem._replace(options={**problem.options, "softcap": 30.0})


# Name -> problem of a generator.
PROBLEMS = {
    "normal, S = 128": lambda rng: normal(rng, 128, 128),
    "normal, S = 512": lambda rng: normal(rng, 512, 512),
    "normal, S = 2048": lambda rng: normal(rng, 2048, 2048),
    "normal, S = 4096": lambda rng: normal(rng, 4096, 4096),
    "logits of 1e4, S = 512": lambda rng: scaled_logits(rng, 512, 512, 1e4),
    "logits of 1e-4, S = 512": lambda rng: scaled_logits(rng, 512, 512, 1e-4),
    "logits around 1000, S = 512": lambda rng: common_offset(rng, 512, 512),
    "1 row, 32768 keys": lambda rng: normal(rng, 1, 32768),
    "softcap 30, S = 512": lambda rng: softcapped(rng, 512, 512),
}


def sampled_rows(problem: Problem) -> np.ndarray:
    """Up to 64 rows, the first and the last among them: float64 is slow."""
    return np.unique(np.linspace(0, problem.q.shape[2] - 1, 64).astype(int))


class Reference(NamedTuple):
    out: np.ndarray  # [Hq, R, D] float64
    bound: np.ndarray  # likewise: allowed difference


def reference(problem: Problem, rows: np.ndarray) -> Reference:
    """Attention of these rows in float64, from the same float32 inputs."""
    group = problem.q.shape[1] // problem.k.shape[1]
    q = problem.q[0][:, rows].astype(np.float64)
    k, v = (np.repeat(array[0].astype(np.float64), group, axis=0) for array in (problem.k, problem.v))
    scale, softcap = 1 / np.sqrt(q.shape[2]), problem.options.get("softcap", 0.0)
    raw = scale * q @ k.transpose(0, 2, 1)
    s = softcap * np.tanh(raw / softcap) if softcap else raw
    magnitude = scale * np.abs(q) @ np.abs(k).transpose(0, 2, 1)
    score_error = _ROUNDOFF * ((np.sqrt(q.shape[2]) / 2 + 4) * magnitude + 6 * np.abs(raw) + 8 * softcap)
    visible = np.arange(k.shape[1]) <= rows[:, None] + k.shape[1] - problem.q.shape[2]
    s = np.where(visible, s, -np.inf)
    top = s.max(axis=-1, keepdims=True)
    lse = top + np.log(np.exp(s - top).sum(axis=-1, keepdims=True))
    p = np.exp(s - lse)
    out = p @ v
    distance = np.where(visible, np.abs(np.where(visible, s, 0) - lse), 0)
    weighted = p * (np.expm1(score_error) + _ROUNDOFF * (8 + 2 * distance))
    accumulation = _ROUNDOFF * (np.sqrt(visible.sum(axis=-1))[:, None] + 8)
    bound = weighted @ np.abs(v) + np.abs(out) * weighted.sum(axis=-1, keepdims=True) + accumulation * (p @ np.abs(v))
    return Reference(out, bound + _TINY)
