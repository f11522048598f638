"""What documents say of the build is what the build has."""

import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
KERNELGEN = pathlib.Path(os.environ.get("HATTN_KERNELGEN", ROOT / "build/release/generators/hattn-kernelgen"))


def test_the_readme_has_every_cmake_option():
    files = ("cmake/HattnOptions.cmake", "examples/ring_attention/CMakeLists.txt")
    text = "".join((ROOT / name).read_text() for name in files)
    options = set(re.findall(r"^(?:option|set)\((\w+) .*?(?:CACHE|\)$)", text, re.MULTILINE)) - {"CMAKE_BUILD_TYPE"}
    options = {name for name in options if not name.startswith("HATTN_KNOWN_")}
    rows = re.findall(r"^\| (.*?) \|", (ROOT / "README.md").read_text(), re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"`((?:HATTN_|BUILD_)\w+)`", row)}
    assert options <= listed and len(options) > 12


def test_the_page_on_targets_has_every_member_of_a_row():
    source = (ROOT / "schedules/targets.h").read_text()
    body = re.sub(r"//.*", "", re.search(r"^struct TargetRow \{\n(.*?)^\};", source, re.DOTALL | re.MULTILINE)[1])
    declared = [re.sub(r"\s*=[^,;]*", "", text) for text in body.partition(" const std::string &")[0].split(";")]
    members = [part.split()[-1].lstrip("*") for text in declared if text.strip() for part in text.split(",")]
    table = re.search(r"^\| member .*?\n\n", (ROOT / "docs/add-a-target.md").read_text(), re.DOTALL | re.MULTILINE)[0]
    rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    listed = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(listed) == sorted(members) and len(members) > 30


@pytest.mark.skipif(not KERNELGEN.exists(), reason="hattn-kernelgen is not built")
def test_kernels_of_examples_are_there():
    listed = subprocess.run([KERNELGEN, "list"], check=True, capture_output=True, text=True).stdout.split()
    named = re.findall(r"\*(\w+_r\d\w+)'", (ROOT / "docs/testing.md").read_text())
    assert len(named) == 2 and set(named) <= set(listed)


def test_the_index_has_every_decision():
    folder = ROOT / "docs/decisions"
    titles = {path.name: re.match(r"# \d{4}: (.*)\n", path.read_text())[1] for path in folder.glob("0*.md")}
    rows = re.findall(r"^\| \[(\d{4})\]\((\S+)\) \| (.*?) \|", (folder / "README.md").read_text(), re.MULTILINE)
    assert len(rows) == len(titles) > 100
    for number, name, title in rows:
        assert name.startswith(number) and titles[name].lower() == title.lower()
