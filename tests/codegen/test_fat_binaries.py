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
ARCHITECTURES = (80, 90, 100, 120)
_PTX, _ELF = 1, 2
_MAGIC = 0xBA55ED50


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


def assemble(directory, kernels, text=KERNEL):
    for name in kernels:
        (directory / f"{name}.ptx").write_text(text)
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
        assert sorted(found) == [(_PTX, 80), *((_ELF, architecture) for architecture in ARCHITECTURES)]
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
    ptx = BUILT[name]["ptx"].read_text()
    assert "mma.sync" in ptx and "cp.async" in ptx
    done = assemble(tmp_path, [name], ptx)
    assert done.returncode == 0, done.stderr
    found = images((tmp_path / f"{name}.fatbin").read_bytes())
    assert sorted(found) == [(_PTX, 80), *((_ELF, architecture) for architecture in ARCHITECTURES)]


@needs_toolkit
def test_code_for_one_architecture_alone(tmp_path):
    """As of warpgroups: machine code for that one, if it is asked for, and no other."""
    done = assemble(tmp_path, ["one"], KERNEL.replace("sm_80", "sm_90a").replace(".version 7.0", ".version 8.0"))
    assert done.returncode == 0, done.stderr
    assert sorted(images((tmp_path / "one.fatbin").read_bytes())) == [(_PTX, 90), (_ELF, 90)]


@needs_toolkit
def test_ptx_that_is_wrong_fails_the_build(tmp_path):
    done = assemble(tmp_path, ["wrong"], KERNEL.replace("ret", "retreat"))
    assert done.returncode != 0
    assert not (tmp_path / "fat.o").exists()
