"""The wheel: its name, tag and contents, and that it works where it is unpacked. Its module is that of the release tree, since compiling
it once more takes a minute."""

import configparser
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("scikit_build_core")
pytest.importorskip("pip")

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build/release"
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
MODULE = BUILD / f"python/hattn/_hattn{SUFFIX}"

pytestmark = pytest.mark.skipif(not MODULE.exists(), reason="the release tree has no extension module for this Python")


def build(directory, module, options=None, **environment):
    """Runs pip; the wheel is then in the directory."""
    options = {"HATTN_KERNEL_DIR": BUILD / "kernels", "HATTN_PYTHON_MODULE": module, **(options or {})}
    defines = [f"--config-settings=cmake.define.{name}={value}" for name, value in options.items()]
    command = [sys.executable, "-m", "pip", "wheel", ROOT, "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    command += ["--wheel-dir", directory, f"--config-settings=build-dir={directory}/build", *defines]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    directory = tmp_path_factory.mktemp("wheel")
    done = build(directory, MODULE)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = directory.glob("*.whl")
    return path


def test_name_and_tag(wheel):
    header = (ROOT / "include/hattn/hattn.h").read_text()
    version = ".".join(re.search(rf"#define HATTN_VERSION_{part} (\d+)", header)[1] for part in ("MAJOR", "MINOR", "PATCH"))
    python = "cp{}{}".format(*sys.version_info[:2])
    platform = re.sub(r"[-.]", "_", sysconfig.get_platform())
    tag = f"{python}-{python}{getattr(sys, 'abiflags', '')}-{platform}"
    assert wheel.name == f"hattn-{version}-{tag}.whl"
    with zipfile.ZipFile(wheel) as archive:
        lines = archive.read(f"hattn-{version}.dist-info/WHEEL").decode().splitlines()
        entry_points = configparser.ConfigParser()
        entry_points.read_string(archive.read(f"hattn-{version}.dist-info/entry_points.txt").decode())
    assert [line for line in lines if line.startswith(("Tag", "Root"))] == ["Root-Is-Purelib: false", f"Tag: {tag}"]
    assert dict(entry_points["console_scripts"]) == {"hattn": "hattn.cli:main"}


def test_contents(wheel):
    sources = {str(path.relative_to(ROOT / "python")) for path in (ROOT / "python/hattn").rglob("*") if path.suffix != ".pyc" and path.is_file()}
    with zipfile.ZipFile(wheel) as archive:
        files = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert files == {*sources, f"hattn/{MODULE.name}"}


def test_works_where_it_is_unpacked(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    code = "import hattn, numpy; q = numpy.ones((1, 1, 2, 8), 'f'); print(hattn.__file__, hattn.attention(q, q, q).sum())"
    environment = {"PYTHONPATH": str(tmp_path), "HATTN_TUNING": "none"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(tmp_path / "hattn/__init__.py"), "16.0"]


def test_modules_of_other_interpreters_are_refused(tmp_path):
    """They would be in a wheel with the tag of this one."""
    other = tmp_path / "_hattn.cpython-39-aarch64-linux-gnu.so"
    other.write_bytes(b"")
    done = build(tmp_path, other)
    assert done.returncode != 0 and not list(tmp_path.glob("*.whl"))
    assert f"must be a file _hattn{SUFFIX}" in " ".join((done.stdout + done.stderr).split())


CROSS = {"CMAKE_TOOLCHAIN_FILE": ROOT / "cmake/toolchains/aarch64-linux-gnu.cmake", "HATTN_KERNEL_DIR": ROOT / "build/aarch64/kernels"}
ARM_SUFFIX = re.sub(r"-\w+-linux", "-aarch64-linux", SUFFIX)
needs_cross_build = pytest.mark.skipif(
    shutil.which("aarch64-linux-gnu-g++") is None
    or not (CROSS["HATTN_KERNEL_DIR"] / "kernels.txt").exists()
    or ARM_SUFFIX == SUFFIX,
    reason="there is no cross-build for ARM",
)


@needs_cross_build
def test_tag_of_a_cross_build(tmp_path):
    """Names alone: an empty file stands for the module, which headers of Python for ARM would be needed for."""
    module = tmp_path / f"_hattn{ARM_SUFFIX}"
    module.write_bytes(b"")
    names = {"SETUPTOOLS_EXT_SUFFIX": ARM_SUFFIX, "_PYTHON_HOST_PLATFORM": "linux-aarch64"}
    done = build(tmp_path, module, CROSS, **names)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = tmp_path.glob("*.whl")
    assert path.name.endswith("-linux_aarch64.whl")
    with zipfile.ZipFile(path) as archive:
        assert f"hattn/{module.name}" in archive.namelist()


@needs_cross_build
def test_a_cross_build_is_not_named_after_this_machine(tmp_path):
    done = build(tmp_path, tmp_path / f"_hattn{ARM_SUFFIX}", CROSS)
    assert done.returncode != 0 and not list(tmp_path.glob("*.whl"))
    assert "but this build is for aarch64" in " ".join((done.stdout + done.stderr).split())
