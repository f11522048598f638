"""Rope and apply_rope(): rotary position embedding."""

from __future__ import annotations

from typing import Any, Dict, Optional

import numpy as np

from hattn import _devices, _hattn, _options
from hattn._arrays import as_numpy, check_host, output_kind


def _table(name: str, value: Any) -> np.ndarray:
    array = as_numpy(name, value, "float32")
    if not isinstance(array, np.ndarray):
        raise TypeError(f"{name}: expected a NumPy array or a DLPack tensor, got {type(value).__name__}")
    if array.ndim != 2:
        raise ValueError(f"{name}: rank is {array.ndim}, but must be 2 [positions, pairs]")
    if array.dtype != np.float32:
        raise TypeError(f"{name}: dtype is {array.dtype}, but must be float32")
    if array.size == 0:
        raise ValueError(f"{name}: shape is {array.shape}, but must be at least (1, 1) [positions, pairs]")
    return np.ascontiguousarray(array)


def _positive(name: str, value: Any) -> float:
    number = _options.double(name, value)
    if number <= 0:
        raise ValueError(f"{name}: is {number}, but must be positive")
    return number


class Rope:
    """Rotary position embedding (Su et al., RoFormer, 2021).

    Pair i of a row at position p is turned by the angle p / scaling_factor * base ** (-2 * i / dim), computed in double
    precision, or by the angle whose cosine and sine the tables hold.

    Args:
        dim: leading elements of a head that turn, an even number; default: all of them.
        base: of the frequencies.
        scaling_factor: by which positions are divided (linear scaling).
        interleaved: pairs are elements (2i, 2i + 1), as in RoFormer and GPT-J; else (i, i + dim / 2), as in GPT-NeoX.
        cos, sin: [positions, dim / 2] float32, at least one of each, in place of base and scaling_factor. Dense ones are not
            copied.

    Raises:
        TypeError, ValueError, NotImplementedError: see the package's docstring. That dim is at most the head dimension
        (which has to be even without one) is checked where heads are given.
    """

    def __init__(
        self,
        dim: Optional[int] = None,
        *,
        base: float = 10000.0,
        scaling_factor: float = 1.0,
        interleaved: bool = False,
        cos: Optional[Any] = None,
        sin: Optional[Any] = None,
    ) -> None:
        self._options = _hattn.RopeOptions()
        if dim is not None:
            self._options.rotary_dim = _options.integer("dim", dim, 64)
            if self._options.rotary_dim < 2 or self._options.rotary_dim % 2:
                raise ValueError(f"dim: is {self._options.rotary_dim}, but must be positive and even")
        self._options.base = _positive("base", base)
        self._options.scaling_factor = _positive("scaling_factor", scaling_factor)
        self._options.interleaved = _options.flag("interleaved", interleaved)
        if (cos is None) != (sin is None):
            missing, given = ("sin", "cos") if sin is None else ("cos", "sin")
            raise ValueError(f"{missing}: is None, but {given} is given")
        if cos is not None:
            self._set_tables(_table("cos", cos), _table("sin", sin))

    def __reduce__(self) -> Any:
        # For copies and other processes: made anew of what it was made of.
        o = self._options
        cos, sin = (None, None) if o.cos is None else (np.array(o.cos[0, 0]), np.array(o.sin[0, 0]))
        options = {"base": o.base, "scaling_factor": o.scaling_factor, "interleaved": o.interleaved, "cos": cos, "sin": sin}
        return _made, (o.rotary_dim or None, options)

    def _set_tables(self, cos: np.ndarray, sin: np.ndarray) -> None:
        if cos.shape != sin.shape:
            raise ValueError(f"sin: shape is {sin.shape}, but that of cos is {cos.shape}")
        if self._options.rotary_dim not in (0, 2 * cos.shape[1]):
            raise ValueError(f"cos: has {cos.shape[1]} pairs, but dim is {self._options.rotary_dim}")
        self._options.rotary_dim = 2 * cos.shape[1]
        self._options.cos, self._options.sin = cos[None, None], sin[None, None]


def _made(dim: Optional[int], options: Dict[str, Any]) -> Rope:
    return Rope(dim, **options)


def native(rope: Any) -> _hattn.RopeOptions:
    """What the extension module takes for a Rope."""
    if not isinstance(rope, Rope):
        raise TypeError(f"rope: expected a hattn.Rope, got {type(rope).__name__}")
    return rope._options


def row_positions(positions: Optional[Any]) -> Optional[np.ndarray]:
    """What it takes for the positions of rows."""
    if positions is None:
        return None
    return _options.int32_array("positions", positions, (1, 2), "[rows] or [batch, rows]")


def apply_rope(
    x: Any,
    rope: Rope,
    *,
    positions: Optional[Any] = None,
    offsets: Optional[Any] = None,
    lengths: Optional[Any] = None,
    layout: str = "bhsd",
    out: Optional[Any] = None,
    stream: Optional[Any] = None,
) -> Any:
    """x with every row turned to its position, as queries need it. KVCache.append() turns keys, and KVCache.apply_rope() queries
    to the places of its last keys.

    Args:
        x: [B, H, S, D] float32, float16 or bfloat16, or [B, S, H, D] with layout="bshd". Any strides, 1 in the last dimension.
        rope: how.
        positions: [S] or [B, S] integers; default: offset + row.
        offsets: [B] integers, positions of each sequence's first row; default: 0. Queries of the last rows of a cache
            have lengths - S. Excludes positions.
        lengths: [B] integers, how many of the S rows (the leading ones) are turned; default: all. Others are not
            written, and are 0 in a new array.
        layout: "bhsd" or "bshd", of x and out.
        out: array to write to, of the shape and dtype of x; may be x, and may not overlap it otherwise.
        stream: of x on a device, where out then is too: where the work is put, as hattn.attention() takes it. The call waits.

    Returns:
        The turned rows, as the kind of x; `out` if it was given.

    Raises:
        TypeError, ValueError, NotImplementedError, MemoryError: see the package's docstring.
    """
    options = native(rope)
    if positions is not None and offsets is not None:
        raise ValueError("offsets: is given, but positions is too")
    choices = (
        _options.choose_layout(layout),
        options,
        row_positions(positions),
        None if offsets is None else _options.lengths("offsets", offsets),
        None if lengths is None else _options.lengths("lengths", lengths),
        _devices.stream_handle(stream),
    )
    if _devices.home("x", x) is not None:
        return _devices.turned(
            x, out, stream, lengths is not None, lambda rows, to: _hattn.apply_rope(rows, to, *choices)
        )
    check_host(x=x, out=out)
    if stream is not None:
        raise ValueError("stream: is given, but x lives on the host")
    turned = _hattn.apply_rope(x, out, *choices)
    return output_kind(x, turned) if out is None else out
