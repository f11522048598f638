"""Measures problems with the kernels there are, with those of a pack, or with ones compiled for it; shows progress."""

from __future__ import annotations

import argparse
import pathlib
import sys
import tempfile
from typing import Any, Callable, List, Tuple

from tqdm import tqdm

from hattn import _hattn
from hattn._tuning import deep, session, shapes

INTERRUPTED = 130  # exit status, as shells give it
FAILED = 1  # likewise, of some problem

# Results, and the exit status: what kept them from being more.
Measured = Tuple[List[session.Result], int]


def counted(number: int, what: str) -> str:
    """ "1 problem" or "2 problems"."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def tuner_of(threads: int) -> "_hattn.Tuner":
    """What measures with so many threads. Raises ValueError if the machine has no such number."""
    try:
        return _hattn.Tuner(threads)
    except RuntimeError as error:
        raise ValueError(f"--threads: is {threads}, but this machine has no such number: {error}") from error


def _line(result: session.Result) -> str:
    best = result["candidates"][result["fastest"]]
    if not result["replaces_default"]:
        return f"{result['title']}: default stays"
    return f"{result['title']}: {best['plan'].split()[0]} {result['entry']['gain']:.2f}x"


def _measure(
    problems: List[shapes.Problem],
    tuner: "_hattn.Tuner",
    options: session.Options,
    keep: Callable[[session.Result], None],
) -> Measured:
    """Measures the problems, and keeps each result as it comes. One that fails leaves the others to be measured."""
    results: List[session.Result] = []
    status = 0
    with tqdm(total=len(problems), unit="problem", file=sys.stderr, dynamic_ncols=True) as bar:
        done = 0
        try:
            for result in session.run(problems, None, tuner, options):
                bar.update()
                done += 1
                if isinstance(result, session.Failure):
                    status = FAILED
                    bar.write(f"hattn: {result.why}", file=sys.stderr)
                    continue
                keep(result)
                results.append(result)
                bar.write(_line(result), file=sys.stdout)
            if done < len(problems):
                bar.write(
                    f"the budget of {options.seconds:g} s is spent, {counted(len(problems) - done, 'problem')} left; "
                    "--resume goes on",
                    file=sys.stderr,
                )
        except KeyboardInterrupt:
            status = INTERRUPTED
            bar.write("interrupted; what was measured is kept", file=sys.stderr)
    return results, status


def with_usual(
    problems: List[shapes.Problem], store: session.Store, tuner: "_hattn.Tuner", options: session.Options
) -> Measured:
    """With the kernels that the library and loaded packs have."""
    return _measure(problems, tuner, options, lambda result: store.add([result], deep.packs_of(result, store.path)))


def _compiling(names: List[str]) -> Any:
    return tqdm(total=len(names), unit="kernel", file=sys.stderr, dynamic_ncols=True)


def _show(bar: Any, done: int) -> None:
    """Shows how many are done, of which time goes by though nothing new may be."""
    if done > bar.n:
        bar.update(done - bar.n)
    else:
        bar.refresh()


def _compile(kernelgen: pathlib.Path, pack: pathlib.Path, names: List[str]) -> None:
    with _compiling(names) as bar:
        for line in deep.compile_pack(kernelgen, pack, names, lambda done: _show(bar, done)):
            bar.write(line, file=sys.stdout)
        bar.update(len(names) - bar.n)


def _keep_winners(
    kernelgen: pathlib.Path, pack: pathlib.Path, names: List[str], waiting: List[session.Result], store: session.Store, device: str
) -> None:
    """Stores results that chose kernels of a pack with a pack of their kernels; or, whatever ends that, with the one itself."""
    winners = deep.winners(waiting, names, device)
    try:
        print(f"compiling {counted(len(winners), 'kernel')} of winners, with and without hooks", flush=True)
        with _compiling(winners) as bar:
            packs = deep.keep(kernelgen, store.path, winners, lambda done: _show(bar, done))
    except BaseException:
        store.add(waiting, deep.keep_file(pack, store.path))
        print("kept the pack that was measured with in its place: no other hooks than those that were measured", flush=True)
        raise
    store.add(waiting, packs)


def with_compiled(
    problems: List[shapes.Problem], store: session.Store, arguments: argparse.Namespace, options: session.Options
) -> Measured:
    """With kernels that are compiled for it. Results that chose one wait until its pack is there."""
    device = arguments.device
    kernelgen = deep.find_kernelgen()
    names = deep.candidate_names(kernelgen, device, problems)
    if not names:
        raise ValueError("--deep: the library has all the kernels there are for these problems")
    waiting: List[session.Result] = []

    def keep(result: session.Result) -> None:
        if deep.chosen([result], names):
            waiting.append(result)
        else:
            store.add([result], deep.packs_of(result, store.path))

    with tempfile.TemporaryDirectory(prefix="hattn-deep-") as folder:
        pack = pathlib.Path(folder, "candidates.so")
        print(f"compiling {counted(len(names), 'kernel')}", flush=True)
        _compile(kernelgen, pack, names)
        try:
            with deep.loaded(pack):
                return _measure(problems, tuner_of(arguments.threads), options, keep)
        finally:
            if waiting:
                _keep_winners(kernelgen, pack, names, waiting, store, device)


def with_pack(
    pack: pathlib.Path,
    problems: List[shapes.Problem],
    store: session.Store,
    tuner: "_hattn.Tuner",
    options: session.Options,
) -> Measured:
    """With those of a pack that was compiled elsewhere as well, which is copied when one of them wins."""
    names = deep.names_in(pack)

    def keep(result: session.Result) -> None:
        packs = deep.packs_of(result, store.path)
        copied = deep.keep_file(pack, store.path) if deep.chosen([result], names) else []
        others = [name for name in packs if not (copied and pathlib.Path(store.path.parent, name).samefile(pack))]
        store.add([result], [*copied, *others])

    return _measure(problems, tuner, options, keep)
