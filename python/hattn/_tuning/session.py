"""Measures problem after problem within a budget of time, and keeps what comes of it."""

from __future__ import annotations

import json
import pathlib
import time
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Union

from hattn import _hattn
from hattn._tuning import database, shapes
from hattn._tuning.shapes import Problem, Shape

Result = Dict[str, Any]

# Of the time a problem is given, what is left for measuring after data, oracle and plans are made.
_MEASURING = 0.6

# Of a problem that is long, see shapes.py.
_LONG_CANDIDATES = 5



class Failure(NamedTuple):
    """In place of a result: the problem could not be measured."""

    why: str


class Options(NamedTuple):
    """What `hattn tune` was asked for."""

    seconds: float
    threads: int = 0
    invariant: bool = False
    usual: str = "none"  # the database whose choices are the default
    portable: bool = False
    most_candidates: int = 8  # that are timed per problem
    deep: bool = False  # with kernels that the library does not have


def results_path(path: pathlib.Path) -> pathlib.Path:
    """Where the measurements behind a database are kept, for reports: one JSON text per line."""
    return pathlib.Path(f"{path}.results.jsonl")


def read_results(path: pathlib.Path) -> List[Result]:
    """The measurements behind a database, the last one of each class."""
    stamp, results = database.stamp(), {}
    try:
        lines = results_path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    for line in lines:
        try:
            record = json.loads(line)
            if record["stamp"] == stamp:
                results[database.class_key(record["result"]["entry"])] = record["result"]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue  # the last line of a process that was killed, or what another program wrote
    return list(results.values())


def _class_of(shape: Shape, tuner: "_hattn.Tuner") -> str:
    """The class of a shape, as database.class_text() writes it."""
    return database.class_text(json.loads(_told(shapes.title(shape), tuner.problem_class, {"shapes": [shape]})))


def grouped(problems: Iterable[Problem], tuner: "_hattn.Tuner") -> List[Problem]:
    """Problems of one class, which has one choice, made one with the shapes of all of them."""
    of_class: Dict[str, List[Problem]] = {}
    for problem in problems:
        of_class.setdefault(_class_of(problem.shapes[0], tuner), []).append(problem)
    return [_joined(found) if len(found) > 1 else found[0] for found in of_class.values()]


def _joined(problems: List[Problem]) -> Problem:
    asked_for: List[Shape] = []
    for problem in problems:
        asked_for += [shape for shape in problem.shapes[: problem.asked_for] if shape not in asked_for]
    return Problem(asked_for, len(asked_for))


def _is_done(entry: Optional[database.Entry], options: Options) -> bool:
    """Whether an entry is of no narrower a search than the one asked for."""
    if entry is None or bool(entry["invariant"]) != options.invariant:
        return False
    return bool(entry.get("deep", False)) or not options.deep


def remaining(problems: List[Problem], path: pathlib.Path, tuner: "_hattn.Tuner", options: Options) -> List[Problem]:
    """The problems that the database has no entry for that was made as these options say."""
    known = {database.class_key(entry): entry for entry in database.read(path)}
    return [problem for problem in problems if not _is_done(known.get(_class_of(problem.shapes[0], tuner)), options)]


def _request(problem: Problem, seconds: float, options: Options) -> Dict[str, Any]:
    is_long = any(map(shapes.is_long, problem.shapes))
    return {
        "shapes": problem.shapes,
        "usual": options.usual,
        "seconds": seconds,
        "most_candidates": min(options.most_candidates, _LONG_CANDIDATES if is_long else options.most_candidates),
        "invariant": options.invariant,
        "portable": options.portable,
    }


def _told(title: str, tell: Callable[[str], str], request: Dict[str, Any]) -> str:
    """What the tuner says to a request; what is wrong with a problem names it."""
    try:
        return tell(json.dumps(request))
    except MemoryError:
        raise MemoryError(f"{title}: does not fit into memory") from None
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"{title}: {error}") from error


def save(path: pathlib.Path, results: List[Result], packs: Iterable[str] = (), forget: bool = False) -> None:
    """Adds results to a database, and to the measurements behind it; with `forget` in place of what they have."""
    database.merge(path, [result["entry"] for result in results], packs, forget)
    # Alone, so that long lines of several processes do not come between each other.
    with database.locked(path), open(results_path(path), "w" if forget else "a", encoding="utf-8") as file:
        for result in results:
            file.write(json.dumps({"stamp": database.stamp(), "result": result}) + "\n")


class Store:
    """A database that results are added to as they come; with `forget` the first ones replace what it has."""

    def __init__(self, path: pathlib.Path, forget: bool = False) -> None:
        self.path = path
        self._forget = forget

    def add(self, results: List[Result], packs: Iterable[str] = ()) -> None:
        """Likewise."""
        save(self.path, results, packs, self._forget)
        self._forget = False


def run(
    problems: List[Problem], path: Optional[pathlib.Path], tuner: "_hattn.Tuner", options: Options
) -> Iterator[Union[Result, Failure]]:
    """Yields a result per problem until the budget is spent. With a path, each is saved there first."""
    begin = time.monotonic()
    shapes_left = sum(len(problem.shapes) for problem in problems)
    for problem in problems:
        left = options.seconds - (time.monotonic() - begin)
        if left <= 0:
            return
        share = left * len(problem.shapes) / shapes_left
        shapes_left -= len(problem.shapes)
        request = _request(problem, _MEASURING * share, options)
        try:
            result = json.loads(_told(problem.title, tuner.tune, request))
        except (MemoryError, ValueError) as error:
            yield Failure(str(error))
            continue
        result["title"] = problem.title
        if options.deep:
            result["entry"]["deep"] = True
        if path is not None:
            save(path, [result])
        yield result
