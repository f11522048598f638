"""Python threads: the GIL is released while kernels run, and calls from several threads do not disturb each other."""

import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import hattn
from helpers import assert_same_bits, random_qkv


def finished(code, *arguments, **variables):
    """A process that runs the code, with environment variables, once it has ended, which takes no minute."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=60)


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


def test_scores_over_pages_that_grow():
    """They have room for the keys that are there as a call reads them, not as it begins."""
    cache = hattn.KVCache(1, 1, 200, 32, page_size=16)
    row = np.ones((1, 1, 1, 32), np.float32)
    cache.append(row, row)
    until = time.monotonic() + 1

    def append():
        while time.monotonic() < until:
            try:
                cache.append(row, row)
            except ValueError:  # it is full
                cache.truncate([1])

    def attend():
        while time.monotonic() < until:
            scores = cache.attend(row, return_scores="raw")[1]
            assert 1 <= scores.shape[3] <= 200 and (scores == scores[0, 0, 0, 0]).all()

    run_together([append, attend, append, attend, attend])


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
        ended = finished(script)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "main ends\n", "")


@pytest.mark.parametrize("mode", ["printed", "logged", "nested"])
def test_warnings_about_the_tuning_database(tmp_path, mode):
    """To warn runs code of Python's: other threads go on meanwhile, and it may call the library itself."""
    database = tmp_path / "tuning.json"
    database.write_text("no database")
    code = """
import logging, sys, threading, time, warnings
import numpy as np, hattn
q = np.ones((1, 1, 4, 16), np.float32)
mode = sys.argv[1]
if mode == "logged":
    logging.captureWarnings(True)
if mode == "nested":
    def shown(*arguments, **options):
        time.sleep(0.01)
        hattn.attention(q, q, q, threads=1)
    warnings.showwarning = shown
barrier = threading.Barrier(8)
def first_call():
    barrier.wait()
    hattn.attention(q, q, q)
threads = [threading.Thread(target=first_call) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("done")
"""
    for _ in range(3):
        result = finished(code, mode, HATTN_TUNING=str(database))
        assert result.returncode == 0 and "done" in result.stdout, result.stderr
        if mode == "printed":
            assert result.stderr.count("RuntimeWarning") == 1


def test_who_changes_a_cache_is_not_kept_waiting(rng):
    """However many read it all the time."""
    cache = hattn.KVCache(1, 4, 4096, 64)
    rows = rng.standard_normal((1, 4, 2048, 64), np.float32)
    cache.append(rows, rows)
    query = rng.standard_normal((1, 4, 8, 64), np.float32)
    done = threading.Event()
    attended = []

    def attend():
        while not done.is_set():
            cache.attend(query, threads=1)
            attended.append(None)

    readers = [threading.Thread(target=attend) for _ in range(3)]
    for reader in readers:
        reader.start()
    row = rows[:, :, :1]
    waited = 0
    try:
        for _ in range(10):
            before = len(attended)
            cache.append(row, row)
            waited = max(waited, len(attended) - before)
    finally:
        done.set()
        for reader in readers:
            reader.join()
    assert cache.lengths.tolist() == [2058]
    assert waited < 100, "calls of three readers that came before one append"


def test_tables_that_change_during_a_call():
    """What is checked is what is used: an error, or results, but no crash."""
    code = """
import threading, time, numpy as np, hattn
keys = np.zeros((64, 2, 16, 32), np.float32)
table = np.arange(64, dtype=np.int32)[None].copy()
q = np.ones((1, 2, 64, 32), np.float32)
done = False
def spoil():
    while not done:
        table[0, 63] = 2000000000
        table[0, 63] = 63
thread = threading.Thread(target=spoil)
thread.start()
end, refused = time.monotonic() + 2, 0
while time.monotonic() < end:
    try:
        hattn.attention(q, keys, keys, block_table=table, kv_lengths=[1024])
    except ValueError as error:
        assert "block_table" in str(error), error
        refused += 1
done = True
thread.join()
print("done")
"""
    result = finished(code)
    assert result.returncode == 0 and "done" in result.stdout, result.stderr


@pytest.mark.parametrize("way", ["exit", "raise"])
def test_children_of_fork_end_well(way):
    """By sys.exit(), which runs what ends the library."""
    code = """
import os, sys, numpy as np, hattn
q = np.random.default_rng(0).standard_normal((2, 8, 64, 32), np.float32)
expected = hattn.attention(q, q, q, threads=4)
child = os.fork()
if child == 0:
    assert np.array_equal(hattn.attention(q, q, q, threads=4), expected)
    if sys.argv[1] == "raise":
        raise SystemExit(0)
    sys.exit(0)
_, status = os.waitpid(child, 0)
assert status == 0, status
print("done")
"""
    result = finished(code, way)
    assert result.returncode == 0 and "done" in result.stdout, result.stderr


def test_calls_do_not_wait_for_an_import_of_torch(tmp_path):
    """A package of that name whose import waits for a thread that calls hattn."""
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("""
import threading

import numpy as np

import hattn

q = np.ones((1, 1, 2, 8), np.float32)
thread = threading.Thread(target=lambda: print(hattn.attention(q, q, q).sum()))
thread.start()
thread.join()
""")
    path = os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])
    run = finished("import torch", PYTHONPATH=path)
    assert (run.returncode, run.stdout) == (0, "16.0\n"), run.stderr
