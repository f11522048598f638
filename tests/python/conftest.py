"""Fixtures of the Python tests."""

from __future__ import annotations

import json
import os
import zlib

import numpy as np
import pytest

from helpers import device_row
from tuning_entries import SMALL

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


@pytest.fixture
def path(tmp_path, monkeypatch):
    """The tuning database of this test, which does not exist yet."""
    path = tmp_path / "tuning.json"
    monkeypatch.setenv("HATTN_TUNING", str(path))
    return path


@pytest.fixture
def shapes_file(tmp_path):
    """A list of shapes that take no time."""
    file = tmp_path / "shapes.json"
    file.write_text(json.dumps(SMALL))
    return file


@pytest.fixture(scope="module")
def kernelgen():
    """The generator, where there is one."""
    from hattn._tuning import deep

    try:
        return deep.find_kernelgen()
    except ValueError as error:
        pytest.skip(str(error))


@pytest.fixture
def opencl():
    """The row of info() about OpenCL; skips without a device."""
    row = device_row("opencl")
    if row is None or not row["usable"]:
        pytest.skip("no OpenCL device")
    return row
