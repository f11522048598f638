"""Every option of hattn.attention(), alone and in random combinations, by every algorithm, against the oracle."""

import numpy as np
import pytest

import hattn
import oracle
from helpers import assert_close, assert_same_bits, random_qkv

BATCH, HEADS, QUERIES, KEYS = 2, 4, 5, 7
SCORES = ("raw", "capped", "masked", "probabilities")


def random_options(rng, batch=BATCH, heads=HEADS, queries=QUERIES, keys=KEYS):
    """Every option by name, each with a value that makes a difference."""
    bias = rng.standard_normal((batch, heads, queries, keys), np.float32)
    bias[rng.random(bias.shape) < 0.1] = -np.inf
    return {
        "scale": {"scale": 0.37},
        "causal": {"causal": True},
        "causal_offset": {"causal": True, "causal_offset": -2},
        "causal_offsets": {"causal": True, "causal_offset": rng.integers(-3, keys + 2, batch, dtype=np.int32)},
        "window": {"window": (1, 2)},
        "window_left": {"window": (0, -1)},
        "window_right": {"window": (-1, 0)},
        "softcap": {"softcap": 0.8},
        "sinks": {"sinks": rng.standard_normal(heads, np.float32)},
        "smooth": {"sinks": np.zeros(heads, np.float32)},
        "bias": {"bias": bias},
        "mask": {"mask": rng.random((batch, heads, queries, keys)) < 0.6},
        "alibi_slopes": {"alibi_slopes": np.float32(0.5) ** np.arange(1, heads + 1, dtype=np.float32)},
        "q_lengths": {"q_lengths": rng.integers(0, queries + 1, batch, dtype=np.int32)},
        "kv_lengths": {"kv_lengths": rng.integers(0, keys + 1, batch, dtype=np.int32)},
    }


OPTION_NAMES = tuple(random_options(np.random.default_rng(0)))


def check(q, k, v, algorithm, options):
    """Compares out, lse and each score output with the oracle; returns nothing."""
    expected = oracle.attention(q, k, v, **options)
    out, lse = hattn.attention(q, k, v, algorithm=algorithm, return_lse=True, **options)
    assert_close(out, expected.out)
    assert_close(lse, expected.lse, "lse")
    for name in SCORES:
        out, scores = hattn.attention(q, k, v, algorithm=algorithm, return_scores=name, **options)
        assert_close(out, expected.out, f"out beside {name} scores")
        assert_close(scores, expected.scores[name], f"{name} scores")


def test_no_option(rng, algorithm):
    check(*random_qkv(rng), algorithm, {})


@pytest.mark.parametrize("sink", [None, -1e9])
@pytest.mark.parametrize("bias", [-1e4, -1e6, -1e9, -1e38, np.finfo(np.float32).min])
def test_probabilities_of_rows_that_padding_biases(rng, bias, sink):
    """They sum up to one, though their log-sum-exp is too coarse for it; those of other rows are what they are without."""
    q, k, v = random_qkv(rng, heads=2, kv_heads=1, queries=3, keys=9000)
    biases = np.zeros((3, 9000), np.float32)
    biases[1] = bias
    sinks = None if sink is None else np.full(2, sink, np.float32)
    options = {"return_scores": "probabilities", "sinks": sinks}
    out, weights = hattn.attention(q, k, v, bias=biases, **options)
    shares = weights.sum(axis=-1, dtype=np.float64)
    if sink is None or bias > sink:
        np.testing.assert_allclose(shares, 1, atol=2e-3 if bias == -1e4 else 1e-5)
    else:  # as large as a key's score, or larger
        np.testing.assert_allclose(shares[:, :, 1], 9000 / 9001 if bias == sink else 0, atol=1e-5)
    if bias <= -1e9 and sink is None:
        np.testing.assert_allclose(weights[:, :, 1], 1 / 9000, rtol=1e-5)
    plain = hattn.attention(q, k, v, bias=np.zeros((3, 9000), np.float32), **options)[1]
    assert_same_bits(weights[:, :, ::2], plain[:, :, ::2])


@pytest.mark.parametrize("name", OPTION_NAMES)
def test_one_option(rng, algorithm, name):
    check(*random_qkv(rng), algorithm, random_options(rng)[name])


@pytest.mark.parametrize("seed", range(40))
def test_combined_options(rng, algorithm, seed):
    shape = {
        "batch": int(rng.integers(1, 4)),
        "heads": 6,
        "queries": int(rng.integers(1, 20)),
        "keys": int(rng.integers(1, 40)),
    }
    chosen = [name for name in OPTION_NAMES if rng.random() < 0.4]
    print(f"shape: {shape}, options: {chosen}")
    available = random_options(rng, **shape)
    options = {key: value for name in chosen for key, value in available[name].items()}
    q, k, v = random_qkv(
        rng, kv_heads=int(rng.choice([1, 2, 3, 6])), key_dim=int(rng.integers(1, 40)), value_dim=11, **shape
    )
    check(q, k, v, algorithm, options)


@pytest.mark.parametrize("rows, key_type", [(1, np.float32), (3, np.float32), (40, np.float32), (1, np.float16)])
def test_values_that_are_part_of_the_keys(rng, algorithm, rows, key_type):
    """As in multi-head latent attention (DeepSeek-V2, 2024) with its projections absorbed: nothing is copied for it."""
    q = rng.standard_normal((2, 16, rows, 576), np.float32)
    latent = rng.standard_normal((2, 1, 70, 576), np.float32).astype(key_type)
    values = latent[..., :512]
    out = hattn.attention(q, latent, values, causal=True, algorithm=algorithm)
    assert_same_bits(out, hattn.attention(q, latent, values.copy(), causal=True, algorithm=algorithm))
    if key_type == np.float32:
        assert_close(out, oracle.attention(q, latent, values, causal=True).out)


@pytest.mark.parametrize(
    "shape",
    [
        dict(batch=1, heads=1, kv_heads=1, queries=1, keys=1, key_dim=1),
        dict(batch=1, heads=16, kv_heads=1, queries=3, keys=9, key_dim=8),
        dict(batch=5, heads=2, kv_heads=2, queries=4, keys=3, key_dim=5, value_dim=3),
        dict(batch=1, heads=3, kv_heads=3, queries=1, keys=600, key_dim=64),
        dict(batch=2, heads=2, kv_heads=1, queries=65, keys=131, key_dim=33, value_dim=65),
        dict(batch=1, heads=2, kv_heads=1, queries=130, keys=70, key_dim=128),
        dict(batch=1, heads=1, kv_heads=1, queries=17, keys=300, key_dim=256, value_dim=256),
    ],
    ids=str,
)
@pytest.mark.parametrize("causal", [False, True])
def test_shapes(rng, algorithm, shape, causal):
    q, k, v = random_qkv(rng, **shape)
    expected = oracle.attention(q, k, v, causal=causal)
    out, lse = hattn.attention(q, k, v, algorithm=algorithm, causal=causal, return_lse=True)
    assert_close(out, expected.out)
    assert_close(lse, expected.lse, "lse")


@pytest.mark.parametrize("empty", ["batch", "queries", "keys"])
def test_empty_extents(rng, algorithm, empty):
    q, k, v = random_qkv(rng, **{empty: 0})
    expected = oracle.attention(q, k, v)
    out, lse, scores = hattn.attention(q, k, v, algorithm=algorithm, return_lse=True, return_scores="masked")
    assert_close(out, expected.out)
    assert_close(lse, expected.lse, "lse")
    assert_close(scores, expected.scores["masked"], "scores")


@pytest.mark.parametrize("sinks", [None, np.array([0.5, -1, 0, 2], np.float32)], ids=["no sinks", "sinks"])
def test_fully_masked_rows(rng, algorithm, sinks):
    q, k, v = random_qkv(rng)
    mask = np.ones((QUERIES, KEYS), bool)
    mask[1] = False
    out, lse = hattn.attention(q, k, v, algorithm=algorithm, mask=mask, sinks=sinks, return_lse=True)
    assert np.all(out[:, :, 1] == 0)
    np.testing.assert_array_equal(lse[:, :, 1], np.broadcast_to(-np.inf if sinks is None else sinks, (BATCH, HEADS)))
    expected = oracle.attention(q, k, v, mask=mask, sinks=sinks)
    assert_close(out, expected.out)


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("hide", ["kv_lengths", "mask", "bias", "causal", "window"])
def test_poison_behind_masks_does_not_leak(rng, algorithm, hide, poison):
    q, k, v = random_qkv(rng, queries=3, keys=9)
    visible = 5
    hidden = np.arange(9) >= visible
    options = {
        "kv_lengths": {"kv_lengths": np.full(2, visible, np.int32)},
        "mask": {"mask": ~hidden},
        "bias": {"bias": np.where(hidden, np.float32(-np.inf), np.float32(0))},
        "causal": {"causal": True, "causal_offset": visible - 3},
        "window": {"window": (-1, 0), "causal_offset": visible - 3},
    }[hide]
    clean = hattn.attention(q, k, v, algorithm=algorithm, return_lse=True, **options)
    k[:, :, visible:] = poison
    v[:, :, visible:] = poison
    poisoned = hattn.attention(q, k, v, algorithm=algorithm, return_lse=True, **options)
    for a, b in zip(clean, poisoned):
        np.testing.assert_array_equal(a, b)
        assert np.all(np.isfinite(b))


@pytest.mark.parametrize("scale", [1e3, -1e3])
def test_extreme_logits(rng, algorithm, scale):
    q, k, v = random_qkv(rng, queries=6, keys=50, key_dim=4, value_dim=9)
    expected = oracle.attention(q, k, v, scale=scale)
    out, lse = hattn.attention(q, k, v, scale=scale, algorithm=algorithm, return_lse=True)
    largest = np.abs(expected.scores["raw"]).max()
    assert largest > 5e3
    # A score of this size is known to a few units of its last place; a weight is off by that factor's exponential.
    of_scores = 4 * np.finfo(np.float32).eps * largest
    assert_close(out, expected.out, rtol=0, atol=2 * of_scores * np.abs(v).max())
    assert_close(lse, expected.lse, "lse", rtol=4 * np.finfo(np.float32).eps)


@pytest.mark.parametrize("logit", [1e4, 1e30, -1e4])
def test_one_key_outweighs_all(algorithm, logit):
    keys, key_dim = 50, 8
    k = np.zeros((1, 1, keys, key_dim), np.float32)
    chosen = [0, 17, 31, 32, 49]
    for dimension, key in enumerate(chosen):
        k[0, 0, key, dimension] = 1
    q = np.float32(logit) * np.eye(key_dim, dtype=np.float32)[None, None, : len(chosen)]
    v = np.arange(keys * 8, dtype=np.float32).reshape(1, 1, keys, 8)
    out, lse = hattn.attention(q, k, v, scale=1.0, algorithm=algorithm, return_lse=True)
    expected = oracle.attention(q, k, v, scale=1.0)
    assert_close(out, expected.out)
    assert_close(lse, expected.lse, "lse")
    if logit > 0:
        np.testing.assert_array_equal(out[0, 0], v[0, 0, chosen])


@pytest.mark.parametrize(
    "shape",
    [(), (KEYS,), (QUERIES, 1), (1, 1, 1, 1), (BATCH, 1, 1, KEYS), (1, HEADS, QUERIES, KEYS), (HEADS, 1, 1)],
    ids=str,
)
@pytest.mark.parametrize("name", ["bias", "mask"])
def test_broadcast(rng, algorithm, name, shape):
    q, k, v = random_qkv(rng)
    value = rng.standard_normal(shape, np.float32) if name == "bias" else rng.random(shape) < 0.7
    value = np.asarray(value)
    expected = oracle.attention(q, k, v, **{name: value})
    assert_close(hattn.attention(q, k, v, algorithm=algorithm, **{name: value}), expected.out)


@pytest.mark.parametrize("name", ["bias", "mask"])
def test_strided_bias_and_mask(rng, algorithm, name):
    q, k, v = random_qkv(rng)
    full = rng.standard_normal((KEYS * 2, QUERIES, HEADS, BATCH), np.float32)
    value = full.transpose(3, 2, 1, 0)[..., ::2]
    value = value if name == "bias" else value > 0
    if name == "mask":
        value = np.asfortranarray(value)
    assert value.strides[-1] != value.itemsize
    expected = oracle.attention(q, k, v, **{name: value})
    assert_close(hattn.attention(q, k, v, algorithm=algorithm, **{name: value}), expected.out)


@pytest.mark.parametrize(
    "dtype", [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64, list, tuple]
)
@pytest.mark.parametrize("name", ["q_lengths", "kv_lengths", "causal_offset"])
def test_lengths_of_any_integer_type(rng, name, dtype):
    q, k, v = random_qkv(rng)
    values = [3, 5]
    given = dtype(values) if dtype in (list, tuple) else np.array(values, dtype)
    expected = oracle.attention(q, k, v, causal=True, **{name: values})
    assert_close(hattn.attention(q, k, v, causal=True, **{name: given}), expected.out)


def test_strided_vectors(rng):
    q, k, v = random_qkv(rng)
    options = {
        "sinks": rng.standard_normal(2 * HEADS, np.float32)[::2],
        "alibi_slopes": rng.random(HEADS, np.float32)[::-1],
        "kv_lengths": np.array([3, 0, 5, 0])[::2],
    }
    assert_close(hattn.attention(q, k, v, **options), oracle.attention(q, k, v, **options).out)


def test_results_in_order(rng):
    q, k, v = random_qkv(rng)
    assert isinstance(hattn.attention(q, k, v), np.ndarray)
    out, lse, scores = hattn.attention(q, k, v, return_scores="raw", return_lse=True)
    assert (out.ndim, lse.shape, scores.shape) == (4, (BATCH, HEADS, QUERIES), (BATCH, HEADS, QUERIES, KEYS))
    out, scores = hattn.attention(q, k, v, return_scores="raw")
    assert scores.shape == (BATCH, HEADS, QUERIES, KEYS)


@pytest.mark.parametrize("algorithm", ["naive", "flash", "split_kv", "unfused"])
@pytest.mark.parametrize(
    ("offset", "window"), [(2**29, (2**30, -1)), (2**29 - 4, (2**40, -1)), (-(2**29), (-1, 2**30)), (2**29, (2**29 + 9, 2**62))]
)
def test_windows_that_reach_all_keys_from_anywhere(algorithm, offset, window):
    q, k = np.ones((1, 1, 9, 8), np.float32), np.ones((1, 1, 5, 8), np.float32)
    expected = hattn.attention(q, k, k, algorithm=algorithm, return_lse=True)
    seen = hattn.attention(q, k, k, algorithm=algorithm, return_lse=True, causal_offset=offset, window=window)
    for one, other in zip(seen, expected):
        assert_same_bits(one, other)


@pytest.mark.parametrize("dims", [(384, 64), (512, 1), (1024, 512), (64, 512)], ids=str)
@pytest.mark.parametrize("algorithm", ["naive", "flash", "split_kv", "unfused"])
def test_workspaces_allow_for_heads_that_differ(rng, algorithm, dims):
    """Kernels take what they need from the workspace, and nothing from the heap."""
    overflows = hattn.info()["scratch_overflows"]
    for rows in (1, 4, 64):
        for keys in (1, 130):
            q, k, v = (rng.standard_normal((1, 2, *extents), np.float32) for extents in ((rows, dims[0]), (keys, dims[0]), (keys, dims[1])))
            hattn.attention(q, k, v, algorithm=algorithm, threads=1)
    assert hattn.info()["scratch_overflows"] == overflows
