"""Arrays that live on a device: where they are, in which stream they are ready, and outputs beside them."""

from __future__ import annotations

import contextlib
import json
from typing import Any, Callable, Dict, Iterator, Optional, Sequence, Tuple

import numpy as np

from hattn import _hattn
from hattn._arrays import HOST_DEVICES, check_kind, detached, device_of, package_of, plainly_on_host

# Device types of DLPack, kDLCUDA and kDLOpenCL, as the names of options.
_DEVICES = {2: "cuda", 4: "opencl"}
# How streams of other libraries give their handles: PyTorch, CuPy, PyOpenCL.
_HANDLES = ("cuda_stream", "ptr", "int_ptr")
# CUDA's default stream, which DLPack does not call 0.
DEFAULT_STREAM = 1
OPERANDS = ("bias", "mask", "k_scale", "v_scale")


Place = Tuple[_hattn.Device, int]  # a device and its number


def home(name: str, array: Any) -> Optional[Place]:
    """The device that an array lives on; None: the host. Raises NotImplementedError for others."""
    if plainly_on_host(array):
        return None
    check_kind(name, array)
    where = device_of(name, array)
    if where is None or where[0] in HOST_DEVICES:
        return None
    if where[0] not in _DEVICES:
        raise NotImplementedError(f"{name}: the {type(array).__name__} lives on DLPack device {where}, which is not supported")
    return getattr(_hattn.Device, _DEVICES[where[0]]), where[1]


def place_text(place: Place) -> str:
    """A device as messages name it."""
    return place[0].name if place[0] == _hattn.Device.cpu else f"{place[0].name}:{place[1]}"


def choose_home(problem: _hattn.Problem, q: Any, k: Any, asked: Any) -> Optional[str]:
    """Which of q and k lives on a device, which then computes; None: neither.

    Raises ValueError if another device was asked for, which None did not.
    """
    for name, array in (("q", q), ("k", k)):
        own = home(name, array)
        if own is None:
            continue
        given = (problem.device, problem.device_id)
        if asked is not None and given != own:
            raise ValueError(f"device: is {place_text(given)}, but {name} lives on {place_text(own)}")
        problem.device, problem.device_id = own
        return name
    return None


def check_together(name_of_first: str, first: Any, /, **arrays: Any) -> None:
    """Raises ValueError for an array that lives elsewhere than the first one does."""
    place = device_of(name_of_first, first)
    for name, array in arrays.items():
        check_kind(name, array)
        where = device_of(name, array)
        if array is not None and where != place:
            raise ValueError(
                f"{name}: the {type(array).__name__} lives on "
                f"{'the host' if where is None else f'DLPack device {where}'}, but {name_of_first} lives on DLPack device {place}"
            )


def stream_handle(stream: Any) -> Optional[int]:
    """A CUstream or cl_command_queue as a number."""
    if stream is None:
        return None
    handle: Optional[int]
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


class InStream:
    """An array whose contents are ready in a stream."""

    def __init__(self, array: Any, stream: Optional[int]) -> None:
        self._array, self._stream = detached(array), stream

    def __dlpack__(self, **_: Any) -> Any:
        where = device_of("array", self._array)
        if where is None or _DEVICES[where[0]] != "cuda":
            return self._array.__dlpack__()
        return self._array.__dlpack__(stream=self._stream or DEFAULT_STREAM)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


def _namespace(like: Any) -> Any:
    named = getattr(like, "__array_namespace__", None)
    return named() if named else package_of(like)


class Streams:
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
    def of(like: Any, given: Any) -> Optional[Streams]:
        """None: the library knows of none."""
        for library in (_namespace(like), package_of(like)):
            cuda = getattr(library, "cuda", None)
            if hasattr(cuda, "ExternalStream"):
                return Streams(cuda, like, given)
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

    def keep(self, *arrays: Any) -> bool:
        """Arrays may go before the stream is done with them. False: CuPy has nothing of the kind."""
        for array in arrays:
            if self._is_torch and self._handle is not None and hasattr(array, "record_stream"):
                array.record_stream(self._stream())
        return self._is_torch

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
        if self._handle in (0, DEFAULT_STREAM):  # of which PyTorch would make a new one
            return self._cuda.default_stream(self._device_id)
        return self._cuda.ExternalStream(self._handle, device=self._device_id)


def _new(like: Any, content: Any, dtype: str, kind: str = "empty") -> Any:
    """A new array beside `like`, from the library that `like` comes from.

    kind: the function that makes it, of a shape, or with "asarray" of numbers.
    """
    library = _namespace(like)
    try:
        make, element = getattr(library, kind), getattr(library, dtype)
    except AttributeError:
        raise NotImplementedError(f"out: must be given, since {library.__name__} makes no arrays") from None
    try:
        return make(content, dtype=element, device=like.device)
    except TypeError:  # of its current device
        return make(content, dtype=element)


@contextlib.contextmanager
def _beside(like: Any, given_stream: Any) -> Iterator[Optional[Streams]]:
    """Arrays that are made meanwhile belong to a stream, of CUDA, and lie beside `like`."""
    place = home("array", like)
    streams = Streams.of(like, given_stream) if place is not None and place[0] == _hattn.Device.cuda else None
    with streams.allocating() if streams else contextlib.nullcontext():
        yield streams


def _dtype_name(array: Any) -> str:
    return str(array.dtype).rpartition(".")[2]


def _value_dim(v: Any, v_scale: Optional[Any]) -> int:
    """Elements of a row of values: int4 are two to a byte, or one in the last, if v_scale has a scale for each of so many."""
    dim = int(v.shape[-1])
    if _dtype_name(v) != "uint8":
        return dim
    ends_in_a_byte = v_scale is not None and v_scale.shape[-1] == 2 * dim - 1 > 1
    return 2 * dim - int(ends_in_a_byte)


def compute(
    q: Any,
    out: Any,
    value_dim: int,
    problem: _hattn.Problem,
    return_lse: bool,
    given_stream: Any,
    workspace_bytes: Callable[[Any, Any], int],
    execute: Callable[[Any, Any], Any],
    others: Sequence[Any],
) -> Any:
    """A call of the library that makes outputs beside q. Returns (out, lse or None), with `out` as it was given.

    workspace_bytes, execute: called with q and out; others: the arrays besides that execute() reads.
    """
    if problem.scores != _hattn.Scores.none:
        raise NotImplementedError("return_scores: is given, but of arrays on a device there is no score output")
    stream = stream_handle(given_stream)
    given = [getattr(problem, name) for name in OPERANDS]
    for name, array in zip(OPERANDS, given):
        if array is not None:
            setattr(problem, name, InStream(array, stream))
    queries, taken = InStream(q, stream), None if out is None else InStream(out, stream)
    bytes_of_device = workspace_bytes(queries, taken)
    heads, rows = (2, 1) if problem.layout == _hattn.Layout.bshd else (1, 2)
    with _beside(q, given_stream) as streams:
        made = _new(q, (*q.shape[:-1], value_dim), _dtype_name(q)) if out is None else out
        lse = _new(q, (q.shape[0], q.shape[heads], q.shape[rows]), "float32") if return_lse else None
        # Else the library takes memory of its own, and waits.
        if streams and stream is not None:
            workspace = _new(q, (max(bytes_of_device, 1),), "uint8")
            problem.device_workspace = InStream(workspace, stream)
    problem.lse = None if lse is None else InStream(lse, stream)
    problem.queue = stream
    execute(queries, InStream(made, stream))
    if streams:
        streams.keep(q, out, *others, *given)
        streams.keep_for_caller(lse, *(() if out is not None else (made,)))
    return made, lse


def _place_scales(k: Any, problem: _hattn.Problem, given_stream: Any) -> None:
    """Scales that all keys share, given as numbers or in host memory, become arrays beside k, of its library."""
    sequence = 1 if problem.layout == _hattn.Layout.bshd else 2
    for name in ("k_scale", "v_scale"):
        scale = getattr(problem, name)
        is_shared = isinstance(scale, np.ndarray) and scale.shape[0] == scale.shape[sequence] == 1
        if not is_shared or not hasattr(_namespace(k), "asarray"):
            continue  # what lives elsewhere than k is refused
        with _beside(k, given_stream) as streams:
            made = _new(k, scale.tolist(), "float32", "asarray")
        if streams:
            streams.keep_for_caller(made)
        setattr(problem, name, made)


def attention(q: Any, k: Any, v: Any, out: Any, problem: _hattn.Problem, return_lse: bool, given_stream: Any) -> Any:
    """hattn.attention() of arrays that all live on a device."""
    stream = stream_handle(given_stream)
    _place_scales(k, problem, given_stream)
    check_together("q", q, k=k, v=v, out=out, **{name: getattr(problem, name) for name in OPERANDS})
    for name, array in (("q", q), ("v", v), ("out", out)):
        if array is not None and not (hasattr(array, "shape") and hasattr(array, "dtype")):
            raise TypeError(f"{name}: expected an array with shape and dtype, as it is on a device, got {type(array).__name__}")
    keys, values, value_dim = InStream(k, stream), InStream(v, stream), _value_dim(v, problem.v_scale)

    def workspace_bytes(queries: Any, taken: Any) -> int:
        plan: Dict[str, Any] = json.loads(_hattn.explain(queries, keys, values, taken, problem))
        return int(plan["device_workspace_bytes"])

    def execute(queries: Any, to: Any) -> Any:
        return _hattn.attention(queries, keys, values, to, problem, return_lse)

    return compute(q, out, value_dim, problem, return_lse, given_stream, workspace_bytes, execute, (k, v))


def merge_states(outs: Sequence[Any], lses: Sequence[Any], out: Any, lse: Any, given_stream: Any) -> Any:
    """hattn.merge_states() of arrays that all live on a device. The call waits."""
    first, stream = outs[0], stream_handle(given_stream)
    for name, arrays in (("outs", outs), ("lses", lses)):
        for n, array in enumerate(arrays):
            check_together("outs[0]", first, **{f"{name}[{n}]": array})
    check_together("outs[0]", first, out=out, lse=lse)
    with _beside(first, given_stream) as streams:
        made = _new(first, tuple(first.shape), _dtype_name(first)) if out is None else out
        made_lse = _new(first, tuple(first.shape[:3]), "float32") if lse is None else lse
    to, to_lse = InStream(made, stream), InStream(made_lse, stream)
    given, given_lses = ([InStream(array, stream) for array in arrays] for arrays in (outs, lses))
    _hattn.merge_states(given, given_lses, to, to_lse, stream)
    if streams:
        streams.keep_for_caller(*(array for array, own in ((made, out), (made_lse, lse)) if own is None))
    return made, made_lse


def turned(x: Any, out: Any, given_stream: Any, leaves_rows: bool, turn: Callable[[Any, Any], Any]) -> Any:
    """Rows of x on their way to out, or to a new array, whose rows are 0 where turn(x, out) leaves them."""
    check_together("x", x, out=out)
    stream = stream_handle(given_stream)
    with _beside(x, given_stream) as streams:
        kind = "zeros" if leaves_rows else "empty"
        made = _new(x, tuple(x.shape), _dtype_name(x), kind) if out is None else out
    turn(InStream(x, stream), InStream(made, stream))
    if streams and out is None:
        streams.keep_for_caller(made)
    return made


def keys_on_device(k: Any, v: Any, problem: _hattn.Problem, given_stream: Any) -> Tuple[Any, Any]:
    """k and v for a call whose queries are on the host; scales become what it takes too. The call waits."""
    _place_scales(k, problem, given_stream)
    check_together("k", k, v=v, k_scale=problem.k_scale, v_scale=problem.v_scale)
    problem.queue = stream = stream_handle(given_stream)
    for name in ("k_scale", "v_scale"):
        if getattr(problem, name) is not None:
            setattr(problem, name, InStream(getattr(problem, name), stream))
    return InStream(k, stream), InStream(v, stream)
