"""Memory of calls in a stream, from libraries that give it out again as soon as an array is gone."""

import os
import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest

import hattn
from device_arrays import KDL_CUDA, DeviceArray
from helpers import random_qkv
from stream_libraries import cupy_like, new_stream, torch_like

STUB = Path(hattn.__file__).parents[2] / "tests/cpp/stub_cuda"
GPU = 1  # which is not the current one


def arrays_of(library, rows=1):
    """q, k, v that belong to the stream and are on the GPU."""
    made = []
    for array in random_qkv(np.random.default_rng(0), batch=2, queries=rows, keys=700):
        with library.allocator.current(device=GPU):
            made.append(library.allocator.make(library.array, array.shape, array.dtype))
    return made


def launched():
    """What the driver was asked for, in words, and of launches the streams."""
    log = Path(os.environ["HATTN_STUB_CUDA_LOG"])
    lines = log.read_text().splitlines()
    log.unlink()
    return {line.split(" ")[0] for line in lines}, [line.split("stream=")[1] for line in lines if line.startswith("launch")]


def check_memory_belongs_to_the_stream(library, given, handle):
    """Nothing of a call is given out to the current stream, which knows nothing of it."""
    q, k, v = arrays_of(library)
    hattn.attention(q, k, v, stream=given)  # loads kernels
    launched()
    library.allocator.free.clear()
    out, lse = hattn.attention(q, k, v, return_lse=True, stream=given)
    words, streams = launched()
    assert not words & {"wait", "allocate", "download"} and len(streams) == 2
    assert all(int(stream, 16) == handle for stream in streams) if handle else True
    assert out.block[:2] == lse.block[:2] == (handle, GPU)
    assert [block[:2] for block in library.allocator.free] == [(handle, GPU)], "the workspace alone"
    return q, k, v, out


def check_torch_like():
    library = torch_like()
    other, handle = new_stream(GPU), new_stream(GPU)
    with library.allocator.current(stream=other):
        for given in (handle, library.cuda.ExternalStream(handle, GPU)):
            q, k, v, out = check_memory_belongs_to_the_stream(library, given, handle)
            assert all(handle in array.streams for array in (q, k, v)), "temporaries may go"
            assert out.streams == {other}, "where the caller is"
        for given in (0, 1):
            check_memory_belongs_to_the_stream(library, given, 0)
        q, k, v = arrays_of(library)
        out = library.empty(q.shape, np.float32, (KDL_CUDA, GPU))
        assert hattn.attention(q, k, v, out=out, stream=handle) is out
        assert out.block[0] == other and out.streams == {handle}
        assert hattn.attention(q, k, v).block[0] == other  # is waited for
        assert "wait" in launched()[0]
    # As of PyTorch with CuPy's stream.
    check_memory_belongs_to_the_stream(library, cupy_like().cuda.Stream(handle), handle)


def check_cupy_like():
    library = cupy_like()
    other, handle = new_stream(GPU), new_stream(GPU)
    with library.allocator.current(stream=other):
        for given in (handle, library.cuda.Stream(handle), 0):
            check_memory_belongs_to_the_stream(library, given, handle if given else 0)
        q, k, v = arrays_of(library)
        assert hattn.attention(q, k, v).block[:2] == (other, GPU), "not the current device"
        assert (library.allocator.stream, library.allocator.device) == (other, 0)


def check_unknown():
    """A library that knows no streams might give memory out again too soon: the call waits."""
    handle = new_stream(GPU)
    q, k, v = (DeviceArray(array, (KDL_CUDA, GPU)) for array in random_qkv(np.random.default_rng(0), keys=700))
    out = hattn.attention(q, k, v, stream=handle)
    words, streams = launched()
    assert out.where == (KDL_CUDA, GPU) and "wait" in words
    assert all(int(stream, 16) == handle for stream in streams)


def steps_of_a_cache(library, given, handle):
    """Appends and attention over a cache in a stream: nothing is waited for or allocated. Gives the last k, v and out."""
    place = (KDL_CUDA, GPU)
    cache = hattn.KVCache(2, 2, 1024, 16, device=f"cuda:{GPU}", stream=given)
    for step in range(7):  # the driver loads kernels, and host memory for four appends is taken
        q, k, v = arrays_of(library)
        cache.append(k, v, lengths=[3, 2])
        assert k.stream == v.stream == (handle or 1)
        if step == 5:
            launched()
        out, lse = cache.attend(q, causal=True, return_lse=True)
    assert out.where == lse.where == place and q.stream == (handle or 1)
    assert list(cache.lengths) == [21, 14]
    words, streams = launched()
    assert all(int(stream, 16) == handle for stream in streams) if handle else True
    return words, (k, v, out)


def check_caches():
    library, other, handle = torch_like(), new_stream(GPU), new_stream(GPU)
    with library.allocator.current(stream=other):
        words, (k, v, out) = steps_of_a_cache(library, library.cuda.ExternalStream(handle, GPU), handle)
        assert not words & {"wait", "allocate", "download"}
        assert out.block[:2] == (handle, GPU) and out.streams == {other}
        assert k.streams == v.streams == {handle}
        words, (k, v, out) = steps_of_a_cache(library, None, None)
        assert "wait" in words and out.block[0] == other, "attention is waited for"
        assert k.streams == v.streams == {0}
    library = cupy_like()
    with library.allocator.current(stream=other):
        words, (_, _, out) = steps_of_a_cache(library, library.cuda.Stream(handle), handle)
        assert not words & {"wait", "allocate", "download"} and out.block[:2] == (handle, GPU)


def check_appended_arrays_stay():
    """Until they have been read, where a library cannot be told: for as long as four appends are on their way."""
    for library in (cupy_like(), torch_like()):
        told = hasattr(library.array, "record_stream")
        cache = hattn.KVCache(2, 2, 8192, 16, device=f"cuda:{GPU}", stream=new_stream(GPU))
        gone = []
        for step in range(7):
            _, k, v = arrays_of(library)
            gone.extend(weakref.ref(array) for array in (k, v))
            cache.append(k, v)
            cache.append(k, v, lengths=[0, 0])  # reads nothing, so that it says nothing of those before
            del k, v
            assert [ref() is None for ref in gone] == [told or age > 3 for age in range(step, -1, -1) for _ in "kv"]
        del cache
        assert all(ref() is None for ref in gone)


CHECKS = {
    check.__name__: check
    for check in (check_torch_like, check_cupy_like, check_unknown, check_caches, check_appended_arrays_stay)
}


@pytest.mark.skipif(not STUB.exists(), reason="the driver without a GPU has not been built")
@pytest.mark.parametrize("check", CHECKS)
def test_streams(tmp_path, check):
    """In a process that finds the driver without a GPU; kernels compute nothing."""
    if "cuda" not in {row["name"] for row in hattn.info()["devices"]}:
        pytest.skip("the build has no kernels for cuda")
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(STUB),
        "HATTN_STUB_CUDA_LOG": str(tmp_path / "log"),
        "HATTN_STUB_CUDA_DEVICES": "2",
    }
    done = subprocess.run([sys.executable, __file__, check], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    CHECKS[sys.argv[1]]()
