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
def test_limits_of_arithmetic(tmp_path):
    table, figures = tmp_path / "table.md", tmp_path / "figures.json"
    finished = run("--filter", "^prefill_batch8_s256$", "--rounds", "1", "--threads", "1", "--json", figures, "--markdown", table)
    assert finished.returncode == 0, finished.stderr
    (row,) = json.loads(figures.read_text())["rows"]
    assert 0 < row["held_limit"] <= row["limit"] and row["held_share"] >= row["share"]
    assert f"| {row['share']:.0%} ({row['held_share']:.0%}) |" in table.read_text()


@needs_module
def test_a_filter_that_matches_nothing():
    finished = run("--filter", "no such case")
    assert finished.returncode == 2 and "matches none of" in finished.stderr


def test_unknown_peer():
    finished = run("--against", "onnxruntime,abacus")
    assert finished.returncode == 2 and '"abacus" is none of: onnxruntime, torch' in finished.stderr


@pytest.mark.parametrize("arguments, message", [
    (("--rounds", "0"), "argument --rounds: must be at least 1, but is 0"),
    (("--threads", "0"), "argument --threads: must be at least 1, but is 0"),
    (("--against", "nonsense"), '"nonsense" is none of: onnxruntime, torch'),
    (("--build", "nowhere", "--rows", "decode 512"), "nowhere"),
])
def test_options_of_storage_types(arguments, message):
    finished = run("--types", *arguments)
    assert finished.returncode == 2 and message in finished.stderr and "Traceback" not in finished.stderr


@needs_module
def test_figures_of_storage_types(tmp_path):
    """Alike on the terminal, as JSON and as Markdown."""
    table, figures = tmp_path / "table.md", tmp_path / "figures.json"
    short = ("--rows", "decode 512", "--rounds", "1", "--threads", "1")
    finished = run("--types", *short, "--markdown", table, "--json", figures)
    assert finished.returncode == 0, finished.stderr
    (row,) = json.loads(figures.read_text())["rows"]
    contenders = row["contenders"]
    assert contenders["float32"]["versus_float32"] == 1.0
    # K and V: 8 heads of 512 keys of 128 numbers, twice; without scales.
    for dtype, size in (("float32", 4), ("float16", 2), ("bfloat16", 2)):
        read = contenders[dtype]["bytes_per_second"] * contenders[dtype]["seconds"]
        assert read == pytest.approx(2 * 8 * 512 * 128 * size)
    assert table.read_text().splitlines()[0] == finished.stdout.splitlines()[0]
    assert table.read_text().startswith("| decode 512 |")


def test_help_names_the_other_benchmarks():
    finished = run("--help")
    assert finished.returncode == 0
    for option in ("--roofline", "--types", "--tuned", "--device", "--footprint", "--against", "--json"):
        assert option in finished.stdout


def test_unknown_case_of_storage_types():
    finished = run("--types", "--rows", "decode 512,nonsense")
    assert finished.returncode == 2 and '"nonsense" is none of: prefill 512' in finished.stderr


def test_goals_of_storage_types(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    import storage_types

    limits = types.SimpleNamespace(dot_products=98304.0, matrices=393216.0, reading={"int8": 100.0})
    best = {"float32": 4.0, "bfloat16": 1.0, "int8": 2.0}

    def share(dtype, of, queries=1):
        return storage_types.share(best, dtype, of, limits, [np.zeros(50, np.uint8)], queries)

    assert share("bfloat16", "float32") == 4.0
    assert share("int8", "reading") == 0.25  # 50 bytes in 2 seconds of 100 a second
    assert share("bfloat16", "dot products", queries=3) == 0.5  # 6 scores seen by 16 heads, 128 elements, 2 products, 2 operations
    assert share("bfloat16", "matrices", queries=3) == 0.125
    assert share("bfloat16", "PyTorch bfloat16") is None
    limits.dot_products = 0.0
    assert share("bfloat16", "dot products") is None
    peers = {f"{peer} {dtype}" for peer, dtypes in storage_types.PEER_TYPES.items() for dtype in dtypes}
    for case, dtype, least, of in storage_types.GOALS:
        queries, _ = storage_types.CASES[case]
        assert dtype in storage_types.types_of(queries) and (least is None or least > 0)
        assert of in {"dot products", "matrices", "reading", *storage_types.TYPES, *peers}


def row_of(**goal):
    parts = ("share", "versus", "onnxruntime", "torch", "beside", "bound", "seconds")
    return {"goal": {**dict.fromkeys(parts, 0.0), **goal}, "share": None, "peers": {}, "beside_ratio": None,
            "seconds": 1e-3, "bound": 0.0}


PEERS = {"onnxruntime": {"versus": 1.3}, "torch": {"versus": 0.9}}


@pytest.mark.parametrize("goal, figures, met", [
    ({"share": 0.6}, {}, None),
    ({"versus": 1.0}, {}, None),
    ({"torch": 2.0}, {"peers": {"onnxruntime": {"versus": 1.3}}}, None),
    ({"bound": 1.2}, {}, None),
    ({"share": 0.6}, {"share": 0.61}, True),
    ({"share": 0.6}, {"share": 0.59}, False),
    ({"versus": 1.0}, {"peers": PEERS}, False),  # the fastest peer counts
    ({"versus": 0.9, "onnxruntime": 1.3}, {"peers": PEERS}, True),
    ({"versus": 0.9, "onnxruntime": 1.4}, {"peers": PEERS}, False),
    ({"torch": 0.9}, {"peers": PEERS}, True),
    ({"versus": 0.9, "beside": 1.2}, {"peers": PEERS, "beside_ratio": 1.3}, False),
    ({"bound": 1.25}, {"bound": 0.8e-3}, True),
    ({"bound": 1.25}, {"bound": 0.79e-3}, False),
    ({"seconds": 1e-3}, {}, True),
    ({"seconds": 0.9e-3}, {}, False),
])
def test_goals(compare, goal, figures, met):
    assert compare.is_met({**row_of(**goal), **figures}) is met


def test_missed_goals_are_named(compare):
    import report  # found through the fixture

    row = {**row_of(share=0.9, torch=0.5), "share": 0.8, "peers": PEERS}
    row.update(checks=compare.checks(row), met=compare.is_met(row))
    assert report._goal(row) == "90% (missed), 0.50x PyTorch: missed"


@needs_module
def test_cases_named_by_others_are_there(monkeypatch):
    """Goals of relative times name cases that exist, and that come before."""
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    import cases

    seen = set()
    for case in cases.choose(cases.load(ROOT / "build" / "release"), [], ""):
        assert not case.beside or case.beside in seen, case.name
        assert not case.goal["beside"] or case.beside, case.name
        seen.add(case.name)


@needs_module
def test_an_append_writes_its_tokens_and_nothing_else():
    finished = run("--filter", "^append_64x1$", "--rounds", "1", "--json")
    assert finished.returncode == 0, finished.stderr
    (row,) = json.loads(finished.stdout)["rows"]
    # K and V: 64 sequences of 8 heads of 128 floats, twice.
    assert row["kernel"].endswith(f"bytes written: {2 * 64 * 8 * 128 * 4}")


def test_rows_without_a_visible_key(compare):
    """A row whose mask leaves it nothing is not compared with peers."""
    import peer  # found through the fixture

    case = types.SimpleNamespace(query_length=3, kv_length=3, causal=True, window_left=-1, window_right=-1)
    mask = np.array([[0, 1, 1], [1, 0, 0], [0, 0, 1]], np.uint8)[None, None]
    assert peer.rows_that_see(case, {"mask": mask}).tolist() == [[[False, True, True]]]
