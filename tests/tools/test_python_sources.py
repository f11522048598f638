"""Python sources are as pyproject.toml wants them: ruff finds nothing, and mypy no wrong type in the package."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("command", [("ruff", "check", "--no-cache"), ("mypy", "--cache-dir=/dev/null")], ids=lambda words: words[0])
def test_sources_are_clean(command):
    if importlib.util.find_spec(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed, as with Python below 3.11")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # mypy reads the sources
    finished = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stdout + finished.stderr
