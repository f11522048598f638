"""The cases of hattn-bench, in this process: the module _bench of the build tree (bench/module.cpp)."""
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace


class BenchError(Exception):
    """What was asked for cannot be done; the message says why."""


def load(build):
    """The module. build: the build tree."""
    folder = Path(build) / "bench"
    if not list(folder.glob("_bench.*.so")):
        raise BenchError(f"{folder}: holds no _bench module; ./dev build makes it")
    sys.path.insert(0, str(folder))
    import _bench

    return _bench


def choose(module, sets, pattern):
    """Cases of the sets (all if empty) in whose name the regular expression occurs, with the members that module.cpp
    gives them."""
    cases = [SimpleNamespace(**case) for case in json.loads(module.cases())]
    try:
        chosen = [c for c in cases if (not sets or c.set in sets) and re.search(pattern, c.name)]
    except re.error as error:
        raise BenchError(f"--filter: \"{pattern}\" is no regular expression: {error}") from error
    if not chosen:
        raise BenchError(f"--filter: \"{pattern}\" matches none of {', '.join(case.name for case in cases)}")
    return chosen
