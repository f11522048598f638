"""Every source of the generators and the schedules includes what it uses.

Presets join sources, so that one may live on what another includes. Trees that include the project as a subdirectory do not; the runtime
is built so by tests/consumer, these by nothing else.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TREE = ROOT / "build/release"
FOLDERS = ("generators", "schedules")


def commands():
    """Flags of each source, which are those of the joined source that includes it."""
    flags_of = {}
    for entry in json.loads((TREE / "compile_commands.json").read_text()):
        if "/Unity/" not in entry["file"]:
            continue
        words = shlex.split(entry["command"])
        without = {words.index("-o"), words.index("-o") + 1, words.index("-c"), words.index("-c") + 1}
        flags = [word for i, word in enumerate(words) if i not in without]
        for source in re.findall(r'#include "(.*?\.cpp)"', pathlib.Path(entry["file"]).read_text()):
            path = pathlib.Path(source)
            if path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in FOLDERS:
                flags_of.setdefault(path, flags)
    return flags_of


@pytest.mark.skipif(not (TREE / "compile_commands.json").exists(), reason="there is no release tree")
def test_sources_compile_alone(tmp_path):
    flags_of = commands()
    if not flags_of:
        pytest.skip("the release tree does not join sources, so that each is compiled alone already")
    assert len(flags_of) > 100
    flags = next(iter(flags_of.values()))
    # Most of a source's time is Halide's header.
    precompiled = [*flags, "-x", "c++-header", "-include", "Halide.h", "/dev/null", "-o", tmp_path / "Halide.h.gch"]
    subprocess.run(precompiled, check=True, cwd=TREE)

    def errors(source):
        command = [flags_of[source][0], f"-I{tmp_path}", *flags_of[source][1:], "-fsyntax-only", source]
        done = subprocess.run(command, cwd=TREE, capture_output=True, text=True)
        lines = [line for line in done.stderr.splitlines() if "error" in line]
        return lines or [f"{source}: the compiler ended with {done.returncode}"] * (done.returncode != 0)

    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        found = [line for lines in pool.map(errors, sorted(flags_of)) for line in lines]
    assert not found, "\n".join(found)
