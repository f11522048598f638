"""Array kinds: where an argument lives, and how a NumPy result becomes the caller's kind of array."""

from __future__ import annotations

import sys
from typing import Any, Callable, Optional, Tuple

import numpy as np

# Device types of DLPack that the CPU can read: kDLCPU and kDLCUDAHost.
HOST_DEVICES = (1, 3)


def device_of(array: Any) -> Optional[Tuple[int, int]]:
    """DLPack's type and number of the device that an array lives on; None: it does not say, and is in host memory."""
    if array is None or isinstance(array, np.ndarray) or not hasattr(array, "__dlpack_device__"):
        return None
    device_type, device_id = array.__dlpack_device__()
    return int(device_type), int(device_id)


def on_device(array: Any) -> bool:
    where = device_of(array)
    return where is not None and where[0] not in HOST_DEVICES


def check_host(**arrays: Any) -> None:
    """Raises NotImplementedError for a tensor that lives on a device, before its memory is asked for."""
    for name, array in arrays.items():
        if on_device(array):
            raise NotImplementedError(
                f"{name}: the {type(array).__name__} lives on DLPack device {device_of(array)}, "
                "but only arrays on the CPU are supported here"
            )


def as_numpy(name: str, value: Any) -> Any:
    """A host array as a NumPy array that shares its memory; anything that is no array as it is."""
    check_host(**{name: value})
    if isinstance(value, np.ndarray) or not hasattr(value, "__dlpack__"):
        return value
    return np.from_dlpack(value)


def _from_dlpack(like: Any) -> Optional[Callable[[np.ndarray], Any]]:
    """from_dlpack() of the library that `like` comes from, if it has one."""
    if hasattr(like, "__array_namespace__"):
        return getattr(like.__array_namespace__(), "from_dlpack", None)
    package = sys.modules.get(type(like).__module__.partition(".")[0])
    return getattr(package, "from_dlpack", None)


def same_kind(like: Any, array: Optional[np.ndarray]) -> Any:
    """`array` as the kind of `like`, sharing its memory; None stays None.

    The kind is found through `like.__array_namespace__()`, else through `from_dlpack` of the package that defines its
    type (as in torch). A type with neither offers no way back, so it gets the NumPy array.
    """
    if array is None or isinstance(like, np.ndarray):
        return array
    from_dlpack = _from_dlpack(like)
    return array if from_dlpack is None else from_dlpack(array)


def output_kind(like: Any, array: np.ndarray) -> Any:
    """An output of the dtype of `like` as its kind. The library gives bfloat16 as uint16, which NumPy knows."""
    output = same_kind(like, array)
    return output.view(like.dtype) if array.dtype == np.uint16 else output


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
