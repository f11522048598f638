"""Beside PyTorch calls compute on its threads, which are those of OpenMP. A stand-in is imported in its place."""

import ctypes
import json
import os
import subprocess
import sys

import pytest

import hattn

try:
    ctypes.CDLL("libgomp.so.1")
except OSError:
    pytest.skip("there is no libgomp.so.1", allow_module_level=True)

# What all programs begin with. Threads of the library's pool block signals, which those of others do not.
BEGINNING = """
import ctypes, json, os, pathlib, sys, types, warnings
import numpy as np

warnings.simplefilter("ignore")

def import_torch():
    sys.modules["torch"] = types.ModuleType("torch")

def set_num_threads(count):
    ctypes.CDLL("libgomp.so.1").omp_set_num_threads(count)

def attend(threads=4):
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, heads, 40, 64), np.float32) for heads in (8, 4, 4))
    return hattn.attention(q, k, v, causal=True, threads=threads)

def tasks():
    found = {}
    for folder in pathlib.Path("/proc/self/task").iterdir():
        status = (folder / "status").read_text()
        found[int(folder.name)] = int(next(line.split()[1] for line in status.splitlines() if line.startswith("SigBlk:")), 16)
    return found

def threads_made_by(function):
    before = tasks()
    function()
    made = [blocked for task, blocked in tasks().items() if task not in before]
    return {"pool": sum(map(bool, made)), "others": sum(not blocked for blocked in made)}

def tell(**found):
    print(json.dumps(found))
"""


def told(program, **environment):
    """What a program says, in a process of its own."""
    command = [sys.executable, "-c", BEGINNING + program]
    finished = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=100)
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


def test_calls_compute_on_threads_of_openmp():
    """As many as PyTorch has, whatever the call asks for; with a single one of PyTorch's they compute on the library's own."""
    found = told("""
import hattn
expected = attend(1)
without = threads_made_by(lambda: attend(3))
import_torch()
set_num_threads(3)
beside = threads_made_by(attend)
same = np.array_equal(attend(), expected) and np.array_equal(attend(2), expected)
set_num_threads(1)
tell(without=without, beside=beside, same=same, single=threads_made_by(attend), others=np.array_equal(attend(), expected))
""")
    assert found == {"without": {"pool": 2, "others": 0}, "beside": {"pool": 0, "others": 2}, "same": True,
                     "single": {"pool": 1, "others": 0}, "others": True}


def test_caches_do_too():
    found = told("""
import hattn
import_torch()
set_num_threads(2)

def decode():
    cache = hattn.KVCache(8, 4, 64, 64)
    rng = np.random.default_rng(0)
    for _ in range(3):
        keys = rng.standard_normal((8, 4, 16, 64), np.float32)
        cache.append(keys, keys)
        cache.attend(rng.standard_normal((8, 8, 16, 64), np.float32))

tell(made=threads_made_by(decode))
""")
    assert found["made"] == {"pool": 0, "others": min(hattn.info()["cpu"]["cores"], 2) - 1}


@pytest.mark.parametrize("imported_first", [False, True])
def test_children_of_fork_wait_for_no_lost_threads(imported_first):
    """OpenMP would wait for ever for threads that the parent had, of sessions and caches that the child has from it, too."""
    found = told("import_hattn_first = " + repr(imported_first) + """
if import_hattn_first:
    import hattn
import_torch()
set_num_threads(3)
if import_hattn_first:
    expected = attend()
    keys = np.ones((1, 4, 16, 64), np.float32)
    cache = hattn.KVCache(1, 4, 64, 64)
    cache.append(keys, keys)
else:
    region = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None)
    ctypes.CDLL("libgomp.so.1").GOMP_parallel(region, None, 3, 0)  # an operator of PyTorch's
reads, writes = os.pipe()
child = os.fork()
if child == 0:
    import signal
    signal.alarm(60)
    import hattn
    made = threads_made_by(attend)
    if import_hattn_first:
        cache.append(keys, keys)
        cache.attend(np.ones((1, 8, 16, 64), np.float32))
    os.write(writes, json.dumps({"made": made, "sum": float(attend(1).sum()), "again": float(attend().sum())}).encode())
    os._exit(0)
os.close(writes)
said = os.read(reads, 1000)
tell(status=os.waitpid(child, 0)[1], said=json.loads(said or "null"))
""", OPENBLAS_NUM_THREADS="1")
    assert found["status"] == 0
    assert found["said"]["made"] == {"pool": 3, "others": 0} and found["said"]["sum"] == found["said"]["again"]
