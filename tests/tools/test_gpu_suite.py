"""./dev gpu: programs meet the driver that is given and no other, what fails is counted, and a pack holds all that is run."""

import os
import pathlib
import random
import subprocess
import sys
import tarfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DRIVERS = ROOT / "build/release/tests/cpp"
EMULATED = DRIVERS / "emulated_cuda/emulated_cuda"

needs_driver = pytest.mark.skipif(not (EMULATED / "libcuda.so.1").exists(), reason="the emulator is not built")
needs_program = pytest.mark.skipif(not (DRIVERS / "emulated_cuda/emulated_types_test").exists(), reason="the tests are not built")

# As a GoogleTest program: one case, which passes if the driver's folder comes first.
PROGRAM = """#!/bin/sh
echo '<testsuites><testsuite><testcase name="c" status="run" classname="P"/></testsuite></testsuites>' >"${GTEST_OUTPUT#xml:}"
[ "${LD_LIBRARY_PATH%%:*}" = DRIVER ] && [ "$HATTN_TUNING" = none ]
"""


def run(*arguments, **options):
    command = [sys.executable, ROOT / "tests" / "gpu_suite.py", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, **options)


@pytest.fixture
def suite(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tests"))
    import gpu_pack
    import gpu_suite

    return gpu_suite, gpu_pack


@pytest.fixture
def build(tmp_path, suite):
    """A build tree of scripts."""
    tree = tmp_path / "build"
    for program in suite[0].PROGRAMS:
        path = tree / "tests" / "cpp" / program
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PROGRAM.replace("DRIVER", str(EMULATED)))
        path.chmod(0o755)
    for name in ("bench/libhattn_device_bench.so", "python/hattn/__init__.py"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("")
    return tree


def on_emulator(build, tmp_path, *arguments):
    return run("--driver", EMULATED, "--build", build, "--jobs", 1, "--results", tmp_path / "results", *arguments)


def test_without_a_driver(tmp_path):
    for arguments in ((), ("--check",), ("--run", "no such file")):
        finished = run("--driver", tmp_path, *arguments)
        assert finished.returncode == 77
        assert finished.stderr == f"gpu: skipped: there is no CUDA driver (libcuda.so.1) in {tmp_path}; nothing was run\n"


@needs_driver
def test_without_a_gpu(monkeypatch):
    monkeypatch.setenv("HATTN_STUB_CUDA_DEVICES", "0")
    finished = run("--driver", EMULATED, "--check")
    assert finished.returncode == 77 and "the CUDA driver finds no GPU" in finished.stderr


@needs_driver
def test_the_driver_comes_first_and_all_are_counted(build, tmp_path, suite):
    programs = [pathlib.Path(program).name for program in suite[0].PROGRAMS]
    finished = on_emulator(build, tmp_path, "--only", ",".join(programs))
    assert finished.returncode == 0, finished.stdout
    assert finished.stdout.startswith("gpu: stub, driver for CUDA 12.0, ")
    assert finished.stdout.endswith(f"{len(programs)} passed, 0 failed, 0 skipped\n")


@needs_driver
def test_what_ends_without_a_report_has_failed(build, tmp_path):
    program = build / "tests/cpp/device_types_test"
    program.write_text("#!/bin/sh\nkill -SEGV $$\n")
    finished = on_emulator(build, tmp_path, "--only", "device_types_test,device_cases_test")
    assert finished.returncode == 1
    assert "FAILED device_types_test.0 (status -11" in finished.stdout and "1 passed, 1 failed, 0 skipped" in finished.stdout
    program.write_text("#!/bin/sh\n")
    assert "FAILED device_types_test (ran no test)" in on_emulator(build, tmp_path, "--only", "device_types_test").stdout


@needs_driver
def test_bad_input(build, tmp_path):
    assert '--only: "abacus" is none of: device_cases_test' in on_emulator(build, tmp_path, "--only", "abacus").stderr
    (tmp_path / "text").write_text("text")
    finished = on_emulator(build, tmp_path, "--run", tmp_path / "text", "--unpacked", tmp_path / "unpacked")
    assert finished.returncode == 2 and "is not what ./dev gpu --pack makes" in finished.stderr
    (tmp_path / "file").write_bytes(random.Random(0).randbytes(1 << 16))
    with tarfile.open(tmp_path / "cut", "w:xz") as archive:
        archive.add(tmp_path / "file", "file")
    os.truncate(tmp_path / "cut", 1 << 15)
    finished = on_emulator(build, tmp_path, "--run", tmp_path / "cut", "--unpacked", tmp_path / "unpacked")
    assert finished.returncode == 2 and "is not what ./dev gpu --pack makes" in finished.stderr


@needs_driver
def test_folders_of_others_are_kept(build, tmp_path):
    kept = tmp_path / "mine" / "file"
    kept.parent.mkdir()
    kept.write_text("text")
    finished = run("--driver", EMULATED, "--build", build, "--results", kept.parent, "--only", "device_types_test")
    assert finished.returncode == 2 and f"--results: {kept.parent} holds files" in finished.stderr
    assert kept.read_text() == "text"


@needs_driver
def test_a_pack(build, tmp_path, suite, monkeypatch):
    """Without an interpreter, which takes long to pack."""
    gpu_suite, gpu_pack = suite
    monkeypatch.setattr(gpu_pack, "_copy_python", lambda home: None)
    gpu_pack.pack(build, gpu_suite.PROGRAMS, tmp_path / "pack")
    there = tmp_path / "unpacked"
    finished = on_emulator("nowhere", tmp_path, "--run", tmp_path / "pack", "--unpacked", there, "--only", "matrix_kernels_test")
    assert finished.returncode == 0 and "1 passed" in finished.stdout
    packed = {path.relative_to(there) for path in there.rglob("*") if path.is_file() and path.name != gpu_pack._MARK}
    assert packed == {path.relative_to(build) for path in build.rglob("*") if path.is_file()}
    (build / "bench/libhattn_device_bench.so").unlink()
    with pytest.raises(gpu_pack.PackError, match="libhattn_device_bench.so: not there"):
        gpu_pack.pack(build, gpu_suite.PROGRAMS, tmp_path / "pack")


@needs_driver
@needs_program
def test_programs_that_link_the_emulator_find_another_driver(tmp_path):
    """The one whose kernels compute nothing: what is right on the emulator is wrong there."""
    options = ("--only", "emulated_types_test", "--jobs", 1, "--results", tmp_path, "--filter", "*/batch_3*")
    right, wrong = (run("--driver", driver, *options) for driver in (EMULATED, DRIVERS / "stub_cuda"))
    assert right.returncode == 0, right.stdout
    assert wrong.returncode == 1 and "\n0 passed" in wrong.stdout
