"""Runs hattn-bench and makes a table of its report."""
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

_SUFFIX = "/manual_time"  # Google Benchmark's way to say that we measure the time ourselves


class BenchError(Exception):
    """hattn-bench could not do what was asked for."""


class WrongResult(Exception):
    """A case did not agree with the oracle."""


def _program(build):
    path = Path(build) / "bench" / "hattn-bench"
    if not path.exists():
        raise BenchError(f"{path}: not there; ./dev build makes it")
    return str(path)


def list_cases(build):
    """Names of all cases."""
    command = [_program(build), "--benchmark_list_tests"]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [line.removesuffix(_SUFFIX) for line in output.split()]


def choose(names, pattern):
    """The names in which the regular expression occurs."""
    try:
        chosen = [name for name in names if re.search(pattern, name)]
    except re.error as error:
        raise BenchError(f"--filter: \"{pattern}\" is no regular expression: {error}") from error
    if not chosen:
        raise BenchError(f"--filter: \"{pattern}\" matches none of {', '.join(names)}")
    return chosen


def run(build, pattern, threads, min_time, rounds):
    """The report as a dict: fma_peak, and per case the counters of main.cpp. threads: None for one per core.

    rounds: how often to go through all the cases; the best of each counts. Where others use the machine at times, that
    tells more than one long look.
    """
    names = choose(list_cases(build), pattern)
    options = [f"--benchmark_filter=^({'|'.join(names)}){_SUFFIX}$", f"--benchmark_min_time={min_time}"]
    if threads is not None:
        options.append(f"--threads={threads}")
    best = {}
    for _ in range(rounds):
        for case in _run_once(build, options, len(names)):
            best[case["name"]] = _better(best.get(case["name"], case), case)
    cases = list(best.values())
    # All kernels are of one target, and the peak of their instruction set does not depend on the case.
    peak = max(case["fma_peak"] for case in cases)
    for case in cases:
        case.update(fma_peak=peak, fma_share=case["flops"] / peak)
        if "kv_read" in case:
            case["read_share"] = case["kv_read"] / case["read_peak"]
    return {"rounds": rounds, "fma_peak": peak, "cases": cases}


def _run_once(build, options, count):
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        _watch([_program(build), *options, f"--benchmark_out={report}", "--benchmark_out_format=json"], count)
        return [_read_case(entry) for entry in json.loads(report.read_text())["benchmarks"]]


def _better(a, b):
    """The best figures of two reports of a case: the shorter time, and the higher of each speed."""
    fastest = min(a, b, key=lambda case: case["seconds"])
    return {**fastest, **{key: max(a[key], b[key]) for key in ("fma_peak", "read_peak") if key in a}}


def _watch(command, total):
    """Runs to the end, with a count of the finished cases for whoever looks at a terminal."""
    done, lines = 0, []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            lines.append(line)
            if _SUFFIX in line:
                done += 1
                if sys.stderr.isatty():
                    print(f"\r{done} of {total} cases", end="", file=sys.stderr, flush=True)
        errors = process.stderr.read()
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    if process.returncode == 1:
        raise WrongResult("\n".join(line.strip() for line in lines if "ERROR" in line))
    if process.returncode != 0:
        last = (lines + errors.splitlines(True) or [""])[-1].strip()
        raise BenchError(f"hattn-bench ended with status {process.returncode}: {last}")


def _read_case(entry):
    counters = ("seconds", "threads", "flops", "fma_peak", "kv_read", "read_peak")
    case = {"name": entry["name"].removesuffix(_SUFFIX), "kernel": entry["label"]}
    case.update({counter: entry[counter] for counter in counters if counter in entry})
    return case


def print_table(report):
    """Times in milliseconds, speeds in 1e9 per second. Decoding is also held against plain reading."""
    threads = report["cases"][0]["threads"]
    passes = "one pass" if report["rounds"] == 1 else f"{report['rounds']} passes"
    print(f"{threads:.0f} threads; FMA peak {report['fma_peak'] / 1e9:.0f} GFLOP/s; best runs of {passes}\n")
    print(f"{'case':<22} {'ms':>9} {'GFLOP/s':>8} {'of peak':>8} {'GB/s':>7} {'read peak':>9} {'of it':>6}  kernel")
    for case in report["cases"]:
        line = f"{case['name']:<22} {case['seconds'] * 1e3:>9.3f} {case['flops'] / 1e9:>8.1f} {case['fma_share']:>8.1%}"
        if "kv_read" in case:
            line += f" {case['kv_read'] / 1e9:>7.1f} {case['read_peak'] / 1e9:>9.1f} {case['read_share']:>6.0%}"
        else:
            line += " " * 25
        print(f"{line}  {case['kernel']}")
