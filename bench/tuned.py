"""What tuning is worth, against the goals of docs/tuning.md: tunes into a temporary database, then measures.

1. Tuned against the default, and against the library's rule, on shapes that were not tuned on.
2. The same with a foreign default: what was best for another target, on the kernels of this one.
3. Whether the planner picks the fastest algorithm, over a grid of rows and keys.
4. What reading the database and looking choices up takes.

With --deep also what tuning finds with all the kernels that there can be, on the same shapes.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

from arguments import positive, positive_seconds
from hattn import _hattn
from hattn._tuning import database, session, shapes

BUILD = pathlib.Path(__file__).resolve().parents[1] / "build" / "release"
HELD_OUT = 40
GRID_ROWS = (1, 3, 8, 24, 96, 384)
GRID_KEYS = (48, 192, 768, 3072, 12288)
FOREIGN_TARGET = "generic"


def held_out_shapes(dtype):
    """Shapes between the classes that are tuned on: the same for everybody."""
    source = random.Random(20)
    chosen = []
    while len(chosen) < HELD_OUT:
        kv_heads, group = source.choice((1, 2, 4)), source.choice((1, 3, 4, 6))
        rows = source.choice((1, 1, 1, 2, 3, 5, 7, 12, 20, 48, 100, 200, 384, 700))
        shape = {
            "query_heads": kv_heads * group,
            "kv_heads": kv_heads,
            "query_length": rows,
            "kv_length": int(2 ** source.uniform(6, 13.5)),
            "key_dim": source.choice((64, 80, 96, 128)),
            "causal": True,
            "dtype": dtype,
        }
        if shape["kv_length"] >= rows and shapes.work(shape) < 1e9:
            chosen.append(shape)
    return chosen


def tune(path, tuner, dtype, seconds, **options):
    """Tunes into `path`, and returns the results. Raises ValueError if a problem cannot be measured."""
    problems = shapes.with_dtypes(shapes.quick(), [dtype])
    results = list(session.run(problems, path, tuner, session.Options(seconds=seconds, **options)))
    for result in results:
        if isinstance(result, session.Failure):
            raise ValueError(result.why)
    return results


def tune_deep(path, build, seconds, threads):
    """Tunes into `path` with all the kernels that the build tree's generator can make."""
    command = [sys.executable, "-m", "hattn", "tune", "--deep", "--budget", f"{seconds:g}s", "--output", path]
    environment = {**os.environ, "HATTN_KERNELGEN": str(build / "generators" / "hattn-kernelgen")}
    subprocess.run([*command, "--threads", str(threads)], check=True, env=environment)


def foreign_entries(path, dtype, seconds, threads):
    """Entries of another target, as a default for this machine: each with the tile of ours that is nearest in rows."""
    options = ["--seconds", str(seconds), "--dtype", dtype, *(["--threads", str(threads)] if threads else [])]
    command = [sys.executable, __file__, "--foreign-results", path, *options]
    environment = {**os.environ, "HATTN_FORCE": f"target={FOREIGN_TARGET}"}
    subprocess.run(command, check=True, env=environment)
    context = json.loads(_hattn.info())
    entries = []
    for result in json.loads(path.read_text()):
        choice = result["candidates"][result["fastest"]]["choice"]
        kind = "unfused_scores" if choice["algorithm"] == "unfused" else choice["algorithm"]
        tiles = [
            kernel["tile"]
            for kernel in context["kernels"]
            if kernel["algorithm"] == kind and kernel["target"] == context["target"] and not kernel["hooks"]
        ]
        tile = min(tiles, key=lambda tile: abs(tile["rows"] - choice["tile"]["rows"]))
        problem_class = {**result["entry"]["class"], "target": context["target"]}
        entries.append({**result["entry"], "class": problem_class, "choice": {**choice, "tile": tile}})
    return entries


def print_speeds(title, speeds, goal_mean, goal_least=None):
    """One line on a list of ratios."""
    goals = f"goal {goal_mean:.2f}x" + (f", none below {goal_least:.2f}x" if goal_least else "")
    slower = sum(speed < (goal_least or 0) for speed in speeds)
    print(
        f"{title}: geometric mean {statistics.geometric_mean(speeds):.3f}x, least {min(speeds):.2f}x, "
        f"most {max(speeds):.2f}x; {slower} of {len(speeds)} below the least allowed ({goals})"
    )


def compare_held_out(tuner, dtype, databases, seconds):
    """Speeds by database over the first one's, and the noise, per held-out shape."""
    rows = []
    for shape in held_out_shapes(dtype):
        request = {"shape": shape, "databases": databases, "seconds": seconds}
        result = json.loads(tuner.compare(json.dumps(request)))
        speeds = [row["speed"] for row in result["rows"]]
        rows.append((*speeds, result["noise"]))
        plans = " | ".join(f"{row['plan']['kernel']}/{row['plan']['split_keys']}" for row in result["rows"])
        numbers = " ".join(f"{speed:.2f}" for speed in speeds)
        print(f"  {shapes.Problem([shape]).title}: {numbers}  noise {result['noise']:.2f}  {plans}", flush=True)
    return rows


def crossovers(tuner, dtype, path, seconds):
    """The share of cells in which the planner's pick is within 5% of the fastest algorithm, and of the fastest candidate, warm and cold."""
    right_algorithm, right, within_noise, cells = 0, 0, 0, 0
    for problem in shapes.with_dtypes(shapes.grid(GRID_ROWS, GRID_KEYS, ((128, 4), (64, 1))), [dtype]):
        request = {"shapes": problem.shapes[:1], "usual": path, "seconds": seconds, "most_candidates": 8}
        result = json.loads(tuner.tune(json.dumps(request)))
        ran = [row for row in result["candidates"] if not row["refused"]]
        best = max(row["speed"] for row in ran)
        pick = result["candidates"][0]["choice"]["algorithm"]
        of_others = [row["speed"] for row in ran if row["choice"]["algorithm"] != pick]
        cells += 1
        right_algorithm += max(of_others, default=0) <= 1.05
        right += best <= 1.05
        within_noise += best <= 1.05 * result["noise"]
        if best > 1.05:
            fastest = result["candidates"][result["fastest"]]
            plan = fastest["plan"].split()[0]
            print(f"  {problem.title}: {plan} is {best:.2f}x as fast, noise {result['noise']:.2f}")
    print(
        f"crossovers: the pick is within 5% of the fastest candidate of every other algorithm in {right_algorithm} of {cells} cells "
        f"(goal 95%), of every candidate, with any tile, split and number of heads, in {right}, within that and the cell's noise in {within_noise}"
    )


def main(words=None):
    """Prints everything; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=BUILD, help="build tree, for look-ups and hattn-kernelgen")
    parser.add_argument("--threads", type=positive, default=0, help="default: one per core")
    parser.add_argument("--dtype", default="float32", choices=shapes.DTYPES, help="of keys and values")
    parser.add_argument("--seconds", type=positive_seconds, default=60, help="to tune for, as a user would")
    parser.add_argument("--each", type=positive_seconds, default=0.5, help="seconds of comparing a held-out shape or a cell")
    parser.add_argument("--deep", type=positive_seconds, metavar="SECONDS", help="also tune with compiled kernels, for so long")
    parser.add_argument("--foreign-results", type=pathlib.Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args(words)
    if not arguments.build.is_dir():
        parser.error(f"--build: {arguments.build}: not there")
    if arguments.deep and arguments.dtype != "float32":
        parser.error(f"--deep: compiles kernels for float32 alone, but --dtype is {arguments.dtype}")
    tuner = _hattn.Tuner(arguments.threads)
    if arguments.foreign_results:
        results = tune(None, tuner, arguments.dtype, arguments.seconds, usual="rule")
        arguments.foreign_results.write_text(json.dumps(results))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        path, foreign = pathlib.Path(folder, "tuning.json"), pathlib.Path(folder, "foreign.json")
        results = tune(path, tuner, arguments.dtype, arguments.seconds)
        wins = sum(result["replaces_default"] for result in results)
        print(f"tuned {len(results)} problems in {arguments.seconds:.0f} s, {wins} winners")
        results_path = pathlib.Path(folder, "results.json")
        database.merge(foreign, foreign_entries(results_path, arguments.dtype, arguments.seconds, arguments.threads))
        databases, titles = ["none", "rule", str(path), str(foreign)], "the default, the rule, tuned, a foreign default"
        if arguments.deep:
            deep = pathlib.Path(folder, "deep", "tuning.json")
            deep.parent.mkdir()
            tune_deep(deep, arguments.build, arguments.deep, arguments.threads)
            databases, titles = [*databases, str(deep)], f"{titles}, deep"
        print(f"held-out shapes; speeds over the default of: {titles}")
        rows = compare_held_out(tuner, arguments.dtype, databases, arguments.each)
        print_speeds("tuned over the default", [row[2] for row in rows], 1.05, 0.98)
        print_speeds("tuned over the rule", [row[2] / row[1] for row in rows], 1.05, 0.98)
        print_speeds("tuned over a foreign default", [row[2] / row[3] for row in rows], 1.25)
        if arguments.deep:
            print_speeds("deep over the default", [row[4] for row in rows], 1.05, 0.98)
            print_speeds("deep over tuned", [row[4] / row[2] for row in rows], 1.0, 0.98)
        print(f"noise: {100 * (statistics.median(row[-1] for row in rows) - 1):.1f}% (median)")
        crossovers(tuner, arguments.dtype, str(path), arguments.each)
        subprocess.run([arguments.build / "bench" / "hattn-bench-lookup", path], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
