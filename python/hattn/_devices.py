"""Arrays that live on a device: where they are, in which stream they are ready, and outputs beside them."""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Any, Dict, Iterator, Optional, Tuple

from hattn import _hattn
from hattn._arrays import HOST_DEVICES, check_kind, detached, device_of

# Device types of DLPack, kDLCUDA and kDLOpenCL, as the names of options.
_DEVICES = {2: "cuda", 4: "opencl"}
# How streams of other libraries give their handles: PyTorch, CuPy, PyOpenCL.
_HANDLES = ("cuda_stream", "ptr", "int_ptr")
# CUDA's default stream, which DLPack does not call 0.
_DEFAULT_STREAM = 1


def home(q: Any) -> Optional[Tuple[str, int]]:
    """The device that q lives on, a name and a number; None: the host. Raises NotImplementedError for others."""
    check_kind("q", q)
    where = device_of("q", q)
    if where is None or where[0] in HOST_DEVICES:
        return None
    if where[0] not in _DEVICES:
        raise NotImplementedError(f"q: the {type(q).__name__} lives on DLPack device {where}, which is not supported")
    return _DEVICES[where[0]], where[1]


def device_text(device: _hattn.Device, device_id: int) -> str:
    """A device as messages name it."""
    return device.name if device == _hattn.Device.cpu else f"{device.name}:{device_id}"


def choose_home(problem: _hattn.Problem, q: Any, asked: Any) -> bool:
    """Whether arrays live on a device, which then computes. Raises ValueError if another one was asked for, which None did not."""
    where = home(q)
    if where is None:
        return False
    own = (getattr(_hattn.Device, where[0]), where[1])
    given = (problem.device, problem.device_id)
    if asked is not None and given != own:
        raise ValueError(f"device: is {device_text(*given)}, but q lives on {device_text(*own)}")
    problem.device, problem.device_id = own
    return True


def check_together(q: Any, **arrays: Any) -> None:
    """Raises ValueError for an array that lives elsewhere than q does."""
    place = device_of("q", q)
    for name, array in arrays.items():
        check_kind(name, array)
        where = device_of(name, array)
        if array is not None and where != place:
            raise ValueError(
                f"{name}: the {type(array).__name__} lives on "
                f"{'the host' if where is None else f'DLPack device {where}'}, but q lives on DLPack device {place}"
            )


def stream_handle(stream: Any) -> Optional[int]:
    """A CUstream or cl_command_queue as a number."""
    if stream is None:
        return None
    if isinstance(stream, int) and not isinstance(stream, bool):
        handle = stream
    else:
        handles = (getattr(stream, name, None) for name in _HANDLES)
        handle = next((int(handle) for handle in handles if isinstance(handle, int)), None)
    if handle is None:
        raise TypeError(f"stream: expected an int, or an object with {', '.join(_HANDLES)}, got {type(stream).__name__}")
    if not 0 <= handle < 1 << 64:
        raise ValueError(f"stream: is {handle}, but a handle is from 0 to 2**64 - 1")
    return handle


class _InStream:
    """An array whose contents are ready in a stream."""

    def __init__(self, array: Any, stream: Optional[int]) -> None:
        self._array, self._stream = detached(array), stream

    def __dlpack__(self, **_: Any) -> Any:
        where = device_of("array", self._array)
        if where is None or _DEVICES[where[0]] != "cuda":
            return self._array.__dlpack__()
        return self._array.__dlpack__(stream=self._stream or _DEFAULT_STREAM)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


def _package(like: Any) -> Any:
    return sys.modules[type(like).__module__.partition(".")[0]]


def _namespace(like: Any) -> Any:
    named = getattr(like, "__array_namespace__", None)
    return named() if named else _package(like)


class _Streams:
    """What the library of an array on a GPU knows of streams, as torch.cuda and cupy.cuda do.

    Memory that such a library gives out belongs to the stream that is current, and once an array is gone it is given out again
    to what comes later in that stream. In a call's own stream, that is no sooner than the call's work is done.
    """

    def __init__(self, cuda: Any, like: Any, given: Any) -> None:
        self._cuda, self._given, self._handle = cuda, given, stream_handle(given)
        where = device_of("q", like)
        self._device_id = 0 if where is None else where[1]
        self._is_torch = callable(getattr(cuda, "stream", None))  # of CuPy it is a module

    @staticmethod
    def of(like: Any, given: Any) -> Optional[_Streams]:
        """None: the library knows of none."""
        for library in (_namespace(like), _package(like)):
            cuda = getattr(library, "cuda", None)
            if hasattr(cuda, "ExternalStream"):
                return _Streams(cuda, like, given)
        return None

    @contextlib.contextmanager
    def allocating(self) -> Iterator[None]:
        """Arrays that are made meanwhile belong to the stream given, and are on the device of `like`."""
        with contextlib.ExitStack() as stack:
            if not self._is_torch:  # CuPy makes arrays on its current device
                stack.enter_context(self._cuda.Device(self._device_id))
            if self._handle is not None:
                stack.enter_context(self._cuda.stream(self._stream()) if self._is_torch else self._stream())
            yield

    def keep(self, *arrays: Any) -> None:
        """Arrays may go before the stream is done with them. CuPy has nothing of the kind."""
        for array in arrays:
            if self._is_torch and self._handle is not None and hasattr(array, "record_stream"):
                array.record_stream(self._stream())

    def keep_for_caller(self, *made: Any) -> None:
        """Likewise arrays made in allocating(), and the stream that the caller is in."""
        for array in made:
            if self._is_torch and self._handle is not None and hasattr(array, "record_stream"):
                array.record_stream(self._cuda.current_stream(self._device_id))

    def _stream(self) -> Any:
        if isinstance(self._given, self._cuda.Stream):
            return self._given
        if not self._is_torch:
            return self._cuda.ExternalStream(self._handle)
        if self._handle in (0, _DEFAULT_STREAM):  # of which PyTorch would make a new one
            return self._cuda.default_stream(self._device_id)
        return self._cuda.ExternalStream(self._handle, device=self._device_id)


def _empty(like: Any, shape: Tuple[int, ...], dtype: str) -> Any:
    """A new array beside `like`, from the library that `like` comes from."""
    library = _namespace(like)
    try:
        empty, element = library.empty, getattr(library, dtype)
    except AttributeError:
        raise NotImplementedError(f"out: must be given, since {library.__name__} makes no arrays") from None
    try:
        return empty(shape, dtype=element, device=like.device)
    except TypeError:  # of its current device
        return empty(shape, dtype=element)


def _value_dim(v: Any, v_scale: Optional[Any]) -> int:
    """Elements of a row of values: int4 are two to a byte, or one in the last, if v_scale has a scale for each of so many."""
    dim = int(v.shape[-1])
    if str(v.dtype).rpartition(".")[2] != "uint8":
        return dim
    ends_in_a_byte = v_scale is not None and v_scale.shape[-1] == 2 * dim - 1 > 1
    return 2 * dim - int(ends_in_a_byte)


def attention(q: Any, k: Any, v: Any, out: Any, problem: _hattn.Problem, return_lse: bool, given_stream: Any) -> Any:
    """The call of the library for arrays on a device. Returns (out, lse or None, None), with `out` as it was given."""
    if problem.scores != _hattn.Scores.none:
        raise NotImplementedError("return_scores: is given, but of arrays on a device there is no score output")
    stream = stream_handle(given_stream)
    operands = ("bias", "mask", "k_scale", "v_scale")
    check_together(q, k=k, v=v, out=out, **{name: getattr(problem, name) for name in operands})
    queries, keys, values = (_InStream(array, stream) for array in (q, k, v))
    given = [getattr(problem, name) for name in operands]
    for name, array in zip(operands, given):
        if array is not None:
            setattr(problem, name, _InStream(array, stream))
    taken = None if out is None else _InStream(out, stream)
    plan: Dict[str, Any] = json.loads(_hattn.explain(queries, keys, values, taken, problem))
    streams = _Streams.of(q, given_stream) if problem.device == _hattn.Device.cuda else None
    heads, rows = (2, 1) if problem.layout == _hattn.Layout.bshd else (1, 2)
    with streams.allocating() if streams else contextlib.nullcontext():
        made = _empty(q, (*q.shape[:-1], _value_dim(v, given[3])), str(q.dtype).rpartition(".")[2]) if out is None else out
        lse = _empty(q, (q.shape[0], q.shape[heads], q.shape[rows]), "float32") if return_lse else None
        # Else the library takes memory of its own, and waits.
        if streams and stream is not None:
            workspace = _empty(q, (max(plan["device_workspace_bytes"], 1),), "uint8")
            problem.device_workspace = _InStream(workspace, stream)
    problem.lse = None if lse is None else _InStream(lse, stream)
    problem.queue = stream
    _hattn.attention(queries, keys, values, _InStream(made, stream), problem, return_lse)
    if streams:
        streams.keep(q, k, v, out, *given)
        streams.keep_for_caller(lse, *(() if out is not None else (made,)))
    return made, lse, None
