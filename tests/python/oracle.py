"""Attention in float64 NumPy, straight from docs/semantics.md. Shares no code with hattn and is never fast."""

from __future__ import annotations

from typing import Dict, NamedTuple, Optional

import numpy as np


class State(NamedTuple):
    """What attention() gives: arrays of float64."""

    out: np.ndarray  # [B, Hq, Sq, Dv]
    lse: np.ndarray  # [B, Hq, Sq]
    scores: Dict[str, np.ndarray]  # each [B, Hq, Sq, Sk]


def positions(q_lengths: np.ndarray, kv_lengths: np.ndarray, causal_offset, queries: int) -> np.ndarray:
    """Position of each query among the keys, [B, 1, Sq, 1]."""
    offset = kv_lengths - q_lengths if causal_offset is None else np.broadcast_to(causal_offset, q_lengths.shape)
    return (np.arange(queries) + np.asarray(offset, np.int64)[:, None])[:, None, :, None]


def _softmax_weights(s: np.ndarray, sinks: Optional[np.ndarray]):
    """(weights [..., Sk], lse [...]); rows without a visible key or sink weigh nothing and have lse -inf."""
    top = s.max(axis=-1, initial=-np.inf)
    if sinks is not None:
        top = np.maximum(top, sinks[None, :, None])
    shift = np.where(np.isfinite(top), top, 0)
    weights = np.exp(s - shift[..., None])
    total = weights.sum(axis=-1)
    if sinks is not None:
        total = total + np.exp(sinks[None, :, None] - shift)
    with np.errstate(divide="ignore"):
        lse = shift + np.log(total)
    return weights / np.where(total > 0, total, 1)[..., None], lse


def attention(
    q,
    k,
    v,
    *,
    scale=None,
    causal=False,
    causal_offset=None,
    window=(-1, -1),
    softcap=0.0,
    sinks=None,
    bias=None,
    mask=None,
    alibi_slopes=None,
    q_lengths=None,
    kv_lengths=None,
) -> State:
    """q [B, Hq, Sq, Dk], k [B, Hkv, Sk, Dk], v [B, Hkv, Sk, Dv]; the options are those of hattn.attention()."""
    q, k, v = (np.asarray(array, np.float64) for array in (q, k, v))
    batch, heads, queries, key_dim = q.shape
    keys = k.shape[2]
    group = heads // k.shape[1]
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    q_lengths = np.full(batch, queries) if q_lengths is None else np.asarray(q_lengths, np.int64)
    kv_lengths = np.full(batch, keys) if kv_lengths is None else np.asarray(kv_lengths, np.int64)
    p = positions(q_lengths, kv_lengths, causal_offset, queries)
    j = np.arange(keys)

    exists = (np.arange(queries) < q_lengths[:, None])[:, None, :, None] & (j < kv_lengths[:, None])[:, None, None, :]
    exists = np.broadcast_to(exists, (batch, heads, queries, keys))
    raw = (1 / np.sqrt(key_dim) if scale is None else scale) * np.einsum("bhid,bhjd->bhij", q, k)
    raw = np.where(exists, raw, 0)
    capped = softcap * np.tanh(raw / softcap) if softcap > 0 else raw

    s = capped
    visible = exists
    if bias is not None:
        bias = np.asarray(bias, np.float64)
        visible = visible & (bias > -np.inf)
        s = s + np.where(bias > -np.inf, bias, 0)
    if alibi_slopes is not None:
        s = s - np.asarray(alibi_slopes, np.float64)[None, :, None, None] * np.abs(p - j)
    if mask is not None:
        visible = visible & mask
    if causal:
        visible = visible & (j <= p)
    if window[0] >= 0:
        visible = visible & (j >= p - window[0])
    if window[1] >= 0:
        visible = visible & (j <= p + window[1])
    s = np.where(visible, s, -np.inf)

    weights, lse = _softmax_weights(s, None if sinks is None else np.asarray(sinks, np.float64))
    # Values that no query of the head sees do not count, not even if they are NaN.
    v = np.where(visible.any(axis=2)[..., None], v, 0)
    out = np.einsum("bhij,bhjd->bhid", weights, v)
    row_exists = (np.arange(queries) < q_lengths[:, None])[:, None, :]
    return State(
        out=np.where(row_exists[..., None], out, 0),
        lse=np.where(row_exists, lse, -np.inf),
        scores={"raw": raw, "capped": capped, "masked": s, "probabilities": np.where(visible, weights, 0)},
    )


def merge_states(outs, lses):
    """(out, lse) of states over disjoint key sets; see hattn.merge_states()."""
    outs, lses = np.asarray(outs, np.float64), np.asarray(lses, np.float64)
    top = lses.max(axis=0)
    shift = np.where(np.isfinite(top), top, 0)
    weights = np.exp(lses - shift)
    total = weights.sum(axis=0)
    with np.errstate(divide="ignore"):
        lse = shift + np.log(total)
    outs = np.where(weights[..., None] > 0, outs, 0)
    return (weights[..., None] * outs).sum(axis=0) / np.where(total > 0, total, 1)[..., None], lse
