"""`hattn tune --device`, on the OpenCL device that the machine has, and as a command on the emulated GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hattn
from hattn import cli
from hattn._tuning import database, session
from helpers import device_row

SHAPE = {"query_heads": 4, "kv_heads": 2, "query_length": 1, "kv_length": 300, "key_dim": 32}
EMULATOR = Path(hattn.__file__).parents[2] / "tests/cpp/emulated_cuda/emulated_cuda"


def tune(*arguments):
    """Runs the command line."""
    return cli.main(["tune", "--budget", "1s", *map(str, arguments)])


def arrays_of(rng):
    """q, k and v of the shape."""
    heads = (SHAPE["query_heads"], SHAPE["query_length"]), *[(SHAPE["kv_heads"], SHAPE["kv_length"])] * 2
    return [rng.standard_normal((1, *extents, SHAPE["key_dim"]), np.float32) for extents in heads]


def test_tune_use_and_explain(rng, opencl, path, tmp_path, monkeypatch, capsys):
    """Every candidate is verified and timed; the entry decides on this device alone."""
    shapes_file = tmp_path / "shapes.json"
    shapes_file.write_text(json.dumps([SHAPE]))
    assert tune("--device", "opencl", "--shapes", shapes_file) == 0
    printed = capsys.readouterr().out
    assert "1 of 1 problem measured" in printed and "size 32, opencl: " in printed
    (entry,) = database.read(path)
    identity = {name: opencl["found"][0][name] for name in entry["class"]["device"]}
    assert entry["class"]["target"] == "opencl" and entry["class"]["device"] == identity
    assert set(identity) == {"name", "capability", "compute_units", "memory_bytes", "driver", "kernels"}

    (result,) = session.read_results(path)
    candidates = result["candidates"]
    assert {row["choice"]["algorithm"] for row in candidates} == {"flash", "split_kv"}
    assert len({row["choice"]["split_keys"] for row in candidates}) > 2
    assert len({row["choice"]["tile"]["head"] for row in candidates}) == 2
    for row in candidates:
        assert row["refused"] == "" and row["predicted_seconds"] > 0
        assert [time["caches"] for time in row["times"]] == ["warm"]
    assert tune("--device", "opencl", "--shapes", shapes_file, "--resume") == 0
    assert "the database has all that is asked for already" in capsys.readouterr().out

    flash = next(row["choice"] for row in candidates if row["choice"]["algorithm"] == "flash")
    database.merge(path, [{**entry, "choice": flash, "gain": 1.25}])
    monkeypatch.setenv("HATTN_TUNING", f"{path.parent}/./{path.name}")  # as a process that starts now
    arrays = arrays_of(rng)
    plan = hattn.explain(*arrays, causal=True, device="opencl")
    assert (plan["algorithm"], plan["decided_by"], plan["tile"]) == ("flash", "machine", flash["tile"])
    assert plan["class"] == entry["class"] and "its class" in plan["why"] and "1.25x" in plan["why"]
    assert hattn.explain(*arrays, causal=True)["decided_by"] != "machine"
    assert device_row("opencl")["found"][0]["tuning_entries"] == 1
    on_device = hattn.attention(*arrays, causal=True, device="opencl")
    np.testing.assert_allclose(on_device, hattn.attention(*arrays, causal=True), rtol=1e-5, atol=1e-6)


def test_other_types(opencl, path, tmp_path, capsys):
    shapes_file = tmp_path / "shapes.json"
    shapes_file.write_text(json.dumps([SHAPE]))
    assert tune("--device", "opencl", "--dtype", "float16", "--shapes", shapes_file) == 0
    assert "1 of 1 problem measured" in capsys.readouterr().out
    (entry,) = database.read(path)
    assert entry["class"]["dtype"] == "float16" and entry["class"]["target"] == "opencl"
    (result,) = session.read_results(path)
    assert {row["choice"]["algorithm"] for row in result["candidates"]} == {"flash", "split_kv"}
    assert all(row["refused"] == "" for row in result["candidates"])


@pytest.mark.skipif(not EMULATOR.exists(), reason="the emulator has not been built")
def test_command_on_the_emulated_gpu(path, tmp_path):
    if device_row("cuda") is None:
        pytest.skip("the build has no kernels for cuda")
    shapes_file = tmp_path / "shapes.json"
    shapes_file.write_text(json.dumps([{**SHAPE, "kv_length": 70}]))
    command = [sys.executable, "-m", "hattn", "tune", "--device", "cuda", "--budget", "1s", "--shapes", shapes_file]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(EMULATOR)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "1 of 1 problem measured" in done.stdout and "size 32, cuda: " in done.stdout
    (entry,) = database.read(path)
    assert entry["class"]["target"] == "cuda" and entry["class"]["device"]["name"] == "stub"
    (result,) = session.read_results(path)
    assert {row["choice"]["algorithm"] for row in result["candidates"]} == {"flash", "split_kv"}
    assert all(row["refused"] == "" for row in result["candidates"])  # verified before they are timed


def test_devices_that_are_not_there(path, capsys):
    """One line that says which there are."""
    for device, pattern in (("tpu", "--device: is tpu, but this build has cpu"), ("cpu:1", "--device: is cpu:1, but")):
        assert tune("--device", device) == 1
        error = capsys.readouterr().err
        assert pattern in error and error.count("\n") == 1
    for row in hattn.info()["devices"]:
        device = row["name"] if not row["usable"] else f"{row['name']}:{len(row['found'])}"
        assert tune("--device", device) == 1
        assert f"--device: is {device}, but " in capsys.readouterr().err
    assert not path.exists()


def test_what_is_for_the_cpu_alone(opencl, path, capsys):
    for option in ("--portable", "--invariant"):
        assert tune("--device", "opencl", option) == 1
        assert f"{option}: is for tunings of the CPU" in capsys.readouterr().err
