"""The options of `hattn tune`: what is refused before anything is measured, and what is said."""

import json
import os
import pathlib
import re
import subprocess
import sys
import warnings

import pytest

from hattn import cli
from hattn._tuning import command, database, session, shapes
from tuning_entries import SMALL, tune


def test_dry_run_measures_nothing(path, capsys):
    assert tune("--dry-run") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(shapes.quick()) + 1 and str(path) in lines[-1]
    assert not path.exists()


def test_without_a_home(monkeypatch, capsys):
    for name in ("HATTN_TUNING", "HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert tune("--dry-run") == 1
    assert "HOME: is not set" in capsys.readouterr().err


def test_machines_may_share_a_home(tmp_path):
    """Each has a file by a name of its own, and leaves those of others alone."""
    folder = tmp_path / ".cache" / "hattn"
    folder.mkdir(parents=True)
    (folder / "tuning-00000000.json").write_text("of another machine")
    shape = {"query_heads": 1, "query_length": 1, "kv_length": 40, "key_dim": 16}
    (tmp_path / "shapes.json").write_text(json.dumps([shape]))
    variables = {name: value for name, value in os.environ.items() if name not in ("HATTN_TUNING", "XDG_CACHE_HOME")}

    def hattn(*words):
        return subprocess.run(
            [sys.executable, "-m", "hattn", *words],
            env={**variables, "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        )

    def in_use():
        found = json.loads(hattn("info").stdout)["tuning_database"]
        return pathlib.Path(found["path"]), found["state"]

    path, state = in_use()
    assert path.parent == folder and re.fullmatch(r"tuning-[0-9a-f]{8}\.json", path.name) and state == "missing"
    tuned = hattn("tune", "--threads", "1", "--budget", "1s", "--shapes", str(tmp_path / "shapes.json"))
    assert f"written to {path}" in tuned.stdout and "ignored" not in tuned.stderr
    assert in_use() == (path, "in use")
    assert (folder / "tuning-00000000.json").read_text() == "of another machine"


@pytest.mark.parametrize(
    "arguments, pattern",
    [
        (["--threads", "-1"], "--threads: is -1"),
        (["--resume", "--force"], "--resume, --force: exclude each other"),
        (["--all", "--shapes", "shapes.json"], "--all, --shapes: exclude each other"),
        (["--report", "report.html", "--dry-run"], "--report, --dry-run: exclude each other"),
        (["--deep", "--kernels", "pack.so"], "--deep, --kernels: exclude each other"),
        (["--shapes", "missing.json"], "--shapes: missing.json: No such file or directory"),
        (["--shapes", "."], "--shapes: .: Is a directory"),
        (["--threads", "100000"], "--threads: is 100000, but must be from 0 to the number of cores, "),
        (["--output", "/proc/tuning.json"], "--output: /proc/tuning.json cannot be written: "),
        (["--output", "/dev/null/tuning.json"], "--output: /dev/null is no folder"),
        (["--output", "/nowhere/tuning.json"], "--output: /nowhere is no folder"),
        (["--output", "/nowhere/tuning.json", "--dry-run"], "--output: /nowhere is no folder"),
        (["--usual", "missing.json"], "--usual: missing.json does not exist"),
        (["--usual", "."], "--usual: .: cannot be read: "),
        (["--output", "."], "--output: .: cannot be read: it is not a file"),
        (["--report", "/nowhere/report.html"], "--report: /nowhere is no folder"),
        (["--report", "."], "--report: . is a folder"),
        (["--kernels", "a:b.so"], "--kernels: a:b.so: has a colon"),
        (["--kernels", "/none.so"], "--kernels: kernel pack /none.so: No such file or directory"),
        (["--kernels", "/tmp"], "--kernels: /tmp is a folder, but must be a kernel pack"),
        (["--invariant", "--usual", "rule"], "--invariant: is for the library's default, but --usual is rule"),
        (["--deep", "--dtype", "int8"], "--deep: compiles kernels for float32 alone, but there is "),
    ],
)
def test_bad_arguments(path, capsys, arguments, pattern):
    assert cli.main(["tune", *arguments]) == 1
    error = capsys.readouterr().err
    assert error.startswith("hattn: ") and pattern in error and error.count("\n") == 1
    assert not path.exists()


@pytest.mark.parametrize("name", ["--output", "database"])
def test_what_cannot_be_written_is_said_before_anything_is_measured(path, tmp_path, capsys, monkeypatch, name):
    """Even if it is what reports are made of alone."""
    monkeypatch.setattr(session, "run", lambda *_: pytest.fail("measured"))
    results = tmp_path / "tuning.json.results.jsonl"
    results.mkdir()
    assert tune(*(["--output", path] if name == "--output" else [])) == 1
    assert f"hattn: {name}: {results} is a folder, but must be a file\n" == capsys.readouterr().err
    assert not path.exists()


@pytest.mark.filterwarnings("ignore:tuning database .* is ignored")
@pytest.mark.parametrize("option", ["--output", "HATTN_TUNING"])
@pytest.mark.parametrize("flags", [[], ["--force"], ["--dry-run"]])
def test_files_that_never_were_a_database(tmp_path, shapes_file, capsys, monkeypatch, option, flags):
    """They are somebody's, and stay."""
    file = tmp_path / "accounts"
    file.write_text("root:x:0:0\n")
    if option == "HATTN_TUNING":
        monkeypatch.setenv(option, str(file))
    names = sorted(tmp_path.iterdir())
    assert tune("--shapes", shapes_file, *flags, *(["--output", file] if option == "--output" else [])) == 1
    name = "database" if option == "HATTN_TUNING" else option
    assert f"hattn: {name}: {file} is no tuning database; remove it, or name another file\n" in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == names and file.read_text() == "root:x:0:0\n"


def test_folders_that_a_user_names_are_not_made(tmp_path, shapes_file, capsys, monkeypatch):
    """But the cache is, which the library names."""
    file = tmp_path / "misspelt" / "tuning.json"
    monkeypatch.setenv("HATTN_TUNING", str(file))
    assert tune("--shapes", shapes_file) == 1
    assert capsys.readouterr().err == f"hattn: database: {file.parent} is no folder\n"
    assert not file.parent.exists()
    monkeypatch.delenv("HATTN_TUNING")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert tune("--shapes", shapes_file) == 0
    assert len(list((tmp_path / "cache" / "hattn").glob("tuning-*.json"))) == 1


def test_a_damaged_default_is_no_default(path, tmp_path, capsys):
    """It ends the command, and so is not ignored."""
    file = tmp_path / "usual.json"
    file.write_text("{")
    assert tune("--usual", file, "--dry-run") == 1
    assert f"hattn: --usual: {file} cannot be used: it is damaged (" in capsys.readouterr().err


@pytest.mark.parametrize("package", ["matplotlib", "gguf"])
def test_packages_that_are_not_there(path, tmp_path, capsys, monkeypatch, package):
    """Are named as an index has them, which does not have hattn."""
    monkeypatch.setitem(sys.modules, package, None)
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    assert tune(*(["--report", "report.html"] if package == "matplotlib" else ["--shapes", tmp_path / "model.gguf"])) == 1
    assert capsys.readouterr().err.endswith(f": needs the package {package}: pip install {package}\n")


def test_files_that_are_named_twice(path, shapes_file, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(session, "run", lambda *_: pytest.fail("measured"))
    monkeypatch.chdir(tmp_path)
    text = shapes_file.read_text()
    report = tmp_path / "report.html"
    for options, message in (
        (["--output", shapes_file], f"--output, --shapes: are both {shapes_file}, but must be files of their own"),
        (["--report", shapes_file], f"--report, --shapes: are both {shapes_file}, but"),
        (["--report", report, "--output", "report.html"], f"--report, --output: are both {report}, but"),
        (["--report", f"{path}.results.jsonl"], f"--report, its measurements: are both {path}.results.jsonl, but"),
    ):
        assert tune("--shapes", shapes_file, *options) == 1
        assert message in capsys.readouterr().err
    assert shapes_file.read_text() == text and not path.exists() and not report.exists()


def test_nothing_that_can_be_tuned_for(path, tmp_path, capsys):
    file = tmp_path / "long.json"
    file.write_text(json.dumps([{"query_heads": 1, "query_length": 1, "kv_length": 10**6, "key_dim": 4}]))
    assert tune("--shapes", file, "--dry-run") == 1
    assert f"--shapes: {file} has nothing that can be tuned for" in capsys.readouterr().err
    heads = {"num_attention_heads": 2**13, "num_key_value_heads": 2**13, "head_dim": 2**16}
    file.write_text(json.dumps({"model_type": "llama", "hidden_size": 2**20, **heads, "max_position_embeddings": 131072}))
    assert tune("--shapes", file, "--dry-run") == 1
    assert "its problems take more than 2e+10 multiply-adds, all of them" in capsys.readouterr().err


def test_a_lock_that_is_none(path, capsys, monkeypatch):
    monkeypatch.setattr(session, "run", lambda *_: pytest.fail("measured"))
    (path.parent / f"{path.name}.lock").mkdir()
    assert tune() == 1
    assert "cannot be written: its lock" in capsys.readouterr().err


def test_a_budget_that_is_spent(path, shapes_file, capsys, monkeypatch):
    """Is said, with what to do about it."""
    run = session.run
    monkeypatch.setattr(session, "run", lambda problems, *others: run(problems[:1], *others))
    assert tune("--shapes", shapes_file) == 0
    assert "the budget of 1 s is spent, 1 problem left; --resume goes on" in capsys.readouterr().err


def test_what_is_forced_is_not_tuned(path, shapes_file, capsys, monkeypatch):
    monkeypatch.setenv("HATTN_FORCE", "algorithm=flash")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert tune("--shapes", shapes_file, "--dry-run") == 0
    warning = "HATTN_FORCE: is algorithm=flash, which decides where candidates should; unset it"
    assert f"hattn: warning: {warning}\n" in capsys.readouterr().err


def test_a_reader_that_has_enough(path):
    """No error: the rest goes nowhere."""
    command = [sys.executable, "-m", "hattn", "info"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == "" and process.wait(timeout=60) == 1


def test_shapes_that_say_what_goes_without_saying_are_the_same(path, tmp_path, capsys):
    file = tmp_path / "shapes.json"
    same = {**SMALL[0], "value_dim": 32, "batch": 1, "mask": False, "dtype": "float32"}
    file.write_text(json.dumps([SMALL[0], same]))
    assert tune("--shapes", file, "--dry-run") == 0
    assert capsys.readouterr().out == f"1 x 300, heads 4/2, size 32\n1 problem, to be written to {path}\n"


@pytest.mark.parametrize(
    "arguments, expected",
    [
        ([], ["float32"] * 2),
        (["--dtype", "int8,float16", "--dtype", "int8"], ["int8", "float16"] * 2),
        (["--dtype", "all"], list(shapes.DTYPES) * 2),
    ],
)
def test_dtypes(path, shapes_file, capsys, arguments, expected):
    """Problem for problem, each type once; "float32" goes without saying."""
    assert tune("--shapes", shapes_file, "--dry-run", *arguments) == 0
    titles = capsys.readouterr().out.splitlines()[:-1]
    assert [(title.split(", ") + ["float32"])[3] for title in titles] == expected


def test_dtypes_of_shapes(path, tmp_path, capsys):
    """Those that a list gives count."""
    file = tmp_path / "shapes.json"
    file.write_text(json.dumps([{**SMALL[0], "dtype": "int4"}, SMALL[1]]))
    assert tune("--shapes", file, "--dtype", "bfloat16") == 0
    assert sorted(entry["class"]["dtype"] for entry in database.read(path)) == ["bfloat16", "int4"]


def test_unknown_dtypes(capsys):
    with pytest.raises(SystemExit):
        tune("--dtype", "int8,float8")
    assert 'has "float8", but knows float32, ' in capsys.readouterr().err


@pytest.mark.parametrize("text, expected", [("90", 90), ("2m", 120), ("1.5h", 5400), ("60s", 60)])
def test_times(text, expected):
    assert command.seconds(text) == expected


@pytest.mark.parametrize("text", ["", "0s", "soon", "-3", "5 m"])
def test_what_is_no_time(text):
    with pytest.raises(command.argparse.ArgumentTypeError):
        command.seconds(text)
