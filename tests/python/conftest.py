"""Fixtures of the Python tests."""

from __future__ import annotations

import os
import zlib

import numpy as np
import pytest

os.environ["HATTN_TUNING"] = "none"  # whatever this machine's user has tuned

ALGORITHMS = ("auto", "naive", "flash", "split_kv", "unfused")


@pytest.fixture
def rng(request):
    """A generator seeded by the test's name; the seed is printed, and so shown on failure."""
    seed = zlib.crc32(request.node.nodeid.encode())
    print(f"seed: {seed}")
    return np.random.default_rng(seed)


@pytest.fixture(params=ALGORITHMS)
def algorithm(request):
    """Every algorithm."""
    return request.param
