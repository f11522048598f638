"""Arrays that live on a device: in OpenCL memory, and in that of a CUDA driver whose GPU is emulated, against the oracle; and streams,
waits and memory with one whose kernels compute nothing."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import hattn
import oracle
from device_arrays import KDL_CUDA, CudaMemory, DeviceArray, OpenClQueue
from helpers import assert_close, assert_same_bits, random_qkv
from paged_keys import Paged, queries

DEVICES = {row["name"]: row for row in hattn.info()["devices"]}
STUB = Path(hattn.__file__).parents[2] / "tests/cpp/stub_cuda"
EMULATOR = Path(hattn.__file__).parents[2] / "tests/cpp/emulated_cuda/emulated_cuda"


@pytest.fixture
def queue():
    row = DEVICES.get("opencl")
    if row is None or not row["usable"]:
        pytest.skip("opencl: " + (row["why_not"] if row else "the build has no kernels for it"))
    return OpenClQueue()


@pytest.mark.parametrize("algorithm", ["flash", "split_kv"])
@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_opencl_memory(rng, queue, algorithm, layout):
    q, k, v = random_qkv(rng, batch=2, queries=20, keys=90)
    bias, mask = rng.standard_normal((4, 20, 90), np.float32), rng.random((20, 90)) < 0.8
    swap = (lambda array: array.swapaxes(1, 2)) if layout == "bshd" else (lambda array: array)
    on_device = [queue.array(swap(array), before) for array, before in ((q, 0), (k, 64), (v, 128))]
    out = queue.array(swap(np.zeros(q.shape[:3] + v.shape[3:], np.float32)), 256)
    options = {"layout": layout, "causal": True, "algorithm": algorithm}
    operands = {"bias": queue.array(bias, 4), "mask": queue.array(mask, 3)}
    given = hattn.attention(*on_device, **operands, **options, out=out, stream=queue)
    assert given is out
    expected = oracle.attention(q, k, v, bias=bias, mask=mask, causal=True).out
    assert_close(swap(queue.fetch(out)), expected)
    host = hattn.attention(swap(q), swap(k), swap(v), bias=bias, mask=mask, device="opencl", **options)
    assert_same_bits(queue.fetch(out), host)


def test_opencl_pages(rng, queue):
    paged = Paged(rng, [600, 0, 5], 16)
    q = queries(rng, 3, 7)
    given = paged.arguments()
    expected = hattn.attention(q, **given, device="opencl")
    out = queue.array(np.zeros_like(expected), 64)
    given["k"], given["v"] = queue.array(given["k"]), queue.array(given["v"], 32)
    hattn.attention(queue.array(q), **given, out=out, stream=queue.int_ptr)
    assert_same_bits(queue.fetch(out), expected)


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
@pytest.mark.parametrize("scales", [None, (1, 2, 1, 16), (2, 2, 90, 1)])
def test_opencl_memory_of_other_types(rng, queue, scales, layout):
    """float16, and int8 keys and values with scales of channels or of keys: against the oracle, and as from host memory."""
    swap = (lambda array: array.swapaxes(1, 2)) if layout == "bshd" else (lambda array: array)
    q, k, v = (array.astype(np.float16) for array in random_qkv(rng, batch=2, queries=20, keys=90))
    truth, given = [q, k, v], {}
    if scales:
        k, v = (rng.integers(-127, 128, array.shape, np.int8) for array in (k, v))
        given = {f"{side}_scale": rng.random(scales, np.float32) / 64 for side in "kv"}
        truth = [q, k * given["k_scale"], v * given["v_scale"]]
    arrays, options = [swap(array) for array in (q, k, v)], {"layout": layout, "algorithm": "flash"}
    given = {name: swap(scale) for name, scale in given.items()}
    expected = hattn.attention(*arrays, **given, **options, device="opencl")
    assert expected.dtype == np.float16
    out = queue.array(np.zeros_like(expected), 64)
    on_device = {name: queue.array(scale, 4) for name, scale in given.items()}
    hattn.attention(*(queue.array(array, 32) for array in arrays), **on_device, **options, out=out, stream=queue)
    assert_same_bits(queue.fetch(out), expected)
    exact = oracle.attention(*(array.astype(np.float32) for array in truth)).out
    assert_close(swap(expected).astype(np.float32), exact, rtol=2**-10, atol=2**-12)


@pytest.mark.parametrize("storage", [{}, {"page_size": 16, "dtype": "float16"}])
def test_a_cache_in_opencl_memory(rng, queue, storage):
    """The bits of one whose rows come from the host."""
    host = hattn.KVCache(2, 2, 64, 16, device="opencl", **storage)
    cache = hattn.KVCache(2, 2, 64, 16, device="opencl", stream=queue, **storage)
    for rows in (19, 1, 1, 1, 1, 1):
        q, k, v = random_qkv(rng, queries=1, keys=rows)
        host.append(k, v)
        cache.append(queue.array(k, 64), queue.array(v, 32))
        out = queue.array(np.zeros_like(q), 16)
        assert cache.attend(queue.array(q), causal=True, out=out) is out
        assert_same_bits(queue.fetch(out), host.attend(q, causal=True))
        assert_same_bits(cache.attend(q, causal=True), host.attend(q, causal=True))
    with pytest.raises(ValueError, match=f"stream: is 5, but that of the cache, .*, is {queue.int_ptr}"):
        cache.attend(queue.array(q), out=out, stream=5)
    with pytest.raises(ValueError, match="k: the DeviceArray lives on cuda:0, but the cache is on opencl:0"):
        cache.append(DeviceArray(k), v)


def random_states(rng, count=3):
    outs = [rng.standard_normal((2, 3, 5, 16), np.float32) for _ in range(count)]
    return outs, [rng.standard_normal((2, 3, 5), np.float32) * 5 for _ in range(count)]


def test_states_merged_in_opencl_memory(rng, queue):
    states = random_states(rng)
    given = [[queue.array(array, 64) for array in arrays] for arrays in states]
    out, lse = queue.array(np.zeros_like(states[0][0]), 32), queue.array(np.zeros_like(states[1][0]))
    made = hattn.merge_states(*given, out=out, lse=lse, stream=queue)
    assert made[0] is out and made[1] is lse
    for ours, expected in zip(made, oracle.merge_states(*states)):
        assert_close(queue.fetch(ours), expected)
    with pytest.raises(ValueError, match=r"lses\[1\]: the ndarray lives on the host, but outs\[0\] lives on DLPack device"):
        hattn.merge_states(given[0], [given[1][0], states[1][1], given[1][2]], out=out, lse=lse, stream=queue)


def test_rows_turned_in_opencl_memory(rng, queue):
    rope, lengths = hattn.Rope(dim=8, interleaved=True), [4, 2]
    k, q = rng.standard_normal((2, 2, 9, 16), np.float32), rng.standard_normal((2, 4, 4, 16), np.float32)
    out = queue.array(np.zeros_like(q), 16)
    assert hattn.apply_rope(queue.array(q), rope, offsets=[5, 9], lengths=lengths, out=out, stream=queue) is out
    assert_close(queue.fetch(out), hattn.apply_rope(q, rope, offsets=[5, 9], lengths=lengths))
    cache = hattn.KVCache(2, 2, 64, 16, device="opencl", stream=queue)
    cache.append(queue.array(k), k, lengths=[9, 7], rope=rope)
    expected = hattn.apply_rope(q, rope, offsets=[5, 5], lengths=lengths)
    x = queue.array(q)
    assert cache.apply_rope(x, rope, lengths=lengths, out=x) is x
    turned = queue.fetch(x)
    assert_close(turned[0], expected[0])
    assert_close(turned[1, :, :2], expected[1, :, :2])
    assert_same_bits(np.ascontiguousarray(turned[1, :, 2:]), np.ascontiguousarray(q[1, :, 2:]))
    assert_same_bits(cache.apply_rope(q, rope, lengths=lengths), expected)  # of the host, there
    with pytest.raises(ValueError, match="x: sequence 1 has 8 rows, but the cache has 7 keys of it"):
        cache.apply_rope(queue.array(k[:, :, :8]), rope, out=queue.array(k[:, :, :8]))
    with pytest.raises(ValueError, match="x: the DeviceArray lives on cuda:0, but the cache is on opencl:0"):
        cache.apply_rope(DeviceArray(q), rope)
    with pytest.raises(ValueError, match="stream: is given, but x lives on the host"):
        hattn.apply_rope(q, rope, stream=queue)


def test_scales_are_where_keys_are(rng, queue):
    q = queue.array(random_qkv(rng)[0])
    k, v = (queue.array(np.ones((2, 2, 7, 16), np.int8)) for _ in range(2))
    with pytest.raises(ValueError, match="k_scale: the ndarray lives on the host, but q lives on DLPack device"):
        hattn.attention(q, k, v, out=q, k_scale=0.5, v_scale=0.5)


def test_threads_with_queues_of_their_own(rng, queue):
    arrays = random_qkv(rng, queries=40, keys=200)
    expected = hattn.attention(*arrays, device="opencl")

    def run(_):
        own = OpenClQueue()
        out = own.array(np.zeros_like(expected))
        for _ in range(5):
            hattn.attention(*(own.array(array) for array in arrays), out=out, stream=own)
        return own.fetch(out), hattn.attention(*arrays, device="opencl")

    with ThreadPoolExecutor(4) as pool:
        for results in pool.map(run, range(4)):
            for result in results:
                assert_same_bits(result, expected)


def test_info_describes_the_device(queue):
    (found,) = DEVICES["opencl"]["found"]
    assert found["device_id"] == 0 and found["name"] and found["driver"]
    assert found["compute_units"] >= 1 and found["memory_bytes"] > 0
    assert 16 << 10 <= found["shared_bytes"] <= found["memory_bytes"]
    assert found["capability"].startswith("OpenCL ")
    assert not any(kernel["fat_binary"] for kernel in DEVICES["opencl"]["kernels"])


def test_what_is_elsewhere_is_refused(rng, queue):
    q, k, v = random_qkv(rng, queries=3)
    on_device = [queue.array(array) for array in (q, k, v)]
    out = queue.array(np.zeros_like(q))
    with pytest.raises(ValueError, match=r"k: the ndarray lives on the host, but q lives on DLPack device \(4, 0\)"):
        hattn.attention(on_device[0], k, v)
    with pytest.raises(ValueError, match=r"out: the DeviceArray lives on DLPack device \(2, 0\), but q"):
        hattn.attention(*on_device, out=DeviceArray(np.zeros_like(q)))
    with pytest.raises(ValueError, match="device: is cuda:1, but q lives on opencl:0"):
        hattn.attention(*on_device, out=out, device="cuda:1")
    with pytest.raises(NotImplementedError, match="sinks: the DeviceArray lives on"):
        hattn.attention(*on_device, out=out, sinks=queue.array(np.zeros(4, np.float32)))
    with pytest.raises(
        TypeError, match="stream: expected an int, or an object with cuda_stream, ptr, int_ptr, got str"
    ):
        hattn.attention(*on_device, out=out, stream="0")
    with pytest.raises(ValueError, match="stream: is given, but q lives on the host"):
        hattn.attention(q, k, v, stream=1)


def test_another_device_than_that_of_q(rng):
    q, k, v = (DeviceArray(array) for array in random_qkv(rng))
    for call in (hattn.attention, hattn.explain):
        for device, named in (("cpu", "cpu"), ("cuda:1", "cuda:1"), ("opencl", "opencl:0")):
            with pytest.raises(ValueError, match=f"device: is {named}, but q lives on cuda:0"):
                call(q, k, v, device=device)


@pytest.mark.parametrize("stream", [-1, 1 << 64])
def test_streams_that_are_no_handles(rng, stream):
    q, k, v = (DeviceArray(array) for array in random_qkv(rng))
    with pytest.raises(ValueError, match=rf"stream: is {stream}, but a handle is from 0 to 2\*\*64 - 1"):
        hattn.attention(q, k, v, stream=stream)


def test_device_names(rng):
    with pytest.raises(ValueError, match='device: is "cuda:x", but behind the colon must be a number'):
        hattn.attention(*random_qkv(rng), device="cuda:x")
    with pytest.raises(ValueError, match='device: is "opencl:1", but there is one of opencl only'):
        hattn.attention(*random_qkv(rng), device="opencl:1")


def test_explain_gives_the_device_workspace(rng, queue):
    arrays = [queue.array(array) for array in random_qkv(rng)]
    assert hattn.explain(*arrays)["target"] == "opencl"
    assert hattn.explain(*arrays)["device_workspace_bytes"] > 0


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
