"""Code of Python's that runs in the middle of a call: finalisers that garbage collection finds, and methods of arrays."""

import subprocess
import sys

import numpy as np
import pytest

import hattn
from helpers import assert_same_bits, random_qkv

# A cycle that is collected where the next objects are made, at every threshold in turn.
COLLECTED_WITHIN = """
import gc, sys, numpy as np, hattn

class Collected:
    def __init__(self):
        self.itself = self
    def __del__(self):
        then()

def at_every_threshold(call):
    for threshold in range(1, 40):
        gc.disable()
        gc.collect()
        collected = Collected()
        del collected
        gc.set_threshold(threshold)
        gc.enable()
        call()
        gc.disable()

x = np.ones((1, 1, 1, 8), np.float32)
"""


def run(code, *arguments):
    return subprocess.run([sys.executable, "-c", COLLECTED_WITHIN + code, *arguments], capture_output=True, text=True, timeout=120)


def test_plans_that_are_made_meanwhile():
    """As many as are kept, so that the call's own has no place any more."""
    code = """
q = np.random.default_rng(0).standard_normal((2, 4, 33, 64), np.float32)
expected = hattn.attention(q, q, q)
def then():
    for n in range(17):
        hattn.attention(q, q, q, softcap=0.01 * (n + 1))
def call():
    assert np.array_equal(hattn.attention(q, q, q), expected)
at_every_threshold(call)
"""
    result = run(code)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("name", ["attend", "pages", "block_table", "lengths"])
def test_changes_of_a_cache_that_is_read(name):
    """They would wait for ever for a reader that waits for them."""
    code = """
cache = hattn.KVCache(1, 1, 4096, 8, page_size=16)
cache.append(x, x)
then = lambda: cache.append(x, x)
calls = {"attend": lambda: cache.attend(x, return_scores="masked", return_lse=True), "pages": lambda: cache.pages,
         "block_table": lambda: cache.block_table, "lengths": lambda: cache.lengths}
at_every_threshold(calls[sys.argv[1]])
assert cache.lengths[0] >= 39  # the last one may be there still
"""
    result = run(code, name)
    assert result.returncode == 0, result.stderr


class Calling:
    """An array whose DLPack method calls the library."""

    def __init__(self, array):
        self.array, self.dtype, self.shape = array, array.dtype, array.shape

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **arguments):
        for dim in range(1, 20):
            x = np.ones((1, 1, 1, dim), np.float32)
            hattn.attention(x, x, x)
        return self.array.__dlpack__()


def test_arrays_that_call(rng):
    arrays = random_qkv(rng)
    out = Calling(np.empty_like(arrays[0]))
    hattn.attention(*(Calling(array) for array in arrays), out=out)
    assert_same_bits(out.array, hattn.attention(*arrays))
