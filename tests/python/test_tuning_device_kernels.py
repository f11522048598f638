"""`hattn tune --deep` and `--kernels` for devices: tiles that the library lacks, on OpenCL and on the emulated GPU."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hattn
from hattn import cli
from hattn._tuning import database, deep, session, shapes

SHAPE = {"query_heads": 4, "kv_heads": 2, "query_length": 1, "kv_length": 70, "key_dim": 32}
EMULATOR = Path(hattn.__file__).parents[2] / "tests/cpp/emulated_cuda/emulated_cuda"


def kernels_of(name):
    """What info() lists for a device; empty if the build has none for it."""
    return [kernel for row in hattn.info()["devices"] if row["name"] == name for kernel in row["kernels"]]


@pytest.fixture
def shapes_file(tmp_path):
    """The shape as --shapes takes it."""
    file = tmp_path / "shapes.json"
    file.write_text(json.dumps([SHAPE]))
    return file


def problems_on(device, *dtypes):
    """The shape on a device, in some types."""
    return shapes.on_device(shapes.with_dtypes([shapes.Problem([SHAPE])], dtypes or ("float32",)), device)


def arrays_of(rng):
    """q, k and v of the shape."""
    heads = (SHAPE["query_heads"], SHAPE["query_length"]), *[(SHAPE["kv_heads"], SHAPE["kv_length"])] * 2
    return [rng.standard_normal((1, *extents, SHAPE["key_dim"]), np.float32) for extents in heads]


@pytest.mark.parametrize("device", ["opencl", "cuda"])
def test_candidates_are_for_the_problems(kernelgen, device):
    """New tiles of both kinds, for heads and types as the rule takes them."""
    kernels = kernels_of(device)
    if not kernels:
        pytest.skip(f"the build has no kernels for {device}")
    names = deep.candidate_names(kernelgen, device, problems_on(device))
    assert {name.split(f"_{device}_")[0] for name in names} == {"flash", "split_kv"}
    assert all(name.endswith("h32") for name in names) and len(names) > 8
    assert not {kernel["name"] for kernel in kernels} & set(names)
    halves = deep.candidate_names(kernelgen, device, problems_on(device, "float16"))
    matrices = [name for name in halves if name.endswith("h64_float16")]
    assert bool(matrices) == (device == "cuda") and not any("bfloat16" in name for name in halves)
    assert deep.candidate_names(kernelgen, device, problems_on(device, "int8")) == names


@pytest.mark.parametrize("has_warpgroups", [False, True])
def test_candidates_of_warpgroups_are_for_gpus_that_have_them(kernelgen, monkeypatch, has_warpgroups):
    if not kernels_of("cuda"):
        pytest.skip("the build has no kernels for cuda")
    monkeypatch.setattr(deep, "_has_warpgroups", lambda _: has_warpgroups)
    names = deep.candidate_names(kernelgen, "cuda", problems_on("cuda", "float16"))
    found = [name for name in names if name.endswith("_warpgroups")]
    assert bool(found) == has_warpgroups and all(name.endswith("h64_float16_warpgroups") for name in found)
    results = [{"replaces_default": True, "fastest": 0, "candidates": [{"plan": f"{name}/x"}]} for name in found]
    assert deep.winners(results, found, "cuda") == sorted(found), "there are none with hooks"


def test_what_does_not_compile_is_left_out(kernelgen, tmp_path):
    """The reason is told, and the others are packed."""
    names = ["flash_cuda_r32k33s8t2h32", "flash_opencl_r8k48s8t2h32", "flash_cuda_r1k1s1"]
    lines = deep.compile_pack(kernelgen, tmp_path / "pack.so", names)
    assert [line.split(":")[0] for line in lines] == [f"left out {names[0]}", f"left out {names[2]}"]
    assert "whole granules of 16" in lines[0] and (tmp_path / "pack.so").exists()
    with pytest.raises(ValueError, match="no kernel is left"):
        deep.compile_pack(kernelgen, tmp_path / "none.so", names[:1])


def test_deep(kernelgen, opencl, path, shapes_file, rng, monkeypatch, capsys):
    """From candidates to a pack of winners, which a new process uses."""
    names = [name for name in deep.candidate_names(kernelgen, "opencl", problems_on("opencl")) if "split_kv" in name]
    monkeypatch.setattr(deep, "candidate_names", lambda *_: names[:1])

    def as_if_it_had_won(results, known):
        (result,) = results
        place = next(at for at, row in enumerate(result["candidates"]) if row["plan"].startswith(f"{names[0]}/"))
        assert result["candidates"][place]["refused"] == "" and result["candidates"][place]["times"]
        choice = result["candidates"][place]["choice"]
        result.update(fastest=place, replaces_default=True, entry={**result["entry"], "choice": choice, "gain": 1.3})
        return chosen(results, known)

    chosen = deep.chosen
    monkeypatch.setattr(deep, "chosen", as_if_it_had_won)
    command = ["tune", "--deep", "--device", "opencl", "--budget", "1s", "--shapes", shapes_file]
    assert cli.main([str(word) for word in command]) == 0
    printed = capsys.readouterr().out
    assert "compiling 1 kernel" in printed and re.search(r"compiling (\d+) kernels of winners", printed)[1] != "1"

    monkeypatch.setenv("HATTN_TUNING", f"{path.parent}/./{path.name}")  # as a process that starts now
    arrays = arrays_of(rng)
    plan = hattn.explain(*arrays, causal=True, device="opencl")
    (pack,) = path.parent.glob("tuning-*.so")
    in_pack = {kernel["name"] for kernel in kernels_of("opencl") if kernel["pack"] == plan["pack"]}
    assert names[0] in in_pack and f"{names[0]}_bias_alibi_mask" in in_pack
    assert (plan["kernel"], plan["decided_by"], Path(plan["pack"]).name) == (names[0], "machine", pack.name)
    on_device = hattn.attention(*arrays, causal=True, device="opencl")
    np.testing.assert_allclose(on_device, hattn.attention(*arrays, causal=True), rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(not EMULATOR.exists(), reason="the emulator has not been built")
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_kernels_of_a_pack_on_the_emulated_gpu(kernelgen, path, shapes_file, tmp_path, dtype):
    """As on a machine with a GPU and without the generator: all of them are verified and timed."""
    if not kernels_of("cuda"):
        pytest.skip("the build has no kernels for cuda")
    names = ["split_kv_cuda_r4k64s8t1h32", "flash_cuda_r32k32s8t2h32"]
    if dtype == "float16":
        names = ["flash_cuda_r64k32s4t2h64_float16"]
    deep.compile_pack(kernelgen, tmp_path / "pack.so", names)
    words = ["--device", "cuda", "--dtype", dtype, "--budget", "2s", "--shapes", shapes_file]
    command = [sys.executable, "-m", "hattn", "tune", *words, "--kernels", tmp_path / "pack.so"]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(EMULATOR)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (entry,) = database.read(path)
    assert entry["class"]["target"] == "cuda"
    (result,) = session.read_results(path)
    plans = {row["plan"].split("/")[0]: row for row in result["candidates"]}
    assert set(names) <= set(plans)
    assert all(row["refused"] == "" for row in plans.values())
    won = result["replaces_default"] and result["candidates"][result["fastest"]]["plan"].split("/")[0] in names
    kept = list(path.parent.glob("tuning-*.so"))
    assert len(kept) == bool(won)
    assert json.loads(path.read_text())["packs"] == [file.name for file in kept]


def test_a_pack_is_kept_once(tmp_path):
    """Under a name that its content gives."""
    pack, path = tmp_path / "elsewhere.so", tmp_path / "kept" / "tuning.json"
    pack.write_bytes(b"kernels")
    (name,) = deep.keep_file(pack, path)
    assert deep.keep_file(pack, path) == [name] and (path.parent / name).read_bytes() == b"kernels"
    assert [file.name for file in path.parent.iterdir()] == [name]
    (path.parent / name).write_bytes(b"ker")  # as a full disk may have left it
    assert deep.keep_file(pack, path) == [name] and (path.parent / name).read_bytes() == b"kernels"
    assert [file.name for file in path.parent.iterdir()] == [name]


def test_options_that_exclude_each_other(path, tmp_path, capsys):
    words = ["tune", "--deep", "--kernels", tmp_path / "pack.so"]
    assert cli.main([str(word) for word in words]) == 1
    assert "--deep, --kernels: exclude each other" in capsys.readouterr().err
    assert cli.main(["tune", "--kernels", str(tmp_path / "none.so")]) == 1
    error = capsys.readouterr().err
    assert "--kernels: kernel pack " in error and "none.so: No such file" in error and error.count("\n") == 1
    assert not path.exists()
