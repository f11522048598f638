"""What documents say of the build is what the build has."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_the_readme_has_every_cmake_option():
    files = ("cmake/HattnOptions.cmake", "examples/ring_attention/CMakeLists.txt")
    text = "".join((ROOT / name).read_text() for name in files)
    options = set(re.findall(r"^(?:option|set)\((\w+) .*?(?:CACHE|\)$)", text, re.MULTILINE)) - {"CMAKE_BUILD_TYPE"}
    options = {name for name in options if not name.startswith("HATTN_KNOWN_")}
    rows = re.findall(r"^\| (.*?) \|", (ROOT / "README.md").read_text(), re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"`((?:HATTN_|BUILD_)\w+)`", row)}
    assert options <= listed and len(options) > 12
