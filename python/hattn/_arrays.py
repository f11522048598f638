"""Array kinds: what may be taken, where it lives, and how a NumPy result becomes the caller's kind of array."""

from __future__ import annotations

import sys
from typing import Any, Callable, Optional, Tuple

import numpy as np

from hattn import _hattn

# Device types of DLPack that the CPU can read: kDLCPU and kDLCUDAHost.
HOST_DEVICES = (1, 3)

_UINT16 = np.dtype(np.uint16)


def _is_torch(array: Any) -> bool:
    return isinstance(array, getattr(sys.modules.get("torch"), "Tensor", ()))


def detached(array: Any) -> Any:
    """`array`, of PyTorch without the history that DLPack does not take."""
    return array.detach() if _is_torch(array) and array.requires_grad else array


def _check_torch(name: str, tensor: Any) -> None:
    """Raises ValueError for a tensor whose numbers are not those in its memory, or that wants a gradient."""
    try:
        wants_gradient, bits = tensor.requires_grad, {"neg": tensor.is_neg(), "conj": tensor.is_conj()}
    except RuntimeError:  # a wrapper that shows nothing but its memory
        return
    if wants_gradient and sys.modules["torch"].is_grad_enabled():
        raise ValueError(
            f"{name}: requires a gradient, but there is no backward pass; use {name}.detach() or torch.no_grad()"
        )
    for bit, is_set in bits.items():
        if is_set:
            raise ValueError(f"{name}: is_{bit}() is true, so that its memory holds other numbers; use resolve_{bit}()")


def plainly_on_host(array: Any) -> bool:
    """Whether it is quick to see that an array is in host memory, whose numbers are its own: check_host() passes it then."""
    if type(array) is np.ndarray:
        return True
    torch = sys.modules.get("torch")
    return (
        type(array) is getattr(torch, "Tensor", None)
        and array.is_cpu
        and not (array.requires_grad or array.is_neg() or array.is_conj())
    )


def check_kind(name: str, array: Any) -> None:
    """Raises TypeError or ValueError for an array that means something else than what its memory holds."""
    if array is None or type(array) is np.ndarray:
        return
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"{name}: expected an array without a mask, got MaskedArray; use filled()")
    if _is_torch(array):
        _check_torch(name, array)


def device_of(name: str, array: Any) -> Optional[Tuple[int, int]]:
    """DLPack's type and number of the device that an array lives on; None: it does not say, and is in host memory."""
    if array is None or isinstance(array, np.ndarray) or not hasattr(array, "__dlpack_device__"):
        return None
    try:
        device_type, device_id = array.__dlpack_device__()
    except Exception as error:  # of any kind: PyTorch's for tensors without memory, which DLPack has no device for
        raise ValueError(f"{name}: the {type(array).__name__} cannot be read through DLPack: {error}") from None
    return int(device_type), int(device_id)


def on_device(name: str, array: Any) -> bool:
    where = device_of(name, array)
    return where is not None and where[0] not in HOST_DEVICES


def check_host(**arrays: Any) -> None:
    """As check_kind(), and raises NotImplementedError for a tensor on a device, before its memory is asked for."""
    for name, array in arrays.items():
        if array is None or plainly_on_host(array):
            continue
        check_kind(name, array)
        if on_device(name, array):
            raise NotImplementedError(
                f"{name}: the {type(array).__name__} lives on DLPack device {device_of(name, array)}, "
                "but only arrays on the CPU are supported here"
            )


def as_numpy(name: str, value: Any, wanted: str) -> Any:
    """A host array as a NumPy array that shares its memory; anything that is no array as it is.

    wanted: what messages say that the dtype must be.
    """
    check_host(**{name: value})
    if isinstance(value, np.ndarray) or not hasattr(value, "__dlpack__"):
        return value
    try:
        array = np.from_dlpack(detached(value))
        _hattn.check_memory(name, value)  # where it has none, NumPy's array has some that nobody has written
        return array
    except BufferError as error:
        raise ValueError(f"{name}: the {type(value).__name__} cannot be read through DLPack: {error}") from None
    except RuntimeError:  # a dtype that NumPy does not have
        dtype = getattr(value, "dtype", "unknown to NumPy")
        raise TypeError(f"{name}: dtype is {dtype}, but must be {wanted}") from None


def package_of(array: Any) -> Any:
    """The package that defines an array's type, or the first base of it, of a subclass, that comes from one with from_dlpack."""
    packages = [sys.modules.get(base.__module__.partition(".")[0]) for base in type(array).__mro__]
    return next((package for package in packages if hasattr(package, "from_dlpack")), packages[0])


def _from_dlpack(like: Any) -> Optional[Callable[[np.ndarray], Any]]:
    """from_dlpack() of the library that `like` comes from, if it has one."""
    if hasattr(like, "__array_namespace__"):
        return getattr(like.__array_namespace__(), "from_dlpack", None)
    return getattr(package_of(like), "from_dlpack", None)


def same_kind(like: Any, array: Optional[np.ndarray]) -> Any:
    """`array` as the kind of `like`, sharing its memory; None stays None.

    The kind is found through `like.__array_namespace__()`, else through `from_dlpack` of the package that defines its
    type (as in torch). A type with neither offers no way back, so it gets the NumPy array.
    """
    if array is None or isinstance(like, np.ndarray):
        return array
    if _is_torch(like):
        torch = sys.modules["torch"]
        try:
            return torch.from_numpy(array)
        except RuntimeError:  # built without NumPy, or for another version of it
            return torch.from_dlpack(array)
    from_dlpack = _from_dlpack(like)
    return array if from_dlpack is None else from_dlpack(array)


def output_kind(like: Any, array: np.ndarray) -> Any:
    """An output of the dtype of `like` as its kind. The library gives bfloat16 as uint16, which NumPy knows."""
    if array.dtype != _UINT16:
        return same_kind(like, array)
    if _is_torch(like):
        return same_kind(like, array.view(np.int16)).view(like.dtype)  # an integer that PyTorch always had
    output = same_kind(like, array)
    return typed_view(array, "bfloat16") if output is array and not isinstance(like, np.ndarray) else output.view(like.dtype)


def typed_view(array: np.ndarray, dtype: str) -> np.ndarray:
    """Bits in uint16 as "float16" or, where the package ml_dtypes is installed, "bfloat16"; another type as it is."""
    if dtype == "float16":
        return array.view(np.float16)
    if dtype != "bfloat16":
        return array
    try:
        from ml_dtypes import bfloat16
    except ImportError:
        return array
    return array.view(bfloat16)
