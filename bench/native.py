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


def run(build, pattern, threads, min_time):
    """The report as a dict: fma_peak, and per case the counters of main.cpp. threads: None for one per core."""
    names = choose(list_cases(build), pattern)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [_program(build), f"--benchmark_filter=^({'|'.join(names)}){_SUFFIX}$", f"--benchmark_out={report}",
                   "--benchmark_out_format=json", f"--benchmark_min_time={min_time}"]
        if threads is not None:
            command.append(f"--threads={threads}")
        _watch(command, len(names))
        cases = [_read_case(entry) for entry in json.loads(report.read_text())["benchmarks"]]
    # All kernels are of one target. The last case has seen the best of the peak, the first only its beginning.
    peak = max(case["fma_peak"] for case in cases)
    for case in cases:
        case.update(fma_peak=peak, fma_share=case["flops"] / peak)
    return {"fma_peak": peak, "cases": cases}


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
        raise BenchError(errors.strip() or f"hattn-bench ended with status {process.returncode}")


def _read_case(entry):
    counters = ("seconds", "threads", "flops", "fma_peak", "fma_share", "kv_read", "read_peak", "read_share")
    case = {"name": entry["name"].removesuffix(_SUFFIX), "kernel": entry["label"]}
    case.update({counter: entry[counter] for counter in counters if counter in entry})
    return case


def print_table(report):
    """Times in milliseconds, speeds in 1e9 per second. Decoding is also held against plain reading."""
    threads = report["cases"][0]["threads"]
    print(f"{threads:.0f} threads; FMA peak {report['fma_peak'] / 1e9:.0f} GFLOP/s; best runs\n")
    print(f"{'case':<22} {'ms':>9} {'GFLOP/s':>8} {'of peak':>8} {'GB/s':>7} {'read peak':>9} {'of it':>6}  kernel")
    for case in report["cases"]:
        line = f"{case['name']:<22} {case['seconds'] * 1e3:>9.3f} {case['flops'] / 1e9:>8.1f} {case['fma_share']:>8.1%}"
        if "kv_read" in case:
            line += f" {case['kv_read'] / 1e9:>7.1f} {case['read_peak'] / 1e9:>9.1f} {case['read_share']:>6.0%}"
        else:
            line += " " * 25
        print(f"{line}  {case['kernel']}")
