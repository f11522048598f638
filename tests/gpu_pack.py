"""One file with all that ./dev gpu and `bench --device` need of a build tree, for a machine that cannot build.

It is laid out as the build tree is: test programs, the library of the benchmarks and the Python package; and, in home/, the
interpreter that its module is for, with NumPy and pytest. Programs are stripped, and nearly the same but for their tests: a
dictionary that holds all of them packs them to little more than one.
"""
import fnmatch
import lzma
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile

# What has to be built beside test programs.
TARGETS = ("hattn_device_bench", "_hattn")

_MARK = ".written-by-dev-gpu"
_DICTIONARY = 192 * 2**20  # bytes
_NOT_NEEDED = ("__pycache__", "config-*", "site-packages", "dist-packages", "test", "tests", "idlelib", "tkinter", "ensurepip",
               "lib2to3", "distutils", "turtledemo", "pydoc_data", "*.a", "*.pyi", "*.h", "*.js")
_PACKAGES = ("numpy", "numpy.libs", "tqdm", "py.py", "pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "ml_dtypes")


class PackError(Exception):
    """What cannot be packed or unpacked, and why."""


def home_of(build):
    """Where the packed interpreter is, if there is one."""
    return pathlib.Path(build) / "home"


def _copy(source, target, as_it_is=False):
    """A file, stripped if it is a program or a library. as_it_is: not even that, which libraries of wheels may not survive."""
    if not source.exists():
        raise PackError(f"{source}: not there; ./dev gpu --pack builds it")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)
    with open(source, "rb") as file:
        if not as_it_is and file.read(4) == b"\x7fELF":
            subprocess.run(["strip", "--strip-unneeded", target], check=True)


def _copy_tree(source, target, leave=(), as_it_is=False):
    for path in sorted(source.rglob("*")):
        parts = path.relative_to(source).parts
        if path.is_file() and not any(fnmatch.fnmatch(part, pattern) for part in parts for pattern in leave):
            _copy(path, target.joinpath(*parts), as_it_is)


def _copy_python(home):
    """The interpreter that runs this, without what it is installed for."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    library = home / "lib" / version
    _copy(pathlib.Path(sys.executable).resolve(), home / "bin" / "python3")
    shared = pathlib.Path(sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("INSTSONAME") or "")
    if shared.is_file() and ".so" in shared.name:
        _copy(shared, home / "lib" / shared.name)
    _copy_tree(pathlib.Path(sysconfig.get_path("stdlib")), library, _NOT_NEEDED)
    for package in _PACKAGES:
        source = pathlib.Path(sysconfig.get_path("purelib"), package)
        if source.is_file():
            _copy(source, library / "site-packages" / package)
        elif source.is_dir():
            _copy_tree(source, library / "site-packages" / package, ("__pycache__", "tests", "*.a", "*.pyi", "*.h", "f2py"), as_it_is=True)


def pack(build, programs, file):
    """Raises PackError."""
    if not shutil.which("strip"):
        raise PackError("strip: not found; it is in binutils")
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for program in programs:
            _copy(build / "tests" / "cpp" / program, root / "tests" / "cpp" / program)
        _copy(build / "bench" / "libhattn_device_bench.so", root / "bench" / "libhattn_device_bench.so")
        _copy_tree(build / "python" / "hattn", root / "python" / "hattn", ("__pycache__",))
        _copy_python(home_of(root))
        filters = [{"id": lzma.FILTER_LZMA2, "preset": 3, "dict_size": _DICTIONARY}]
        with lzma.open(file, "wb", filters=filters) as stream, tarfile.open(fileobj=stream, mode="w") as archive:
            for path in sorted(root.iterdir(), reverse=True):  # programs side by side
                archive.add(path, path.name)


def make_folder(option, folder):
    """Empties it, if it is one that this made before, or makes it. Raises PackError where it holds what is others'."""
    mark = folder / _MARK
    if folder.exists() and not mark.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise PackError(f"{option}: {folder} holds files that ./dev gpu has not written, and would be replaced: name another folder")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    mark.touch()


def unpack(file, folder):
    """Replaces the folder. Raises PackError."""
    try:
        with tarfile.open(file, "r:xz") as archive:
            make_folder("--unpacked", folder)
            archive.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    except (EOFError, lzma.LZMAError, tarfile.TarError) as error:
        raise PackError(f"{file}: is not what ./dev gpu --pack makes: {error}") from error
