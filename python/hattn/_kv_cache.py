"""KVCache: keys and values of a batch of sequences."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

from hattn import _hattn, _options
from hattn._arrays import check_host
from hattn._attention import results


class KVCache:
    """Keys and values of a batch of sequences, with room for `capacity` keys each. Memory is taken once, here.

    A cache may be used from several threads; a call that changes it waits for those that read it.

    Args:
        batch: B, number of sequences.
        kv_heads: Hkv, key and value heads.
        capacity: keys per sequence.
        head_dim: Dk, head dimension of the keys.
        value_dim: Dv, head dimension of the values; default: head_dim.
        dtype: "float32" (or its NumPy dtype). 16-bit and quantised storage is not supported yet.
        page_size: paged storage is not supported yet.

    Raises:
        TypeError, ValueError, NotImplementedError, MemoryError: see the package's docstring.
    """

    def __init__(
        self,
        batch: int,
        kv_heads: int,
        capacity: int,
        head_dim: int,
        *,
        value_dim: Optional[int] = None,
        dtype: Any = "float32",
        page_size: Optional[int] = None,
    ) -> None:
        _options.reject_later(page_size=page_size)
        if value_dim is not None and _options.integer("value_dim", value_dim, 64) == 0:
            raise ValueError("value_dim: is 0, but must be positive")  # the library would take it for "as head_dim"
        self._cache = _hattn.KvCache(
            _options.integer("batch", batch, 64),
            _options.integer("kv_heads", kv_heads, 64),
            _options.integer("capacity", capacity, 64),
            _options.integer("head_dim", head_dim, 64),
            0 if value_dim is None else _options.integer("value_dim", value_dim, 64),
            _options.dtype(dtype),
        )

    def append(self, k: Any, v: Any, lengths: Optional[Any] = None, rope: Optional[Any] = None) -> None:
        """Appends keys [B, Hkv, S, Dk] and values [B, Hkv, S, Dv] (any strides, 1 in the last dimension).

        Args:
            lengths: [B] integers, how many of the S rows (the leading ones) belong to each sequence; default: all.
            rope: not supported yet.

        Raises:
            ValueError: also if a sequence would outgrow the capacity; then no sequence has changed.
        """
        _options.reject_later(rope=rope)
        check_host(k=k, v=v)
        self._cache.append(k, v, None if lengths is None else _options.lengths("lengths", lengths))

    @property
    def lengths(self) -> np.ndarray:
        """Keys of each sequence, [B] int32; a copy."""
        return np.array(self._cache.lengths(), np.int32)

    def attend(self, q: Any, *, out: Optional[Any] = None, return_lse: bool = False, **options: Any) -> Any:
        """hattn.attention() of q [B, Hq, Sq, Dk] over the cached keys of each sequence.

        Takes the options of hattn.attention() except kv_lengths, cu_seqlens_k, block_table, k_scale and v_scale, which
        the cache settles; with cu_seqlens_q, q is [1, Hq, T, Dk]. Bias, mask and score outputs have Sk = max(lengths)
        keys. By default the queries are the last ones of each sequence (causal_offset = length - queries): append the
        new keys first, then attend.

        Returns:
            As hattn.attention().

        Raises:
            As hattn.attention().
        """
        for name in ("kv_lengths", "cu_seqlens_k", "block_table", "k_scale", "v_scale"):
            if name in options:
                raise TypeError(f"{name}: is settled by the cache and cannot be given")
        problem = _options.attention_options(**options)
        check_host(q=q, out=out)
        return results(q, out, self._cache.attend(q, out, problem, _options.flag("return_lse", return_lse)))

    def truncate(self, lengths: Any) -> None:
        """Shortens every sequence to lengths[b] keys, [B] integers between 0 and the current length."""
        self._cache.truncate(_options.lengths("lengths", lengths))

    def reset(self) -> None:
        """Forgets every key; the memory stays."""
        self._cache.reset()
