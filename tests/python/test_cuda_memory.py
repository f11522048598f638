"""Arrays in CUDA memory, of a driver whose GPU is emulated and of the machine's, against the oracle; and streams, waits and memory
with one whose kernels compute nothing."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hattn
import oracle
from device_arrays import KDL_CUDA, CudaMemory, DeviceArray
from helpers import assert_close, assert_same_bits, random_qkv, random_states
from paged_keys import Paged, queries

DEVICES = {row["name"]: row for row in hattn.info()["devices"]}
STUB = Path(hattn.__file__).parents[2] / "tests/cpp/stub_cuda"
EMULATOR = Path(hattn.__file__).parents[2] / "tests/cpp/emulated_cuda/emulated_cuda"


def _run_with(driver, what, **environment):
    """A function of this file in a process that finds a driver without a GPU."""
    if "cuda" not in DEVICES:
        pytest.skip("the build has no kernels for cuda")
    if not driver.exists():
        pytest.skip("the driver without a GPU has not been built")
    _run(what, LD_LIBRARY_PATH=str(driver), **environment)


def _run(what, **environment):
    environment = {**os.environ, **environment}
    done = subprocess.run([sys.executable, __file__, what], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_cuda_arrays(tmp_path):
    _run_with(STUB, "streams", HATTN_STUB_CUDA_LOG=str(tmp_path / "log"), HATTN_STUB_CUDA_DEVICES="2")


IN_CUDA_MEMORY = ["results", "types", "pages", "host_queries", "caches", "cache_options", "rows", "states"]


@pytest.mark.parametrize("what", IN_CUDA_MEMORY)
def test_cuda_memory(what):
    _run_with(EMULATOR, what)


@pytest.mark.parametrize("what", IN_CUDA_MEMORY)
def test_memory_of_a_gpu(what):
    row = DEVICES.get("cuda")
    if row is None or not row["usable"]:
        pytest.skip("cuda: " + (row["why_not"] if row else "the build has no kernels for it"))
    _run(what)


def _launches():
    log = Path(os.environ["HATTN_STUB_CUDA_LOG"])
    lines = log.read_text().splitlines()
    log.unlink()
    return [line.split(" ")[0] for line in lines], [line for line in lines if line.startswith("launch")]


def _streams():
    rng = np.random.default_rng(0)
    q, k, v = (DeviceArray(array, (KDL_CUDA, 1)) for array in random_qkv(rng, batch=2, queries=20, keys=90))
    out, lse = hattn.attention(q, k, v, return_lse=True)
    assert out.where == lse.where == (KDL_CUDA, 1)
    assert out.shape == q.shape and lse.shape == q.shape[:3]
    assert _launches()[0][-1] == "wait"  # without a stream results are there
    hattn.attention(q, k, v, stream=0)
    assert q.stream == 1  # the default stream, as DLPack says it
    words, launches = _launches()
    assert "wait" in words and len(launches) == 1  # test_streams.py has libraries that need not be waited for


def _results():
    rng, gpu = np.random.default_rng(1), CudaMemory()
    q, k, v = random_qkv(rng, batch=2, queries=20, keys=90)
    bias, mask = rng.standard_normal((4, 20, 90), np.float32), rng.random((20, 90)) < 0.8
    options = {"causal": True, "softcap": 3.0}
    expected = oracle.attention(q, k, v, bias=bias, mask=mask, **options)
    arrays, operands = [gpu.array(array) for array in (q, k, v)], {"bias": gpu.array(bias), "mask": gpu.array(mask)}
    for algorithm in ("naive", "flash", "split_kv", "unfused"):
        for stream in (None, 0):
            out, lse = hattn.attention(*arrays, **operands, **options, algorithm=algorithm, return_lse=True, stream=stream)
            assert out.memory is lse.memory is gpu
            assert_close(gpu.fetch(out), expected.out)
            assert_close(gpu.fetch(lse), expected.lse, "lse")
    out = gpu.array(np.zeros_like(q))
    assert hattn.attention(*arrays, **operands, **options, out=out, stream=0) is out
    assert_close(gpu.fetch(out), expected.out)


def _types():
    rng, gpu = np.random.default_rng(2), CudaMemory()
    q, k, v = (array.astype(np.float16) for array in random_qkv(rng, batch=2, queries=20, keys=90))
    exact = oracle.attention(*(array.astype(np.float32) for array in (q, k, v))).out
    arrays = [gpu.array(array) for array in (q, k, v)]
    assert hattn.explain(*arrays, algorithm="flash")["matrix_type"] == "float16"
    out = hattn.attention(*arrays, algorithm="flash")
    assert out.dtype == np.float16
    # Weights are rounded to float16 too, after which outputs of size 1 are.
    assert_close(gpu.fetch(out).astype(np.float32), exact, rtol=2**-10, atol=2**-9)
    k, v = (rng.integers(-127, 128, array.shape, np.int8) for array in (k, v))
    scales = {f"{side}_scale": rng.random((2, 2, 90, 1), np.float32) / 64 for side in "kv"}
    exact = oracle.attention(q.astype(np.float32), k * scales["k_scale"], v * scales["v_scale"]).out
    on_gpu = {name: gpu.array(scale) for name, scale in scales.items()}
    out = hattn.attention(arrays[0], gpu.array(k), gpu.array(v), **on_gpu)
    assert_close(gpu.fetch(out).astype(np.float32), exact, rtol=2**-10, atol=2**-12)
    by_channel = rng.random((2, 16), np.float32) / 64
    for given, factor in (
        (0.02, 0.02),
        (gpu.array(np.array(0.02, np.float32)), 0.02),
        (gpu.array(by_channel[:, 0].copy()), by_channel[:, :1, None]),
        (by_channel[:, 0].copy(), by_channel[:, :1, None]),
        (gpu.array(by_channel), by_channel[:, None]),
        (by_channel, by_channel[:, None]),
        (by_channel[None, :, None], by_channel[:, None]),
    ):
        exact = oracle.attention(q.astype(np.float32), k * np.float32(factor), v * np.float32(factor)).out
        for keys, values, options in ((k, v, {}), (k.swapaxes(1, 2).copy(), v.swapaxes(1, 2).copy(), {"layout": "bshd"})):
            swap = (lambda array: array.swapaxes(1, 2)) if options else (lambda array: array)
            if options and np.ndim(getattr(given, "array", given)) == 4:
                continue  # which is in the layout
            queries_there = gpu.array(swap(q).copy())
            out = hattn.attention(
                queries_there, gpu.array(keys), gpu.array(values), k_scale=given, v_scale=given, **options
            )
            assert_close(swap(gpu.fetch(out)).astype(np.float32), exact, rtol=2**-10, atol=2**-11)
    wide, scale = gpu.array(k.view(np.uint8)), gpu.array(np.ones((1, 1, 1, 1), np.float32))
    channels = gpu.array(np.ones((1, 1, 1, 31), np.float32))  # of values in bytes, two to one: 32 or, by the scales, 31
    for given, dim in ((scale, 32), (channels, 31)):
        assert hattn.attention(arrays[0], arrays[1], wide, v_scale=given).shape == (*q.shape[:3], dim)


def _pages():
    rng, gpu = np.random.default_rng(3), CudaMemory()
    paged = Paged(rng, [100, 0, 5], 16)
    q, (k, v), given = queries(rng, 3, 7), paged.finite(), paged.arguments()
    given["k"], given["v"] = gpu.array(given["k"]), gpu.array(given["v"])
    expected = oracle.attention(q, k, v, kv_lengths=paged.lengths, causal=True)
    assert_close(gpu.fetch(hattn.attention(gpu.array(q), **given, causal=True)), expected.out)


def _host_queries():
    """Queries of the host over keys on the device, contiguous and in pages, with scales."""
    rng, gpu = np.random.default_rng(4), CudaMemory()
    q, k, v = random_qkv(rng, batch=2, queries=3, keys=90)
    bias = rng.standard_normal((4, 3, 90), np.float32)
    expected = oracle.attention(q, k, v, bias=bias, causal=True)
    for stream in (None, 0):
        out, lse = hattn.attention(q, gpu.array(k), gpu.array(v), bias=bias, causal=True, return_lse=True, stream=stream)
        assert isinstance(out, np.ndarray)
        assert_close(out, expected.out)
        assert_close(lse, expected.lse, "lse")
    k, v = (rng.integers(-127, 128, array.shape, np.int8) for array in (k, v))
    scales = {f"{side}_scale": rng.random((2, 2, 90, 1), np.float32) / 64 for side in "kv"}
    on_gpu = {name: gpu.array(scale) for name, scale in scales.items()}
    exact = oracle.attention(q, k * scales["k_scale"], v * scales["v_scale"]).out
    assert_close(hattn.attention(q, gpu.array(k), gpu.array(v), **on_gpu), exact)
    assert hattn.explain(q, gpu.array(k), gpu.array(v), **on_gpu)["target"] == "cuda"
    for call, name in (
        (lambda: hattn.attention(q, gpu.array(k), v), "v"),
        (lambda: hattn.attention(q, gpu.array(k), gpu.array(v), **scales), "k_scale"),
    ):
        with pytest.raises(ValueError, match=f"{name}: the ndarray lives on the host, but k lives on DLPack device"):
            call()
    with pytest.raises(ValueError, match="device: is cpu, but k lives on cuda:0"):
        hattn.attention(q, gpu.array(k), gpu.array(v), **on_gpu, device="cpu")


def _caches():
    """The bits of caches whose rows come from the host, and results beside queries."""
    rng, gpu = np.random.default_rng(5), CudaMemory()
    for storage in ({}, {"page_size": 16, "dtype": "bfloat16"}, {"window": 30, "dtype": "int8"}):
        for stream in (None, 0):
            caches = [hattn.KVCache(2, 2, 64, 32, value_dim=16, device="cuda", stream=stream, **storage) for _ in range(2)]
            window = (storage.get("window", 0) - 1, -1)
            for rows in (19, 1, 1, 1, 1, 1, 1):
                q, k, v = random_qkv(rng, queries=1, keys=rows, key_dim=32, value_dim=16)
                for cache, move in zip(caches, (lambda array: array, gpu.array)):
                    cache.append(move(k), move(v), lengths=[rows, rows // 2], rope=hattn.Rope())
                options = {"causal": True, "window": window, "return_lse": True}
                expected, there = caches[0].attend(q, **options), caches[1].attend(gpu.array(q), **options)
                for ours, theirs in zip(there, expected):
                    assert ours.memory is gpu
                    assert_same_bits(gpu.fetch(ours), theirs)
                for theirs, ours in zip(expected, caches[1].attend(q, **options)):
                    assert_same_bits(ours, theirs)


def _cache_options():
    """Operands, outputs, packed rows and layouts; what is elsewhere."""
    rng, gpu = np.random.default_rng(6), CudaMemory()
    q, k, v = random_qkv(rng, queries=5, keys=40)
    cache = hattn.KVCache(2, 2, 64, 16, device="cuda")
    cache.append(gpu.array(k.swapaxes(1, 2)), v.swapaxes(1, 2), layout="bshd")  # keys there, values of the host
    bias, mask = rng.standard_normal((4, 5, 40), np.float32), rng.random((5, 40)) < 0.8
    out = gpu.array(np.zeros_like(q))
    assert cache.attend(gpu.array(q), out=out, bias=gpu.array(bias), mask=gpu.array(mask), stream=0) is out
    assert_close(gpu.fetch(out), oracle.attention(q, k, v, bias=bias, mask=mask).out)
    swapped = cache.attend(gpu.array(q.swapaxes(1, 2)), layout="bshd")
    assert_close(gpu.fetch(swapped).swapaxes(1, 2), oracle.attention(q, k, v).out)
    packed = hattn.KVCache(2, 2, 64, 16, device="cuda")
    packed.append(gpu.array(k[:1]), gpu.array(v[:1]), cu_seqlens=[0, 37, 40])
    assert list(packed.lengths) == [37, 3]
    given = {"cu_seqlens_q": [0, 4, 5], "causal": True}
    assert_same_bits(gpu.fetch(packed.attend(gpu.array(q[:1]), **given)), packed.attend(q[:1], **given))
    for call, pattern in (
        (lambda: cache.append(DeviceArray(k, (KDL_CUDA, 1)), v), "k: the DeviceArray lives on cuda:1, but the cache is on cuda:0"),
        (lambda: cache.attend(DeviceArray(q, (KDL_CUDA, 1))), "q: the DeviceArray lives on cuda:1, but the cache is on cuda:0"),
        (lambda: cache.attend(gpu.array(q), out=np.zeros_like(q)), "out: the ndarray lives on the host, but q lives on"),
        (lambda: cache.attend(gpu.array(q), stream=64), "stream: is 64, but that of the cache, .*, is the library's own"),
        (lambda: cache.attend(q, stream=0), "stream: is given, but q lives on the host"),
        (lambda: hattn.KVCache(2, 2, 64, 16, stream=0), "stream: is given, but the cache is on the host"),
    ):
        with pytest.raises(ValueError, match=pattern):
            call()
    for call in (lambda: cache.attend(q, out=out), lambda: hattn.KVCache(2, 2, 64, 16).append(gpu.array(k), v)):
        with pytest.raises(NotImplementedError, match="but only arrays on the CPU are supported here"):
            call()
    with pytest.raises(NotImplementedError, match="return_scores: is given"):
        cache.attend(gpu.array(q), return_scores="raw")


def _rows():
    """Queries turned beside themselves and in place, padded and packed, and attention of them as on the host."""
    rng, gpu, rope = np.random.default_rng(7), CudaMemory(), hattn.Rope(base=500.0)
    for dtype in (np.float32, np.float16):
        q, k, v = (array.astype(dtype) for array in random_qkv(rng, queries=4, keys=9))
        tolerance = {} if dtype == np.float32 else {"rtol": 2**-10, "atol": 2**-12}
        turned = hattn.apply_rope(gpu.array(q), rope, offsets=[5, 9], lengths=[4, 2])
        assert turned.memory is gpu and turned.dtype == dtype
        expected = hattn.apply_rope(q, rope, offsets=[5, 9], lengths=[4, 2]).astype(np.float32)
        assert_close(gpu.fetch(turned).astype(np.float32), expected, **tolerance)
        for stream in (None, 0):
            cache = hattn.KVCache(2, 2, 64, 16, device="cuda", stream=stream)
            cache.append(gpu.array(k), gpu.array(v), rope=rope)
            there = cache.apply_rope(gpu.array(q), rope)
            expected = hattn.apply_rope(q, rope, offsets=[5, 5]).astype(np.float32)
            assert_close(gpu.fetch(there).astype(np.float32), expected, **tolerance)
            host = hattn.KVCache(2, 2, 64, 16)
            host.append(k, v, rope=rope)
            expected = host.attend(host.apply_rope(q, rope), causal=True).astype(np.float32)
            assert_close(gpu.fetch(cache.attend(there, causal=True)).astype(np.float32), expected, **tolerance)
            packed = gpu.array(np.ascontiguousarray(q[:1]))
            assert cache.apply_rope(packed, rope, cu_seqlens=[0, 1, 4], out=packed) is packed
            expected = hattn.apply_rope(q[:1], rope, positions=[8, 6, 7, 8]).astype(np.float32)
            assert_close(gpu.fetch(packed).astype(np.float32), expected, **tolerance)


def _states():
    rng, gpu = np.random.default_rng(8), CudaMemory()
    outs, lses = random_states(rng)
    lses[1][0] = -np.inf
    expected = oracle.merge_states(outs, lses)
    for stream in (None, 0):
        made = hattn.merge_states(map(gpu.array, outs), map(gpu.array, lses), stream=stream)
        for ours, theirs in zip(made, expected):
            assert ours.memory is gpu
            assert_close(gpu.fetch(ours), theirs)
    halves = [array.astype(np.float16) for array in outs]
    out, _ = hattn.merge_states(map(gpu.array, halves), map(gpu.array, lses))
    assert out.dtype == np.float16
    exact, _ = oracle.merge_states([array.astype(np.float32) for array in halves], lses)
    assert_close(gpu.fetch(out).astype(np.float32), exact, rtol=2**-10, atol=2**-12)


CACHES = {"host_queries": _host_queries, "caches": _caches, "cache_options": _cache_options, "rows": _rows, "states": _states}


if __name__ == "__main__":
    {"streams": _streams, "results": _results, "types": _types, "pages": _pages, **CACHES}[sys.argv[1]]()
