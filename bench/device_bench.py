"""How fast attention is on a device, beside PyTorch on the same one and the device's own limits.

    python bench/run.py --device cuda[:N]|opencl [--against torch] [--set prefill,decode] [--filter REGEX] [--rounds N]
                        [--json [FILE]] [--markdown FILE] [--build DIR]

Tensors are on the device, in hattn's own memory there; executes go into the queue behind one another, and events in that queue
time them where the driver has such. What is wrong is not timed. Limits are measured in turn with the cases: copies within
the device's memory (bytes read and written), float32 multiply-adds in registers (CUDA), and products of matrices by PyTorch where it
takes part; the best of them counts. Beside it stands what the clock and the units that the driver tells make, which takes its place
where nothing was measured.

Exit status: 0; 1 if a result is wrong, which the others do not wait for; 2 for bad input or missing parts.
"""
import argparse
import json
import random
import re
import sys
from pathlib import Path

import numpy as np

import compare
import device_report
from cases import BenchError
from device_cases import CASES, SETS, nominal
from device_library import Attention, Copy, DeviceLibrary, MultiplyAdds, as_float32

ROOT = Path(__file__).resolve().parent.parent
PEERS = ("torch",)

# Allowed difference of any output from hattn's, which the oracle has verified: both round outputs of up to 4, and weights.
LIMITS = {"float32": 1e-3, "float16": 1e-2, "bfloat16": 8e-2}

_TURN = 0.15   # seconds that a contestant runs at a time; one batch at least
_BATCH = 0.01  # seconds of runs behind one another, whose mean is one time
_MOST_RUNS = 1000
_LARGEST_COPY = 2**30


class Queued:
    """Somebody's turns: seconds of one run, of the fastest batch so far. seconds_of(runs) runs so many."""

    def __init__(self, who, variant, seconds_of):
        self.who, self.variant, self.seconds = who, variant, float("inf")
        self._seconds_of = seconds_of
        self._runs = None
        self.batches = 0

    def take_turn(self):
        once = self._seconds_of(1)  # also brings clocks and caches to where they belong
        if self._runs is None:
            once = self._seconds_of(1)
            self._runs = max(1, min(_MOST_RUNS, int(_BATCH / max(once, 1e-9))))
        for _ in range(max(1, int(_TURN / max(once * self._runs, 1e-9)))):
            self.seconds = min(self.seconds, self._seconds_of(self._runs) / self._runs)
            self.batches += 1


class Limits:
    """What the device can do, best of all looks: operations per second by type, and bytes per second of copies."""

    def __init__(self, library, options, device):
        self._library, self._options = library, options
        self._copy_bytes = min(_LARGEST_COPY, device["memory_bytes"] // 64)
        self._nominal = nominal(device)
        self._ways = {}  # name -> [(how, contestant, operations or bytes of a run)]

    def _open(self, name):
        device, ways = self._options.device, []
        if name == "copy":
            how = f"copies of {self._copy_bytes / 2**20:.0f} MiB within the device's memory, bytes read and written"
            return [(how, Queued("", "", Copy(self._library, device, self._copy_bytes).seconds), 2 * self._copy_bytes)]
        if name == "float32" and device.startswith("cuda"):
            multiply_adds = MultiplyAdds(self._library, device)
            ways.append(("multiply-adds in registers", Queued("", "", multiply_adds.seconds), multiply_adds.operations))
        if "torch" in self._options.against:
            from peer_torch_cuda import Products

            products = Products(name, device_number(device))
            ways.append((Products.how, Queued("", "", products.seconds), products.operations))
        return ways

    def look(self, name):
        if name not in self._ways:
            self._ways[name] = self._open(name)
        for _, contestant, _ in self._ways[name]:
            contestant.take_turn()

    def figures(self):
        """{name: {"value", "how", "measured": {how: value}, "nominal"}}; None for what is not known."""
        return {name: self._figure(name) for name in self._ways}

    def _figure(self, name):
        measured = {how: amount / contestant.seconds for how, contestant, amount in self._ways[name]}
        told = self._nominal.get(name)
        if measured:
            how = max(measured, key=measured.get)
        else:
            how = "not measured: clock x multiprocessors x units, from the driver's attributes" if told else "not known"
        return {"value": measured.get(how, told), "how": how, "measured": measured, "nominal": told}


def device_number(device):
    return int(device.partition(":")[2] or 0)


def peers_of(case, ours, options, row):
    """Contestants that computed the same; of others row["left_out"] says why they are none."""
    contestants = []
    for peer in options.against:
        import peer_torch_cuda

        expected = as_float32(ours.tensors()["out"])
        try:
            variants = list(peer_torch_cuda.variants(case, ours.tensors(), device_number(options.device)))
        except RuntimeError as refusal:  # out of memory, say
            row["left_out"][peer] = str(refusal).strip().partition("\n")[0]
            continue
        for variant in variants:
            try:
                variant.seconds(1)
                error = float(np.abs(variant.result() - expected).max())
            except (RuntimeError, TypeError) as refusal:  # older versions lack arguments
                row["left_out"][variant.name] = str(refusal).strip().partition("\n")[0]
                continue
            if not error <= LIMITS[case.dtype]:
                row["left_out"][variant.name] = f"differs from hattn by {error:.1e}, allowed is {LIMITS[case.dtype]:.0e}"
                continue
            contestants.append(Queued(peer, variant.name, variant.seconds))
    return contestants


class WithLimits(Queued):
    """hattn's turns, with a look at the limit before each."""

    def __init__(self, seconds_of, limits, name):
        super().__init__("hattn", "", seconds_of)
        self._limits, self._name = limits, name

    def take_turn(self):
        self._limits.look(self._name)
        super().take_turn()


def measure_case(library, case, options, limits):
    """One row, as a dict; without a time if the result is wrong."""
    ours = Attention(library, case.shape(options.device))
    try:  # closed in any case
        plan = ours.about["plan"]
        row = {"name": case.name, "title": case.title, "set": case.set, "dtype": case.dtype, "limit_name": case.limit,
               "kernel": f"{plan['algorithm']} {plan['kernel']}", "matrix_type": plan.get("matrix_type"),
               "decided_by": plan["decided_by"], "flops": ours.about["flops"], "bytes": ours.about["bytes"],
               "timed_by": "events" if ours.about["events"] else "wall", "wrong": ours.check(), "peers": {}, "left_out": {},
               "goals": [list(goal) for goal in case.goals]}
        if row["wrong"]:
            return row
        hattn = WithLimits(ours.seconds, limits, case.limit)
        others = peers_of(case, ours, options, row)
        compare.race(hattn, others, options.rounds, random.Random(case.name))
        row.update(seconds=hattn.seconds, batches=hattn.batches)
        row["peers"] = {name: {"seconds": best.seconds, "versus": best.seconds / hattn.seconds, "variant": best.variant}
                        for name, best in compare.best_by_peer(others).items()}
        return row
    finally:
        ours.close()


def row_of(library, case, options, limits):
    """As measure_case(); what a driver refuses is wrong as well."""
    try:
        return measure_case(library, case, options, limits)
    except (BenchError, RuntimeError) as error:
        return {"name": case.name, "title": case.title, "set": case.set, "wrong": str(error), "left_out": {}}


def conclude(row, limits):
    """Adds speed, share of the limit and what became of goals: all follow from seconds and limits."""
    row["tflops"] = row["flops"] / row["seconds"] / 1e12
    row["gbs"] = row["bytes"] / row["seconds"] / 1e9
    limit = limits.get(row["limit_name"], {}).get("value")
    speed = row["gbs"] * 1e9 if row["limit_name"] == "copy" else row["tflops"] * 1e12
    row["share"] = speed / limit if limit else None
    row["goals"] = [{"of": of, "least": least, "met": None if row[of] is None else row[of] >= least}
                    for of, least in row["goals"]]


def choose(options):
    try:
        chosen = [case for case in CASES if case.set in options.set and re.search(options.filter, case.name)]
    except re.error as error:
        raise BenchError(f"--filter: \"{options.filter}\" is no regular expression: {error}") from error
    if not chosen:
        known = ", ".join(case.name for case in CASES if case.set in options.set)
        raise BenchError(f"--filter: \"{options.filter}\" matches none of {known}")
    return chosen


def measure(options):
    """The figures as a dict."""
    chosen = choose(options)
    library = DeviceLibrary(options.build)
    about = library.describe(options.device)
    if options.against and not options.device.startswith("cuda"):
        raise BenchError(f"--against: PyTorch runs on GPUs, so beside --device cuda alone, but that is {options.device}")
    versions = {}
    for peer in options.against:
        import peer_torch_cuda

        versions[peer] = peer_torch_cuda.version()
    limits = Limits(library, options, about)
    rows = []
    for case in chosen:
        rows.append(row_of(library, case, options, limits))
        print(f"{case.name} done", file=sys.stderr, flush=True)
    figures = {"device": {"asked": options.device, **about}, "peers": versions, "rounds": options.rounds,
               "limits": limits.figures(), "rows": rows}
    for row in rows:
        if not row["wrong"]:
            conclude(row, figures["limits"])
    return figures


def parse_arguments(arguments):
    from run import positive, some_of

    parser = argparse.ArgumentParser(prog="bench", description=__doc__.partition("\n")[0])
    parser.add_argument("--device", required=True, help="cuda, cuda:N or opencl")
    parser.add_argument("--against", type=some_of(PEERS), default=[], metavar="NAME", help=", ".join(PEERS))
    parser.add_argument("--set", type=some_of(SETS), default=list(SETS[:-1]), metavar="NAME,...",
                        help=f"cases: {', '.join(SETS)} (default: {', '.join(SETS[:-1])})")
    parser.add_argument("--filter", default="", metavar="REGEX", help="only cases in whose name it occurs")
    parser.add_argument("--rounds", type=positive, default=5, help="turns of each contestant (default: 5)")
    parser.add_argument("--json", nargs="?", const="-", metavar="FILE", help="write the figures there (default: print "
                        "them instead of tables)")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write the tables there, for documents")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release", metavar="DIR",
                        help="build tree, or what ./dev gpu has unpacked (default: build/release)")
    return parser.parse_args(arguments)


def write(figures, options):
    text = json.dumps(figures, indent=2) + "\n"
    if options.markdown:
        options.markdown.write_text(device_report.markdown(figures), encoding="utf-8")
    if options.json == "-":
        print(text, end="")
        return
    device_report.print_tables(figures)
    if options.json:
        Path(options.json).write_text(text, encoding="utf-8")


def main(arguments):
    options = parse_arguments(arguments)
    try:
        figures = measure(options)
        write(figures, options)
    except ImportError as error:
        print(f"bench: error: {error}", file=sys.stderr)
        return 2
    except (BenchError, OSError) as error:
        print(f"bench: error: {error}", file=sys.stderr)
        return 2
    return 1 if any(row["wrong"] for row in figures["rows"]) else 0
