"""Arrays that live on a device: where they are, in which stream they are ready, and outputs beside them."""

from __future__ import annotations

import json
import sys
from typing import Any, Dict, Optional, Tuple

from hattn import _hattn
from hattn._arrays import HOST_DEVICES, device_of

# Device types of DLPack, kDLCUDA and kDLOpenCL, as the names of options.
_DEVICES = {2: "cuda", 4: "opencl"}
# How streams of other libraries give their handles: PyTorch, CuPy, PyOpenCL.
_HANDLES = ("cuda_stream", "ptr", "int_ptr")
# CUDA's default stream, which DLPack does not call 0.
_DEFAULT_STREAM = 1


def home(q: Any) -> Optional[Tuple[str, int]]:
    """The device that q lives on, a name and a number; None: the host. Raises NotImplementedError for others."""
    where = device_of(q)
    if where is None or where[0] in HOST_DEVICES:
        return None
    if where[0] not in _DEVICES:
        raise NotImplementedError(f"q: the {type(q).__name__} lives on DLPack device {where}, which is not supported")
    return _DEVICES[where[0]], where[1]


def choose_home(problem: _hattn.Problem, q: Any) -> bool:
    """Whether arrays live on a device, which then computes. Raises ValueError if another one was asked for."""
    where = home(q)
    if where is None:
        return False
    device = getattr(_hattn.Device, where[0])
    asked = (problem.device, problem.device_id)
    if asked not in ((_hattn.Device.cpu, 0), (device, where[1])):
        raise ValueError(f"device: is {asked[0].name}:{asked[1]}, but q lives on {where[0]}:{where[1]}")
    problem.device, problem.device_id = device, where[1]
    return True


def check_together(q: Any, **arrays: Any) -> None:
    """Raises ValueError for an array that lives elsewhere than q does."""
    for name, array in arrays.items():
        if array is not None and device_of(array) != device_of(q):
            where = device_of(array)
            raise ValueError(
                f"{name}: the {type(array).__name__} lives on "
                f"{'the host' if where is None else f'DLPack device {where}'}, but q lives on DLPack device {device_of(q)}"
            )


def stream_handle(stream: Any) -> Optional[int]:
    """A CUstream or cl_command_queue as a number."""
    if stream is None or isinstance(stream, int) and not isinstance(stream, bool):
        return stream
    for name in _HANDLES:
        if isinstance(getattr(stream, name, None), int):
            return int(getattr(stream, name))
    raise TypeError(f"stream: expected an int, or an object with {', '.join(_HANDLES)}, got {type(stream).__name__}")


class _InStream:
    """An array whose contents are ready in a stream."""

    def __init__(self, array: Any, stream: Optional[int]) -> None:
        self._array, self._stream = array, stream

    def __dlpack__(self, **_: Any) -> Any:
        where = device_of(self._array)
        if where is None or _DEVICES[where[0]] != "cuda":
            return self._array.__dlpack__()
        return self._array.__dlpack__(stream=self._stream or _DEFAULT_STREAM)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


def _empty(like: Any, shape: Tuple[int, ...], dtype: str) -> Any:
    """A new array beside `like`, from the library that `like` comes from."""
    named = getattr(like, "__array_namespace__", None)
    library = named() if named else sys.modules[type(like).__module__.partition(".")[0]]
    try:
        empty, element = library.empty, getattr(library, dtype)
    except AttributeError:
        raise NotImplementedError(f"out: must be given, since {library.__name__} makes no arrays") from None
    try:
        return empty(shape, dtype=element, device=like.device)
    except TypeError:  # of its current device
        return empty(shape, dtype=element)


def attention(q: Any, k: Any, v: Any, out: Any, problem: _hattn.Problem, return_lse: bool, given_stream: Any) -> Any:
    """The call of the library for arrays on a device. Returns (out, lse or None, None), with `out` as it was given."""
    if problem.scores != _hattn.Scores.none:
        raise NotImplementedError("return_scores: is given, but of arrays on a device there is no score output")
    stream = stream_handle(given_stream)
    operands = ("bias", "mask", "k_scale", "v_scale")
    check_together(q, k=k, v=v, out=out, **{name: getattr(problem, name) for name in operands})
    queries, keys, values = (_InStream(array, stream) for array in (q, k, v))
    for name in operands:
        if getattr(problem, name) is not None:
            setattr(problem, name, _InStream(getattr(problem, name), stream))
    plan: Dict[str, Any] = json.loads(_hattn.explain(queries, keys, values, problem))
    made = _empty(q, (*q.shape[:-1], v.shape[-1]), str(q.dtype).rpartition(".")[2]) if out is None else out
    heads, rows = (2, 1) if problem.layout == _hattn.Layout.bshd else (1, 2)
    lse = _empty(q, (q.shape[0], q.shape[heads], q.shape[rows]), "float32") if return_lse else None
    problem.lse = None if lse is None else _InStream(lse, stream)
    problem.queue = stream
    if stream is not None and problem.device == _hattn.Device.cuda:
        workspace = _empty(q, (max(plan["device_workspace_bytes"], 1),), "uint8")
        problem.device_workspace = _InStream(workspace, stream)
    _hattn.attention(queries, keys, values, _InStream(made, stream), problem, return_lse)
    return made, lse, None
