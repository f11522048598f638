"""./dev bench: what it measures reaches its figures, and its judgement of goals is right."""

import json
import pathlib
import subprocess
import sys
import types

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

needs_module = pytest.mark.skipif(
    not list((ROOT / "build" / "release" / "bench").glob("_bench.*.so")), reason="the benchmarks are not built"
)


@pytest.fixture
def compare(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    import compare

    return compare


def run(*arguments):
    return subprocess.run([sys.executable, ROOT / "bench" / "run.py", *arguments], capture_output=True, text=True)


@needs_module
def test_figures_of_a_case():
    finished = run("--filter", "^decode_k512$", "--rounds", "1", "--threads", "1", "--json")
    assert finished.returncode == 0, finished.stderr
    (row,) = json.loads(finished.stdout)["rows"]
    # K and V: 8 heads of 512 keys of 128 floats, twice.
    assert row["speed"] * row["seconds"] == pytest.approx(2 * 8 * 512 * 128 * 4)
    assert row["threads"] == 1 and row["share"] > 0 and row["peers"] == {}


@needs_module
def test_a_filter_that_matches_nothing():
    finished = run("--filter", "no such case")
    assert finished.returncode == 2 and "matches none of" in finished.stderr


def test_unknown_peer():
    finished = run("--against", "onnxruntime,abacus")
    assert finished.returncode == 2 and '"abacus" is none of: onnxruntime, torch' in finished.stderr


def row_of(share=0.0, versus=0.0, beside=0.0):
    goal = {"share": share, "versus": versus, "beside": beside}
    return {"goal": goal, "share": None, "peers": {}, "beside_ratio": None}


def test_goals(compare):
    peers = {"onnxruntime": {"versus": 1.3}, "torch": {"versus": 0.9}}
    assert compare.is_met(row_of(share=0.6)) is None
    assert compare.is_met(row_of(versus=1.0)) is None
    assert compare.is_met({**row_of(share=0.6), "share": 0.61})
    assert not compare.is_met({**row_of(share=0.6), "share": 0.59})
    assert not compare.is_met({**row_of(versus=1.0), "peers": peers})  # the fastest peer counts
    assert compare.is_met({**row_of(versus=0.9), "peers": peers})
    assert not compare.is_met({**row_of(versus=0.9, beside=1.2), "peers": peers, "beside_ratio": 1.3})


def test_rows_without_a_visible_key(compare):
    """A row whose mask leaves it nothing is not compared with peers."""
    import peer  # found through the fixture

    case = types.SimpleNamespace(query_length=3, kv_length=3, causal=True, window_left=-1, window_right=-1)
    mask = np.array([[0, 1, 1], [1, 0, 0], [0, 0, 1]], np.uint8)[None, None]
    assert peer.rows_that_see(case, {"mask": mask}).tolist() == [[[False, True, True]]]
