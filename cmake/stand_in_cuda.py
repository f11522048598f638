#!/usr/bin/env python3
"""Lets PyTorch's Linux wheel load without CUDA: ./dev bench --against torch calls its CPU kernels alone.

The wheel on the Python index links CUDA libraries, gigabytes of packages. This puts libraries of their names into
torch/lib, where the loader looks first. They are empty, but for one that all of them link, which defines every CUDA
function that PyTorch's libraries want: each returns 100, cudaErrorNoDevice. Needs gcc, nm and readelf.

    python cmake/stand_in_cuda.py
"""
import importlib.util
import re
import subprocess
import sys
import tempfile
from pathlib import Path

_STAND_IN = "libcuda_stand_in.so"
_LIBRARY = re.compile(r"lib(cu|nv|nccl)")
_FUNCTION = re.compile(r"_*(cu|nv|nccl)\w+")


def run(*command):
    return subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, text=True).stdout


def needed_by(library):
    """Names of the libraries that it links."""
    return re.findall(r"NEEDED.*\[(.+)\]", run("readelf", "-dW", library))


def undefined_in(library):
    """Names that it takes from other libraries, without versions."""
    return {line.split()[-1].split("@")[0] for line in run("nm", "-D", "--undefined-only", library).splitlines()}


def build(path, functions, *options):
    """A library of functions that return 100."""
    text = ".text\n" + "".join(f".globl {name}\n.p2align 4\n{name}: movl $100, %eax\nret\n" for name in functions)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "functions.s"
        source.write_text(text + '.section .note.GNU-stack,"",@progbits\n', encoding="ascii")
        run("gcc", "-shared", "-nostdlib", f"-Wl,-soname,{path.name}", source, "-o", path, *options)


def main():
    torch = importlib.util.find_spec("torch")
    if torch is None:
        sys.exit("stand_in_cuda: torch is not installed")
    folder = Path(torch.origin).parent / "lib"
    libraries = sorted(folder.glob("*.so*"))
    missing = {name for path in libraries for name in needed_by(path) if _LIBRARY.match(name)}
    missing = sorted(missing - {path.name for path in libraries})
    if not missing:
        return
    functions = {name for path in libraries for name in undefined_in(path) if _FUNCTION.fullmatch(name)}
    # Not in a library of a CUDA name: from that the loader wants symbols with versions.
    build(folder / _STAND_IN, sorted(functions))
    for name in missing:
        build(folder / name, [], "-Wl,--no-as-needed", f"-L{folder}", f"-l:{_STAND_IN}", "-Wl,-rpath,$ORIGIN")


if __name__ == "__main__":
    main()
