"""Python threads: the GIL is released while kernels run, and calls from several threads do not disturb each other."""

import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import hattn
from helpers import assert_same_bits, random_qkv


def test_gil_is_released_while_kernels_run(rng):
    arrays = random_qkv(rng, batch=1, heads=8, kv_heads=8, queries=768, keys=768, key_dim=64)
    hattn.attention(*arrays, threads=1)
    ticks = []
    stop = threading.Event()

    def tick():
        while not stop.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.0005)

    ticker = threading.Thread(target=tick)
    ticker.start()
    try:
        for _ in range(20):
            # One call of this length holds the GIL for nothing but its beginning and end.
            begin = time.perf_counter()
            hattn.attention(*arrays, threads=1)
            end = time.perf_counter()
            inside = sum(begin + 0.1 * (end - begin) < t < end - 0.1 * (end - begin) for t in ticks)
            if inside:
                break
    finally:
        stop.set()
        ticker.join()
    assert inside > 0, f"no tick within a call of {end - begin:.4f} s"


def run_together(functions):
    """Runs each function in a thread of its own; raises what any of them raised."""
    errors = []

    def guarded(function):
        try:
            function()
        except BaseException as error:  # noqa: BLE001 - carried to the test's thread
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_calls_from_several_threads(rng):
    problems = [random_qkv(rng, queries=20 + i, keys=50 + i) for i in range(4)]
    expected = [hattn.attention(*arrays, causal=True) for arrays in problems]

    def work(arrays, wanted):
        for _ in range(30):
            assert_same_bits(hattn.attention(*arrays, causal=True), wanted)
            with pytest.raises(ValueError, match="^v: "):
                hattn.attention(arrays[0], arrays[1], arrays[2][:, :, :3])

    run_together([lambda a=a, w=w: work(a, w) for a, w in zip(problems, expected)])


def test_one_cache_from_several_threads(rng):
    q, k, v = random_qkv(rng, batch=1, queries=1, keys=1)
    cache = hattn.KVCache(1, 2, 200, 16)
    cache.append(k, v)
    expected = cache.attend(q)

    def append():
        for _ in range(40):
            cache.append(k, v)

    def attend():
        for _ in range(40):
            # However many equal keys there are, their mean value is the same.
            np.testing.assert_allclose(cache.attend(q), expected, rtol=1e-5)

    run_together([append, attend, append, attend])
    assert cache.lengths.tolist() == [81]


def test_a_daemon_thread_does_not_end_the_process():
    """The interpreter ends while the thread computes, or waits for the interpreter's lock."""
    script = """
import threading, time
import numpy as np
import hattn

q = np.ones((1, 8, 512, 64), np.float32)

def loop():
    while True:
        hattn.attention(q, q, q, threads=1)

for _ in range(2):
    threading.Thread(target=loop, daemon=True).start()
time.sleep(0.2)
print("main ends")
"""
    for _ in range(3):
        ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "main ends\n", "")
