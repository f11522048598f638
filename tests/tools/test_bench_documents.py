"""bench/plot.py and bench/accuracy.py: charts and the table of errors of docs/performance.md."""

import json
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "release"

needs_package = pytest.mark.skipif(
    not list((BUILD / "python" / "hattn").glob("_hattn.*.so")), reason="the package is not built"
)


def run(script, *arguments):
    return subprocess.run([sys.executable, ROOT / "bench" / script, *arguments], capture_output=True, text=True)


def row_of(set_name, share, goal):
    return {"set": set_name, "title": "a case", "share": share, "threads": 2, "goal": {"share": goal},
            "peers": {"torch": {"versus": 2.0}}}


def write_figures(path, rows):
    about = {"hattn": "1.0", "peers": {"torch": "2.0"}, "shape": "B1", "cpu": "a CPU"}
    path.write_text(json.dumps({**about, "rows": rows}))


def test_charts(tmp_path):
    pytest.importorskip("matplotlib")
    figures = tmp_path / "figures.json"
    write_figures(figures, [row_of("prefill", 0.9, 0.88), row_of("decode", 0.8, 0.0)])
    finished = run("plot.py", figures, "--output", tmp_path / "charts")
    assert finished.returncode == 0, finished.stderr
    written = {path.name: path.read_bytes() for path in (tmp_path / "charts").iterdir()}
    assert set(written) == {"prefill.png", "prefill.svg", "decode.png", "decode.svg"}
    assert all(written[name].startswith(b"\x89PNG") for name in written if name.endswith("png"))
    assert all(b"<svg" in written[name] for name in written if name.endswith("svg"))


@pytest.mark.parametrize("text, message", [
    ("{", "Expecting"), ('{"rows": []}', "holds no figures of prefill or decode cases"),
])
def test_figures_without_cases_are_refused(tmp_path, text, message):
    pytest.importorskip("matplotlib")
    figures = tmp_path / "figures.json"
    figures.write_text(text)
    finished = run("plot.py", figures, "--output", tmp_path / "charts")
    assert finished.returncode == 2 and f"{figures}: " in finished.stderr and message in finished.stderr
    assert not (tmp_path / "charts").exists() or not list((tmp_path / "charts").iterdir())


@needs_package
@pytest.mark.parametrize("dtype, most", [("float32", 2e-6), ("bfloat16", 2e-2)])
def test_table_of_errors(dtype, most):
    finished = run("accuracy.py", "--filter", "S = 128", "--dtype", dtype)
    assert finished.returncode == 0, finished.stderr
    *_, line = finished.stdout.splitlines()
    title, errors = line.strip("| ").split(" | ")
    largest, mean, relative = map(float, errors.split(" / "))
    assert title == "normal, S = 128" and 0 < mean < largest < most and mean < relative


@needs_package
def test_ratios_of_errors():
    pytest.importorskip("torch")
    finished = run("accuracy.py", "--filter", "S = 128", "--against", "torch", "--seeds", "3")
    assert finished.returncode == 0, finished.stderr
    *_, line = finished.stdout.splitlines()
    found = re.fullmatch(r"\| normal, S = 128 \| ([0-9.]+) \+- [0-9.]+, larger in ([0-3]) of 3 \|", line)
    assert found and 0.2 < float(found[1]) < 5


def test_ratio(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    import accuracy

    assert accuracy.ratio([]) == "-"
    assert accuracy.ratio(list(np.log([2.0, 2.0, 0.5, 0.5]))) == "1.00 +- 0.35, larger in 2 of 4"


def test_inputs_that_are_none():
    finished = run("accuracy.py", "--filter", "nonsense")
    assert finished.returncode == 2 and '"nonsense" matches none of: normal, S = 128' in finished.stderr


@needs_package
def test_calls_from_python_are_timed():
    finished = run("python_calls.py", "--rounds", "1")
    assert finished.returncode == 0, finished.stderr
    lines = [re.fullmatch(r"(\S.*?) +([\d.]+) us(?:, median +([\d.]+) us)?", line).groups() for line in finished.stdout.splitlines()]
    best, medians = ({line[0]: float(line[column]) for line in lines if line[column]} for column in (1, 2))
    assert {"hattn.attention, NumPy", "KVCache.attend, NumPy"} <= best.keys()
    assert {f"hattn.attention, {dtype}, {keys} keys" for dtype in ("float32", "bfloat16") for keys in (512, 2048)} <= medians.keys()
    assert all(0 < time < 1e5 for time in best.values()) and all(best[name] <= median for name, median in medians.items())
