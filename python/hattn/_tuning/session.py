"""Measures problem after problem within a budget of time; every result is saved before the next one is begun."""

from __future__ import annotations

import json
import pathlib
import time
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional

from hattn import _hattn
from hattn._tuning import database
from hattn._tuning.shapes import Problem, work

Result = Dict[str, Any]

# Of the time a problem is given, what is left for measuring after data, oracle and plans are made.
_MEASURING = 0.6

# Multiply-adds from which on a problem gets fewer candidates and one shape only.
_LONG_WORK = 3e8


class Options(NamedTuple):
    """What `hattn tune` was asked for."""

    seconds: float
    threads: int = 0
    invariant: bool = False
    usual: str = "none"  # the database whose choices are the default
    portable: bool = False
    most_candidates: int = 8  # that are timed per problem


def results_path(path: pathlib.Path) -> pathlib.Path:
    """Where the measurements behind a database are kept, for reports: one JSON text per line."""
    return pathlib.Path(f"{path}.results.jsonl")


def read_results(path: pathlib.Path) -> List[Result]:
    """The measurements behind a database, the last one of each class."""
    stamp, results = database.stamp(), {}
    try:
        lines = results_path(path).read_text().splitlines()
    except OSError:
        return []
    for line in lines:
        try:
            record = json.loads(line)
            if record["stamp"] == stamp:
                results[database.class_key(record["result"]["entry"])] = record["result"]
        except (ValueError, KeyError, TypeError):
            continue  # the last line of a process that was killed
    return list(results.values())


def problem_class(problem: Problem, tuner: "_hattn.Tuner") -> str:
    """The class of a problem, as database.class_key() writes it."""
    return json.dumps(json.loads(tuner.problem_class(json.dumps({"shapes": problem.shapes}))), sort_keys=True)


def remaining(problems: List[Problem], path: pathlib.Path, tuner: "_hattn.Tuner") -> List[Problem]:
    """The problems whose classes the database lacks."""
    known = {database.class_key(entry) for entry in database.read(path)}
    return [problem for problem in problems if problem_class(problem, tuner) not in known]


def _request(problem: Problem, seconds: float, options: Options) -> Dict[str, Any]:
    is_long = work(problem.shapes[0]) > _LONG_WORK
    return {
        "shapes": problem.shapes[:1] if is_long else problem.shapes,
        "usual": options.usual,
        "seconds": seconds,
        "most_candidates": min(options.most_candidates, 5) if is_long else options.most_candidates,
        "invariant": options.invariant,
        "portable": options.portable,
    }


def save(path: pathlib.Path, results: List[Result], packs: Iterable[str] = ()) -> None:
    """Adds results to a database, and to the measurements behind it."""
    database.merge(path, [result["entry"] for result in results], packs)
    with open(results_path(path), "a") as file:
        for result in results:
            file.write(json.dumps({"stamp": database.stamp(), "result": result}) + "\n")


def run(
    problems: List[Problem], path: Optional[pathlib.Path], tuner: "_hattn.Tuner", options: Options
) -> Iterator[Result]:
    """Yields a result per problem until the budget is spent. With a path, each is saved there first."""
    begin = time.monotonic()
    for done, problem in enumerate(problems):
        left = options.seconds - (time.monotonic() - begin)
        if left <= 0:
            return
        share = left / (len(problems) - done)
        result = json.loads(tuner.tune(json.dumps(_request(problem, _MEASURING * share, options))))
        result["title"] = problem.title
        if path is not None:
            save(path, [result])
        yield result
