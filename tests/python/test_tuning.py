"""`hattn tune`, as a user meets it."""

import json
import os
import signal
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest

import hattn
from hattn import _hattn
from hattn._tuning import database, measuring, session, shapes
from helpers import assert_same_bits, random_qkv
from tuning_entries import SMALL, arrays_of, entry_for, stays, tune


def test_the_whole_circle(rng, path, shapes_file, tmp_path, monkeypatch, capsys):
    """Tune, use, explain, damage the file, use again, force, report."""
    assert hattn.info()["tuning_database"]["state"] == "missing"
    assert tune("--shapes", shapes_file, "--dtype", "float32,int8") == 0
    printed = capsys.readouterr().out
    assert "4 of 4 problems measured" in printed and "cost model: " in printed and str(path) in printed
    assert "size 32, int8: " in printed
    assert len(database.read(path)) == 4

    arrays = arrays_of(rng, SMALL[0])
    usual = hattn.attention(*arrays, causal=True)
    database.merge(path, [entry_for(arrays, "naive", causal=True)])
    monkeypatch.setenv("HATTN_TUNING", f"{path.parent}/./{path.name}")  # as a process that starts now
    plan = hattn.explain(*arrays, causal=True)
    assert (plan["algorithm"], plan["decided_by"]) == ("naive", "machine")
    assert "1.25x" in plan["why"]
    tuned = hattn.attention(*arrays, causal=True)
    np.testing.assert_allclose(tuned, usual, rtol=1e-5, atol=1e-6)
    info = hattn.info()["tuning_database"]
    assert (info["state"], info["entries"]) == ("in use", 4)

    monkeypatch.setenv("HATTN_FORCE", "algorithm=flash")
    assert hattn.explain(*arrays, causal=True)["algorithm"] == "flash"
    monkeypatch.delenv("HATTN_FORCE")

    text = path.read_text()
    path.write_text(text[: len(text) // 2])
    monkeypatch.setenv("HATTN_TUNING", str(path))
    with pytest.warns(RuntimeWarning, match="tuning database .* is ignored: it is damaged"):
        again = hattn.attention(*arrays, causal=True)
    assert_same_bits(again, usual)
    assert hattn.info()["tuning_database"]["state"] == "ignored"

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert tune("--shapes", shapes_file, "--resume", "--report", tmp_path / "report.html") == 0
    printed, errors = capsys.readouterr()
    assert "2 of 2" in printed  # a damaged file has nothing to go on from
    assert f"hattn: warning: {path}: was ignored: it is damaged" in errors
    assert tune("--shapes", shapes_file, "--resume") == 0
    assert "the database has all that is asked for already" in capsys.readouterr().out
    assert "<svg" in (tmp_path / "report.html").read_text()


def test_force_forgets(path, shapes_file, capsys):
    database.merge(path, [stays(1)])
    assert tune("--shapes", shapes_file, "--force") == 0
    assert len(database.read(path)) == 2


def test_force_forgets_nothing_before_there_are_results(path, tmp_path, monkeypatch, capsys):
    session.save(path, [{"entry": stays(1)}])
    before = path.read_text(), session.results_path(path).read_text()
    monkeypatch.setenv("HATTN_KERNELGEN", "/nowhere/hattn-kernelgen")
    (tmp_path / "wide.json").write_text(json.dumps([{**SMALL[0], "key_dim": 100000, "kv_length": 2}]))
    for arguments in (
        ("--deep",),
        ("--shapes", tmp_path / "missing.json"),
        ("--shapes", tmp_path / "wide.json"),
        ("--usual", tmp_path / "missing.json"),
    ):
        assert tune("--force", *arguments) == 1
        assert any(line.startswith("hattn: ") for line in capsys.readouterr().err.splitlines())
        assert (path.read_text(), session.results_path(path).read_text()) == before


def test_shapes_of_a_class_are_one_problem(path, tmp_path, capsys):
    """Each once, all of them measured, and one entry."""
    other = {**SMALL[0], "kv_length": 270, "batch": 2}
    (tmp_path / "shapes.json").write_text(json.dumps([SMALL[0], SMALL[1], other, SMALL[0]]))
    assert tune("--shapes", tmp_path / "shapes.json", "--dry-run") == 0
    lines = capsys.readouterr().out.splitlines()
    first = "1 x 300, heads 4/2, size 32"
    assert lines[:2] == [f"{first} and 1 more of its class", "    1 x 270, heads 4/2, size 32, batch 2"]
    assert lines[-1].startswith("2 problems, ")
    assert tune("--shapes", tmp_path / "shapes.json") == 0
    assert "2 of 2 problems measured" in capsys.readouterr().out
    results = {result["title"]: result for result in session.read_results(path)}
    joined = results[f"{first} and 1 more of its class"]
    assert [shape["kv_length"] for shape in joined["shapes"]] == [300, 270]
    assert {time["shape"] for time in joined["candidates"][0]["times"]} == {0, 1}


def test_resume_goes_by_how_entries_were_made(path, shapes_file, capsys):
    """Of a narrower search there is something left to do."""
    assert tune("--shapes", shapes_file) == 0

    def left(*arguments):
        capsys.readouterr()
        assert tune("--shapes", shapes_file, "--resume", "--dry-run", *arguments) == 0
        return len(capsys.readouterr().out.splitlines()) - 1

    assert (left(), left("--invariant"), left("--deep")) == (0, 2, 2)
    first, second = database.read(path)
    database.merge(path, [{**first, "invariant": True}, {**second, "deep": True}])
    assert (left(), left("--invariant"), left("--deep")) == (1, 1, 1)


def test_resuming_with_nothing_left(path, shapes_file, tmp_path, capsys):
    """Is said, without a bar; a report is made all the same."""
    assert tune("--shapes", shapes_file) == 0
    before = path.read_text()
    for flags in (["--dry-run"], [], ["--report", tmp_path / "report.html"]):
        capsys.readouterr()
        assert tune("--shapes", shapes_file, "--resume", *flags) == 0
        said = capsys.readouterr()
        assert said.out.startswith(f"the database has all that is asked for already, 2 problems: {path}\n") and said.err == ""
        assert said.out.count("\n") == 1 + ("--report" in flags)
    assert path.read_text() == before and (tmp_path / "report.html").exists()


def test_entries_of_a_device_go_by_what_it_is(opencl):
    """Memory is what the machine had at the moment."""
    entry = stays(1)
    device = {name: opencl["found"][0][name] for name in ("name", "memory_bytes")}
    of_device = {**entry["class"], "target": "opencl", "device": device}
    later = {**of_device, "device": {**device, "memory_bytes": 4711}}
    assert database.class_text(of_device) == database.class_text(later)
    assert database.class_text({**of_device, "target": "cuda"}) != database.class_text({**later, "target": "cuda"})


@pytest.mark.parametrize("ends", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_keeps_what_is_measured(path, ends):
    """A process that is interrupted after its first result, or told to end, leaves a database with it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "hattn", "tune", "--threads", "1", "--budget", "10m"],
        env={**os.environ, "HATTN_TUNING": str(path)},
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.2)  # it counts a result after it is written
    process.send_signal(ends)
    printed, errors = process.communicate(timeout=60)
    assert process.returncode == measuring.INTERRUPTED
    assert "interrupted; what was measured is kept" in errors
    assert len(database.read(path)) >= 1
    assert f"{len(database.read(path))} of {len(shapes.quick())} problems measured" in printed


@pytest.mark.parametrize("name", ["Tuner", "tuning_database"])
def test_ctrl_c_at_any_time(path, monkeypatch, capsys, name):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(_hattn, name, interrupted)
    assert tune() == measuring.INTERRUPTED
    assert capsys.readouterr().err == "hattn: interrupted\n"


def test_errors_name_the_problem(path, tmp_path, monkeypatch, capsys):
    file = tmp_path / "shapes.json"
    file.write_text(json.dumps([SMALL[0]]))
    monkeypatch.setenv("TMPDIR", "/nowhere")
    assert tune("--shapes", file) == 1
    error = capsys.readouterr().err
    assert "hattn: 1 x 300, heads 4/2, size 32: " in error and "Traceback" not in error
    assert not path.exists()


def test_invariant_choices_have_the_bits_of_the_default(rng, tmp_path, monkeypatch):
    """Whatever it chooses: each candidate that is timed gives the default's bits, at other lengths of the class too."""
    tuner = _hattn.Tuner(1)
    options = session.Options(seconds=0.2, invariant=True)
    # Where flash has a single tile the first has no candidate but the default.
    for query_length in (88, 70):
        shape = {"query_heads": 4, "kv_heads": 2, "query_length": query_length, "kv_length": 200, "key_dim": 32}
        (result,) = session.run([shapes.Problem([shape])], None, tuner, options)
        entry = result["entry"]
        assert entry["invariant"] is True
        others = [candidate for candidate in result["candidates"][1:] if not candidate["refused"]]
        if others:
            break
    assert others
    default = result["candidates"][0]["choice"]
    for at, candidate in enumerate(others):
        choice = candidate["choice"]
        assert choice["algorithm"] == default["algorithm"] and choice["split_keys"] == default["split_keys"]
        database.merge(tmp_path / f"{at}.json", [{**entry, "choice": choice}])
        # With 72 rows the default may be another algorithm, which then is taken.
        for rows, keys in ((64, 200), (50, 180), (85, 240), (72, 200)):
            arrays = arrays_of(rng, {**shape, "query_length": rows, "kv_length": keys})
            monkeypatch.setenv("HATTN_TUNING", "none")
            usual, usual_algorithm = hattn.attention(*arrays, causal=True), hattn.explain(*arrays, causal=True)["algorithm"]
            monkeypatch.setenv("HATTN_TUNING", str(tmp_path / f"{at}.json"))
            explained = hattn.explain(*arrays, causal=True)
            assert explained["algorithm"] == usual_algorithm
            assert (explained["decided_by"] == "machine") == (usual_algorithm == default["algorithm"])
            assert_same_bits(hattn.attention(*arrays, causal=True), usual)


def test_results_say_how_they_came_about(path):
    tuner = _hattn.Tuner(1)
    (result,) = session.run([shapes.Problem([SMALL[0]])], None, tuner, session.Options(seconds=0.3))
    assert not path.exists()
    assert result["noise"] >= 1 and result["entry"]["gain"] >= 1
    assert {"naive", "flash", "split_kv", "unfused"} == {row["choice"]["algorithm"] for row in result["candidates"]}
    for row in result["candidates"]:
        assert row["refused"] == "" and row["predicted_seconds"] > 0
        assert {time["caches"] for time in row["times"]} == {"warm", "cold"}
        assert all(time["seconds"] > 0 for time in row["times"])
    assert -1 <= result["model"]["rank_correlation"] <= 1
    predicted = [row["predicted_seconds"] for row in result["candidates"]]
    speeds = [row["speed"] for row in result["candidates"]]
    fastest = predicted[speeds.index(max(speeds))]
    assert result["model"]["place_of_fastest"] == 1 + sum(seconds < fastest for seconds in predicted)
    assert bool(result["entry"]["choice"]) == result["replaces_default"]


def test_a_problem_that_fails_leaves_the_others(path, shapes_file, capsys, monkeypatch):
    asked = []

    def told(title, tell, request):
        if tell.__name__ == "tune":
            asked.append(title)
            if len(asked) == 1:
                raise ValueError(f"{title}: is wrong")
        return told_by_tuner(title, tell, request)

    told_by_tuner = session._told
    monkeypatch.setattr(session, "_told", told)
    assert tune("--shapes", shapes_file) == measuring.FAILED
    printed = capsys.readouterr()
    assert f"hattn: {asked[0]}: is wrong" in printed.err
    assert "1 of 2 problems measured" in printed.out
    assert len(database.read(path)) == 1


def test_explain_has_a_class(rng):
    plan = hattn.explain(*random_qkv(rng))
    assert plan["class"]["dtype"] == "float32" and plan["class"]["threads"] == 0
    assert plan["decided_by"] in ("rule", "shipped")
