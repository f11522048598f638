"""The `hattn` command."""

import json
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import hattn
from hattn import cli
from helpers import assert_same_bits, random_qkv


@pytest.fixture
def problem(rng, tmp_path):
    """A file with q, k, v and a mask, and the arrays."""
    q, k, v = random_qkv(rng)
    arrays = {"q": q, "k": k, "v": v, "mask": rng.random((5, 7)) < 0.7}
    path = tmp_path / "problem.npz"
    np.savez(path, **arrays)
    return path, arrays


def test_info_as_a_process():
    printed = subprocess.run([sys.executable, "-m", "hattn", "info"], check=True, capture_output=True, text=True)
    assert json.loads(printed.stdout)["version"] == hattn.__version__


def test_run(problem, tmp_path, capsys):
    path, arrays = problem
    output = tmp_path / "result.npz"
    flags = ["--causal", "--scale", "0.3", "--window", "3", "-1", "--lse", "--scores", "masked", "--algorithm", "naive"]
    assert cli.main(["run", str(path), "--output", str(output), *flags]) == 0
    assert "lse [2, 4, 5] float32" in capsys.readouterr().out
    expected = hattn.attention(
        **arrays, causal=True, scale=0.3, window=(3, -1), algorithm="naive", return_lse=True, return_scores="masked"
    )
    with np.load(output) as results:
        assert results.files == ["out", "lse", "scores"]
        for name, wanted in zip(results.files, expected):
            assert_same_bits(results[name], wanted)


def test_output_is_named_as_it_is_written(problem, tmp_path, capsys):
    assert cli.main(["run", str(problem[0]), "--output", str(tmp_path / "result")]) == 0
    assert capsys.readouterr().out.startswith(f"{tmp_path / 'result.npz'}: out ")
    assert (tmp_path / "result.npz").exists()


def test_a_wrong_variable_is_not_the_files(problem, monkeypatch, capsys):
    monkeypatch.setenv("HATTN_FORCE", "target=foo")
    assert cli.main(["run", str(problem[0])]) == 1
    assert capsys.readouterr().err.startswith("hattn: HATTN_FORCE: target is 'foo'")


def test_explain(problem, tmp_path, capsys):
    path, _ = problem
    output = tmp_path / "result.npz"
    assert cli.main(["run", str(path), "--output", str(output), "--explain"]) == 0
    assert "algorithm" in json.loads(capsys.readouterr().out)
    assert not output.exists()


@pytest.mark.parametrize(
    "change, flags, pattern",
    [
        ({"k": None}, [], "bad.npz: k: is missing\n"),
        ({"extra": np.ones(1)}, [], "bad.npz: extra: is no argument of attention()\n"),
        ({"q": np.ones((1, 2, 3), np.float32)}, [], "q: rank is 3"),
        ({"q": np.ones((2, 4, 5, 16))}, [], "q: dtype is float64"),
        ({"causal_offset": np.array([1, 2])}, ["--causal-offset", "1"], "--causal-offset: "),
        ({}, ["--softcap", "-1"], "softcap"),
    ],
)
def test_bad_files(problem, tmp_path, capsys, change, flags, pattern):
    _, arrays = problem
    arrays = {name: array for name, array in {**arrays, **change}.items() if array is not None}
    path, output = tmp_path / "bad.npz", tmp_path / "result.npz"
    np.savez(path, **arrays)
    assert cli.main(["run", str(path), "--output", str(output), *flags]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"hattn: {path}: ") and pattern in error and error.count("\n") == 1
    assert not output.exists()


def test_run_over_quantised_pages(rng, tmp_path):
    """A table, scales and an offset, the numbers as arrays without dimensions."""
    q, k, v = random_qkv(rng, batch=1, keys=32)
    arrays = {
        "q": q,
        "k": np.int8(30 * k.reshape(1, 2, 2, 16, 16).swapaxes(1, 2)[0]),
        "v": np.int8(30 * v.reshape(1, 2, 2, 16, 16).swapaxes(1, 2)[0]),
        "block_table": np.array([[1, 0]]),
        "kv_lengths": np.array([20]),
    }
    numbers = {"causal_offset": 9, "k_scale": 0.05, "v_scale": np.float32(0.02)}
    path, output = tmp_path / "pages.npz", tmp_path / "result.npz"
    np.savez(path, **arrays, **numbers)
    assert cli.main(["run", str(path), "--output", str(output), "--causal"]) == 0
    with np.load(output) as results:
        assert_same_bits(results["out"], hattn.attention(**arrays, **numbers, causal=True))


def test_run_over_bfloat16(rng, tmp_path, capsys):
    """NumPy writes and reads it as two bytes without a type."""
    arrays = {name: array.astype(ml_dtypes.bfloat16) for name, array in zip("qkv", random_qkv(rng))}
    path, output = tmp_path / "bfloat16.npz", tmp_path / "result.npz"
    np.savez(path, **arrays)
    assert cli.main(["run", str(path), "--output", str(output)]) == 0
    assert "out [2, 4, 5, 16] bfloat16" in capsys.readouterr().out
    with np.load(output) as results:
        assert results["out"].tobytes() == hattn.attention(**arrays).tobytes()


def test_run_on_a_device(problem, tmp_path, capsys):
    path, arrays = problem
    output = tmp_path / "result.npz"
    for device, pattern in (("gpu", 'device: is "gpu", but must be one of'), ("cuda:x", "behind the colon")):
        assert cli.main(["run", str(path), "--output", str(output), "--device", device]) == 1
        assert pattern in capsys.readouterr().err
    usable = [row["name"] for row in hattn.info()["devices"] if row["usable"]]
    for device in ("cpu", *usable):
        assert cli.main(["run", str(path), "--output", str(output), "--device", device]) == 0
        with np.load(output) as results:
            assert_same_bits(results["out"], hattn.attention(**arrays, device=device))


def test_output_that_cannot_be_written(problem, tmp_path, capsys):
    assert cli.main(["run", str(problem[0]), "--output", str(tmp_path / "nowhere" / "out.npz")]) == 1
    assert "hattn: --output: " in capsys.readouterr().err


def test_missing_and_foreign_files(tmp_path, capsys):
    array, damaged = tmp_path / "array.npz", tmp_path / "damaged.npz"
    with array.open("wb") as file:
        np.save(file, np.ones(3))
    np.savez(damaged, q=np.ones(100), k=np.array([{}], object))
    for path, pattern in ((array, "is no .npz file"), (damaged, "allow_pickle")):
        assert cli.main(["run", str(path)]) == 1
        error = capsys.readouterr().err
        assert error.startswith(f"hattn: {path}: ") and pattern in error
    assert cli.main(["run", str(tmp_path / "none.npz")]) == 1
    assert f"hattn: {tmp_path / 'none.npz'}: cannot be read: No such file" in capsys.readouterr().err
    assert cli.main(["run", str(tmp_path / "model.gguf")]) == 1
    assert "only .npz files are supported" in capsys.readouterr().err


def test_bench_forwards_to_the_source_tree(tmp_path, monkeypatch):
    """What follows `bench` reaches bench/run.py as it is, with the build tree, and its status comes back."""
    package = tmp_path / "build" / "mine" / "python" / "hattn"
    package.mkdir(parents=True)
    script = tmp_path / "bench" / "run.py"
    script.parent.mkdir()
    script.write_text("import json, sys\njson.dump(sys.argv[1:], open('seen', 'w'))\nsys.exit(7)\n")
    monkeypatch.setattr(hattn, "__file__", str(package / "__init__.py"))
    monkeypatch.chdir(tmp_path)
    assert cli.main(["bench", "--json", "--against", "onnxruntime,torch", "--help"]) == 7
    build = str(tmp_path / "build" / "mine")
    expected = ["--build", build, "--json", "--against", "onnxruntime,torch", "--help"]
    assert json.loads((tmp_path / "seen").read_text()) == expected


def test_bench_of_an_installed_package(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(hattn, "__file__", str(tmp_path / "site-packages" / "hattn" / "__init__.py"))
    assert cli.main(["bench"]) == 1
    assert "needs a build tree" in capsys.readouterr().err


def test_usage(capsys):
    for arguments in ([], ["fly"], ["run"], ["run", "x.npz", "--algorithm", "fast"]):
        with pytest.raises(SystemExit) as exit_:
            cli.main(arguments)
        assert exit_.value.code == 2
    assert "usage: hattn" in capsys.readouterr().err
