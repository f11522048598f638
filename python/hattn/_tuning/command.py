"""The command line of `hattn tune`."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import re
import signal
import statistics
import threading
import warnings
from typing import Iterator, List, Optional

import hattn
from hattn import _hattn
from hattn._tuning import database, deep, measuring, report, session, shape_files, shapes

# That are timed per problem: of what has little time, and of what has much.
QUICK_CANDIDATES, DEEP_CANDIDATES = 8, 20
_MUCH_TIME = 5.0  # seconds for a problem

_MOST_SECONDS = 1e9


def seconds(text: str) -> float:
    """ "90", "90s", "2m" or "1h" in seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h|)", text)
    if not match or not 0 < float(match[1]) < _MOST_SECONDS:
        raise argparse.ArgumentTypeError(f'is "{text}", but must be a time such as 60s, 5m or 1h')
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def dtypes(text: str) -> List[str]:
    """ "int8,float16" as a list; "all" is all of them."""
    names = list(shapes.DTYPES) if text == "all" else text.split(",")
    unknown = [name for name in names if name not in shapes.DTYPES]
    if unknown:
        raise argparse.ArgumentTypeError(f'has "{unknown[0]}", but knows {", ".join(shapes.DTYPES)} and all')
    return names


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `hattn tune` takes."""
    parser.add_argument("--budget", type=seconds, default=60.0, metavar="TIME", help="60s, 5m, 1h; default: 60s")
    parser.add_argument(
        "--shapes",
        type=pathlib.Path,
        metavar="FILE",
        help="what to tune for: a JSON list of shapes, a model's config.json or a .gguf file; default: a grid",
    )
    parser.add_argument(
        "--dtype",
        type=dtypes,
        action="extend",
        metavar="TYPE[,TYPE...]",
        help=f"of keys and values: {', '.join(shapes.DTYPES)}, or all; default: float32. Queries and outputs have it "
        "too, but for int8 and int4, where they are float32; shapes of a list may have a dtype of their own",
    )
    parser.add_argument(
        "--device",
        default="cpu",
        metavar="DEVICE",
        help="cpu, opencl, cuda or cuda:N, of those that hattn info says are usable; default: cpu",
    )
    parser.add_argument("--threads", type=int, default=0, help="to measure with; default: one per core")
    parser.add_argument("--all", action="store_true", help="a finer grid, some 700 problems, which wants --budget 30m")
    parser.add_argument("--dry-run", action="store_true", help="print what would be measured, and measure nothing")
    parser.add_argument("--resume", action="store_true", help="only what the database does not have yet")
    parser.add_argument("--force", action="store_true", help="forget what the database has")
    parser.add_argument(
        "--invariant", action="store_true", help="only choices that give the bits of the default's results"
    )
    parser.add_argument(
        "--portable",
        action="store_true",
        help="for shipping with the library: choices that suit machines of more cores, no more entries than needed",
    )
    parser.add_argument(
        "--usual",
        default="none",
        metavar="DATABASE",
        help='what to beat: "none" (the tunings that come with the library), "rule" (its built-in rule) or a file',
    )
    parser.add_argument(
        "--deep", action="store_true", help="also compile kernels with other tiles, for minutes, and keep the winners"
    )
    parser.add_argument(
        "--kernels",
        type=pathlib.Path,
        metavar="FILE.so",
        help="also try the kernels of a pack, which was compiled elsewhere; it is kept if one of them wins",
    )
    parser.add_argument("--report", type=pathlib.Path, metavar="FILE.html", help="write a page with charts")
    parser.add_argument("--output", type=pathlib.Path, metavar="FILE", help="default: the database in use")


def _check_device(device: str) -> None:
    """Whether the machine has it; raises ValueError if not."""
    name = device.partition(":")[0]
    known = {row["name"]: row for row in hattn.info()["devices"]}
    if name != "cpu" and name not in known:
        raise ValueError(f"--device: is {device}, but this build has {', '.join(['cpu', *known])}")
    if name != "cpu" and not known[name]["usable"]:
        raise ValueError(f"--device: is {device}, but this machine has none that works: {known[name]['why_not']}")
    count = 1 if name == "cpu" else len(known[name]["found"])
    if device not in [name, *(f"{name}:{number}" for number in range(count) if name != "cpu")]:
        raise ValueError(f"--device: is {device}, but there are {count} of {name}, counted from 0")


def _print_plan(problems: List[shapes.Problem], path: pathlib.Path) -> None:
    for problem in problems:
        print(problem.title)
        for shape in problem.shapes[1 : problem.asked_for]:
            print(f"    {shapes.title(shape)}")
    print(f"{measuring.counted(len(problems), 'problem')}, to be written to {path}")


def _summarise(results: List[session.Result], wanted: int, path: pathlib.Path) -> None:
    if not results:
        print("nothing was measured")
        return
    gains = [result["entry"]["gain"] for result in results]
    wins = sum(result["replaces_default"] for result in results)
    print(
        f"{len(results)} of {measuring.counted(wanted, 'problem')} measured; {measuring.counted(wins, 'winner')}, "
        f"default stays for {len(results) - wins}"
    )
    print(f"gain over the default: geometric mean {statistics.geometric_mean(gains):.3f}x, most {max(gains):.2f}x")
    ranks = [result["model"]["rank_correlation"] for result in results if result["model"]["candidates"] > 2]
    first = [result["model"]["place_of_fastest"] <= 3 for result in results]
    if ranks:
        print(
            f"cost model: rank correlation {statistics.median(ranks):.2f} (median), fastest among its first three in "
            f"{100 * sum(first) / len(first):.0f}%"
        )
    noise = statistics.median(result["noise"] for result in results)
    print(f"noise: {100 * (noise - 1):.1f}% (median)\nwritten to {path}")


def _check(arguments: argparse.Namespace) -> None:
    """Raises ValueError or OSError for what is wrong before anything is measured, and anything forgotten."""
    cores = hattn.info()["cpu"]["cores"]
    if not 0 <= arguments.threads <= cores:
        raise ValueError(f"--threads: is {arguments.threads}, but must be from 0 to the number of cores, {cores}")
    _check_device(arguments.device)
    for name in ("portable", "invariant"):
        if getattr(arguments, name) and arguments.device != "cpu":
            raise ValueError(f"--{name}: is for tunings of the CPU, but --device is {arguments.device}")
    if arguments.invariant and arguments.usual != "none":
        raise ValueError(f"--invariant: is for the library's default, but --usual is {arguments.usual}")
    for one, other in (("resume", "force"), ("all", "shapes"), ("deep", "kernels"), ("report", "dry_run")):
        if getattr(arguments, one) and getattr(arguments, other):
            raise ValueError(f"--{one}, --{other.replace('_', '-')}: exclude each other")
    if arguments.kernels is not None:
        if os.path.isdir(arguments.kernels):
            raise ValueError(f"--kernels: {arguments.kernels} is a folder, but must be a kernel pack")
        deep.check_pack(arguments.kernels)
    database.check_usual(arguments.usual)
    if arguments.report is not None:
        report.check_target(arguments.report)


def _check_apart(arguments: argparse.Namespace, path: pathlib.Path, option: str) -> None:
    """Raises ValueError if something would be written over what is read, or over something else that is written."""
    written = {option: path, "its measurements": session.results_path(path), "--report": arguments.report}
    usual = None if arguments.usual in ("none", "rule") else pathlib.Path(arguments.usual)
    read = {"--shapes": arguments.shapes, "--kernels": arguments.kernels, "--usual": usual}
    taken = {os.path.realpath(file): name for name, file in read.items() if file is not None}
    for name, file in written.items():
        if file is None:
            continue
        real = os.path.realpath(file)
        if real in taken:
            raise ValueError(f"{name}, {taken[real]}: are both {file}, but must be files of their own")
        taken[real] = name


def _problems(arguments: argparse.Namespace) -> List[shapes.Problem]:
    """What is asked for."""
    problems = shapes.everything() if arguments.all else shapes.quick()
    if arguments.shapes is not None:
        try:
            problems = shape_files.read(arguments.shapes)
        except OSError as error:
            raise ValueError(f"--shapes: {arguments.shapes}: {error.strerror}") from None
    problems = shapes.with_dtypes(problems, dict.fromkeys(arguments.dtype or [shapes.DTYPES[0]]))
    stored = [problem.title for problem in problems if problem.shapes[0].get("dtype", "float32") != "float32"]
    if arguments.deep and stored and arguments.device == "cpu":
        raise ValueError(f"--deep: compiles kernels for float32 alone, but there is {stored[0]}")
    return shapes.on_device(problems, arguments.device)


def _packs(arguments: argparse.Namespace, path: pathlib.Path) -> List[pathlib.Path]:
    """Whose kernels take part beside the library's: what won before would else be lost. Deep compiles them again."""
    packs = [] if arguments.force or arguments.deep else deep.usable(database.named_packs(path))
    return packs if arguments.kernels is None else [*packs, arguments.kernels]


@contextlib.contextmanager
def _ends_as_by_ctrl_c() -> Iterator[None]:
    """SIGTERM is what Ctrl-C is meanwhile: what is measured is kept, nothing is left behind."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _tune(arguments: argparse.Namespace, path: pathlib.Path, problems: List[shapes.Problem]) -> int:
    """Measures what is asked for; returns the exit status."""
    tries_more = arguments.deep or arguments.kernels is not None
    options = session.Options(
        seconds=arguments.budget,
        invariant=arguments.invariant,
        usual=arguments.usual,
        portable=arguments.portable,
        deep=tries_more,
    )
    tuner = measuring.tuner_of(arguments.threads)
    if arguments.shapes is not None:
        problems, beyond = session.grouped(problems, tuner)
        for problem in beyond:
            print(f"{problem.title}: left out, of more keys than the last class has, {shapes.LAST_KEYS}")
        if not problems:
            raise ValueError(f"--shapes: {arguments.shapes} has nothing that can be tuned for")
    if arguments.resume:
        wanted = len(problems)
        problems = session.remaining(problems, path, deep.lost_packs(path), tuner, options)
        if not problems:
            print(f"the database has all that is asked for already, {measuring.counted(wanted, 'problem')}: {path}")
            if arguments.report is not None:
                _report(arguments.report, path, [], tuner)
            return 0
    if arguments.dry_run:
        _print_plan(problems, path)
        return 0
    has_much_time = arguments.budget >= _MUCH_TIME * len(problems)
    options = options._replace(most_candidates=DEEP_CANDIDATES if tries_more or has_much_time else QUICK_CANDIDATES)
    store = session.Store(path, arguments.force)
    if arguments.deep:
        results, status = measuring.with_compiled(problems, store, arguments, options)
    elif arguments.kernels is not None:
        results, status = measuring.with_pack(arguments.kernels, problems, store, tuner, options)
    else:
        results, status = measuring.with_usual(problems, store, tuner, options)
    if arguments.portable and results:
        database.compact(path)
    _summarise(results, len(problems), path)
    if arguments.report is not None and (results or status != measuring.INTERRUPTED):
        _report(arguments.report, path, results, tuner)
    return status


def _report(target: pathlib.Path, path: pathlib.Path, results: List[session.Result], tuner: "_hattn.Tuner") -> None:
    """On all entries of the database, and on what was measured but is not needed there."""
    known = {database.class_key(result["entry"]): result for result in [*results, *session.read_results(path)]}
    try:
        report.write(target, list(known.values()), json.loads(tuner.machine()))
    except OSError as error:
        raise ValueError(f"--report: {target} cannot be written: {error.strerror}") from None
    print(f"report: {target}")


def run(arguments: argparse.Namespace) -> int:
    """Runs `hattn tune`; returns the exit status."""
    _check(arguments)
    path: Optional[pathlib.Path] = arguments.output
    path = database.default_path() if path is None else path
    option = "--output" if arguments.output is not None else "database"
    try:
        database.why_not_used(path)
    except OSError as error:
        raise ValueError(f"{option}: {error}") from None
    _check_apart(arguments, path, option)
    # What lies under the library's own name is the library's, whatever has become of it; and its folder is made.
    if arguments.output is not None or os.environ.get("HATTN_TUNING"):
        database.check_named(path, option)
    database.check_target(path, session.results_path(path), option)
    if os.environ.get("HATTN_FORCE"):
        warnings.warn(
            f"HATTN_FORCE: is {os.environ['HATTN_FORCE']}, which decides where candidates should; unset it",
            RuntimeWarning,
            stacklevel=2,
        )
    problems = _problems(arguments)
    with _ends_as_by_ctrl_c(), deep.loaded(*_packs(arguments, path)):
        return _tune(arguments, path, problems)
