"""hattn-bench-unfused: its table, what it counts, and what it refuses."""
import re
import shutil
import subprocess
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "build" / "release" / "bench" / "hattn-bench-unfused"
pytestmark = pytest.mark.skipif(not BENCH.exists(), reason="the benchmarks are not built")


def run(*arguments):
    return subprocess.run([BENCH, *arguments], capture_output=True, text=True, timeout=300)


def table(finished):
    """Rows of cells by what the columns are called."""
    assert finished.returncode == 0, finished.stderr
    lines = [line for line in finished.stdout.splitlines() if line.startswith("|")]
    names, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return [dict(zip(names, row)) for row in rows]


def percent(cell):
    return float(re.fullmatch(r"([+-]?\d+\.\d)%", cell)[1])


def test_all_problems_there_are():
    rows = table(run("--keys=64", "--rounds=1", "--threads=1"))
    problems = {tuple(int(row[name]) for name in ("rows", "D", "Hq/Hkv")) for row in rows}
    assert problems == {(n, dim, group) for n in (1, 2, 4, 8, 16, 32) for dim in (64, 128) for group in (1, 4, 8)}
    for row in rows:
        weights = int(row["rows"]) * int(row["Hq/Hkv"])
        assert percent(row["modelled traffic"]) == pytest.approx(100 * weights / (weights + int(row["D"])), abs=0.06)
        assert float(row["fused ms"]) > 0 and float(row["unfused ms"]) > 0
        assert row["fused is"] in ("split_kv", "flash") and row["measured traffic"] == "-"


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="there is no valgrind")
def test_traffic_is_counted():
    """More rows of weights are more of all that is moved."""
    few, many = (
        table(run("--traffic", f"--rows={rows}", "--dim=64", "--group=4", "--keys=2048", "--rounds=1"))[0] for rows in (1, 8)
    )
    assert 1 < percent(few["measured traffic"]) < percent(many["measured traffic"])
    # Of few rows what else there is, such as partial states, is as much.
    assert percent(many["measured traffic"]) == pytest.approx(percent(many["modelled traffic"]), rel=0.4)


def test_help_says_what_columns_are():
    finished = run("--help")
    assert finished.returncode == 0 and not finished.stderr
    for column in ("modelled traffic", "measured traffic", "measured time"):
        assert f"\n  {column} " in finished.stdout


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--rounds=none"], "--rounds"),
        (["--else"], 'unknown argument "--else"'),
        (["--execute=naive", "--times=1", "--rows=1", "--dim=64", "--group=1"], "--execute"),
        (["--execute=flash"], "--execute: needs --times"),
    ],
)
def test_what_it_refuses(arguments, message):
    finished = run(*arguments)
    assert finished.returncode == 1 and message in finished.stderr and not finished.stdout
