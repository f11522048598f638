"""480 random steps of decoding and of chunks, and first prompts beside them, by hattn and by ONNX Runtime's GroupQueryAttention.

They agree to 9e-6, on an x86-64 with AVX2. Either is within 8e-6 of the oracle, and furthest where a large scale makes
scores large: that is rounding, and no config needs a tolerance of its own.
"""

import numpy as np
import pytest

import hattn
from helpers import ATOL, RTOL, assert_same_bits

pytest.importorskip("onnx", reason="the onnx package needs Python 3.10")
pytest.importorskip("onnxruntime", reason="the onnxruntime package needs Python 3.11")
import gqa_operator as gqa  # noqa: E402

CONFIGS = gqa.configs_up_to(480)


def turned_queries(config, inputs):
    q, rope = gqa.split_heads(config, inputs)[0], gqa.rope(config, inputs)
    return q if rope is None else hattn.apply_rope(q, rope, offsets=config.past, lengths=config.lengths)


def by_cache(config, inputs):
    """Through a KVCache: the past first, then the new rows. Also the keys that it keeps."""
    _, k, v = gqa.split_heads(config, inputs)
    longest = int(config.total.max())
    cache = hattn.KVCache(len(config.past), config.kv_heads, longest + config.spare, config.dim)
    past_key, past_value = (inputs[name][:, :, : max(config.past)] for name in ("past_key", "past_value"))
    cache.append(past_key, past_value, config.past)
    cache.append(k, v, config.lengths, gqa.rope(config, inputs))
    assert list(cache.lengths) == list(config.total)
    return cache.attend(turned_queries(config, inputs), **gqa.hattn_options(config, inputs)), cache.view()[0]


def by_buffers(config, inputs, present_key, present_value):
    """The same over the operator's own present buffers."""
    longest = int(config.total.max())
    q = turned_queries(config, inputs)
    k, v = present_key[:, :, :longest], present_value[:, :, :longest]
    return hattn.attention(q, k, v, kv_lengths=config.total, **gqa.hattn_options(config, inputs))


@pytest.mark.parametrize("index", range(len(CONFIGS)))
def test_parity(index):
    config = CONFIGS[index]
    print(config)
    inputs = gqa.random_inputs(config, index)
    expected = gqa.run_operator(config, inputs)
    out, keys = by_cache(config, inputs)
    over_buffers = by_buffers(config, inputs, expected["present_key"], expected["present_value"])
    for b, rows in enumerate(config.lengths):
        np.testing.assert_allclose(out[b, :, :rows], expected["output"][b, :, :rows], rtol=RTOL, atol=ATOL)
        present = expected["present_key"][b, :, : config.total[b]]
        np.testing.assert_allclose(keys[b, :, : config.total[b]], present, rtol=1e-6, atol=1e-6)
        if config.rotary is None:  # the keys are the same bits then
            assert_same_bits(over_buffers[b], out[b])
        else:
            np.testing.assert_allclose(over_buffers[b], out[b], rtol=RTOL, atol=ATOL)


def test_every_feature_is_there():
    """Each in at least 20 of the configs, or the sweep says less than it seems to."""
    features = {
        "decoding": lambda c: c.rows == 1,
        "chunk": lambda c: c.rows > 1 and c.past[0] > 0,
        "prompt": lambda c: c.past[0] == 0,
        "ragged": lambda c: len(set(c.total)) > 1,
        "spare buffer": lambda c: c.spare > 0,
        "bidirectional": lambda c: not c.causal,
        "scale": lambda c: c.scale is not None,
        "softcap": lambda c: c.softcap > 0,
        "window": lambda c: 0 < c.window < max(c.total),
        "bias": lambda c: c.bias is not None,
        "head sink": lambda c: c.sinks == "head",
        "smooth softmax": lambda c: c.sinks == "smooth",
        "rotary": lambda c: c.rotary == "half",
        "interleaved rotary": lambda c: c.rotary == "interleaved",
        "rotary by tables": lambda c: c.rotary is not None and c.tables,
        "rotary by angles": lambda c: c.rotary is not None and not c.tables,
        "packed QKV": lambda c: c.packed,
    }
    counts = {name: sum(map(has, CONFIGS)) for name, has in features.items()}
    assert min(counts.values()) >= 20, counts
    assert counts["decoding"] + counts["chunk"] >= 300, counts
