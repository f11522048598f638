"""PyTorch: torch.nn.functional.scaled_dot_product_attention on the CPU.

Fused kernel and materialised scores, grouped heads and keys repeated in advance: each is a variant. Windows and causal
limits that do not start at the first key are dense masks, as users of the function write them. The fused kernel wants values as wide as
keys, so that narrower ones get zeros in advance.
"""
import numpy as np

from peer import SMALL_SCORES, additive, is_ragged, score_count, sees


def version():
    import torch

    return torch.__version__.split("+")[0]


class _Variant:
    def __init__(self, name, backend, calls, width):
        """calls: [(q, k, v, options)], one for each part of the batch; width: of the result, leading elements of the output."""
        from torch.nn.functional import scaled_dot_product_attention

        self.name, self._width, self._attend = name, width, scaled_dot_product_attention
        self._backend = backend
        self._calls = calls

    def turn(self):
        """What runs are made within: to choose a kernel takes 20 us, which are not the function's."""
        from torch.nn.attention import sdpa_kernel

        return sdpa_kernel([self._backend])

    def run(self):
        self._out = [self._attend(*arrays, **options) for *arrays, options in self._calls]

    def result(self):
        return np.concatenate([out.float().numpy() for out in self._out])[..., : self._width]


def _tensor(array):
    import torch

    array = np.asarray(array)
    return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16) if array.dtype.name == "bfloat16" else torch.from_numpy(array)


def _options(case, arrays):
    """(options of the call, first key)."""
    import torch

    if case.query_length == 1:  # sees all keys of its window
        return {}, 0 if case.window_left < 0 else case.kv_length - case.window_left - 1
    bias = additive(case, arrays)
    square = case.query_length == case.kv_length
    if case.window_left < 0 and case.window_right < 0 and bias is None and (square or not case.causal):
        return {"is_causal": case.causal}, 0
    limits = sees(case)
    if bias is None:
        return {"attn_mask": torch.from_numpy(limits)}, 0
    if "mask" in arrays:
        return {"attn_mask": torch.from_numpy((arrays["mask"] != 0) & limits)}, 0
    return {"attn_mask": torch.from_numpy(np.where(limits, bias, np.float32(-np.inf)))}, 0


def variants(case, arrays, threads):
    import torch
    from torch.nn.attention import SDPBackend

    if case.work == "appending" or case.page_size or case.softcap or case.has_sinks:
        return []
    torch.set_num_threads(threads)
    q, k, v = (_tensor(arrays[name]) for name in "qkv")
    v = torch.nn.functional.pad(v, (0, max(case.key_dim - case.value_dim, 0)))
    grouped = {"enable_gqa": True} if case.query_heads != case.kv_heads else {}
    if is_ragged(case):
        keys = np.array(case.kv_lengths)
        calls = [(q[b:b + 1], k[b:b + 1, :, :n], v[b:b + 1, :, :n], grouped) for b, n in enumerate(keys)]
        visible = np.arange(case.kv_length) < keys[:, None, None, None]
        padded = {"attn_mask": torch.from_numpy(visible), **grouped}
        return [_Variant("fused, one call per sequence", SDPBackend.FLASH_ATTENTION, calls, case.value_dim),
                _Variant("fused, one call with a mask", SDPBackend.FLASH_ATTENTION, [(q, k, v, padded)], case.value_dim)]
    options, first = _options(case, arrays)
    k, v = k[:, :, first:], v[:, :, first:]
    inputs = {"": (k, v, {**options, **grouped})}
    if grouped:
        group = case.query_heads // case.kv_heads
        inputs = {", grouped heads": inputs[""],
                  ", repeated keys": (k.repeat_interleave(group, 1), v.repeat_interleave(group, 1), options)}
    backends = {"fused": SDPBackend.FLASH_ATTENTION}
    if score_count(case) <= SMALL_SCORES:
        backends["scores in memory"] = SDPBackend.MATH
    return [_Variant(name + suffix, backend, [(q, *rest)], case.value_dim)
            for name, backend in backends.items() for suffix, rest in inputs.items()]
