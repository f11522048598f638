"""Who takes part in a comparison. Each computes the same causal prefill from the same memory, laid out [B, S, H, D].

A contestant has `name`, `variant` (how it was set up), `prepare(inputs)`, `run()` and `result()`, the output of the
last run as [S, Hq, D].
"""
from dataclasses import dataclass

import numpy as np

SEED = 20

# The shape of the comparison; batch 1.
QUERY_HEADS = 16
KV_HEADS = 8
HEAD_DIM = 128


@dataclass(frozen=True)
class Inputs:
    q: np.ndarray  # [1, S, Hq, D] float32, standard normal
    k: np.ndarray  # [1, S, Hkv, D]
    v: np.ndarray

    @staticmethod
    def of_length(length):
        random = np.random.default_rng(SEED)

        def normal(heads):
            return random.standard_normal((1, length, heads, HEAD_DIM), dtype=np.float32)

        return Inputs(normal(QUERY_HEADS), normal(KV_HEADS), normal(KV_HEADS))

    @property
    def length(self):
        return self.q.shape[1]

    @property
    def flops(self):
        """Operations over the keys that a causal query sees, a multiply-add being two; softmax is not counted."""
        pairs = self.length * (self.length + 1) // 2
        return 4 * HEAD_DIM * QUERY_HEADS * pairs


class Hattn:
    name = "hattn"

    def __init__(self, threads):
        self._threads = threads
        self.variant = ""

    def prepare(self, inputs):
        import hattn

        self._out = np.zeros_like(inputs.q)
        self._arrays = (inputs.q, inputs.k, inputs.v)
        self._options = dict(layout="bshd", causal=True, threads=self._threads, out=self._out)
        self._attention = hattn.attention
        plan = hattn.explain(*self._arrays, **self._options)
        self.variant = f"{plan['algorithm']} {plan['kernel']}"

    def run(self):
        self._attention(*self._arrays, **self._options)

    def result(self):
        return self._out[0]


class OnnxRuntime:
    """com.microsoft.GroupQueryAttention on the CPU execution provider, as a prompt with an empty past.

    It has settings that may or may not pay: workers that spin between runs, and outputs bound in advance. Each
    combination is a contestant, and the best one counts.
    """

    name = "onnxruntime"

    def __init__(self, threads, spinning, binding):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "1" if spinning else "0")
        self._session = onnxruntime.InferenceSession(_group_query_attention(), options,
                                                     providers=["CPUExecutionProvider"])
        self._binding = binding
        self.variant = f"{'spinning' if spinning else 'no spinning'}, {'bound' if binding else 'returned'} outputs"

    def prepare(self, inputs):
        length = inputs.length
        past = np.zeros((1, KV_HEADS, 0, HEAD_DIM), np.float32)
        self._feed = {
            # [B, S, H * D]: views of the same memory
            "query": inputs.q.reshape(1, length, -1),
            "key": inputs.k.reshape(1, length, -1),
            "value": inputs.v.reshape(1, length, -1),
            "past_key": past,
            "past_value": past,
            "seqlens_k": np.array([length - 1], np.int32),  # keys less one, by the operator's definition
            "total_sequence_length": np.array(length, np.int32),
        }
        self._out = np.zeros((1, length, QUERY_HEADS * HEAD_DIM), np.float32)
        if self._binding:
            self._bind(length)

    def _bind(self, length):
        from onnxruntime import OrtValue

        present = (1, KV_HEADS, length, HEAD_DIM)
        outputs = {"out": self._out, "present_key": np.zeros(present, np.float32),
                   "present_value": np.zeros(present, np.float32)}
        self._bound = self._session.io_binding()
        self._keep = [(name, OrtValue.ortvalue_from_numpy(array)) for name, array in self._feed.items()]
        for name, value in self._keep:
            self._bound.bind_ortvalue_input(name, value)
        for name, array in outputs.items():
            self._bound.bind_output(name, "cpu", 0, np.float32, array.shape, array.ctypes.data)
        self._keep.append(outputs)

    def run(self):
        if self._binding:
            self._session.run_with_iobinding(self._bound)
        else:
            self._out = self._session.run(["out"], self._feed)[0]

    def result(self):
        return self._out.reshape(-1, QUERY_HEADS, HEAD_DIM)


def _group_query_attention():
    """The model, serialised: one node."""
    from onnx import TensorProto, helper

    def tensor(name, *shape, dtype=TensorProto.FLOAT):
        return helper.make_tensor_value_info(name, dtype, shape)

    inputs = [
        tensor("query", 1, "S", QUERY_HEADS * HEAD_DIM),
        tensor("key", 1, "S", KV_HEADS * HEAD_DIM),
        tensor("value", 1, "S", KV_HEADS * HEAD_DIM),
        tensor("past_key", 1, KV_HEADS, "P", HEAD_DIM),
        tensor("past_value", 1, KV_HEADS, "P", HEAD_DIM),
        tensor("seqlens_k", 1, dtype=TensorProto.INT32),
        tensor("total_sequence_length", dtype=TensorProto.INT32),
    ]
    outputs = [
        tensor("out", 1, "S", QUERY_HEADS * HEAD_DIM),
        tensor("present_key", 1, KV_HEADS, "T", HEAD_DIM),
        tensor("present_value", 1, KV_HEADS, "T", HEAD_DIM),
    ]
    node = helper.make_node("GroupQueryAttention", [i.name for i in inputs], [o.name for o in outputs],
                            domain="com.microsoft", num_heads=QUERY_HEADS, kv_num_heads=KV_HEADS)
    graph = helper.make_graph([node], "prefill", inputs, outputs)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def _onnxruntime(threads):
    return [OnnxRuntime(threads, spinning, binding) for spinning in (False, True) for binding in (False, True)]


# What --against may name, and how to make all its variants for a number of threads.
PEERS = {"onnxruntime": _onnxruntime}
