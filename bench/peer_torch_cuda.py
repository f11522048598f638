"""PyTorch on a GPU: scaled_dot_product_attention beside hattn on a device, and products of matrices as the GPU's limit.

Each of its kernels, with grouped heads and with keys repeated in advance, is a variant; one that refuses a case is left out. All
is timed by events in PyTorch's current stream, the default one, as hattn's is.
"""
import numpy as np

from cases import BenchError
from peer import SMALL_SCORES

_MATRIX = 8192  # rows and columns


def _torch():
    import torch

    if not torch.cuda.is_available():
        raise BenchError(f"--against: PyTorch {torch.__version__} finds no GPU that it can use")
    torch.backends.cuda.matmul.allow_tf32 = False  # float32 is float32
    return torch


def version():
    torch = _torch()
    return f"{torch.__version__} (CUDA {torch.version.cuda})"


def _seconds(enqueue, device):
    """device: that of the work, in whose stream events are recorded."""
    torch = _torch()
    with torch.cuda.device(device):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        enqueue()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e-3


class _Variant:
    def __init__(self, name, backend, arrays, options):
        self.name = name
        self._backend, self._arrays, self._options = backend, arrays, options
        self._out = None

    def seconds(self, runs):
        from torch.nn.attention import sdpa_kernel
        from torch.nn.functional import scaled_dot_product_attention

        def enqueue():
            for _ in range(runs):
                self._out = scaled_dot_product_attention(*self._arrays, **self._options)

        with sdpa_kernel([self._backend]):
            return _seconds(enqueue, self._arrays[0].device)

    def result(self):
        return self._out.float().cpu().numpy()


def _tensor(array, dtype, device):
    torch = _torch()
    if dtype == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16).to(device)
    return torch.from_numpy(array).to(device)


def _backends(case):
    from torch.nn.attention import SDPBackend

    names = {"flash": "FLASH_ATTENTION", "cuDNN": "CUDNN_ATTENTION", "memory-efficient": "EFFICIENT_ATTENTION"}
    if case.batch * case.query_heads * case.queries * case.keys <= SMALL_SCORES:
        names["scores in memory"] = "MATH"
    return {name: getattr(SDPBackend, member) for name, member in names.items() if hasattr(SDPBackend, member)}


def variants(case, arrays, device):
    """Those that there may be; run one to see. case: a DeviceCase; arrays: from Attention.tensors(); device: number."""
    q, k, v = (_tensor(arrays[name], case.dtype, f"cuda:{device}") for name in "qkv")
    options = {"is_causal": case.causal and case.queries > 1}  # one row sees all
    group = case.query_heads // case.kv_heads
    inputs = {"": ((q, k, v), options)}
    if group > 1:
        repeated = (q, *(side.repeat_interleave(group, 1) for side in (k, v)))
        inputs = {", grouped heads": ((q, k, v), {**options, "enable_gqa": True}), ", repeated keys": (repeated, options)}
    return [_Variant(name + suffix, backend, *given)
            for name, backend in _backends(case).items() for suffix, given in inputs.items()]


class Products:
    """Products of two square matrices of a type: operations are 2 _MATRIX^3 a run."""

    operations = 2 * _MATRIX**3
    how = f"torch.matmul of {_MATRIX} x {_MATRIX} matrices"

    def __init__(self, dtype, device):
        torch = _torch()
        shape = (_MATRIX, _MATRIX)
        self._sides = [torch.randn(shape, device=f"cuda:{device}").to(getattr(torch, dtype)) for _ in range(2)]
        self._out = torch.empty_like(self._sides[0])

    def seconds(self, runs):
        torch = _torch()

        def enqueue():
            for _ in range(runs):
                torch.matmul(*self._sides, out=self._out)

        return _seconds(enqueue, self._out.device)
