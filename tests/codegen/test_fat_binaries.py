"""Fat binaries of CUDA kernels: machine code for the GPUs that are asked for, and PTX for the others."""

import pathlib
import shutil
import struct
import subprocess

import pytest

import cuda_tools
from test_cuda_kernels import BUILT

SCRIPT = pathlib.Path(__file__).parents[2] / "cmake/HattnFatBinaries.cmake"
KERNEL = ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry kernel() { ret; }\n"
EARLY = ".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry kernel() { griddepcontrol.wait; ret; }\n"
ARCHITECTURES = (80, 90, 100, 120)
_PTX, _ELF = 1, 2
_MAGIC = 0xBA55ED50
IMAGES = [(_PTX, 80), (_PTX, 90), *((_ELF, architecture) for architecture in ARCHITECTURES)]


TOOLS = {**{name: cuda_tools.find(name) for name in ("ptxas", "fatbinary")}, **{name: shutil.which(name) for name in ("cmake", "c++")}}


def images(data):
    """(kind, architecture) of each image of a fat binary, as its headers have them."""
    magic, _, header_bytes, image_bytes = struct.unpack_from("<IHHQ", data)
    assert magic == _MAGIC and header_bytes + image_bytes <= len(data)
    found, at = [], header_bytes
    while at < header_bytes + image_bytes:
        kind, _, own_bytes, payload_bytes = struct.unpack_from("<HHIQ", data, at)
        found.append((kind, struct.unpack_from("<I", data, at + 28)[0]))
        at += own_bytes + payload_bytes
    return found


def assemble(directory, kernels, text=KERNEL, early=EARLY):
    """early: of each kernel for GPUs from 9.0 on."""
    for name in kernels:
        (directory / f"{name}.ptx").write_text(text)
        (directory / f"{name}.early.ptx").write_text(early)
    (directory / "objects.rsp").write_text("".join(f"{directory}/{name}.o\n" for name in kernels))
    options = {
        "DIRECTORY": directory,
        "ARCHITECTURES": ",".join(map(str, ARCHITECTURES)),
        "PTXAS": TOOLS["ptxas"],
        "FATBINARY": TOOLS["fatbinary"],
        "COMPILER": TOOLS["c++"],
    }
    arguments = [f"-D{name}={value}" for name, value in options.items()]
    return subprocess.run([TOOLS["cmake"], *arguments, "-P", SCRIPT], capture_output=True, text=True, check=False)


needs_toolkit = pytest.mark.skipif(None in TOOLS.values(), reason="there is no ptxas or no fatbinary")


@needs_toolkit
def test_images_of_a_fat_binary(tmp_path):
    done = assemble(tmp_path, ["one", "other"])
    assert done.returncode == 0, done.stderr
    for name in ("one", "other"):
        found = images((tmp_path / f"{name}.fatbin").read_bytes())
        assert sorted(found) == IMAGES
        if listing := cuda_tools.find("cuobjdump"):
            listed = subprocess.run(
                [listing, "--list-elf", tmp_path / f"{name}.fatbin"], capture_output=True, text=True
            )
            assert all(f"sm_{architecture}" in listed.stdout for architecture in ARCHITECTURES)
    symbols = subprocess.run(["nm", tmp_path / "fat.o"], capture_output=True, text=True, check=True).stdout
    assert [line.split()[-1] for line in symbols.splitlines()] == ["hattn_fat_one", "hattn_fat_other"]


@needs_toolkit
@pytest.mark.skipif(not BUILT, reason="the build has no CUDA kernels")
def test_tensor_cores_of_every_generation(tmp_path):
    """A kernel of the build as the build has it, products and copies included."""
    name = next(name for name in sorted(BUILT) if name.startswith("flash_") and name.endswith("float16"))
    ptx, early = (BUILT[name]["ptx"].with_suffix(suffix).read_text() for suffix in (".ptx", ".early.ptx"))
    assert all(text in ptx and text in early for text in ("mma.sync", "cp.async"))
    assert "griddepcontrol" not in ptx and "griddepcontrol.wait" in early
    done = assemble(tmp_path, [name], ptx, early)
    assert done.returncode == 0, done.stderr
    found = images((tmp_path / f"{name}.fatbin").read_bytes())
    assert sorted(found) == IMAGES


@needs_toolkit
def test_code_for_one_architecture_alone(tmp_path):
    """As of warpgroups: machine code for that one, if it is asked for, and no other."""
    of_one, early = (
        text.replace("sm_80", "sm_90a").replace("sm_90\n", "sm_90a\n").replace("7.0", "8.0").replace("7.8", "8.0")
        for text in (KERNEL, EARLY)
    )
    done = assemble(tmp_path, ["one"], of_one, early)
    assert done.returncode == 0, done.stderr
    assert sorted(images((tmp_path / "one.fatbin").read_bytes())) == [(_PTX, 90), (_ELF, 90)]


@needs_toolkit
@pytest.mark.parametrize("wrong", [{"text": KERNEL.replace("ret", "retreat")}, {"early": EARLY.replace("wait", "weight")}])
def test_ptx_that_is_wrong_fails_the_build(tmp_path, wrong):
    done = assemble(tmp_path, ["wrong"], **wrong)
    assert done.returncode != 0
    assert not (tmp_path / "fat.o").exists()


@needs_toolkit
def test_only_gpus_that_start_kernels_early_get_code_that_waits(tmp_path):
    done = assemble(tmp_path, ["one"])
    assert done.returncode == 0, done.stderr
    texts = {}
    for architecture in ARCHITECTURES:
        kernel = tmp_path / f"own_{architecture}"
        kernel.mkdir()
        for name, text in (("late", KERNEL), ("early", EARLY)):
            if name == "late" or architecture >= 90:
                (kernel / f"{name}.ptx").write_text(text)
                own = kernel / f"{name}.cubin"
                subprocess.run([TOOLS["ptxas"], f"-arch=sm_{architecture}", "-o", own, kernel / f"{name}.ptx"], check=True)
                texts[architecture, name] = own.read_bytes()
        built = (tmp_path / f"one.sm_{architecture}.cubin").read_bytes()
        assert built == texts[architecture, "early" if architecture >= 90 else "late"]
    assert texts[90, "early"] != texts[90, "late"]
