#!/usr/bin/env python3
"""Unpacks the pinned Halide wheel into a directory: get_halide.py DIRECTORY.

The wheel is tagged for CPython 3.12, but only its C++ part is used, so any Python
from 3.9 on can fetch it. pip checks the hash in requirements/halide.txt. Does nothing if the directory already holds
that very wheel.
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

REQUIREMENTS = pathlib.Path(__file__).resolve().parent / "requirements" / "halide.txt"


def download(folder: pathlib.Path) -> pathlib.Path:
    """Returns the path of the wheel, which pip has checked against its hash."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary=:all:", "--python-version", "3.12", "--implementation", "cp", "--abi", "cp312"]
    command += ["--require-hashes", "--requirement", str(REQUIREMENTS), "--dest", str(folder)]
    subprocess.run(command, check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def unpack(wheel: pathlib.Path, folder: pathlib.Path) -> None:
    """Extracts the wheel's halide/ into the folder, whole: its CMake package insists on every file that it names."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if name.startswith("halide/")])


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    target = pathlib.Path(sys.argv[1]).resolve()
    stamp = target / "requirement.txt"
    wanted = REQUIREMENTS.read_text()
    if stamp.exists() and stamp.read_text() == wanted:
        return 0
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".halide-") as scratch:
        folder = pathlib.Path(scratch)
        unpack(download(folder), folder)
        (folder / "halide" / "requirement.txt").write_text(wanted)
        shutil.rmtree(target, ignore_errors=True)
        (folder / "halide").rename(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
