"""bench/loop_samples.py: loops out of a disassembly, samples out of what perf prints, and a run where there is perf."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "release" / "bench" / "libhattn_snapshot.so"

DISASSEMBLY = """
0000000000001000 <hattnkernel_one>:
    1000:\txor    %eax,%eax
    1002:\txor    %ecx,%ecx
    1004:\tvaddps %zmm0,%zmm1,%zmm1
    1008:\tinc    %ecx
    100a:\tjne    1004 <hattnkernel_one+0x4>
    100c:\tinc    %eax
    100e:\tjne    1002 <hattnkernel_one+0x2>
    1010:\tcall   1000 <hattnkernel_one>
    1015:\tret
"""


@pytest.fixture
def loop_samples(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    import loop_samples

    return loop_samples


def test_innermost_loops_and_what_is_between(loop_samples):
    instructions = loop_samples.instructions_of(DISASSEMBLY)
    assert [kind for _, kind, _ in instructions] == ["xor", "xor", "vaddps", "inc", "jne", "inc", "jne", "call", "ret"]
    assert loop_samples.parts_of(instructions) == [("code", 0, 2), ("loop", 2, 5), ("code", 5, 9)]


def test_samples_are_counted_where_the_copy_of_the_build_lies(loop_samples):
    mapped = "x 1/1: PERF_RECORD_MMAP2 1/1: [0x7f0000001000(0x2000) @ 0x20000 fe:00 1 2]: r-xp {}\n"
    script = mapped.format("folder/libc.so.6").replace("7f0", "7e0") + mapped.format("folder/hattn-build-Ab3") + """
            7f0000001004
            7f0000001004
            7e0000001004
            7f0000003000
"""
    assert loop_samples.samples_at(script, 0x1000) == {0x21004: 2}


def test_code_lies_beyond_its_place_in_the_file(loop_samples):
    segments = """
  LOAD           0x000000 0x0000000000000000 0x0000000000000000 0x01f000 0x01f000 R   0x1000
  LOAD           0x020000 0x0000000000021000 0x0000000000021000 0xd65000 0xd65000 R E 0x1000
"""
    assert loop_samples.code_offset(segments) == 0x1000


@pytest.mark.skipif(not BUILD.exists(), reason="the benchmarks are not built")
def test_a_run(loop_samples, capsys, monkeypatch):
    """Most of a prompt's time is in one kernel, and most of that in loops that multiply."""
    if shutil.which("perf") is None or subprocess.run(["perf", "record", "--output=/dev/null", "true"], capture_output=True).returncode:
        pytest.skip("there is no perf, or it may not be used")
    monkeypatch.setattr(sys, "argv", ["loop_samples.py", str(BUILD), "--shape=1x4x2x256x256x64", "--seconds=0.5", "--threads=1"])
    loop_samples.main()
    text = capsys.readouterr().out
    assert "flash_" in text and "of the library's samples" in text and "| loop |" in text


def test_missing_build(loop_samples, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["loop_samples.py", "/nowhere/lib.so"])
    with pytest.raises(SystemExit):
        loop_samples.main()
    assert "/nowhere/lib.so: not there" in capsys.readouterr().err
