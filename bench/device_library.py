"""Attention and copies on a device, through the C interface of bench/device (interface.h): no torch and no module for this
very Python are needed."""
import ctypes
import json
from pathlib import Path

import numpy as np

from cases import BenchError

_NUMPY = {"float32": np.float32, "float16": np.float16, "bfloat16": np.uint16}  # of bfloat16 the bits

_DEVICES = ("opencl", "cuda")


class DeviceLibrary:
    """The shared library of a build tree. Raises BenchError if it is not there."""

    def __init__(self, build):
        path = Path(build) / "bench" / "libhattn_device_bench.so"
        if not path.exists():
            raise BenchError(f"{path}: not there; ./dev build makes it")
        self._library = ctypes.CDLL(str(path))

    def call(self, name, result, *arguments):
        """Its function hattn_device_bench_<name>; result: the type that it gives, of ctypes."""
        function = getattr(self._library, "hattn_device_bench_" + name)
        function.restype = result
        given = function(*arguments)
        if result in (ctypes.c_char_p, ctypes.c_void_p) and given is None or result is ctypes.c_double and given < 0:
            raise BenchError(self.call("error", ctypes.c_char_p).decode())
        return given

    def text(self, name, *arguments):
        return self.call(name, ctypes.c_char_p, *arguments).decode()

    def close(self, name, handle):
        getattr(self._library, "hattn_device_bench_" + name)(handle)

    def describe(self, device):
        """What a usable device is, as a dict. device: as "cuda" or "cuda:1". Raises BenchError if there is none."""
        info = json.loads(self.text("info"))
        name, _, number = device.partition(":")
        if name not in _DEVICES:
            raise BenchError(f"--device: is {device}, but must be one of {', '.join(_DEVICES)}")
        rows = [row for row in info["devices"] if row["name"] == name]
        if not rows:
            raise BenchError(f"--device: is {device}, but the library has no kernels for it; configure the build with "
                             f"-DHATTN_DEVICES={name}")
        if not rows[0]["usable"]:
            raise BenchError(f"--device: is {device}, but {rows[0]['why_not']}")
        found = [row for row in rows[0]["found"] if str(row["device_id"]) == (number or "0")]
        if not found:
            raise BenchError(f"--device: is {device}, but there is no such one of {len(rows[0]['found'])}")
        return {**found[0], **json.loads(self.text("attributes", device.encode())), "hattn": info["version"]}


class _Object:
    """An object of the library, until close()."""

    def __init__(self, library, kind, *arguments):
        self._library, self._kind = library, kind
        self._handle = ctypes.c_void_p(library.call(kind, ctypes.c_void_p, *arguments))

    def seconds(self, runs):
        """Of so many runs behind one another, on the device."""
        return self._library.call(self._kind + "_seconds", ctypes.c_double, self._handle, ctypes.c_int(runs))

    def close(self):
        self._library.close(self._kind + "_close", self._handle)


class Copy(_Object):
    """Copies of so many bytes within the device's memory."""

    def __init__(self, library, device, size):
        super().__init__(library, "copy", device.encode(), ctypes.c_double(size))


class MultiplyAdds(_Object):
    """float32 multiply-adds in registers; a run is so many operations. CUDA alone."""

    def __init__(self, library, device):
        super().__init__(library, "multiply_adds", device.encode())
        self.operations = library.call("multiply_adds_operations", ctypes.c_double, self._handle)


class Attention(_Object):
    """One shape, see read_shape() of autotune/shape.h."""

    def __init__(self, library, shape):
        super().__init__(library, "attention", json.dumps(shape).encode())
        self.about = json.loads(library.text("attention_describe", self._handle))

    def check(self):
        """A sentence if the result is wrong, else an empty string."""
        return self._library.text("attention_check", self._handle)

    def tensors(self):
        """q, k, v and, after check(), out: arrays over memory of the host that lives as long as this. bfloat16 as bits."""
        arrays = {}
        for name, tensor in self.about["tensors"].items():
            if tensor["dtype"]:
                dtype = np.dtype(_NUMPY[tensor["dtype"]])
                size = int(np.prod(tensor["shape"])) * dtype.itemsize
                memory = (ctypes.c_char * size).from_address(tensor["address"])
                arrays[name] = np.frombuffer(memory, dtype).reshape(tensor["shape"])
        return arrays


def as_float32(array):
    """Of an array from tensors()."""
    if array.dtype == np.uint16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32)
