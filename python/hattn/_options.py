"""Checks of the options that C cannot see: Python types, names, and numbers that C would have to narrow."""

from __future__ import annotations

import math
import numbers
import operator
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple, TypeVar, Union

import numpy as np

from hattn import _hattn
from hattn._arrays import as_numpy, check_host, on_device

LAYOUTS = {"bhsd": _hattn.Layout.bhsd, "bshd": _hattn.Layout.bshd}
ALGORITHMS = {name: getattr(_hattn.Algorithm, name) for name in ("auto", "naive", "flash", "split_kv", "unfused")}
SCORES = {name: getattr(_hattn.Scores, name) for name in ("raw", "capped", "masked", "probabilities")}
_DTYPES: Dict[str, _hattn.DType] = {
    name: getattr(_hattn.DType, name) for name in ("float32", "float16", "bfloat16", "int8", "int4")
}
_DEVICES = {name: getattr(_hattn.Device, name) for name in ("cpu", "opencl", "cuda")}

# Largest and smallest magnitude that float32 tells from infinity and from zero.
_FLOAT32_RANGE = (1.5e-45, 3.4028234e38)

ANY_WINDOW = (-1, -1)  # the default

_LARGEST_OFFSET = 2**29  # either way, see docs/semantics.md

_Choice = TypeVar("_Choice")


def _choice(name: str, value: Any, choices: Mapping[str, _Choice]) -> _Choice:
    if not isinstance(value, str):
        raise TypeError(f"{name}: expected a string, got {type(value).__name__}")
    if value not in choices:
        raise ValueError(f'{name}: is "{value}", but must be one of {", ".join(choices)}')
    return choices[value]


def device_number(value: Any) -> Tuple[_hattn.Device, int]:
    """The device of a name, which may end in ":" and a number."""
    name, colon, number_text = value.partition(":") if isinstance(value, str) else (value, "", "")
    device = _choice("device", name, _DEVICES)
    if colon and not number_text.isdecimal():
        raise ValueError(f'device: is "{value}", but behind the colon must be a number')
    number = integer("device", int(number_text or 0), 32)
    if number and name != "cuda":
        raise ValueError(f'device: is "{value}", but there is one of {name} only')
    return device, number


def choose_layout(value: Any) -> _hattn.Layout:
    """The layout of a name."""
    return _choice("layout", value, LAYOUTS)


def flag(name: str, value: Any) -> bool:
    """`value` if it is a bool."""
    if value is not True and value is not False and not isinstance(value, np.bool_):
        raise TypeError(f"{name}: expected a bool, got {type(value).__name__}")
    return bool(value)


def double(name: str, value: Any, must: str = "must be finite") -> float:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name}: expected a number, got {type(value).__name__}")
    try:
        number = float(value)
    except OverflowError:
        raise ValueError(f"{name}: is beyond float64, but {must}") from None
    if not math.isfinite(number):
        raise ValueError(f"{name}: is {number}, but {must}")
    return number


def number(name: str, value: Any) -> float:
    """A number that float32 holds, rounded."""
    if type(value) is float and value == 0:
        return value
    number = double(name, value, "must be finite and fit float32")
    if number != 0 and not _FLOAT32_RANGE[0] <= abs(number) <= _FLOAT32_RANGE[1]:
        raise ValueError(f"{name}: is {number}, but must be finite and fit float32")
    return number


def integer(name: str, value: Any, bits: int) -> int:
    """`value` as an int that a signed C integer of `bits` bits can hold."""
    if type(value) is int:
        number = value
    else:
        try:
            if isinstance(value, (bool, np.bool_)):
                raise TypeError
            number = operator.index(value)
        except TypeError:
            raise TypeError(f"{name}: expected an integer, got {type(value).__name__}") from None
    if number.bit_length() >= bits and number != -(2 ** (bits - 1)):
        raise ValueError(f"{name}: is {number}, which does not fit int{bits}")
    return number


def lengths(name: str, value: Any) -> Any:
    """A vector of integers: an array as it is, a list or tuple of integers as an array."""
    if not isinstance(value, (list, tuple)):
        check_host(**{name: value})
        return value
    return np.array([integer(f"{name}[{i}]", entry, 64) for i, entry in enumerate(value)], np.int64)


def _rectangular(name: str, value: Any, dimensions: str) -> np.ndarray:
    """An array, or lists of numbers as one."""
    try:
        return np.asarray(value)
    except ValueError:  # lists of different lengths
        raise ValueError(f"{name}: is ragged, but must be an array {dimensions}") from None


def int32_array(name: str, value: Any, ranks: Sequence[int], dimensions: str, clips: bool = False) -> np.ndarray:
    """Integers of any kind as a contiguous int32 array of one of the ranks; one that is so already is not copied.

    clips: what int32 does not have becomes the nearest number that it has; else it is refused.
    """
    array = _rectangular(name, as_numpy(name, value, "an integer type"), dimensions)
    if array.dtype.kind not in "iu" and array.size:
        raise TypeError(f"{name}: dtype is {array.dtype}, but must be an integer type")
    if array.ndim not in ranks:
        raise ValueError(f"{name}: rank is {array.ndim}, but must be {' or '.join(map(str, ranks))} {dimensions}")
    if array.dtype.itemsize >= 4 and array.dtype != np.int32 and clips:
        limits = np.iinfo(np.int32)
        array = array.clip(limits.min if array.dtype.kind == "i" else 0, limits.max)
    elif array.dtype != np.int32 and array.size:
        for entry in (array.min(), array.max()):
            integer(f"{name}: an entry", int(entry), 32)
    return np.ascontiguousarray(array, np.int32)


def dtype_name(name: str, value: Any) -> str:
    """The name of a dtype, given so or as a NumPy dtype, or as anything that has one, such as numpy.float32."""
    if isinstance(value, str):
        known = value
    else:
        try:
            if value is None:  # for NumPy a float64
                raise TypeError
            known = str(np.dtype(value).name)
        except TypeError:
            known = str(value).rpartition(".")[2]  # of PyTorch, "torch.float16"
            if known not in _DTYPES:
                raise TypeError(f"{name}: expected a name or a NumPy dtype, got {type(value).__name__}") from None
    if known not in _DTYPES:
        raise TypeError(f'{name}: is "{known}", but must be one of {", ".join(_DTYPES)}')
    return known


def dtype(name: str, value: Any) -> _hattn.DType:
    """The dtype that a name or a NumPy dtype stands for."""
    return _DTYPES[dtype_name(name, value)]


def _shape_of_scales(shape: Sequence[int], layout: str) -> Tuple[int, int, int, int]:
    """That in the layout of the keys of scales [], [heads] or [heads, dim]."""
    heads, dim = (*shape, 1, 1)[:2]
    return (1, 1, heads, dim) if layout == "bshd" else (1, heads, 1, dim)


def scale_array(name: str, value: Any, layout: str = "bhsd", of_keys: bool = True) -> Any:
    """Scales of quantised keys or values as [1 or B or pages, heads, sequence, D or blocks] float32 in the layout of the keys.

    value: a number, [Hkv], [Hkv, Dk] or four dimensions in the layout of the keys; with `of_keys` an array on a device may
        be too, and stays there.
    """
    if value is None:
        return value
    if of_keys and on_device(name, value):
        is_short = len(value.shape) <= 2 and hasattr(value, "reshape")
        return value.reshape(_shape_of_scales(value.shape, layout)) if is_short else value
    if isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_)):
        return np.full((1, 1, 1, 1), number(name, value), np.float32)
    array = _rectangular(name, as_numpy(name, value, "float32"), "[kv heads] or [kv heads, dim]")
    if isinstance(value, (list, tuple)) and array.dtype.kind in "iuf":
        array = np.array([number(name, entry) for entry in array.ravel().tolist()], np.float32).reshape(array.shape)
    if array.dtype != np.float32:
        raise TypeError(f"{name}: dtype is {array.dtype}, but must be float32")
    if array.ndim <= 2:
        return array.reshape(_shape_of_scales(array.shape if array.size else (0,), layout))
    if array.ndim != 4:
        raise ValueError(f"{name}: rank is {array.ndim}, but must be 0, 1, 2 or 4: a number, [kv heads], [kv heads, dim]...")
    return array


def _set_masks(problem: _hattn.Problem, causal: Any, causal_offset: Any, window: Any) -> None:
    problem.causal = flag("causal", causal)
    if isinstance(causal_offset, (int, np.integer)):
        problem.causal_offset = integer("causal_offset", causal_offset, 32)
        if abs(problem.causal_offset) > _LARGEST_OFFSET:
            raise ValueError(
                f"causal_offset: is {causal_offset}, but must be from {-_LARGEST_OFFSET} to {_LARGEST_OFFSET}"
            )
    elif causal_offset is not None:
        problem.causal_offsets = lengths("causal_offset", causal_offset)
    if window is ANY_WINDOW:
        return
    try:
        left, right = window
    except (TypeError, ValueError):
        raise ValueError(f"window: is {window!r}, but must be two integers (left, right)") from None
    problem.window_left = integer("window[0]", left, 64)
    problem.window_right = integer("window[1]", right, 64)


def attention_options(
    *,
    layout: str = "bhsd",
    scale: Optional[float] = None,
    causal: bool = False,
    causal_offset: Union[None, int, Any] = None,
    window: Sequence[int] = ANY_WINDOW,
    softcap: float = 0.0,
    sinks: Optional[Any] = None,
    bias: Optional[Any] = None,
    mask: Optional[Any] = None,
    alibi_slopes: Optional[Any] = None,
    q_lengths: Optional[Any] = None,
    kv_lengths: Optional[Any] = None,
    cu_seqlens_q: Optional[Any] = None,
    cu_seqlens_k: Optional[Any] = None,
    block_table: Optional[Any] = None,
    k_scale: Optional[Any] = None,
    v_scale: Optional[Any] = None,
    algorithm: str = "auto",
    threads: Optional[int] = None,
    device: Optional[str] = None,
    return_scores: Optional[str] = None,
) -> _hattn.Problem:
    """The options of hattn.attention() that describe the problem, checked."""
    if sinks is not None or alibi_slopes is not None:
        check_host(sinks=sinks, alibi_slopes=alibi_slopes)
    # What is not set has its default: to check and set all takes as long as a small call.
    problem = _hattn.Problem()
    if type(layout) is not str or layout != "bhsd":
        problem.layout = choose_layout(layout)
    if type(algorithm) is not str or algorithm != "auto":
        problem.algorithm = _choice("algorithm", algorithm, ALGORITHMS)
    if type(softcap) is not float or softcap != 0:
        problem.softcap = number("softcap", softcap)
    _set_masks(problem, causal, causal_offset, window)
    if scale is not None:
        problem.scale = number("scale", scale)
    if device is not None:
        problem.device, problem.device_id = device_number(device)
    if threads is not None:
        problem.threads = integer("threads", threads, 32)
    if return_scores is not None:
        problem.scores = _choice("return_scores", return_scores, SCORES)
    if return_scores is not None and cu_seqlens_q is not None:
        raise NotImplementedError("return_scores: is given, but so is cu_seqlens_q, and packed queries have no score output yet")
    if cu_seqlens_k is not None and cu_seqlens_q is None:
        raise ValueError("cu_seqlens_k: is given, but cu_seqlens_q is None")
    if cu_seqlens_k is not None and block_table is not None:
        raise ValueError("block_table: is given, but cu_seqlens_k is too")
    per_sequence = {
        "q_lengths": q_lengths,
        "kv_lengths": kv_lengths,
        "cu_seqlens_q": cu_seqlens_q,
        "cu_seqlens_k": cu_seqlens_k,
    }
    for name, value in per_sequence.items():
        if value is not None:
            setattr(problem, name, lengths(name, value))
    if block_table is not None:
        problem.block_table = int32_array("block_table", block_table, (2,), "[batch, pages]", clips=True)
    if k_scale is not None:
        problem.k_scale = scale_array("k_scale", k_scale, layout)
    if v_scale is not None:
        problem.v_scale = scale_array("v_scale", v_scale, layout)
        problem.v_scale_of_channels = np.ndim(v_scale) == 2  # [kv heads, dim]
    for name, array in {"sinks": sinks, "bias": bias, "mask": mask, "alibi_slopes": alibi_slopes}.items():
        if array is not None:
            setattr(problem, name, array)
    return problem


def check_names(function: str, options: Mapping[str, Any]) -> None:
    """Raises TypeError for an option that attention_options() does not have, as `function` would."""
    for name in options:
        if name not in (attention_options.__kwdefaults__ or {}):
            raise TypeError(f"{function}() got an unexpected keyword argument '{name}'")
