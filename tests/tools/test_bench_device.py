"""./dev bench --device: figures follow from times and limits, on OpenCL and on the emulated GPU; what is missing is said."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "release"
EMULATED = BUILD / "tests/cpp/emulated_cuda/emulated_cuda"

needs_library = pytest.mark.skipif(
    not (BUILD / "bench/libhattn_device_bench.so").exists(), reason="the benchmarks of devices are not built"
)


def run(*arguments, **environment):
    command = [sys.executable, ROOT / "bench" / "run.py", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "HATTN_TUNING": "none", **environment}
    )


def usable(device, **environment):
    """Why there is no such device; "" if there is."""
    code = f"import device_library; device_library.DeviceLibrary({str(BUILD)!r}).describe({device!r})"
    path = {"PYTHONPATH": str(ROOT / "bench"), **environment}
    finished = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **path}
    )
    return finished.stderr.strip().rpartition("\n")[2]


@pytest.fixture(params=["opencl", "cuda"])
def device(request):
    """(name, environment): OpenCL as it is, CUDA on the emulator."""
    environment = {"LD_LIBRARY_PATH": str(EMULATED)} if request.param == "cuda" else {}
    why_not = usable(request.param, **environment)
    if why_not:
        pytest.skip(why_not)
    return request.param, environment


def measure(device, *arguments):
    name, environment = device
    return run("--device", name, "--set", "small", "--rounds", "1", *arguments, **environment)


@needs_library
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_figures_follow_from_the_time(device, dtype):
    finished = measure(device, "--filter", f"prefill_{dtype}$", "--json")
    assert finished.returncode == 0, finished.stderr
    figures = json.loads(finished.stdout)
    (row,) = figures["rows"]
    assert row["wrong"] == "" and row["seconds"] > 0 and row["batches"] >= 1
    # Two products of 2 heads of 64 elements, of 70 rows that see 1 to 70 keys; K and V of one head.
    assert row["flops"] == 4 * 2 * 64 * 70 * 71 / 2
    assert row["bytes"] == 2 * 70 * 64 * (4 if dtype == "float32" else 2)
    assert row["tflops"] * row["seconds"] * 1e12 == pytest.approx(row["flops"])
    assert row["gbs"] * row["seconds"] * 1e9 == pytest.approx(row["bytes"])
    limit = figures["limits"][dtype]
    if device[0] == "cuda" and dtype == "float32":
        assert list(limit["measured"].values()) == [limit["value"]] and limit["how"] == "multiply-adds in registers"
        assert row["share"] == pytest.approx(row["tflops"] * 1e12 / limit["value"])
    else:  # neither driver tells what a unit does in a clock, and no torch has measured it
        assert row["share"] is None and limit == {"value": None, "how": "not known", "measured": {}, "nominal": None}
    assert row["timed_by"] == ("events" if device[0] == "cuda" else "wall")
    assert (row["matrix_type"] == "float16") == (device[0] == "cuda" and dtype == "float16")


@needs_library
def test_decoding_is_a_share_of_copies(device, tmp_path):
    markdown = tmp_path / "tables.md"
    finished = measure(device, "--filter", "decode", "--json", tmp_path / "figures.json", "--markdown", markdown)
    assert finished.returncode == 0, finished.stderr
    figures = json.loads((tmp_path / "figures.json").read_text())
    (row,) = figures["rows"]
    copies = figures["limits"]["copy"]
    assert copies["measured"] == {copies["how"]: copies["value"]} and copies["value"] > 0
    assert row["share"] == pytest.approx(row["bytes"] / row["seconds"] / copies["value"])
    assert figures["device"]["name"] in finished.stdout and row["kernel"] in finished.stdout
    assert "GB/s" in finished.stdout and "| float32, 300 keys, D = 64 |" in markdown.read_text()


@needs_library
def test_a_wrong_result_has_no_time(device):
    """The others are measured all the same. The driver fails at the launch, as a kernel that faults does."""
    if device[0] == "opencl":
        pytest.skip("its driver cannot be told to fail")
    name, environment = device
    finished = measure((name, {**environment, "HATTN_STUB_CUDA_FAIL": "cuLaunchKernel"}), "--filter", "decode", "--json")
    assert finished.returncode == 1
    (row,) = json.loads(finished.stdout)["rows"]
    assert "CUDA_ERROR_LAUNCH_FAILED" in row["wrong"] and "seconds" not in row


@needs_library
@pytest.mark.parametrize("arguments, message", [
    (("--device", "abacus"), "--device: is abacus, but must be one of opencl, cuda"),
    (("--device", "opencl", "--filter", "nonsense"), '"nonsense" matches none of prefill_float32'),
    (("--device", "opencl", "--filter", "("), "is no regular expression"),
    (("--device", "cuda", "--against", "abacus"), '"abacus" is none of: torch'),
    (("--device", "cuda", "--set", "huge"), '"huge" is none of: prefill, decode, small'),
    (("--device", "cuda", "--build", "nowhere"), "libhattn_device_bench.so: not there; ./dev build makes it"),
])
def test_bad_input(arguments, message):
    finished = run(*arguments)
    assert finished.returncode == 2 and message in finished.stderr


@needs_library
def test_devices_that_are_not_there(device):
    name, environment = device
    finished = run("--device", f"{name}:7", "--set", "small", **environment)
    assert finished.returncode == 2 and f"--device: is {name}:7, but there is no such one of 1" in finished.stderr
    if name == "cuda" and usable("cuda"):
        assert "--device: is cuda, but there is no CUDA driver" in run("--device", "cuda").stderr


@needs_library
def test_pytorch_is_beside_gpus_alone(device):
    if device[0] != "opencl":
        pytest.skip("of OpenCL")
    finished = measure(device, "--against", "torch")
    assert finished.returncode == 2 and "PyTorch runs on GPUs" in finished.stderr


@pytest.fixture
def device_cases(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    import device_cases

    return device_cases


def test_peaks_by_units(device_cases):
    """Of an A100: 19.5 TFLOP/s in float32, 312 on tensor cores, by its data sheet; of unknown ones nothing is said."""
    a100 = {"capability": "8.0", "compute_units": 108, "clock_hz": 1.41e9}
    peaks = device_cases.nominal(a100)
    assert peaks["float32"] == pytest.approx(19.5e12, rel=0.01)
    assert peaks["float16"] == peaks["bfloat16"] == pytest.approx(312e12, rel=0.01)
    assert device_cases.nominal({**a100, "capability": "OpenCL 3.0"}) == {}
    assert device_cases.nominal({**a100, "clock_hz": 0}) == {}


def test_goals(device_cases):
    import device_bench  # found through the fixture

    def concluded(case, seconds, **limits):
        row = {"flops": 4e12, "bytes": 1e12, "seconds": seconds, "limit_name": case.limit,
               "goals": [list(goal) for goal in case.goals]}
        device_bench.conclude(row, {name: {"value": value} for name, value in limits.items()})
        return [goal["met"] for goal in row["goals"]]

    by_name = {case.name: case for case in device_cases.CASES}
    assert len(by_name) == len(device_cases.CASES)
    half = by_name["prefill_bfloat16_s8192"]
    assert concluded(half, 0.019) == [True, False] and concluded(half, 0.011) == [True, True]
    assert concluded(half, 0.021) == [False, False]
    single = by_name["prefill_float32_s8192"]
    assert concluded(single, 1.0, float32=8.1e12) == [False] and concluded(single, 1.0, float32=7.9e12) == [True]
    assert concluded(single, 1.0, float32=None) == [None]
    decode = by_name["decode_bfloat16_k32768"]
    assert concluded(decode, 1.0, copy=1.2e12) == [False] and concluded(decode, 1.0, copy=1.1e12) == [True]


def test_bits_of_bfloat16(device_cases):
    import device_library

    assert device_library.as_float32(np.array([0x3F80, 0xC040], np.uint16)).tolist() == [1.0, -3.0]


def test_turns(device_cases):
    """A batch is as many runs as fit into its time, and the fastest counts."""
    import device_bench

    asked = []

    def seconds_of(runs):
        asked.append(runs)
        return runs * (2e-3 if len(asked) % 3 else 1e-3)

    contestant = device_bench.Queued("hattn", "", seconds_of)
    contestant.take_turn()
    assert asked[:3] == [1, 1, 5] and set(asked[3:]) == {5}
    assert contestant.seconds == pytest.approx(1e-3) and contestant.batches == len(asked) - 2


def test_report_says_what_is_missing(device_cases):
    import device_report

    row = {"name": "n", "title": "t", "set": "prefill", "wrong": "", "seconds": 1.0, "tflops": 2.0, "gbs": 3.0, "share": None,
           "peers": {}, "goals": [{"of": "share", "least": 0.5, "met": None}], "left_out": {"flash": "refused"},
           "timed_by": "events", "kernel": "k", "matrix_type": None}
    device = {"asked": "cuda", "name": "N", "capability": "9.9", "compute_units": 1, "memory_bytes": 2**30, "driver": "1",
              "hattn": "0"}
    limits = {"float32": {"value": None, "measured": {}, "nominal": None, "how": "not known"}}
    figures = {"device": device, "peers": {"torch": "2"}, "rounds": 1, "limits": limits, "rows": [row]}
    text = device_report.markdown(figures)
    assert "| t | 1000.00 ms | 2 TFLOP/s | 3 GB/s | - | - | 50%: - |" in text
    assert "Peak of float32: -, not known." in text and "n: flash was left out: refused" in text
    figures["rows"] = [{"name": "n", "title": "t", "set": "prefill", "wrong": "bad", "left_out": {}}]
    assert "| t | wrong | - | - | - | - | - |" in device_report.markdown(figures)


@needs_library
def test_multiply_adds_are_those_that_are_counted(device):
    """The library looks at a sum, which is 32 once every chain has come to its limit of 2."""
    name, environment = device
    code = f"""
import device_library
library = device_library.DeviceLibrary({str(BUILD)!r})
peak = device_library.MultiplyAdds(library, {name!r})
print(peak.operations, peak.seconds(4) > 0)
"""
    path = {"PYTHONPATH": str(ROOT / "bench"), **environment}
    finished = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **path}, check=False
    )
    if name == "opencl":
        assert "multiply-adds are measured on CUDA alone" in finished.stderr
        return
    # Four multiprocessors, eight blocks of 256 threads each, 256 multiply-adds of each.
    assert finished.stdout.split() == [str(float(4 * 8 * 256 * 256 * 2)), "True"], finished.stderr
