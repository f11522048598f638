"""The Attention node cases of the onnx package, through hattn and, as a check of mapping and oracle, the oracle."""

import numpy as np
import pytest

import hattn
import oracle

pytest.importorskip("onnx", reason="the onnx package needs Python 3.10")
import onnx_cases  # noqa: E402

NAMES = onnx_cases.case_names()
RTOL, ATOL = 1e-3, 1e-5  # of the onnx package; also for float16, whose unit in the last place is 9.8e-4


def by_hattn(q, k, v, scores, **options):
    result = hattn.attention(q, k, v, return_scores=scores, **options)
    # Score outputs are float32 whatever the type of the queries.
    return (result[0], result[1].astype(q.dtype)) if scores else (result, None)


def by_oracle(q, k, v, scores, **options):
    state = oracle.attention(q, k, v, **options)
    return state.out, state.scores.get(scores)


def check(case, attention):
    outputs = onnx_cases.run(case, attention)
    assert outputs.keys() == case.outputs.keys()
    for name, expected in case.outputs.items():
        np.testing.assert_allclose(outputs[name], expected, rtol=RTOL, atol=ATOL, err_msg=name)


def test_all_cases_are_here():
    assert len(NAMES) == 64
    dtypes = [onnx_cases.load(name).inputs["Q"].dtype.name for name in NAMES]
    assert (dtypes.count("float32"), dtypes.count("float16")) == (62, 2)


@pytest.mark.parametrize("name", NAMES)
def test_hattn(name):
    check(onnx_cases.load(name), by_hattn)


@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith("fp16")])
def test_oracle(name):
    check(onnx_cases.load(name), by_oracle)


@pytest.mark.parametrize("name", [name for name in NAMES if "past" in name])
def test_past_through_a_cache(name):
    """The same with the past appended to a KVCache before the new keys."""
    case = onnx_cases.load(name)
    views = onnx_cases.split_heads(case)
    past_key, past_value = case.inputs["past_key"], case.inputs["past_value"]
    batch, heads, past, key_dim = past_key.shape
    cache = hattn.KVCache(batch, heads, past + views["K"].shape[2] + 3, key_dim, value_dim=past_value.shape[3],
                          dtype=past_key.dtype)
    cache.append(past_key, past_value)
    cache.append(views["K"], views["V"])
    out = cache.attend(views["Q"], **onnx_cases.options(case))
    np.testing.assert_allclose(onnx_cases.merge_heads(case, out), case.outputs["Y"], rtol=RTOL, atol=ATOL)
