"""Fixtures of the Python tests."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

import hattn

ALGORITHMS = ("auto", "naive", "flash", "split_kv", "unfused")


@pytest.fixture
def rng(request):
    """A generator seeded by the test's name; the seed is printed, and so shown on failure."""
    seed = zlib.crc32(request.node.nodeid.encode())
    print(f"seed: {seed}")
    return np.random.default_rng(seed)


def _supported(algorithm: str) -> bool:
    q = np.ones((1, 1, 1, 8), np.float32)
    try:
        hattn.explain(q, q, q, algorithm=algorithm)
    except NotImplementedError:
        return False
    return True


@pytest.fixture(params=ALGORITHMS)
def algorithm(request):
    """Every algorithm; those the library does not have are skipped, and counted as such."""
    if not _supported(request.param):
        pytest.skip(f"algorithm {request.param}: not supported by this build")
    return request.param
