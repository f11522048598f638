"""ONNX Runtime's com.microsoft.GroupQueryAttention, and random problems for it as calls of hattn.

What the operator does, as its schema says and the CPU implementation was seen to do, beside hattn's semantics:
  - the new keys go behind the past ones, seqlens_k[b] = past + new - 1, and causal limits start at the last key of each
    sequence: that is causal_offset = past;
  - local_window_size = W is W keys with the query's own: window = (W - 1, -1) in hattn;
  - softcap comes before attention_bias, which is indexed by the absolute key, and head_sink is a logit of its own:
    as in hattn. smooth_softmax is a head_sink of zeros;
  - do_rotary turns queries and new keys by their position among the keys; past keys are turned already;
  - several new tokens on top of a past need batch 1; a first prompt may be ragged, rows past its length mean nothing.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

import hattn

SEED = 20250801

INPUTS = (
    "query",
    "key",
    "value",
    "past_key",
    "past_value",
    "seqlens_k",
    "total_sequence_length",
    "cos_cache",
    "sin_cache",
    "position_ids",
    "attention_bias",
    "head_sink",
)
OUTPUTS = ("output", "present_key", "present_value")


class Config(NamedTuple):
    """One call of the operator. Sequence b has past[b] keys and gets lengths[b] of `rows` new ones."""

    heads: int
    kv_heads: int
    dim: int
    rows: int
    past: Tuple[int, ...]
    lengths: Tuple[int, ...]
    spare: int  # rows of the past's buffer beyond its longest sequence with the new keys
    causal: bool
    scale: Optional[float]
    softcap: float
    window: int  # local_window_size
    bias: Optional[Tuple[bool, bool]]  # whether it varies over (batch, heads)
    sinks: Optional[str]  # "head" or "smooth"
    rotary: Optional[str]  # "half" or "interleaved"
    packed: bool  # query, key and value in one tensor
    tables: bool  # hattn takes the operator's cosines and sines, else the angles

    @property
    def total(self) -> np.ndarray:
        return np.add(self.past, self.lengths)


def random_config(index: int) -> Config:
    """The config of that number: decoding, a chunk of a prompt or a first prompt with any mix of options."""
    rng = np.random.default_rng([SEED, index])
    kind = rng.choice(["decode", "chunk", "prompt"], p=[0.5, 0.3, 0.2])
    batch = 1 if kind == "chunk" else int(rng.integers(1, 5))
    rows = 1 if kind == "decode" else int(rng.integers(2, 48))
    past = np.zeros(batch, int) if kind == "prompt" else rng.integers(1, 700, batch)
    lengths = rng.integers(1, rows + 1, batch) if kind == "prompt" else np.full(batch, rows)
    lengths[rng.integers(batch)] = rows
    kv_heads = int(rng.integers(1, 5))
    causal = bool(rng.random() < 0.9)
    return Config(
        heads=kv_heads * int(rng.choice([1, 2, 3, 4, 8])),
        kv_heads=kv_heads,
        dim=int(rng.choice([16, 32, 48, 64, 80, 128])),
        rows=rows,
        past=tuple(map(int, past)),
        lengths=tuple(map(int, lengths)),
        spare=int(rng.integers(0, 30)) * int(rng.random() < 0.5),
        causal=causal,
        scale=float(rng.uniform(0.05, 0.5)) if rng.random() < 0.3 else None,
        softcap=float(rng.uniform(0.5, 30)) if rng.random() < 0.3 else 0.0,
        window=int(rng.integers(1, 300)) if causal and rng.random() < 0.4 else -1,
        bias=(bool(rng.random() < 0.5), bool(rng.random() < 0.5)) if rng.random() < 0.3 else None,
        sinks=str(rng.choice(["head", "smooth"])) if rng.random() < 0.4 else None,
        rotary=str(rng.choice(["half", "interleaved"])) if rng.random() < 0.4 else None,
        packed=bool(rng.random() < 0.4),
        tables=bool(rng.random() < 0.5),
    )


def configs_up_to(steps: int) -> List[Config]:
    """Those of the first numbers, until so many continue a past: decoding and chunks, with first prompts among them."""
    configs: List[Config] = []
    while steps:
        configs.append(random_config(len(configs)))
        steps -= configs[-1].past[0] > 0
    return configs


def random_inputs(config: Config, index: int) -> Dict[str, np.ndarray]:
    """The operator's inputs by name; the buffer of the past holds NaN where there is no key yet."""
    rng = np.random.default_rng([SEED, index, 1])
    batch, (heads, kv_heads, dim, rows) = len(config.past), config[:4]
    longest = int(config.total.max())

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, np.float32)

    if config.packed:
        inputs = {"query": normal(batch, rows, (heads + 2 * kv_heads) * dim)}
    else:
        inputs = {
            "query": normal(batch, rows, heads * dim),
            "key": normal(batch, rows, kv_heads * dim),
            "value": normal(batch, rows, kv_heads * dim),
        }
    for name in ("past_key", "past_value"):
        inputs[name] = normal(batch, kv_heads, longest + config.spare, dim)
        for b, past in enumerate(config.past):
            inputs[name][b, :, past:] = np.nan
    inputs["seqlens_k"] = np.asarray(config.total - 1, np.int32)
    inputs["total_sequence_length"] = np.array([longest], np.int32)
    if config.rotary:
        frequencies = 10000.0 ** -(np.arange(dim // 2) / (dim // 2))
        angles = np.arange(longest)[:, None] * frequencies
        inputs.update(cos_cache=np.float32(np.cos(angles)), sin_cache=np.float32(np.sin(angles)))
    if config.bias:
        per_batch, per_head = config.bias
        inputs["attention_bias"] = normal(batch if per_batch else 1, heads if per_head else 1, rows, longest)
    if config.sinks == "head":
        inputs["head_sink"] = normal(heads)
    return inputs


def run_operator(config: Config, inputs: Dict[str, np.ndarray]) -> Dict[str, np.ndarray]:
    """output as [B, Hq, S, D], present_key and present_value, by ONNX Runtime."""
    node = helper.make_node(
        "GroupQueryAttention",
        [name if name in inputs else "" for name in INPUTS],
        OUTPUTS,
        domain="com.microsoft",
        num_heads=config.heads,
        kv_num_heads=config.kv_heads,
        causal=int(config.causal),
        scale=config.scale or 0.0,  # 0: 1/sqrt(D)
        softcap=config.softcap,
        local_window_size=config.window,
        smooth_softmax=int(config.sinks == "smooth"),
        do_rotary=int(config.rotary is not None),
        rotary_interleaved=int(config.rotary == "interleaved"),
    )
    described = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in inputs.items()
    ]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in OUTPUTS]
    model = helper.make_model(
        helper.make_graph([node], "gqa", described, results),
        opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)],
        ir_version=10,
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    outputs = dict(zip(OUTPUTS, session.run(None, inputs)))
    batch = len(config.past)
    outputs["output"] = outputs["output"].reshape(batch, config.rows, config.heads, config.dim).transpose(0, 2, 1, 3)
    return outputs


def split_heads(config: Config, inputs: Dict[str, np.ndarray]) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Queries and new keys and values as views [B, H, S, D]."""
    batch, heads, kv_heads = len(config.past), config.heads, config.kv_heads
    if config.packed:
        views = inputs["query"].reshape(batch, config.rows, heads + 2 * kv_heads, config.dim).transpose(0, 2, 1, 3)
        return views[:, :heads], views[:, heads : heads + kv_heads], views[:, heads + kv_heads :]
    q, k, v = (
        inputs[name].reshape(batch, config.rows, -1, config.dim).transpose(0, 2, 1, 3)
        for name in ("query", "key", "value")
    )
    return q, k, v


def rope(config: Config, inputs: Dict[str, np.ndarray]) -> Optional[hattn.Rope]:
    """What turns queries and new keys, by their position among the keys."""
    if config.rotary is None:
        return None
    tables = {"cos": inputs["cos_cache"], "sin": inputs["sin_cache"]} if config.tables else {}
    return hattn.Rope(interleaved=config.rotary == "interleaved", **tables)


def hattn_options(config: Config, inputs: Dict[str, np.ndarray]) -> Dict[str, Any]:
    """The options of hattn.attention() for the same, but for the keys' own lengths."""
    options: Dict[str, Any] = {
        "causal": config.causal,
        "scale": config.scale,
        "softcap": config.softcap,
        "window": (config.window - 1 if config.window > 0 else -1, -1),
        "bias": inputs.get("attention_bias"),
        "q_lengths": config.lengths,
    }
    if config.sinks:
        options["sinks"] = inputs.get("head_sink", np.zeros(config.heads, np.float32))
    return options
