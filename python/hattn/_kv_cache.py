"""KVCache: keys and values of a batch of sequences."""

from __future__ import annotations

from typing import Any, NoReturn, Optional, Tuple

import numpy as np

from hattn import _cache_stream, _devices, _hattn, _options
from hattn._arrays import check_host, output_kind, typed_view
from hattn._attention import results
from hattn._rope import Rope, native, row_positions


def _ragged(lengths: Optional[Any], cu_seqlens: Optional[Any]) -> Tuple[Any, Any]:
    """What the extension module takes for the rows of sequences, padded or packed."""
    if lengths is not None and cu_seqlens is not None:
        raise ValueError("lengths: is given, but cu_seqlens is too")
    rows = None if lengths is None else _options.lengths("lengths", lengths)
    return rows, None if cu_seqlens is None else _options.lengths("cu_seqlens", cu_seqlens)


class KVCache:
    """Keys and values of a batch of sequences. Memory is taken once, here. Three kinds of storage:

    - contiguous: room for `capacity` keys of every sequence;
    - paged, with a page_size: sequences take pages from a common pool as they grow and give them back when shortened.
      Sequences share pages after fork(), and get a copy of one when they append to it;
    - a ring, with a window: the last keys of every sequence, for attention whose queries see at most `window` keys,
      themselves included. Sequences may grow without limit, memory does not.

    A cache may be used from several threads; a call that changes it waits for those that read it.

    Args:
        batch: B, number of sequences.
        kv_heads: Hkv, key and value heads.
        capacity: keys per sequence. Of a ring: keys kept per sequence, rounded up to a multiple of 16, at least
            window; S new rows at once need window + S - 1 of them, and so does taking back S - 1 rows.
        head_dim: Dk, head dimension of the keys.
        value_dim: Dv, head dimension of the values; default: head_dim.
        dtype: "float32", "float16", "bfloat16", "int8" or "int4" (or a NumPy dtype of that name), in which keys and values
            are kept. What is appended is rounded to it, to nearest even.
        value_dtype: the same for the values alone; default: dtype.
        k_scale, v_scale: of int8 and int4: a number, [Hkv] or [Hkv, D] float32, scales of whatever is appended, which
            then stays within +-127 or +-7 of them. Default: every key gets a scale of its own for each 32 elements.
        page_size: keys per page: 16, 32, 64 or 128.
        page_count: pages of all sequences together; default: enough for batch * capacity keys.
        window: keys that a query may see; excludes page_size.
        device: "opencl", "cuda" or "cuda:1": keeps rows in memory of the device, which then computes; arrays of the host
            are copied there and back, those of the device are taken where they lie. Default: the host.
        stream: of a cache on a device, where its work is put: a CUDA stream, for which attend() with arrays of the device does
            not wait, or an OpenCL command queue, in whose context these arrays have to be; as hattn.attention() takes it.
            It has to outlive the cache. Default: CUDA's default stream, or a queue of the library's.

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
        page_count: Optional[int] = None,
        window: Optional[int] = None,
        value_dtype: Optional[Any] = None,
        k_scale: Optional[Any] = None,
        v_scale: Optional[Any] = None,
        device: Optional[str] = None,
        stream: Optional[Any] = None,
    ) -> None:
        optional = {"value_dim": value_dim, "page_size": page_size, "page_count": page_count, "window": window}
        for name, value in optional.items():
            if value is not None and _options.integer(name, value, 64) <= 0:
                # The library would take 0 for "not given".
                raise ValueError(f"{name}: is {value}, but must be positive")
        value_dtype = dtype if value_dtype is None else value_dtype
        self._dtypes = _options.dtype_name("dtype", dtype), _options.dtype_name("value_dtype", value_dtype)
        place = (_hattn.Device.cpu, 0) if device is None else _options.device_number(device)
        self._value_dim = head_dim if value_dim is None else value_dim
        own = _cache_stream.CacheStream(place, stream)
        self._cache = _hattn.KvCache(
            _options.integer("batch", batch, 64),
            _options.integer("kv_heads", kv_heads, 64),
            _options.integer("capacity", capacity, 64),
            _options.integer("head_dim", head_dim, 64),
            value_dim or 0,
            _options.dtype("dtype", dtype),
            page_size or 0,
            page_count or 0,
            window or 0,
            _options.dtype("value_dtype", value_dtype),
            _options.scale_array("k_scale", k_scale, of_keys=False),
            _options.scale_array("v_scale", v_scale, of_keys=False),
            *place,
            own.handle,
        )
        self._stream = own  # which goes after the cache

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        # For copy and pickle. Their copies would share the rows, so that changes of one were changes of the other.
        raise TypeError("KVCache: cannot be copied; fork() copies sequences within a cache")

    def append(
        self,
        k: Any,
        v: Any,
        lengths: Optional[Any] = None,
        rope: Optional[Rope] = None,
        positions: Optional[Any] = None,
        *,
        cu_seqlens: Optional[Any] = None,
        layout: str = "bhsd",
    ) -> None:
        """Appends keys [B, Hkv, S, Dk] and values [B, Hkv, S, Dv] (any strides, 1 in the last dimension).

        Both are float32, float16 or bfloat16 each, whatever the types of the cache. Turning comes before rounding.
        Of a cache on a device each is there or on the host. Work is put into the cache's stream; those of the host have been
        read when the call returns, those of the device, which may go, are read in the order of the stream.

        Args:
            lengths: [B] integers, how many of the S rows (the leading ones) belong to each sequence; default: all.
            rope: how the keys are turned while they are written; default: not at all.
            positions: [S] or [B, S] integers, of packed rows [T], where the rows stand, for rope; default: their places in
                their sequences.
            cu_seqlens: [B + 1] integers, 0 and then where each sequence ends: k and v are packed, [1, Hkv, T, D], as
                attend() takes queries with cu_seqlens_q. Excludes lengths.
            layout: "bhsd", or "bshd" where k and v are [B, S, Hkv, D].

        Raises:
            ValueError: also if a sequence would outgrow the capacity, or if too few pages are free; then no sequence
                has changed.
        """
        if rope is None and positions is not None:
            raise ValueError("positions: is given, but rope is None")
        rows, ends = _ragged(lengths, cu_seqlens)
        options = None if rope is None else native(rope)
        keys, values, keeps = k, v, False
        if self._stream.on_device:
            keys, values = self._stream.rows("k", k), self._stream.rows("v", v)
            keeps = not self._stream.keep(k, v)
        else:
            check_host(k=k, v=v)
        layout_ = _options.choose_layout(layout)
        self._cache.append(keys, values, layout_, rows, ends, options, row_positions(positions), keeps)

    def apply_rope(
        self,
        x: Any,
        rope: Rope,
        *,
        positions: Optional[Any] = None,
        lengths: Optional[Any] = None,
        cu_seqlens: Optional[Any] = None,
        layout: str = "bhsd",
        out: Optional[Any] = None,
    ) -> Any:
        """Queries turned to the places of the last keys of each sequence: append the keys first, then turn, then attend.

        Of a cache on a device x and out are on the host, or there: then work is put into the cache's stream, and waited for only
        if the cache was given none.

        Args:
            x: [B, H, S, Dk] float32, float16 or bfloat16, or [B, S, H, Dk] with layout="bshd". Any strides, 1 in the last
                dimension.
            rope: how, as append() takes it.
            positions: [S] or [B, S] integers, of packed rows [T], where the rows stand; default: they are the last rows.
            lengths: [B] integers, how many of the S rows (the leading ones) each sequence has; default: all. Others are not
                written, and are 0 in a new array.
            cu_seqlens: [B + 1] integers: queries are packed, [1, H, T, Dk], as attend() takes them. Excludes lengths.
            layout: "bhsd" or "bshd", of x and out.
            out: array to write to, of the shape and dtype of x; may be x, and may not overlap it otherwise.

        Returns:
            The turned rows, as the kind of x; `out` if it was given.

        Raises:
            ValueError: also if a sequence has more rows than keys, and no positions are given.
        """
        options = native(rope)
        rows = _ragged(lengths, cu_seqlens)
        choices = (_options.choose_layout(layout), *rows, options, row_positions(positions))
        own = self._stream
        if own.on_device and own.holds("x", x):

            def turn(given: Any, to: Any) -> None:
                keeps = not own.keep(x, out)
                self._cache.apply_rope(given, to, *choices, keeps)

            return _devices.turned(x, out, own.chosen(None), lengths is not None, turn)
        check_host(x=x, out=out)
        turned = self._cache.apply_rope(x, out, *choices, False)
        return output_kind(x, turned) if out is None else out

    def fork(self, source: int, target: int, length: Optional[int] = None) -> None:
        """Makes sequence `target` the first `length` keys of sequence `source` (default: all).

        What `target` held is gone. A paged cache shares the pages; other caches copy the rows. A ring has to hold the
        window before `length`.
        """
        if length is not None and _options.integer("length", length, 64) < 0:
            raise ValueError(f"length: is {length}, but must be at least 0")  # the library would take -1 for "all"
        source, target = _options.integer("source", source, 64), _options.integer("target", target, 64)
        if source == target:
            raise ValueError(f"target: is {target}, but must differ from source")
        self._cache.fork(source, target, -1 if length is None else length)

    @property
    def lengths(self) -> np.ndarray:
        """Keys of each sequence, [B] int32; a copy."""
        return np.array(self._cache.lengths(), np.int32)

    @property
    def pages(self) -> Tuple[int, int]:
        """(used, available) pages of a paged cache."""
        return self._cache.pages()

    @property
    def block_table(self) -> np.ndarray:
        """Pages of each sequence of a paged cache, [B, n] int32 in the order of keys, -1 past the last one; a copy."""
        return self._cache.block_table()

    def view(self) -> Tuple[np.ndarray, np.ndarray]:
        """The whole storage of keys and values, read-only and not copied.

        [B, Hkv, capacity, D], or [pages, Hkv, page_size, D] as hattn.attention() takes it with block_table and lengths.
        Rows that hold no key are not initialised. A ring has R rows, its capacity rounded up to 16, and key j is row j % R. int4 is uint8 with two
        elements a byte, the first in the low half; where hattn.attention() takes such values of an odd value_dim, give it an
        `out`, which says so. bfloat16 is that of ml_dtypes, without which it is uint16.
        """
        keys, values = (typed_view(array, name) for array, name in zip(self._cache.view(), self._dtypes))
        return keys, values

    @property
    def scales(self) -> Tuple[Optional[np.ndarray], Optional[np.ndarray]]:
        """Scales of keys and values, read-only and not copied; None where the type has none. Like view(), of the host alone.

        [1, 1 or Hkv, 1, 1 or D] as given, or [B or pages, Hkv, rows, ceil(D / 32)], those of every key.
        """
        return self._cache.scales()

    def attend(
        self,
        q: Any,
        *,
        out: Optional[Any] = None,
        return_lse: bool = False,
        stream: Optional[Any] = None,
        **options: Any,
    ) -> Any:
        """hattn.attention() of q [B, Hq, Sq, Dk] over the cached keys of each sequence.

        Takes the options of hattn.attention() except kv_lengths, cu_seqlens_k, block_table, k_scale and v_scale, which
        the cache settles; with cu_seqlens_q, q is [1, Hq, T, Dk]. Bias, mask and score outputs have Sk = max(lengths)
        keys. By default the queries are the last ones of each sequence (causal_offset = length - queries): append the
        new keys first, then attend. A ring needs a window whose left side is below its own, and takes no
        return_scores.

        Of a cache on a device q, out, bias and mask may be there, and results then are too, as for hattn.attention(). The
        stream is the cache's: with CUDA's default stream, stream=0 says that it need not be waited for.

        Returns:
            As hattn.attention().

        Raises:
            As hattn.attention().
        """
        for name in ("kv_lengths", "cu_seqlens_k", "block_table", "k_scale", "v_scale"):
            if name in options:
                raise TypeError(f"{name}: is settled by the cache and cannot be given")
        _options.check_names("attend", options)
        problem = _options.attention_options(**options)
        wants_lse, own = _options.flag("return_lse", return_lse), self._stream
        asked = (problem.device, problem.device_id)
        if own.on_device and options.get("device") is not None and asked != own.place:
            places = _devices.place_text(asked), _devices.place_text(own.place)
            raise ValueError(f"device: is {places[0]}, but the cache is on {places[1]}")
        if own.on_device and own.holds("q", q):
            problem.device, problem.device_id = own.place
            given = own.chosen(stream)
            made, lse = _cache_stream.attend(self._cache, q, out, self._value_dim, problem, wants_lse, given)
            return made if lse is None else (made, lse)
        check_host(q=q, out=out, bias=problem.bias, mask=problem.mask)
        if stream is not None:
            raise ValueError("stream: is given, but q lives on the host")
        problem.queue = own.handle
        return results(q, out, self._cache.attend(q, out, problem, wants_lse))

    def truncate(self, lengths: Any) -> None:
        """Shortens every sequence to lengths[b] keys, [B] integers between 0 and the current length.

        A ring that has replaced keys goes back to 0, or as far as the last `window` keys are still there.
        """
        self._cache.truncate(_options.lengths("lengths", lengths))

    def reset(self) -> None:
        """Forgets every key; the memory stays."""
        self._cache.reset()
