#!/usr/bin/env python3
"""./dev gpu: the tests of devices on a real GPU.

    gpu_suite.py [--build DIR] [--only NAME,...] [--filter PATTERN] [--jobs N] [--driver DIR]
    gpu_suite.py --pack FILE [--build DIR]      all that is needed, of a build tree, in one file
    gpu_suite.py --run FILE ...                 what --pack made, on a machine that has Python and a GPU, and nothing else
    gpu_suite.py --check                        whether there is a GPU
    gpu_suite.py --targets                      what has to be built

Programs that link the emulator find the machine's driver in its place, since LD_LIBRARY_PATH comes before their own search path.
Logs and reports are in build/gpu-results. Exit status: 0; 1 if something failed; 2 for bad input; 77 if there is no GPU, and so nothing
was run.
"""
import argparse
import concurrent.futures
import ctypes
import os
import pathlib
import subprocess
import sys
import time

import gpu_pack
import summary

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD, UNPACKED, RESULTS = (ROOT / "build" / name for name in ("release", "gpu", "gpu-results"))
NO_GPU = 77

# In a build tree, below tests/cpp.
PROGRAMS = (
    "device_cases_test",
    "device_types_test",
    "device_force_test",
    "device_tuning_test",
    "emulated_cuda/device_cache_test",
    "emulated_cuda/emulated_kernels_test",
    "emulated_cuda/emulated_types_test",
    "emulated_cuda/matrix_kernels_test",
)
PYTHON_TESTS = tuple(f"tests/python/test_{name}.py" for name in ("devices", "device_arrays", "cuda_memory"))
# Where drivers are beside the folders that the dynamic linker looks in.
DRIVER_FOLDERS = ("/usr/local/nvidia/lib64", "/usr/lib/wsl/lib", "/usr/lib64/nvidia")


class NoGpu(Exception):
    """Why nothing can be run."""


def load_driver(folder):
    """(driver, its folder); folder: where it has to be, or None. Raises NoGpu."""
    paths = [f"{folder}/libcuda.so.1"] if folder else ["libcuda.so.1", *(f"{place}/libcuda.so.1" for place in DRIVER_FOLDERS)]
    for path in paths:
        try:
            driver = ctypes.CDLL(path)
        except OSError:
            continue
        with open("/proc/self/maps", encoding="utf-8") as maps:
            loaded = [line.split(maxsplit=5)[-1].strip() for line in maps if "/libcuda.so" in line]
        return driver, pathlib.Path(folder or pathlib.Path(loaded[0]).parent).resolve()
    raise NoGpu(f"there is no CUDA driver (libcuda.so.1){f' in {folder}' if folder else ' on this machine'}")


def describe_gpu(driver):
    """The first GPU in words. Raises NoGpu. (CUDA Driver API)"""
    count, version, name = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(256)
    error = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if error or not count.value:
        raise NoGpu(f"the CUDA driver finds no GPU: error {error}")
    driver.cuDriverGetVersion(ctypes.byref(version))
    driver.cuDeviceGetName(name, len(name), 0)
    return f"{name.value.decode()}, driver for CUDA {version.value // 1000}.{version.value % 1000 // 10}"


class Suite:
    """A build tree, or what was unpacked, at work on the GPU."""

    def __init__(self, build, driver_folder, options):
        self._build, self._options, self._results = build, options, options.results
        folders = [str(driver_folder), str(gpu_pack.home_of(build) / "lib"), os.environ.get("LD_LIBRARY_PATH", "")]
        self._environment = {**os.environ, "HATTN_TUNING": "none", "LD_LIBRARY_PATH": ":".join(filter(None, folders))}

    def _run(self, name, command, **environment):
        """Its exit status."""
        with open(self._results / f"{name}.log", "wb") as log:
            try:
                return subprocess.run(command, env={**self._environment, **environment}, stdout=log, stderr=log, cwd=ROOT,
                                      timeout=self._options.timeout, check=False).returncode
            except subprocess.TimeoutExpired:
                return f"none within {self._options.timeout} s"
            except OSError as error:
                return str(error)

    def _count(self, name, status):
        counts = summary.Counts()
        for case in summary.read_cases(self._results / f"{name}.xml"):
            summary.count_case(counts, summary.outcome(case), summary.case_name(case))
        if status != 0 and not counts.failures:
            counts.failures.append(f"{name} (status {status}, see {self._results / name}.log)")
        return counts

    def program(self, program, shard, shards):
        name = f"{pathlib.Path(program).name}.{shard}"
        command = [self._build / "tests" / "cpp" / program, f"--gtest_filter={self._options.filter}"]
        return self._count(name, self._run(name, command, GTEST_OUTPUT=f"xml:{self._results / name}.xml",
                                           GTEST_TOTAL_SHARDS=str(shards), GTEST_SHARD_INDEX=str(shard)))

    def python(self):
        packed = gpu_pack.home_of(self._build)
        python = packed / "bin" / "python3" if packed.is_dir() else sys.executable
        home = {"PYTHONHOME": str(packed)} if packed.is_dir() else {}
        command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={self._results / 'python.xml'}", *PYTHON_TESTS]
        return self._count("python", self._run("python", command, PYTHONPATH=str(self._build / "python"), **home))


def run_all(suite, chosen, jobs, everything):
    """everything: no test was filtered out, so none may be without any. Prints a line for each program; returns the counts of all."""
    total = summary.Counts()
    for name in chosen:
        begin, counts = time.monotonic(), summary.Counts()
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            shards = 1 if name == "python" else jobs
            parts = [pool.submit(suite.python) if name == "python" else pool.submit(suite.program, name, shard, shards)
                     for shard in range(shards)]
            for part in parts:
                counts.add(part.result())
        if everything and counts == summary.Counts():
            counts.failures.append(f"{pathlib.Path(name).name} (ran no test)")
        print(f"{pathlib.Path(name).name}: {counts.line()}, {time.monotonic() - begin:.0f} s", flush=True)
        total.add(counts)
    for name in total.failures[:summary.MAX_FAILURES_SHOWN]:
        print(f"FAILED {name}")
    if len(total.failures) > summary.MAX_FAILURES_SHOWN:
        print(f"... and {len(total.failures) - summary.MAX_FAILURES_SHOWN} more")
    print(total.line())
    return total


def parse_arguments(arguments):
    names = {pathlib.Path(program).name: program for program in PROGRAMS} | {"python": "python"}
    parser = argparse.ArgumentParser(prog="gpu", description="Runs the tests of devices on this machine's GPU.")
    parser.add_argument("--build", type=pathlib.Path, default=BUILD, metavar="DIR", help="build tree (default: build/release)")
    parser.add_argument("--pack", type=pathlib.Path, metavar="FILE", help="put all that is needed into this file, and run nothing")
    parser.add_argument("--run", type=pathlib.Path, metavar="FILE", help="run what --pack made")
    parser.add_argument("--only", default=",".join(names), metavar="NAME,...", help=f"of: {', '.join(names)}")
    parser.add_argument("--filter", default="*", metavar="PATTERN", help="as --gtest_filter, of the C++ tests")
    parser.add_argument("--jobs", type=int, default=min(8, os.cpu_count()), metavar="N", help="processes at a time (default: %(default)s)")
    parser.add_argument("--timeout", type=int, default=900, metavar="SECONDS", help="of each process (default: %(default)s)")
    parser.add_argument("--driver", type=pathlib.Path, metavar="DIR", help="where libcuda.so.1 is (default: found)")
    parser.add_argument("--results", type=pathlib.Path, default=RESULTS, metavar="DIR", help="default: build/gpu-results")
    parser.add_argument("--unpacked", type=pathlib.Path, default=UNPACKED, metavar="DIR", help="where --run unpacks (default: build/gpu)")
    parser.add_argument("--check", action="store_true", help="only say whether there is a GPU")
    parser.add_argument("--targets", action="store_true", help="only print what has to be built")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.only.split(",") if name not in names]
    if unknown:
        parser.error(f"--only: \"{unknown[0]}\" is none of: {', '.join(names)}")
    if options.jobs < 1:
        parser.error(f"--jobs: is {options.jobs}, but must be at least 1")
    options.only = [names[name] for name in options.only.split(",")]
    return options


def run(options):
    driver, folder = load_driver(options.driver)
    print(f"gpu: {describe_gpu(driver)}, {folder}", flush=True)
    if options.check:
        return 0
    build = options.build
    if options.run:
        build = options.unpacked
        gpu_pack.unpack(options.run, build)
    options.results = options.results.resolve()
    gpu_pack.make_folder("--results", options.results)
    print(f"logs and reports: {options.results}", flush=True)
    total = run_all(Suite(build.resolve(), folder, options), options.only, options.jobs, options.filter == "*")
    return 0 if total.passed and not total.failures else 1


def main(arguments=None):
    options = parse_arguments(arguments)
    if options.targets:
        print(*(pathlib.Path(program).name for program in PROGRAMS), *gpu_pack.TARGETS)
        return 0
    try:
        if options.pack:
            gpu_pack.pack(options.build, PROGRAMS, options.pack)
            print(f"{options.pack}: {options.pack.stat().st_size / 2**20:.1f} MiB")
            return 0
        return run(options)
    except NoGpu as error:
        print(f"gpu: skipped: {error}; nothing was run", file=sys.stderr)
        return NO_GPU
    except (OSError, gpu_pack.PackError) as error:
        print(f"gpu: error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
