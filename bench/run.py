"""./dev bench: how fast hattn is on this machine, and beside others.

    python bench/run.py [--filter REGEX] [--json FILE] [--threads N] [--rounds N] [--min-time SECONDS]
    python bench/run.py --against onnxruntime [--json FILE] [--threads N] [--rounds N]

Nothing is timed that was not verified, and speeds come with the machine's limits, measured in the same run.
Exit status: 0; 1 if a result is wrong; 2 for bad input or missing parts.
"""
import argparse
import json
import os
import sys
from pathlib import Path

# Read once, when NumPy is first imported. Its idle workers would spin on the cores that are being measured.
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["OPENBLAS_THREAD_TIMEOUT"] = "4"

import compare  # noqa: E402
import machine  # noqa: E402
import native  # noqa: E402
from contestants import PEERS  # noqa: E402
from limits import MachineLimits  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, but is {value}")
    return value


def peers(text):
    names = text.split(",")
    for name in names:
        if name not in PEERS:
            raise argparse.ArgumentTypeError(f"\"{name}\" is none of: {', '.join(PEERS)}")
    return list(dict.fromkeys(names))


def parse_arguments(arguments=None):
    parser = argparse.ArgumentParser(description="Measure hattn on this machine.")
    parser.add_argument("--against", type=peers, metavar="NAME,...",
                        help=f"compare prefill with: {', '.join(PEERS)}; without it, run hattn's own cases")
    parser.add_argument("--filter", default="", metavar="REGEX", help="only cases in whose name it occurs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    parser.add_argument("--threads", type=positive, help="default: 2 with --against, else one per core")
    parser.add_argument("--rounds", type=positive,
                        help="turns of each contestant, or passes over the cases (default: 7 with --against, else 1)")
    parser.add_argument("--min-time", type=float, default=0.5, metavar="SECONDS",
                        help="least time of measurement per case (default: %(default)s)")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release", metavar="DIR",
                        help="build tree (default: build/release)")
    options = parser.parse_args(arguments)
    if options.against and options.filter:
        parser.error("--filter: chooses among hattn's own cases, and --against runs others")
    return options


def run_comparison(options):
    threads = options.threads or 2
    limits = MachineLimits(options.build, threads)

    def progress(length):
        if sys.stderr.isatty():
            print(f"S = {length} done", file=sys.stderr, flush=True)

    figures = compare.compare(options.against, threads, limits, options.rounds or 7, progress)
    compare.print_table(figures)
    return figures


def run_native(options):
    figures = native.run(options.build, options.filter, options.threads, options.min_time, options.rounds or 1)
    native.print_table(figures)
    return figures


def main(arguments=None):
    options = parse_arguments(arguments)
    try:
        sys.path.insert(0, str(options.build / "python"))
        about = machine.describe()
        others = machine.OtherProcesses()
        figures = run_comparison(options) if options.against else run_native(options)
        noise = others.share()
        machine.print_noise(noise)
        if options.json:
            figures = {**about, "others_busy": noise, **figures}
            options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
        return 0
    except (compare.Disagreement, native.WrongResult) as error:
        status, message = 1, str(error)
    except ImportError as error:
        status, message = 2, f"{error}; ./dev bench installs what is needed (onnxruntime from Python 3.11 on)"
    except (native.BenchError, OSError) as error:
        status, message = 2, str(error)
    print(f"bench: error: {message}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
