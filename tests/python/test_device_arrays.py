"""Arrays that live on a device, in OpenCL memory, against the oracle; and what names devices."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import hattn
import oracle
from device_arrays import DeviceArray, OpenClQueue
from helpers import assert_close, assert_same_bits, random_qkv, random_states
from paged_keys import Paged, queries

DEVICES = {row["name"]: row for row in hattn.info()["devices"]}


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
