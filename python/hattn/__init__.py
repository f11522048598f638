"""Attention kernels compiled from Halide pipelines.

NumPy arrays or DLPack tensors in, the same kind out; shapes, dtypes and semantics are those of docs/semantics.md.

Errors, for every function:
    TypeError            an argument of the wrong Python type or dtype, or an unknown dtype
    ValueError           a value, rank, shape, stride or length that is wrong; the message names the argument
    NotImplementedError  something legal that this version or this build does not support yet
    MemoryError          the outputs or the workspace do not fit into memory
    RuntimeError         a device that fails, or a bug in hattn
On an error nothing has been written, neither to `out` nor to a cache; but of a device that fails.
"""

from hattn import _exit as _exit
from hattn._attention import attention, explain, info, merge_states
from hattn._hattn import version as __version__
from hattn._kv_cache import KVCache
from hattn._rope import Rope, apply_rope

__all__ = ["KVCache", "Rope", "__version__", "apply_rope", "attention", "explain", "info", "merge_states"]
