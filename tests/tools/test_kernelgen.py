"""hattn-kernelgen's candidates and packs: what it lists, and what it refuses to compile."""

import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
KERNELGEN = os.environ.get("HATTN_KERNELGEN", ROOT / "build/release/generators/hattn-kernelgen")
KINDS = ("naive", "flash", "split_kv", "unfused_scores", "unfused_values")


def run(*arguments, **environment):
    return subprocess.run([KERNELGEN, *arguments], capture_output=True, text=True, env={**os.environ, **environment})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("target", ["generic", "x86-avx2", "x86-avx512"])
def test_a_dozen_candidates(target, kind):
    names = run("candidates", target, kind).stdout.split()
    assert len(names) == len(set(names)) >= 12
    assert all(name.startswith(f"{kind}_{target.replace('-', '_')}_r") for name in names)


@pytest.mark.parametrize(
    "name, why",
    [
        ("flash_x86", "unknown kernel"),
        ("flash_x86_avx2", "at least 1"),
        ("flash_x86_avx2_r48k64v3u4d4_bogus", "unknown kernel"),
        ("flash_z80_r48k64v3u4d4", "unknown kernel"),
        ("flash_x86_avx2_r48k64v3u4d4_mask_bias", "unknown kernel"),
        ("stored_flash_x86_avx2_r48k64v3u4d6", "32 elements at a time, in whole blocks of value_unroll"),
        ("flash_x86_avx2_r48k64v0u4d4", "at least 1"),
        ("stored_flash_x86_avx2_r48k64v3u4d0", "at least 1"),
        ("flash_x86_avx2_r48k0v3u4d4", "keys must be"),
        ("naive_x86_avx2_r48k64v3u4d4", "keys must be 0"),
        ("flash_x86_avx2_r48k72v3u4d4", "whole granules of 16"),
        ("flash_x86_avx2_r48k64v3u3d4", "blocks of key_unroll"),
        ("flash_x86_avx2_r40k64v3u4d4", "whole blocks of row_vectors, 24"),
        ("split_kv_x86_avx2_r3k64v2u4d4", "whole blocks of row_vectors, 2"),
        ("split_kv_x86_avx512_r4k72v2u4d4", "with the head in lanes, vectors"),
        ("split_kv_x86_avx512_r2k16v2u4d2", "more than one granule of 16"),
        ("unfused_scores_x86_avx2_r64k64v4u2d1", "work in pairs"),
        ("scores_x86_avx2_r64k64v4u2d1", "no choice of tiles"),
        ("memory_split_kv_x86_avx512_r32k64v2u8d8", "none of such tiles"),
        ("memory_split_kv_x86_avx2_r2k32v2u2d4", "none of such tiles"),
        ("memory_split_kv_x86_avx512_r4k128v4u4d2", "in place of one of the library's"),
        ("memory_split_kv_generic_r4k64v1u1d1", "none of such tiles"),
        ("ahead_split_kv_x86_avx512_r2k512v2u4d8", "none of such tiles"),
        ("ahead_split_kv_x86_avx512_r4k128v4u4d2", "in place of one of the library's"),
    ],
)
def test_kernels_that_cannot_be(name, why, tmp_path):
    result = run("pack", tmp_path / "pack.so", name)
    assert result.returncode == 1
    assert name in result.stderr and why in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words, why",
    [
        (["list", "opencl"], "list: takes 0 arguments, but got 1: 'opencl'"),
        (["emit", "merge_generic"], "emit: takes 2 arguments, but got 1: 'merge_generic'"),
        (["pack"], "pack: takes at least 2 arguments, but got 0;"),
        (["lits"], "unknown command 'lits'"),
    ],
)
def test_command_lines_that_are_wrong(words, why):
    result = run(*words)
    assert result.returncode == 2 and result.stderr.count("\n") == 1
    assert why in result.stderr
    assert "usage:" in run().stderr
    assert "usage:" in run("--help").stdout and run("--help").returncode == 0


def test_devices_are_those_of_an_architecture():
    listed = {name: run("--architecture", name, "list").stdout.split() for name in ("x86-64", "aarch64")}
    of_devices = {name: [kernel for kernel in kernels if "_cuda_" in kernel or "_opencl_" in kernel] for name, kernels in listed.items()}
    assert of_devices["x86-64"] and listed["aarch64"] and not of_devices["aarch64"]


def test_no_kernel_and_one_kernel_twice(tmp_path):
    (tmp_path / "empty").write_text("\n")
    assert "no kernels" in run("pack", tmp_path / "pack.so", f"@{tmp_path}/empty").stderr
    assert "merge_generic" in run("pack", tmp_path / "pack.so", "merge_generic", "merge_generic").stderr
    assert "nowhere" in run("pack", tmp_path / "pack.so", "@nowhere").stderr
    assert not (tmp_path / "pack.so").exists()


def test_names_from_a_file(tmp_path):
    (tmp_path / "names").write_text("merge_generic\n")
    result = run("pack", tmp_path / "pack.so", f"@{tmp_path}/names")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "pack.so").read_bytes().endswith(b"hattnpck")


@pytest.mark.parametrize("variable", ["HATTN_AS", "HATTN_LD"])
def test_missing_tools(variable, tmp_path):
    result = run("pack", tmp_path / "pack.so", "merge_generic", **{variable: "/nowhere/tool"})
    assert result.returncode == 1
    assert "/nowhere/tool" in result.stderr and variable in result.stderr and "binutils" in result.stderr
    assert not list(tmp_path.iterdir())


def test_a_table_of_devices_has_what_launches_take(tmp_path):
    listed = run("list").stdout.split()
    names = [name for name in listed if name.split("_r")[0].endswith("_opencl")]
    folders = {name[: name.index("_opencl")] for name in names}
    for kind in folders:
        folder = tmp_path / f"opencl_{kind}"
        folder.mkdir()
        rows = [f"{name} 64 {1000 + names.index(name)}\n" for name in names if name.startswith(f"{kind}_opencl")]
        (folder / "launches.txt").write_text("".join(rows))
    table = tmp_path / "table.cpp"
    done = run("device-table", table, tmp_path, "opencl")
    assert done.returncode == 0, done.stderr
    text = table.read_text()
    for i, name in enumerate(names):
        (row,) = [line for line in text.splitlines() if f'{{"{name}"' in line]
        assert f", {1000 + i}, hattnkernel_{name}_argv" in row
    (tmp_path / "opencl_merge/launches.txt").unlink()
    done = run("device-table", table, tmp_path, "opencl")
    assert done.returncode != 0
    assert "has not been compiled: no launches.txt has it" in done.stderr
