"""The node cases of ONNX's Attention operator that the onnx package ships, as calls of an attention function.

The operator (opset 23 and 24) computes softcap before the mask is added, as hattn does, and its qk_matmul_output_mode
counts the same four stages in the same order. What differs:
  - with 3-D inputs the heads are packed into the last dimension, which is layout "bshd" after a reshape;
  - past keys and values are concatenated in front of the new ones;
  - causal masks start at the first new key (upper left), whatever the lengths: the offset is the number of past keys;
  - a mask is a bias if it is float, and may have fewer keys than there are: the rest is masked, so it is left out.
"""

from __future__ import annotations

import pathlib
from typing import Any, Dict, List, NamedTuple, Optional

import numpy as np
import onnx
from onnx import numpy_helper

DATA = pathlib.Path(onnx.__file__).parent / "backend" / "test" / "data" / "node"
SCORES = ("raw", "capped", "masked", "probabilities")  # indexed by qk_matmul_output_mode


class Case(NamedTuple):
    """One node with the data of its test."""

    opset: int
    attributes: Dict[str, Any]
    inputs: Dict[str, Optional[np.ndarray]]  # by the operator's names; absent ones are missing
    outputs: Dict[str, np.ndarray]


def case_names() -> List[str]:
    return sorted(path.name for path in DATA.glob("test_attention_*") if not path.name.endswith("_expanded"))


def _named(schema_names, node_names, folder: pathlib.Path, kind: str) -> Dict[str, np.ndarray]:
    """Arrays of a case's files by the operator's argument names; empty node names are arguments left out."""
    present = [schema for schema, node in zip(schema_names, node_names) if node]
    arrays = {}
    for index, name in enumerate(present):
        arrays[name] = numpy_helper.to_array(onnx.load_tensor(str(folder / f"{kind}_{index}.pb")))
    return arrays


def load(name: str) -> Case:
    model = onnx.load(str(DATA / name / "model.onnx"))
    (node,) = model.graph.node
    assert node.op_type == "Attention"
    opset = model.opset_import[0].version
    schema = onnx.defs.get_schema("Attention", opset)
    folder = DATA / name / "test_data_set_0"
    return Case(
        opset=opset,
        attributes={a.name: onnx.helper.get_attribute_value(a) for a in node.attribute},
        inputs=_named([i.name for i in schema.inputs], node.input, folder, "input"),
        outputs=_named([o.name for o in schema.outputs], node.output, folder, "output"),
    )


def split_heads(case: Case) -> Dict[str, np.ndarray]:
    """Q, K, V as views [B, H, S, D]."""
    inputs, attributes = case.inputs, case.attributes
    if inputs["Q"].ndim == 4:
        return {name: inputs[name] for name in "QKV"}
    heads = {"Q": attributes["q_num_heads"], "K": attributes["kv_num_heads"], "V": attributes["kv_num_heads"]}
    views = {}
    for name, count in heads.items():
        batch, rows, _ = inputs[name].shape
        views[name] = inputs[name].reshape(batch, rows, count, -1).transpose(0, 2, 1, 3)
    return views


def merge_heads(case: Case, out: np.ndarray) -> np.ndarray:
    """[B, H, S, D] in the rank of the case's own output."""
    if case.inputs["Q"].ndim == 4:
        return out
    return out.transpose(0, 2, 1, 3).reshape(out.shape[0], out.shape[2], -1)


def options(case: Case) -> Dict[str, Any]:
    """The options of hattn.attention() that the attributes and optional inputs amount to."""
    attributes, inputs = case.attributes, case.inputs
    known = {"scale", "softcap", "is_causal", "q_num_heads", "kv_num_heads", "qk_matmul_output_mode"}
    assert set(attributes) <= known, f"attributes this mapping does not know: {set(attributes) - known}"
    chosen: Dict[str, Any] = {"scale": attributes.get("scale"), "softcap": attributes.get("softcap", 0.0)}
    if attributes.get("is_causal"):
        past = inputs["past_key"].shape[2] if "past_key" in inputs else 0
        chosen.update(causal=True, causal_offset=past)
    if "attn_mask" in inputs:
        mask = inputs["attn_mask"]
        chosen["mask" if mask.dtype == bool else "bias"] = mask if mask.dtype == bool else mask.astype(np.float32)
    if "nonpad_kv_seqlen" in inputs:
        chosen["kv_lengths"] = inputs["nonpad_kv_seqlen"]
    return chosen


def run(case: Case, attention) -> Dict[str, np.ndarray]:
    """The case's outputs, computed by attention(q, k, v, scores, **options) -> (out, scores or None)."""
    views = split_heads(case)
    q, k, v = (views[name] for name in "QKV")
    if "past_key" in case.inputs:
        k = np.concatenate([case.inputs["past_key"], k], axis=2)
        v = np.concatenate([case.inputs["past_value"], v], axis=2)
    outputs = {"present_key": k, "present_value": v}
    if "attn_mask" in case.inputs:
        keys = case.inputs["attn_mask"].shape[-1]
        k, v = k[:, :, :keys], v[:, :, :keys]
    wanted = SCORES[case.attributes.get("qk_matmul_output_mode", 0)] if "qk_matmul_output" in case.outputs else None
    out, scores = attention(q, k, v, wanted, **options(case))
    outputs["Y"] = merge_heads(case, out)
    outputs["qk_matmul_output"] = scores
    return {name: outputs[name] for name in case.outputs}
