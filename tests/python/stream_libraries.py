"""Two libraries that make arrays on a GPU as PyTorch and CuPy do, on a driver without one: memory belongs to the stream that is
current when it is given out, and goes back to that stream, at once, when its array is gone."""

from __future__ import annotations

import contextlib
import ctypes
import sys
import types
import weakref

import numpy as np

from device_arrays import KDL_CUDA, DeviceArray


class Allocator:
    """Gives out blocks of memory: (stream, device, bytes)."""

    def __init__(self):
        self.stream, self.device = 0, 0  # that are current
        self.free, self.held_back = [], []  # held back: for as long as other streams use them

    def make(self, kind, shape, dtype):
        size = int(np.prod(shape, dtype=int)) * np.dtype(dtype).itemsize
        block = next((b for b in self.free if b[:2] == (self.stream, self.device) and b[2].size >= size + 256), None)
        if block:
            self.free[:] = [other for other in self.free if other is not block]
        else:
            block = (self.stream, self.device, np.zeros(size + 256, np.uint8))
        first = -block[2].ctypes.data % 256
        made = kind(block[2][first : first + size].view(dtype).reshape(shape), (KDL_CUDA, self.device))
        made.block, made.streams = block, set()
        weakref.finalize(made, self._give_back, block, made.streams)
        return made

    def _give_back(self, block, streams):
        (self.held_back if streams - {block[0]} else self.free).append(block)

    @contextlib.contextmanager
    def current(self, **changes):
        before = {name: getattr(self, name) for name in changes}
        vars(self).update(changes)
        yield
        vars(self).update(before)


class _Array(DeviceArray):
    __array_namespace__ = property()  # there is none


def _module(name, array, **contents):
    """A module where the library looks for what made an array."""
    array.__module__ = name
    sys.modules[name] = module = types.ModuleType(name)
    vars(module).update(float32=np.float32, uint8=np.uint8, array=array, **contents)
    return module


def torch_like():
    """Arrays are told which streams use them."""
    allocator = Allocator()

    class Stream:
        def __init__(self, handle, device):
            self.cuda_stream, self.device = handle, device

    class Tensor(_Array):
        def record_stream(self, stream):
            assert isinstance(stream, Stream)
            self.streams.add(stream.cuda_stream)

    def external_stream(handle, device):
        assert handle > 1, "PyTorch takes 0 for none"
        return Stream(handle, device)

    def stream(entered):
        assert isinstance(entered, Stream)
        return allocator.current(stream=entered.cuda_stream, device=entered.device)

    def empty(shape, dtype, device):
        with allocator.current(device=device[1]):
            return allocator.make(Tensor, shape, dtype)

    cuda = types.SimpleNamespace(
        Stream=Stream,
        ExternalStream=external_stream,
        stream=stream,
        default_stream=lambda device: Stream(0, device),
        current_stream=lambda device: Stream(allocator.stream, device),
    )
    return _module("torch_like", Tensor, cuda=cuda, empty=empty, allocator=allocator)


def cupy_like():
    """Streams and devices are entered, and arrays are made on the current ones."""
    allocator = Allocator()

    class Entered:
        def __enter__(self):
            self._current = allocator.current(**self.changes)
            self._current.__enter__()

        def __exit__(self, *_):
            self._current.__exit__(None, None, None)

    class Stream(Entered):
        def __init__(self, handle):
            self.ptr, self.changes = handle, {"stream": handle}

    class Device(Entered):
        def __init__(self, number):
            self.changes = {"device": number}

    class ndarray(_Array):
        pass

    def empty(shape, dtype):
        return allocator.make(ndarray, shape, dtype)

    cuda = types.SimpleNamespace(
        Stream=Stream,
        ExternalStream=type("ExternalStream", (Stream,), {}),
        Device=Device,
        stream=types.ModuleType("cupy_like.cuda.stream"),
    )
    return _module("cupy_like", ndarray, cuda=cuda, empty=empty, allocator=allocator)


def new_stream(device):
    """A CUstream of the driver, in the primary context of a GPU."""
    library, context, stream = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p()
    for name, *arguments in (
        ("cuDevicePrimaryCtxRetain", ctypes.byref(context), device),
        ("cuCtxPushCurrent_v2", context),
        ("cuStreamCreate", ctypes.byref(stream), 0),
        ("cuCtxPopCurrent_v2", ctypes.byref(context)),
    ):
        assert getattr(library, name)(*arguments) == 0, name
    return stream.value
