"""What hattn costs beside its speed: a process's first call, workspace, program size, build time of the kernels."""
import json
import re
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from cases import BenchError

_PROCESSES = 9

# At most.
FIRST_CALL_SECONDS = 0.020
WORKSPACE_BYTES = 2 * 2**20
PROGRAM_BYTES = 15e6
BUILD_SECONDS = 2 * 5 * 60  # five minutes of two cores


def _program(build):
    path = Path(build) / "bench" / "hattn-first-call"
    if not path.exists():
        raise BenchError(f"{path}: not there; ./dev build makes it")
    return path


def _first_call(program):
    """What first_call.cpp prints, in a fresh process."""
    started = time.monotonic()  # the clock that the process reads, too
    return json.loads(subprocess.run([program, repr(started)], check=True, stdout=subprocess.PIPE).stdout)


def _stripped_bytes(program):
    with tempfile.TemporaryDirectory() as folder:
        stripped = Path(folder) / "stripped"
        subprocess.run(["strip", "-o", stripped, program], check=True)
        return stripped.stat().st_size


def _is_of_devices(kernel_object):
    return kernel_object.startswith("device_")


def _device_kernel_bytes(build):
    """Of code and data in the objects for devices."""
    objects = sorted((Path(build) / "kernels").glob("device_*.o"))
    if not objects:
        return 0
    lines = subprocess.run(["size", "--totals", *objects], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    text, data, *_ = lines[-1].split()
    return int(text) + int(data)


def _kernel_build_seconds(build):
    """What Ninja took for the kernel objects, by whether they are for devices; None where they came from another tree."""
    log = Path(build) / ".ninja_log"
    seconds = {}
    for line in log.read_text(encoding="utf-8").splitlines() if log.exists() else []:
        match = re.match(r"(\d+)\t(\d+)\t\d+\t\S*kernels/(\w+-?\w*\.o)\t", line)
        if match:
            seconds[match[3]] = (int(match[2]) - int(match[1])) / 1e3
    if not seconds:
        return None
    return {place: sum(value for name, value in seconds.items() if _is_of_devices(name) == devices)
            for place, devices in (("cpu", False), ("devices", True))}


def measure(build):
    """The figures as a dict."""
    program = _program(build)
    calls = [_first_call(program) for _ in range(_PROCESSES)]
    steps = {}
    for step in calls[0]["seconds"]:
        values = [call["seconds"][step] for call in calls]
        steps[step] = {"best": min(values), "median": statistics.median(values)}
    workspace = calls[0]["workspace_bytes"]
    return {"processes": _PROCESSES, "first_call": steps, "workspace_bytes": workspace,
            "first_call_met": steps["all of it"]["best"] <= FIRST_CALL_SECONDS,
            "workspace_met": workspace <= WORKSPACE_BYTES,
            "program_bytes": _stripped_bytes(program), "device_kernel_bytes": _device_kernel_bytes(build),
            "kernel_build_seconds": _kernel_build_seconds(build)}


def _met(met):
    return "met" if met else "missed"


def print_table(figures):
    print(f"\nFirst call of a process, S = 128, of {figures['processes']} processes: best and median; goal "
          f"{FIRST_CALL_SECONDS * 1e3:.0f} ms: {_met(figures['first_call_met'])}")
    for step, seconds in figures["first_call"].items():
        print(f"  {step:<36} {seconds['best'] * 1e3:>8.2f} ms {seconds['median'] * 1e3:>8.2f} ms")
    print(f"Workspace at S = 4096 with 2 threads: {figures['workspace_bytes'] / 2**20:.2f} MiB; goal "
          f"{WORKSPACE_BYTES / 2**20:.0f} MiB: {_met(figures['workspace_met'])}")
    program, devices = figures["program_bytes"], figures["device_kernel_bytes"]
    print(f"A program with all of the library linked in, stripped: {program / 1e6:.1f} MB, without the kernels for devices "
          f"{(program - devices) / 1e6:.1f} MB; goal {PROGRAM_BYTES / 1e6:.0f} MB: {_met(program <= PROGRAM_BYTES)}, "
          f"for the CPU alone {_met(program - devices <= PROGRAM_BYTES)}")
    seconds = figures["kernel_build_seconds"]
    print("Building the kernels, summed over their objects: " +
          (f"{seconds['cpu']:.0f} s for the CPU, {seconds['devices']:.0f} s for devices; goal {BUILD_SECONDS} s: "
           f"{_met(sum(seconds.values()) <= BUILD_SECONDS)}, for the CPU alone {_met(seconds['cpu'] <= BUILD_SECONDS)}"
           if seconds else "not known, they come from another build tree"))
