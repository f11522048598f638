"""Attention on devices: against the oracle, the same bits however keys are stored and whatever the batch, and errors."""

import numpy as np
import pytest

import hattn
import oracle
from helpers import assert_close, assert_same_bits, ends, pack, random_qkv
from paged_keys import Paged, everything, queries

DEVICES = {row["name"]: row for row in hattn.info()["devices"]}


@pytest.fixture(params=["opencl", "cuda"])
def device(request):
    row = DEVICES.get(request.param)
    if row is None or not row["usable"]:
        pytest.skip(f"{request.param}: " + (row["why_not"] if row else "the build has no kernels for it"))
    return request.param


@pytest.fixture(params=["naive", "flash", "split_kv", "unfused"])
def algorithm(request):
    return request.param


@pytest.mark.parametrize("hooks", [False, True])
@pytest.mark.parametrize("rows", [1, 3, 40])
@pytest.mark.parametrize("page_size", [16, 128])
def test_pages_give_the_bits_of_contiguous_keys(rng, device, algorithm, page_size, rows, hooks):
    paged = Paged(rng, [600, 0, 5, 128, 257], page_size)
    q = queries(rng, 5, rows)
    options = everything(rng, 5, rows, 600) if hooks else {"causal": bool(rng.integers(2))}
    asked = {"algorithm": algorithm, "return_lse": True, "device": device}
    k, v = paged.finite()
    expected = hattn.attention(q, k, v, kv_lengths=paged.lengths, **options, **asked)
    for given in (paged.arguments(), paged.moved(rng)):
        for ours, theirs in zip(hattn.attention(q, **given, **options, **asked), expected):
            assert_same_bits(ours, theirs)
    truth = oracle.attention(q, k, v, kv_lengths=paged.lengths, **options)
    assert_close(expected[0], truth.out)
    assert_close(expected[1], truth.lse, "lse")


def test_packed_queries(rng, device, algorithm):
    q_lengths, kv_lengths = [1, 70, 0, 5, 3], [600, 70, 9, 257, 0]
    paged = Paged(rng, kv_lengths, 16)
    q, (k, v) = queries(rng, 5, 70), paged.finite()
    options = {"causal": True, "algorithm": algorithm, "return_lse": True, "device": device}
    out, lse = hattn.attention(q, k, v, q_lengths=q_lengths, kv_lengths=kv_lengths, **options)
    packed = {"q": pack(q, q_lengths), "cu_seqlens_q": ends(q_lengths)}
    sides = {"k": pack(k, kv_lengths), "v": pack(v, kv_lengths), "cu_seqlens_k": ends(kv_lengths)}
    for given in (paged.arguments(), sides):
        packed_out, packed_lse = hattn.attention(**packed, **given, **options)
        assert_same_bits(packed_out, pack(out, q_lengths))
        assert_same_bits(packed_lse, pack(lse[..., None], q_lengths)[..., 0])


@pytest.mark.parametrize("storage", [{}, {"page_size": 16}, {"window": 40}])
def test_cache(rng, device, storage):
    """A ring has wrapped around by the end."""
    cache = hattn.KVCache(2, 2, 112, 16, **storage)
    window = (storage.get("window", 0) - 1, -1)
    for _ in range(3):
        cache.append(*(rng.standard_normal((2, 2, 37, 16), np.float32) for _ in range(2)), lengths=[37, 20])
        q = rng.standard_normal((2, 4, 1, 16), np.float32)
        options = {"causal": True, "window": window, "return_lse": True}
        expected = cache.attend(q, **options)
        for ours, theirs in zip(cache.attend(q, device=device, **options), expected):
            assert_close(ours, theirs)


def test_a_sequence_has_the_same_bits_in_any_batch(rng, device, algorithm):
    q, k, v = random_qkv(rng, batch=3, queries=33, keys=700)
    options = {"causal": True, "algorithm": algorithm, "device": device}
    together = hattn.attention(q, k, v, **options)
    for b in range(3):
        alone = hattn.attention(q[b : b + 1], k[b : b + 1], v[b : b + 1], **options)
        assert_same_bits(alone, together[b : b + 1])


def test_strides(rng, device, algorithm):
    """Backwards, every other row, and one prefix for all sequences."""
    q, k, v = random_qkv(rng, batch=2, queries=40, keys=80)
    q, k, v = q[:, ::-1, ::2], k[:, :, ::-1], np.broadcast_to(v[:1], v.shape)
    out = np.full((2, 4, 40, 16), np.float32(7))[:, :, ::2]
    hattn.attention(q, k, v, algorithm=algorithm, device=device, out=out)
    assert_close(out, oracle.attention(q, k, v).out)
    assert np.all(out.base[:, :, 1::2] == 7)


def test_explain_names_the_kernel(rng, device):
    explained = hattn.explain(*random_qkv(rng, key_dim=50, queries=40), softcap=1.0, device=device)
    assert explained["target"] == device
    assert explained["kernel"] in {kernel["name"] for kernel in DEVICES[device]["kernels"]}
    assert explained["tile"]["head"] >= 50


@pytest.mark.parametrize("mode", ["raw", "capped", "masked", "probabilities"])
def test_scores_are_those_of_the_cpu(rng, device, mode):
    q, k, v = random_qkv(rng, queries=20, keys=600)
    options = {"causal": True, "softcap": 2.0, "kv_lengths": [600, 77], "q_lengths": [20, 3], "return_scores": mode}
    out, scores = hattn.attention(q, k, v, device=device, **options)
    expected_out, expected = hattn.attention(q, k, v, **options)
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(out, expected_out, rtol=1e-5, atol=1e-5)


def test_heads_that_are_too_large(rng, device):
    with pytest.raises(NotImplementedError, match="q and v: the larger head dimension is 257, but .* at most 256"):
        hattn.attention(*random_qkv(rng, key_dim=257), device=device)
    q, k, v = random_qkv(rng, key_dim=257)
    with pytest.raises(NotImplementedError, match="q and v: the larger head dimension is 257, but .* at most 256"):
        hattn.attention(q, k, v[..., :32], device=device)


@pytest.mark.parametrize("name", ["opencl", "cuda"])
def test_a_device_that_is_not_there(rng, name):
    row = DEVICES.get(name)
    if row and row["usable"]:
        pytest.skip(f"this machine has {name}")
    reason = "has none that works: ." if row else "this build has kernels for cpu"
    out = np.full((2, 4, 5, 16), np.float32(7))
    with pytest.raises(NotImplementedError, match=f"device: is {name}, but .*{reason}"):
        hattn.attention(*random_qkv(rng), device=name, out=out)
    assert np.all(out == 7)


@pytest.mark.parametrize("storage", [{}, {"page_size": 16}, {"window": 20}])
def test_caches(rng, device, storage):
    caches = [hattn.KVCache(2, 2, 64, 16, device=where, **storage) for where in (None, device)]
    window = (storage["window"] - 1, -1) if "window" in storage else (-1, -1)
    for rows in (19, 1, 1):
        q, k, v = random_qkv(rng, queries=2, keys=rows)
        outs = []
        for cache in caches:
            cache.append(k, v, rope=hattn.Rope())
            outs.append(cache.attend(q, causal=True, window=window))
        np.testing.assert_allclose(outs[1], outs[0], rtol=1e-5, atol=1e-5)
    for other in ("cpu", "cuda:7"):
        with pytest.raises(ValueError, match=f"device: is {other}, but the cache is on {device}:0"):
            caches[1].attend(q, device=other, window=window)
    for name, read in (("view", lambda: caches[1].view()), ("scales", lambda: caches[1].scales)):
        with pytest.raises(NotImplementedError, match=f"{name}: the cache is on a device"):
            read()


@pytest.mark.parametrize(
    "storage",
    [
        {"dtype": "float16"},
        {"dtype": "int8", "page_size": 16},
        {"dtype": "int8", "value_dtype": "int4", "k_scale": np.float32(0.03), "v_scale": np.full((2, 16), 0.4, np.float32)},
    ],
)
def test_caches_of_other_types(rng, device, storage):
    """The bits of a cache on the host whose attention the device computes."""
    host, there = (hattn.KVCache(2, 2, 64, 16, device=where, **storage) for where in (None, device))
    for rows in (19, 1):
        q, k, v = random_qkv(rng, queries=2, keys=rows)
        for cache in (host, there):
            cache.append(k, v.astype(np.float16), lengths=[rows, rows // 2])
        assert_same_bits(there.attend(q, causal=True), host.attend(q, causal=True, device=device))
    with pytest.raises(NotImplementedError, match="scales: the cache is on a device"):
        _ = there.scales
    there.fork(0, 1)
    host.fork(0, 1)
    assert_same_bits(there.attend(q, causal=True), host.attend(q, causal=True, device=device))
