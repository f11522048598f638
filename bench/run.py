"""./dev bench: how fast hattn is on this machine, and beside others.

    python bench/run.py [--against onnxruntime,torch] [--set prefill,decode] [--filter REGEX] [--threads N] [--rounds N]
                        [--json [FILE]] [--markdown FILE] [--charts [DIR]]
    python bench/run.py --footprint
    python bench/run.py --roofline ...
    python bench/run.py --types ...
    python bench/run.py --tuned ...
    python bench/run.py --device cuda|opencl ...

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

import cases  # noqa: E402
import compare  # noqa: E402
import footprint  # noqa: E402
import machine  # noqa: E402
import report  # noqa: E402
import roofline  # noqa: E402
from arguments import positive  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
SETS = ("prefill", "decode", "other")
OTHERS = """other benchmarks, with options of their own, which each of them lists with --help:
  --roofline         where one kernel's time goes, stage by stage; needs Halide
  --types            attention over keys and values of each storage type
  --tuned            what tuning is worth on this machine
  --device NAME      on a GPU: cuda, cuda:N or opencl
"""


def some_of(known):
    def parse(text):
        names = text.split(",")
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"\"{name}\" is none of: {', '.join(known)}")
        return list(dict.fromkeys(names))

    return parse


def parse_arguments(arguments=None):
    parser = argparse.ArgumentParser(prog="bench", description="Measure hattn on this machine.", epilog=OTHERS,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=some_of(compare.PEERS), default=[], metavar="NAME,...",
                        help=f"libraries that compute the same beside it: {', '.join(compare.PEERS)}")
    parser.add_argument("--set", type=some_of(SETS), default=[], metavar="NAME,...",
                        help=f"cases: {', '.join(SETS)} (default: all)")
    parser.add_argument("--filter", default="", metavar="REGEX", help="only cases in whose name it occurs")
    parser.add_argument("--threads", type=positive, help="default: 2 with --against, else one per core")
    parser.add_argument("--rounds", type=positive, help="turns of each contestant (default: 5 with --against, else 3)")
    parser.add_argument("--json", nargs="?", const="-", metavar="FILE", help="write the figures there (default: print "
                        "them instead of tables)")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write the tables there, for documents")
    parser.add_argument("--charts", type=Path, nargs="?", const=ROOT / "docs" / "images", metavar="DIR",
                        help="also draw charts there (default: docs/images)")
    parser.add_argument("--footprint", action="store_true",
                        help="only a process's first call, workspace, size of the library, build time of the kernels")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release", metavar="DIR",
                        help="build tree (default: build/release)")
    return parser.parse_args(arguments)


def progress(case):
    if sys.stderr.isatty():
        print(f"\r\033[K{case.name} done", end="", file=sys.stderr, flush=True)


def measure(options):
    """The figures as a dict."""
    sys.path.insert(0, str(options.build / "python"))
    about = machine.describe()
    if options.footprint:
        return {**about, "footprint": footprint.measure(options.build)}
    module = cases.load(options.build)
    chosen = cases.choose(module, options.set, options.filter)
    threads = options.threads or (2 if options.against else 0)
    rounds = options.rounds or (5 if options.against else 3)
    others = machine.OtherProcesses()
    figures = compare.compare(module, chosen, options.against, threads, rounds, progress)
    figures = {**about, "others_busy": others.share(), **figures}
    if not options.set and not options.filter:
        figures["footprint"] = footprint.measure(options.build)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    return figures


def write(figures, options):
    """To wherever the options say."""
    text = json.dumps(figures, indent=2) + "\n"
    if options.markdown and "rows" in figures:
        options.markdown.write_text(report.markdown(figures), encoding="utf-8")
    if options.charts and "rows" in figures:
        import plot  # needs Matplotlib

        plot.save(figures, options.charts)
    if options.json == "-":
        print(text, end="")
        return
    if "rows" in figures:
        report.print_tables(figures)
        machine.print_noise(figures["others_busy"])
    if "footprint" in figures:
        footprint.print_table(figures["footprint"])
    if options.json:
        Path(options.json).write_text(text, encoding="utf-8")


def main(arguments=None):
    arguments = sys.argv[1:] if arguments is None else arguments
    if "--roofline" in arguments:
        return roofline.main([argument for argument in arguments if argument != "--roofline"])
    if "--tuned" in arguments:
        import tuned  # needs the package

        return tuned.main([argument for argument in arguments if argument != "--tuned"])
    os.environ.setdefault("HATTN_TUNING", "none")  # figures are the library's, whatever this machine's user has tuned
    if "--types" in arguments:
        import storage_types

        return storage_types.main(arguments)
    if any(argument.partition("=")[0] == "--device" for argument in arguments):
        import device_bench

        return device_bench.main(arguments)
    options = parse_arguments(arguments)
    try:
        figures = measure(options)
        write(figures, options)
        return 0
    except compare.Disagreement as error:
        status, message = 1, str(error)
    except ImportError as error:
        status, message = 2, f"{error}; ./dev bench installs what is needed (peers from Python 3.11 on)"
    except (cases.BenchError, OSError) as error:
        status, message = 2, str(error)
    print(f"bench: error: {message}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
