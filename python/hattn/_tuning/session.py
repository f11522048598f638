"""Measures problem after problem within a budget of time, and keeps what comes of it."""

from __future__ import annotations

import json
import os
import pathlib
import time
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple, Union

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
    return pathlib.Path(f"{path.resolve()}.results.jsonl")


def _look_at(result: Result) -> None:
    """At all that reports are made of. Raises what they would."""
    candidates, work = result["candidates"], result["work"][0]
    for candidate in (candidates[0], candidates[result["fastest"]], *(one for one in candidates if not one["refused"])):
        choice = candidate["choice"]
        _ = candidate["plan"].split()[0], choice["algorithm"], choice["tile"], choice["split_keys"], 1 / candidate["speed"]
    seconds, gain, noise = candidates[0]["times"][0]["seconds"], result["entry"]["gain"], result["noise"]
    _ = work["flops"] + work["bytes"] + seconds + gain + noise + result["threads"], result["title"].strip()
    _ = bool(result["replaces_default"])


def read_results(path: pathlib.Path) -> List[Result]:
    """The measurements behind the entries of a database, the last one of each class."""
    stamp, results = database.stamp(), {}
    classes = {database.class_key(entry) for entry in database.read(path)}
    try:
        lines = results_path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    for line in lines:
        try:
            record = json.loads(line)
            key = database.class_key(record["result"]["entry"])
            if record["stamp"] == stamp and key in classes:
                _look_at(record["result"])
                results[key] = record["result"]
        except (ArithmeticError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            continue  # the last line of a process that was killed, or what another program wrote
    return list(results.values())


def _class_of(shape: Shape, tuner: "_hattn.Tuner") -> Optional[str]:
    """The class of a shape, as database.class_text() writes it; None if it is beyond the last one."""
    found = json.loads(_told(shapes.title(shape), tuner.problem_class, {"shapes": [shape]}))
    return None if found is None else database.class_text(found)


def grouped(problems: Iterable[Problem], tuner: "_hattn.Tuner") -> Tuple[List[Problem], List[Problem]]:
    """Problems of one class, which has one choice, made one with the shapes of all of them; and those of no class."""
    of_class: Dict[Optional[str], List[Problem]] = {}
    for problem in problems:
        of_class.setdefault(_class_of(problem.shapes[0], tuner), []).append(problem)
    beyond = of_class.pop(None, [])
    return [_joined(found) if len(found) > 1 else found[0] for found in of_class.values()], beyond


def _joined(problems: List[Problem]) -> Problem:
    asked_for: List[Shape] = []
    for problem in problems:
        asked_for += [shape for shape in problem.shapes[: problem.asked_for] if shape not in asked_for]
    return Problem(asked_for, len(asked_for))


def _is_done(entry: Optional[database.Entry], lost: Iterable[str], options: Options) -> bool:
    """Whether an entry is of no narrower a search than the one asked for, and none of its packs is lost."""
    if entry is None or bool(entry["invariant"]) != options.invariant or any(pack in lost for pack in entry["packs"]):
        return False
    return bool(entry.get("deep", False)) or not options.deep


def remaining(
    problems: List[Problem], path: pathlib.Path, lost: Iterable[str], tuner: "_hattn.Tuner", options: Options
) -> List[Problem]:
    """The problems that the database has no entry for that was made as these options say.

    Args:
        lost: packs that entries name and that cannot be loaded.
    """
    known = {database.class_key(entry): entry for entry in database.read(path)}

    def is_done(problem: Problem) -> bool:
        key = _class_of(problem.shapes[0], tuner)
        return key is not None and _is_done(known.get(key), lost, options)

    return [problem for problem in problems if not is_done(problem)]


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


def _append(path: pathlib.Path, lines: Iterable[str]) -> None:
    """Adds lines to a file, whose last one may have been cut off."""
    with open(path, "a+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - 1, 0))
        is_cut_off = file.read() not in (b"", b"\n")
        file.write(("\n" * is_cut_off + "".join(f"{line}\n" for line in lines)).encode())


def save(path: pathlib.Path, results: List[Result], packs: Iterable[str] = (), forget: bool = False) -> None:
    """Adds results to a database, and to the measurements behind it; with `forget` in place of what they have.

    Args:
        packs: of the kernels that were chosen, but for the library's: names in the file's folder, or paths.
    """
    for result in results:
        result["entry"]["packs"] = sorted(packs) if result["entry"]["choice"] else []

    def add_measurements() -> None:
        if forget:
            results_path(path).unlink(missing_ok=True)
        _append(results_path(path), (json.dumps({"stamp": database.stamp(), "result": result}) for result in results))

    # Alone, so that long lines of several processes do not come between each other, and none goes with those forgotten.
    database.merge(path, [result["entry"] for result in results], forget, add_measurements)


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
