"""Arrays in OpenCL memory, in that of a CUDA driver, and ones that only say that they are on a GPU, for tests of DLPack."""

from __future__ import annotations

import ctypes

import numpy as np

KDL_CPU, KDL_CUDA, KDL_OPENCL = 1, 2, 4


class _Tensor(ctypes.Structure):
    """The start of DLPack's DLManagedTensor."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_uint32),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    ]


_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


class DeviceArray:
    """A NumPy array that says it lives on a device, at `data` if that is given; in `memory`, where arrays beside it are made, or
    nowhere. Knows the stream it was asked for last."""

    def __init__(self, array, device=(KDL_CUDA, 0), data=None, byte_offset=0, memory=None):
        self.array, self.where, self.data, self.byte_offset = array, device, data, byte_offset
        self.shape, self.dtype, self.device, self.stream = array.shape, array.dtype, device, None
        self.memory = memory

    def __dlpack_device__(self):
        return self.where

    def __dlpack__(self, stream=None):
        self.stream = stream
        capsule = self.array.__dlpack__()
        tensor = _Tensor.from_address(_pointer_of(capsule, b"dltensor"))
        tensor.device_type, tensor.device_id = self.where
        if self.data is not None:
            tensor.data, tensor.byte_offset = self.data, self.byte_offset
        return capsule

    def __array_namespace__(self):
        return _Namespace(self.where, self.memory)

    def reshape(self, shape):
        return DeviceArray(self.array.reshape(shape), self.where, self.data, self.byte_offset, self.memory)


class _Namespace:
    """Makes arrays that say they live on a device."""

    float32, float16, uint8 = np.float32, np.float16, np.uint8
    __name__ = "device_arrays"

    def __init__(self, where, memory):
        self._where, self._memory = where, memory
        if memory:
            self.asarray = lambda values, dtype, device: memory.array(np.asarray(values, dtype))

    def zeros(self, shape, dtype, device):
        made = self.empty(shape, dtype, device)
        return self._memory.array(np.zeros(shape, dtype)) if self._memory else made

    def empty(self, shape, dtype, device):
        assert device == self._where
        if self._memory:
            return self._memory.array(np.full(shape, 7, dtype))
        memory = np.zeros(np.prod(shape, dtype=int) * np.dtype(dtype).itemsize + 256, np.uint8)
        first = -memory.ctypes.data % 256
        bytes_of_array = memory[first : first + memory.size - 256]
        return DeviceArray(bytes_of_array.view(dtype).reshape(shape), self._where)


class CudaMemory:
    """Memory of the first GPU of the CUDA driver that this process finds."""

    def __init__(self):
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._context = ctypes.c_void_p()
        self._call("cuInit", 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), 0)

    def _call(self, name, *arguments):
        assert getattr(self._driver, name)(*arguments) == 0, name

    def _in_context(self, name, *arguments):
        self._call("cuCtxPushCurrent_v2", self._context)
        self._call(name, *arguments)
        self._call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def array(self, array):
        """A copy of the array in this memory, which is never given back."""
        contents, pointer = np.asarray(array, order="C"), ctypes.c_uint64()
        size = ctypes.c_size_t(contents.nbytes)
        self._in_context("cuMemAlloc_v2", ctypes.byref(pointer), size)
        self._in_context("cuMemcpyHtoD_v2", pointer, ctypes.c_void_p(contents.ctypes.data), size)
        return DeviceArray(contents, (KDL_CUDA, 0), pointer.value, memory=self)

    def fetch(self, array):
        """What an array in this memory holds now."""
        result = np.empty(array.shape, array.dtype)
        to, size = ctypes.c_void_p(result.ctypes.data), ctypes.c_size_t(result.nbytes)
        self._in_context("cuCtxSynchronize")
        self._in_context("cuMemcpyDtoH_v2", to, ctypes.c_uint64(array.data), size)
        return result


class OpenClQueue:
    """A context and queue of the first OpenCL device."""

    def __init__(self):
        self._library = ctypes.CDLL("libOpenCL.so.1")
        platform, device = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("clGetPlatformIDs", 1, ctypes.byref(platform), None)
        self._call("clGetDeviceIDs", platform, ctypes.c_uint64(0xFFFFFFFF), 1, ctypes.byref(device), None)
        self._context = self._make("clCreateContext", None, 1, ctypes.byref(device), None, None)
        self.int_ptr = self._make("clCreateCommandQueue", self._context, device, ctypes.c_uint64(0)).value

    def _call(self, name, *arguments):
        assert getattr(self._library, name)(*arguments) == 0, name

    def _make(self, name, *arguments):
        function, error = getattr(self._library, name), ctypes.c_int32()
        function.restype = ctypes.c_void_p
        made = ctypes.c_void_p(function(*arguments, ctypes.byref(error)))
        assert error.value == 0, name
        return made

    def array(self, array, before=0):
        """The array in a cl_mem, `before` bytes from its start."""
        contents = b"\xff" * before + array.tobytes()
        copy_host = ctypes.c_uint64(1 << 5)  # CL_MEM_COPY_HOST_PTR
        memory = self._make("clCreateBuffer", self._context, copy_host, ctypes.c_size_t(len(contents)), contents)
        return DeviceArray(np.asarray(array, order="C"), (KDL_OPENCL, 0), memory.value, before)

    def fetch(self, array):
        """What an array from array() holds now."""
        result = np.empty(array.shape, array.dtype)
        queue, memory, to = (ctypes.c_void_p(p) for p in (self.int_ptr, array.data, result.ctypes.data))
        sizes = (ctypes.c_size_t(array.byte_offset), ctypes.c_size_t(result.nbytes))
        self._call("clEnqueueReadBuffer", queue, memory, 1, *sizes, to, 0, None, None)
        return result
