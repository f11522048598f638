"""./dev: arguments that it does not know are refused before anything is built or removed."""

import json
import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# What there is of other programs. So a command that is not refused gets no further than to what sets the checkout up.
PROGRAMS = ("bash", "dirname", "nproc", "uname", "cat", "rm")


@pytest.fixture
def dev(tmp_path):
    """Runs a copy of the script, in a checkout that has nothing but a file that was built."""
    checkout, programs = tmp_path / "checkout", tmp_path / "programs"
    (checkout / "build").mkdir(parents=True)
    (checkout / ".deps").mkdir()
    (checkout / "build" / "library").touch()
    shutil.copy(ROOT / "dev", checkout)
    programs.mkdir()
    for name in PROGRAMS:
        (programs / name).symlink_to(shutil.which(name))

    def run(*words):
        environment = {**os.environ, "PATH": str(programs)}
        return subprocess.run([checkout / "dev", *words], env=environment, capture_output=True, text=True)

    run.checkout = checkout
    return run


PRESETS = "release debug asan tsan aarch64"


@pytest.mark.parametrize(
    "words, message",
    [
        (("build", "relase"), f'build: is given "relase", but takes at most one of: {PRESETS}'),
        (("build", "release debug"), f'build: is given "release debug", but takes at most one of: {PRESETS}'),
        (("build", "debug", "asan"), f'build: is given "debug asan", but takes at most one of: {PRESETS}'),
        (("build", ""), f'build: is given "", but takes at most one of: {PRESETS}'),
        (("clean", "--al"), 'clean: is given "--al", but takes at most one of: --all'),
        (("clean", "--all", "now"), 'clean: is given "--all now", but takes at most one of: --all'),
        (("cleen",), 'unknown command "cleen"'),
    ],
)
def test_arguments_that_are_unknown(dev, words, message):
    finished = dev(*words)
    assert finished.returncode == 1 and finished.stderr.endswith(f"dev: {message}\n") and finished.stdout == ""
    assert (dev.checkout / "build" / "library").exists() and (dev.checkout / ".deps").exists()


@pytest.mark.parametrize("words", [(), ("help",), ("--help",), ("build", "--help"), ("clean", "-h")])
def test_help(dev, words):
    finished = dev(*words)
    assert finished.returncode == 0 and finished.stdout.startswith("usage: ./dev COMMAND")
    assert (dev.checkout / "build" / "library").exists()


@pytest.mark.parametrize("words, stays", [(("clean",), True), (("clean", "--all"), False)])
def test_clean(dev, words, stays):
    assert dev(*words).returncode == 0
    assert not (dev.checkout / "build").exists() and (dev.checkout / ".deps").exists() == stays


def test_presets_are_those_that_there_are():
    known = [preset["name"] for preset in json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"] if "hidden" not in preset]
    assert sorted(known) == sorted(PRESETS.split())
