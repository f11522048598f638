"""ONNX Runtime: com.microsoft.GroupQueryAttention and MultiHeadAttention on the CPU execution provider.

Prompts come with an empty past; decoding with a cache in place, to which the operator appends the last key. The
operator returns keys and values as a cache, which is part of its time. Workers that spin between runs or do not, and
fused kernel or materialised scores are variants. Inputs and outputs are bound in advance.
"""
import os
from contextlib import contextmanager

import numpy as np

from peer import SMALL_SCORES, additive, is_ragged, score_count


def version():
    import onnxruntime

    return onnxruntime.__version__


@contextmanager
def _environment(**values):
    """Variables that the operators read when a session is made."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


class _Variant:
    def __init__(self, name, model, inputs, outputs, shape, threads, spinning, fused):
        """inputs, outputs: name -> array. shape: of the output "out", as (B, S, H, D)."""
        import onnxruntime
        from onnxruntime import OrtValue

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "1" if spinning else "0")
        disabled = "0" if fused else "1"
        with _environment(ORT_GQA_DISABLE_FLASH_ATTENTION=disabled, ORT_DISABLE_FLASH_ATTENTION=disabled):
            self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self.name = f"{name}, {'fused' if fused else 'scores in memory'}, {'spinning' if spinning else 'no spinning'}"
        self._bound = self._session.io_binding()
        self._keep = [inputs, outputs]
        for input_name, array in inputs.items():
            value = OrtValue.ortvalue_from_numpy(array)
            self._keep.append(value)
            self._bound.bind_ortvalue_input(input_name, value)
        for output_name, array in outputs.items():
            self._bound.bind_output(output_name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        self._out = outputs["out"].reshape(shape)

    def run(self):
        self._session.run_with_iobinding(self._bound)

    def result(self):
        return self._out.transpose(0, 2, 1, 3)


def _model(operator, inputs, order, outputs, **attributes):
    """One node, serialised. order: names of its inputs, "" where one is left out."""
    from onnx import TensorProto, helper

    types = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16, "int32": TensorProto.INT32}

    def values(arrays):
        return [helper.make_tensor_value_info(name, types[str(array.dtype)], array.shape)
                for name, array in arrays.items()]

    while not order[-1]:
        order = order[:-1]
    node = helper.make_node(operator, order, list(outputs), domain="com.microsoft", **attributes)
    graph = helper.make_graph([node], operator, values(inputs), values(outputs))
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def _rows(array):
    """[B, H, S, D] as [B, S, H * D]."""
    return np.ascontiguousarray(array.transpose(0, 2, 1, 3)).reshape(array.shape[0], array.shape[2], -1)


def _last_rows(array, lengths, count):
    """The `count` keys before each length, as [B, count, H * D]."""
    return np.stack([_rows(array[b:b + 1, :, n - count:n])[0] for b, n in enumerate(lengths)])


def _out(case, arrays):
    return np.zeros((case.batch, case.query_length, case.query_heads * case.value_dim), arrays["q"].dtype)


def _group_query_attention(case, arrays):
    """(model, inputs, outputs)."""
    lengths = case.kv_lengths or [case.kv_length] * case.batch
    k, v, rows = arrays["k"], arrays["v"], case.query_length
    inputs = {"query": _rows(arrays["q"]), "key": _last_rows(k, lengths, rows), "value": _last_rows(v, lengths, rows)}
    outputs = {"out": _out(case, arrays)}
    if rows == case.kv_length:
        empty = (case.batch, case.kv_heads, 0, case.key_dim)
        present = (case.batch, case.kv_heads, rows, case.key_dim)
        inputs.update(past_key=np.zeros(empty, k.dtype), past_value=np.zeros(empty, k.dtype))
        outputs.update(present_key=np.zeros(present, k.dtype), present_value=np.zeros(present, k.dtype))
    else:  # in place: the operator writes the last keys again
        inputs.update(past_key=k, past_value=v)
        outputs.update(present_key=k, present_value=v)
    inputs["seqlens_k"] = np.array(lengths, np.int32) - 1  # keys less one, by the operator's definition
    inputs["total_sequence_length"] = np.array(max(lengths), np.int32)
    bias = additive(case, arrays)
    if bias is not None:
        inputs["attention_bias"] = np.ascontiguousarray(bias)
    if case.has_sinks and not case.smooth_softmax:
        inputs["head_sink"] = arrays["sinks"].reshape(-1)
    order = [name if name in inputs else "" for name in (
        "query", "key", "value", "past_key", "past_value", "seqlens_k", "total_sequence_length", "cos_cache",
        "sin_cache", "position_ids", "attention_bias", "head_sink")]
    attributes = {"num_heads": case.query_heads, "kv_num_heads": case.kv_heads}
    if case.window_left >= 0:
        attributes["local_window_size"] = case.window_left + 1
    if case.softcap:
        attributes["softcap"] = case.softcap
    if case.smooth_softmax:
        attributes["smooth_softmax"] = 1
    return _model("GroupQueryAttention", inputs, order, outputs, **attributes), inputs, outputs


def _multi_head_attention(case, arrays):
    """(model, inputs, outputs), with keys repeated for grouped heads."""
    group = case.query_heads // case.kv_heads
    inputs = {"query": _rows(arrays["q"]), "key": _rows(np.repeat(arrays["k"], group, axis=1)),
              "value": _rows(np.repeat(arrays["v"], group, axis=1))}
    outputs = {"out": _out(case, arrays)}
    return _model("MultiHeadAttention", inputs, list(inputs), outputs, num_heads=case.query_heads), inputs, outputs


def variants(case, arrays, threads):
    if case.work == "appending" or case.page_size or case.key_dim != case.value_dim:
        return []
    operators = {}
    if case.causal:
        operators["GroupQueryAttention"] = _group_query_attention
    plain = not (case.softcap or case.has_sinks or case.has_alibi or "bias" in arrays or "mask" in arrays)
    one_row = case.query_length == 1 and case.query_heads == case.kv_heads  # keys need no repeating
    if plain and (not case.causal or one_row) and case.window_left < 0 and not is_ragged(case):
        operators["MultiHeadAttention"] = _multi_head_attention
    shape = (case.batch, case.query_length, case.query_heads, case.value_dim)
    small = score_count(case) <= SMALL_SCORES
    return [_Variant(name, *make(case, arrays), shape, threads, spinning, fused)
            for name, make in operators.items() for fused in ((True, False) if small else (True,))
            for spinning in (False, True)]
