"""attention(), merge_states(), explain() and info()."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

import numpy as np

from hattn import _devices, _hattn
from hattn._arrays import check_host, output_kind, same_kind
from hattn._options import ANY_WINDOW, attention_options, check_names, flag


def results(like: Any, given_out: Any, outputs: Tuple[np.ndarray, Optional[np.ndarray], Optional[np.ndarray]]) -> Any:
    """out, or a tuple of out and what was asked for beside it, as the kind of `like`."""
    made, lse, scores = outputs
    out = output_kind(like, made) if given_out is None else given_out
    if lse is None and scores is None:
        return out
    return (out, *(same_kind(like, output) for output in (lse, scores) if output is not None))


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    layout: str = "bhsd",
    scale: Optional[float] = None,
    causal: bool = False,
    causal_offset: Union[None, int, Any] = None,
    window: Sequence[int] = ANY_WINDOW,
    softcap: float = 0.0,
    sinks: Optional[Any] = None,
    bias: Optional[Any] = None,
    mask: Optional[Any] = None,
    alibi_slopes: Optional[Any] = None,
    q_lengths: Optional[Any] = None,
    kv_lengths: Optional[Any] = None,
    cu_seqlens_q: Optional[Any] = None,
    cu_seqlens_k: Optional[Any] = None,
    block_table: Optional[Any] = None,
    k_scale: Optional[Any] = None,
    v_scale: Optional[Any] = None,
    algorithm: str = "auto",
    threads: Optional[int] = None,
    out: Optional[Any] = None,
    return_lse: bool = False,
    device: Optional[str] = None,
    stream: Optional[Any] = None,
    return_scores: Optional[str] = None,
) -> Any:
    """Scaled dot-product attention: softmax(scale * q k^T + ...) v, exact, with fp32 accumulation.

    Arrays are NumPy arrays or DLPack tensors and are never copied; results come back as the kind of q.
    Dimensions: B batch, Hq query heads, Hkv key and value heads (Hq a multiple of it; query head h uses head
    h // (Hq / Hkv)), Sq queries, Sk keys, Dk and Dv head dimensions.

    Args:
        q: [B, Hq, Sq, Dk] float32, float16 or bfloat16 (that of the package ml_dtypes in NumPy arrays), or [B, Sq, Hq, Dk]
            with layout="bshd". Any strides, 1 in the last dimension.
        k: [B, Hkv, Sk, Dk], of any of these types, int8, or int4 as uint8 with two elements a byte, the first in the low
            half. Types of q, k and v are independent. In the same layout; with a block table pages of keys, [pages, Hkv, page_size, Dk] or, with
            layout="bshd", [pages, page_size, Hkv, Dk].
        v: [B, Hkv, Sk, Dv], in the same layout; likewise. Whether an int4 row ends in the middle of its last byte, bytes do not
            say: an odd Dv is that of `out`, or of v_scale if it has a scale for each channel. Else Dv is even.
        layout: "bhsd" or "bshd", of q, k, v and out.
        scale: factor of the scores; default 1/sqrt(Dk).
        causal: query i sees keys j <= i + offset.
        causal_offset: int or [B] integers; default: key length - query length of each sequence. May be negative. Also
            the position that windows and ALiBi count from.
        window: (left, right), keys visible before and after the query's own position, inclusive; -1: all of them.
        softcap: if > 0, scores become softcap * tanh(scores / softcap), before bias and masks.
        sinks: [Hq] float32, a logit per head that takes part in the softmax without a value; zeros: smooth softmax.
        bias: float32, broadcastable to [B, Hq, Sq, Sk]; added to the scores.
        mask: bool, broadcastable to [B, Hq, Sq, Sk]; True: visible.
        alibi_slopes: [Hq] float32; slope * |position difference| is subtracted from the scores.
        q_lengths: [B] integers, queries of each sequence. Rows past them get out 0 and lse -inf.
        kv_lengths: [B] integers, keys of each sequence. Keys past them are never read.
        cu_seqlens_q: [B + 1] integers: queries are packed, see below. Excludes q_lengths and return_scores.
        cu_seqlens_k: [B + 1] integers: keys are packed likewise. Excludes kv_lengths.
        block_table: [B, n] integers, the pages of each sequence in the order of its keys: key j of sequence b is row
            j % page_size of page block_table[b, j // page_size]. page_size is 16, 32, 64 or 128. Needs kv_lengths,
            whose largest is Sk. Pages may be shared; entries past a sequence's last page are not read.
        k_scale, v_scale: float32, given exactly for int8 and int4, which stand for integer * scale: a number, [Hkv],
            [Hkv, D], or of every key one for each 32 elements, [B, Hkv, Sk, ceil(D / 32)] in the layout and storage of k.
            With keys on a device those of every key are an array there, and others may be on the host.
        algorithm: "auto", "naive", "flash", "split_kv" or "unfused".
        threads: number of threads; default: one per core. Results do not depend on it. Where PyTorch is imported they are its
            threads, at most torch.get_num_threads().
        out: array to write to, [B, Hq, Sq, Dv] in the layout, float32, float16 or bfloat16 whatever q is; may not overlap an
            input. Default: a new one of q's type.
        return_lse: also return the log-sum-exp of each row, natural logarithm, with the sink.
        device: "cpu", or "opencl", "cuda" or "cuda:1" where the library was built for them and the machine has one (see
            info()). Arrays in host memory are copied there and back; default: "cpu". For arrays on a device (CUDA, OpenCL), which
            q, k, v, out, bias, mask and scales then all are, or k, v and their scales alone, it is theirs, and results are where q
            is; lengths, tables, slopes and sinks stay on the host. Devices take heads of up to 256 elements; of arrays on a device there are no scores.
        stream: of arrays on a device, a CUDA stream (an int, or one of PyTorch or CuPy) or an OpenCL command queue: work is put
            there, and of CUDA not waited for. Memory for it, and for results, comes from the library of q, and belongs to that
            stream. Arrays of PyTorch may go meanwhile; others have to stay until the stream is done. A library that is neither
            PyTorch nor CuPy is waited for. Default: returns when results are there.
        return_scores: also return the scores: "raw" (scale * q k^T), "capped" (after softcap), "masked" (after bias,
            ALiBi and masks) or "probabilities".

    Packed queries: the rows of B sequences of any lengths lie one behind the other, those of sequence b from
    cu_seqlens_q[b] up to cu_seqlens_q[b + 1]. With T = cu_seqlens_q[B] then q is [1, Hq, T, Dk] and out [1, Hq, T, Dv],
    lse [1, Hq, T]; bias and mask are broadcastable to [1, Hq, T, Sk] or, for all rows of a sequence, to [B, Hq, 1, Sk].
    Keys are [B, Hkv, Sk, D] with kv_lengths, or with cu_seqlens_k [1, Hkv, Tk, D]; Sk then is the longest sequence's.
    Prefill and decoding mix in one call. Every row is the same to the bit as in a padded batch with q_lengths.

    Returns:
        out [B, Hq, Sq, Dv] in the layout, or the tuple (out[, lse][, scores]) with lse [B, Hq, Sq] and scores
        [B, Hq, Sq, Sk], both float32. A row that sees no key has out 0 and lse -inf (or the sink).

    Raises:
        TypeError, ValueError, NotImplementedError, MemoryError: see the package's docstring.

    Sources: Dao et al., FlashAttention (2022); Milakov and Gimelshein, Online normalizer calculation for softmax
    (2018); Press et al., ALiBi (2022); Kwon et al., PagedAttention (2023).
    """
    problem = attention_options(
        layout=layout,
        scale=scale,
        causal=causal,
        causal_offset=causal_offset,
        window=window,
        softcap=softcap,
        sinks=sinks,
        bias=bias,
        mask=mask,
        alibi_slopes=alibi_slopes,
        q_lengths=q_lengths,
        kv_lengths=kv_lengths,
        cu_seqlens_q=cu_seqlens_q,
        cu_seqlens_k=cu_seqlens_k,
        block_table=block_table,
        k_scale=k_scale,
        v_scale=v_scale,
        algorithm=algorithm,
        threads=threads,
        device=device,
        return_scores=return_scores,
    )
    wants_lse = flag("return_lse", return_lse)
    on_device = _devices.choose_home(problem, q, k, device)
    if on_device == "q":
        made, lse = _devices.attention(q, k, v, out, problem, wants_lse, stream)
        return made if lse is None else (made, lse)
    check_host(out=out, bias=bias, mask=mask)
    if on_device == "k":
        k, v = _devices.keys_on_device(k, v, problem, stream)
    else:
        check_host(v=v, k_scale=k_scale, v_scale=v_scale)
        if stream is not None:
            raise ValueError("stream: is given, but q lives on the host")
    return results(q, out, _hattn.attention(q, k, v, out, problem, wants_lse))


def explain(
    q: Any, k: Any, v: Any, *, out: Optional[Any] = None, return_lse: bool = False, **options: Any
) -> Dict[str, Any]:
    """What attention() would do for these arguments, without doing it.

    Args:
        q, k, v: as in attention(); shapes and dtypes matter, values do not.
        out: as in attention(); its dtype matters.
        return_lse: accepted, so that a call of attention() can be explained as it is; it changes nothing.
        **options: every other option of attention(). A stream is not looked at.

    Returns:
        A dict with the algorithm, kernel, target, tile parameters, tasks, workspace bytes, and why they were chosen, for a
        sequence of all rows of q and k; docs/tuning.md has a table of members. Where lengths are given, of queries, keys or
        packed sequences, each sequence has what is chosen for its own (on a device, what the plan has): "sequences" is a list of
        such dicts then, each with the rows and keys that it is for, and the count of sequences that have so many. Else it is
        empty.

    Raises:
        As attention(), for types, dtypes and options, for the heads and head dimensions of q, the heads of k, the lengths of
        sinks, slopes and vectors of lengths, for lengths that q and k have no room for, and for what is not supported. Not looked
        at are other values, the extents and strides of bias, mask, scales and out, the batch and head dimension of k, all of v
        but its head dimension, and whether scales are there: attention() may refuse those.
    """
    flag("return_lse", return_lse)
    options.pop("stream", None)
    check_names("explain", options)
    problem = attention_options(**options)
    on_device = _devices.choose_home(problem, q, k, options.get("device"))
    operands = {"out": out, "bias": problem.bias, "mask": problem.mask}
    if on_device == "q":
        _devices.check_together("q", q, k=k, v=v, **operands)
    elif on_device == "k":
        check_host(q=q, **operands)
        _devices.check_together("k", k, v=v)
    else:
        check_host(q=q, k=k, v=v, **operands)
    plan: Dict[str, Any] = json.loads(_hattn.explain(q, k, v, out, problem))
    plan["sequences"] = [
        {"count": count, "rows": rows, "keys": keys, **json.loads(text)}
        for count, rows, keys, text in _hattn.explain_sequences(q, k, v, out, problem)
    ]
    return plan


def _list_of(name: str, arrays: Any) -> List[Any]:
    try:
        return list(arrays)
    except TypeError:
        raise TypeError(f"{name}: expected a sequence of arrays, got {type(arrays).__name__}") from None


def merge_states(
    outs: Sequence[Any],
    lses: Sequence[Any],
    *,
    out: Optional[Any] = None,
    lse: Optional[Any] = None,
    stream: Optional[Any] = None,
) -> Any:
    """Merges attention over disjoint sets of keys, each given as (out, lse) without sinks.

    out = sum_n exp(lse_n - lse) out_n with lse = ln sum_n exp(lse_n). A state with lse = -inf weighs nothing.

    Args:
        outs: N >= 1 arrays [B, H, S, D] float32, float16 or bfloat16, unit stride in D. Sums are float32.
        lses: N arrays [B, H, S] float32, as attention(..., return_lse=True) gives them.
        out, lse: arrays to write to, [B, H, S, D] and [B, H, S]; may not overlap the inputs. Default: new ones, out in
            the dtype of outs[0].
        stream: of arrays on a device, which all then are, with D up to 256: where the work is put, as attention() takes it.
            The call waits for it.

    Returns:
        (out [B, H, S, D], lse [B, H, S] float32), as the kind of outs[0].

    Raises:
        TypeError, ValueError, NotImplementedError, MemoryError: see the package's docstring.

    Source: Ye et al., FlashInfer (2025).
    """
    states, state_lses = _list_of("outs", outs), _list_of("lses", lses)
    if states and _devices.home("outs", states[0]) is not None:
        return _devices.merge_states(states, state_lses, out, lse, stream)
    for name, arrays in (("outs", states), ("lses", state_lses), ("out", [out]), ("lse", [lse])):
        for array in arrays:
            check_host(**{name: array})
    if stream is not None:
        raise ValueError("stream: is given, but outs live on the host")
    merged, merged_lse = _hattn.merge_states(states, state_lses, out, lse, None)
    like = states[0]
    made = output_kind(like, merged) if out is None else out
    return made, same_kind(like, merged_lse) if lse is None else lse


def info() -> Dict[str, Any]:
    """Version, targets compiled and runnable, kernels, and the tuning database in use."""
    library: Dict[str, Any] = json.loads(_hattn.info())
    return library
