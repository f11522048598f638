"""Tools of the CUDA Toolkit: those that ./dev installs from cmake/requirements, else the machine's. As a program: where one is."""

import pathlib
import re
import shutil
import subprocess
import sys


def find(name):
    """Its path, or None."""
    pinned = (pathlib.Path(directory, "nvidia/cu13/bin", name) for directory in sys.path)
    for path in pinned:
        if path.exists():
            return str(path)
    return shutil.which(name) or shutil.which(name, path="/usr/local/cuda/bin")


def version(tool):
    """Such as "13.0.88"."""
    text = subprocess.run([tool, "--version"], check=True, capture_output=True, text=True).stdout
    return re.search(r"\bV(\d+(?:\.\d+)+)", text).group(1)


if __name__ == "__main__":
    print(find(sys.argv[1]) or "", end="")
