"""The `hattn` command: `hattn info`, `hattn tune`, `hattn run FILE.npz` and `hattn bench`."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import warnings
import zipfile
import zlib
from typing import Any, Dict, List, Optional, TextIO, Type, Union

import numpy as np

import hattn
from hattn._arrays import typed_view
from hattn._options import ALGORITHMS, LAYOUTS, SCORES
from hattn._tuning import command as tuning
from hattn._tuning import measuring

# Arrays that a file may hold beside q, k and v: the array options of hattn.attention().
_ARRAY_OPTIONS = (
    "bias",
    "mask",
    "sinks",
    "alibi_slopes",
    "q_lengths",
    "kv_lengths",
    "cu_seqlens_q",
    "cu_seqlens_k",
    "causal_offset",
    "block_table",
    "k_scale",
    "v_scale",
)
# Those that may be one number.
_NUMBERS = ("causal_offset", "k_scale", "v_scale")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hattn", description="Attention kernels compiled from Halide pipelines.")
    parser.add_argument("--version", action="version", version=hattn.__version__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("info", help="print the library's version, targets, kernels and tuning database as JSON")
    tuning.add_arguments(
        commands.add_parser(
            "tune",
            help="measure this machine and keep the winners for every later process",
            description="Measures which algorithm, tile and split are fastest here, and writes them to the tuning "
            "database, which every later process reads. Nothing it does changes what is computed, but for the last "
            "bits of results.",
        )
    )
    run = commands.add_parser(
        "run",
        help="compute attention on the arrays of an .npz file",
        description="Reads the arrays q, k, v and, where present, "
        + ", ".join(_ARRAY_OPTIONS)
        + " and writes out, and lse and scores where asked for. Options are those of hattn.attention(). Elements of two bytes "
        "without a type, as which NumPy saves bfloat16, are bfloat16, in the file written too.",
    )
    run.add_argument("file", type=pathlib.Path, metavar="FILE.npz")
    run.add_argument("-o", "--output", type=pathlib.Path, default=pathlib.Path("out.npz"), metavar="FILE.npz", help="default: out.npz")
    run.add_argument("--layout", default="bhsd", choices=LAYOUTS, help="of q, k, v and out: [B, H, S, D] or [B, S, H, D]; default: bhsd")
    run.add_argument("--scale", type=float, help="default: 1/sqrt(head dimension)")
    run.add_argument("--causal", action="store_true", help="a query sees no key behind its own position")
    run.add_argument("--causal-offset", type=int, help="default: key length - query length")
    run.add_argument(
        "--window", type=int, nargs=2, default=(-1, -1), metavar=("LEFT", "RIGHT"),
        help="keys that a query sees before and behind its position; -1: all",
    )
    run.add_argument("--softcap", type=float, default=0.0, help="c of c * tanh(score / c); default: none")
    run.add_argument("--algorithm", default="auto", choices=ALGORITHMS, help="default: the planner's choice")
    run.add_argument("--threads", type=int, help="default: one per core")
    run.add_argument("--device", help='"opencl", "cuda", "cuda:1", ...; default: the CPU')
    run.add_argument("--lse", dest="return_lse", action="store_true", help="also write lse")
    run.add_argument("--scores", dest="return_scores", choices=SCORES, help="also write scores, at that point")
    run.add_argument("--explain", action="store_true", help="print the plan as JSON; write nothing")
    # Its options are read by bench/run.py; see main().
    commands.add_parser(
        "bench",
        add_help=False,
        help="measure this machine, alone or beside other libraries: bench [--json] [--against onnxruntime,torch], or a "
        "GPU: bench --device cuda [--against torch]; needs a build tree",
    )
    return parser


def _bench(options: List[str]) -> int:
    """Runs bench/run.py of the source tree whose build tree this package lies in; returns its exit status."""
    package = pathlib.Path(hattn.__file__).resolve().parent
    for folder in package.parents:
        script = folder / "bench" / "run.py"
        if script.exists():
            command = [sys.executable, str(script), "--build", str(package.parent.parent), *options]
            return subprocess.run(command, check=False).returncode
    raise ValueError(f"bench: needs a build tree, but {package} is an installed package; see ./dev bench")


def _typed(name: str, array: np.ndarray) -> Any:
    """An array of the file as attention() takes it: numbers as such, and bfloat16, whose type NumPy does not write."""
    if array.dtype == np.dtype("V2"):
        typed = typed_view(array.view(np.uint16), "bfloat16")
        if typed.dtype == np.uint16:
            raise ValueError(f"{name}: is bfloat16, for which NumPy needs the package ml_dtypes")
        return typed
    return array.item() if array.ndim == 0 and name in _NUMBERS else array


def _read_arrays(path: pathlib.Path) -> Dict[str, Any]:
    if path.suffix != ".npz":
        raise ValueError("only .npz files are supported")
    if path.exists() and not zipfile.is_zipfile(path):
        raise ValueError("is no .npz file")
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: _typed(name, archive[name]) for name in archive.files}
    missing = [name for name in ("q", "k", "v") if name not in arrays]
    unknown = sorted(set(arrays) - {"q", "k", "v", *_ARRAY_OPTIONS})
    if missing or unknown:
        wrong = [f"{name}: is missing" for name in missing] + [f"{name}: is no argument of attention()" for name in unknown]
        raise ValueError("; ".join(wrong))
    return arrays


def _compute(arguments: argparse.Namespace) -> Any:
    """What attention() gives, or with --explain explain(); errors name the file, or a variable."""
    options: Dict[str, Any] = vars(arguments).copy()
    for name in ("command", "file", "output", "explain"):
        del options[name]
    try:
        arrays = _read_arrays(arguments.file)
        if "causal_offset" in arrays and arguments.causal_offset is not None:
            raise ValueError("--causal-offset: is given, but the file holds causal_offset as well")
        options.update(arrays)
        return hattn.explain(**options) if arguments.explain else hattn.attention(**options)
    except OSError as error:
        raise ValueError(f"{arguments.file}: cannot be read: {error.strerror or error}") from None
    except (TypeError, ValueError, NotImplementedError, zipfile.BadZipFile, EOFError, zlib.error) as error:
        if str(error).startswith("HATTN_"):  # a variable's
            raise
        kind = type(error) if isinstance(error, (TypeError, NotImplementedError)) else ValueError
        raise kind(f"{arguments.file}: {error}") from None


def _run(arguments: argparse.Namespace) -> None:
    result = _compute(arguments)
    if arguments.explain:
        print(json.dumps(result, indent=2))
        return
    output = arguments.output if arguments.output.suffix == ".npz" else pathlib.Path(f"{arguments.output}.npz")
    names = ["out"] + ["lse"] * arguments.return_lse + ["scores"] * bool(arguments.return_scores)
    results = result if isinstance(result, tuple) else (result,)
    try:
        np.savez(output, **dict(zip(names, results)))
    except OSError as error:
        raise ValueError(f"--output: {output} cannot be written: {error.strerror or error}") from None
    for name, array in zip(names, results):
        print(f"{output}: {name} {list(array.shape)} {array.dtype}")


def _print_warning(
    message: Union[Warning, str],
    category: Type[Warning],
    filename: str,
    lineno: int,
    file: Optional[TextIO] = None,
    line: Optional[str] = None,
) -> None:
    """One line, as for errors, in place of warnings.showwarning()."""
    print(f"hattn: warning: {message}", file=sys.stderr)


def _dispatch(arguments: argparse.Namespace, words: List[str]) -> int:
    if arguments.command == "bench":
        return _bench(words[1:])
    if arguments.command == "tune":
        return tuning.run(arguments)
    if arguments.command == "info":
        print(json.dumps(hattn.info(), indent=2))
    else:
        _run(arguments)
    return 0


def main(argv: Optional[List[str]] = None) -> int:
    """Runs the command line; returns the exit status. Bad input gives one line on stderr and status 1, a wrong command line argparse's, and 2."""
    words = sys.argv[1:] if argv is None else argv
    # The options of bench argparse would take for its own.
    arguments = _parser().parse_args(words[:1] if words[:1] == ["bench"] else words)
    with warnings.catch_warnings():
        warnings.showwarning = _print_warning
        try:
            status = _dispatch(arguments, words)
            sys.stdout.flush()
            return status
        except BrokenPipeError:  # whoever reads has enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        except (OSError, TypeError, ValueError, RuntimeError, MemoryError) as error:
            print(f"hattn: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("hattn: interrupted", file=sys.stderr)
            return measuring.INTERRUPTED
