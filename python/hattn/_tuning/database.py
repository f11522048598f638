"""The file that `hattn tune` writes and every later process reads. Its schema is in docs/tuning.md."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import itertools
import json
import os
import pathlib
import stat
import tempfile
import warnings
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional

import hattn
from hattn import _hattn

VERSION = 1

_MOST_BYTES = 1 << 24  # that the library reads of a file (runtime/tuning_database.cpp)

Entry = Dict[str, Any]


def default_path() -> pathlib.Path:
    """The file that processes of this user read, as the library sees it."""
    path = hattn.info()["tuning_database"]["path"]
    if not path and os.environ.get("HATTN_TUNING"):
        raise ValueError("HATTN_TUNING: names no file; unset it, or give --output")
    if not path:
        raise ValueError("HOME: is not set, nor are XDG_CACHE_HOME and HATTN_TUNING; give --output")
    return pathlib.Path(path)


@functools.lru_cache(maxsize=None)
def stamp() -> Dict[str, Any]:
    """What tunings depend on: the library, its kernels and the machine."""
    current: Dict[str, Any] = hattn.info()["tuning_database"]["stamp"]
    return current


# Members of a class that the library reads (runtime/tuning_text.cpp).
_OF_CLASS = ("algorithm", "dtype", "head", "group", "hooks", "target", "rows", "keys", "threads", "device")


def class_text(problem_class: Dict[str, Any]) -> str:
    """A text that two classes share exactly if they are the same to the library."""
    known = {name: problem_class[name] for name in _OF_CLASS if name in problem_class}
    known["hooks"] = sorted(known["hooks"])
    # OpenCL calls a CPU's memory what the machine has at the moment; see is_same_device() in runtime/tuning.cpp.
    if known["target"] == "opencl" and "device" in known:
        known["device"] = {name: value for name, value in known["device"].items() if name != "memory_bytes"}
    return json.dumps(known, sort_keys=True)


def class_key(entry: Entry) -> str:
    """A text that two entries share exactly if they are of one class."""
    return class_text(entry["class"])


def _document(entries: List[Entry]) -> Dict[str, Any]:
    """The file's content. Entries say which packs they need where that does not go without saying, see _content()."""
    packs = _packs_of(entries)
    entries = [
        entry if packs and entry["choice"] else {name: value for name, value in entry.items() if name != "packs"}
        for entry in entries
    ]
    return {"format": "hattn-tuning", "version": VERSION, "stamp": stamp(), "packs": packs, "entries": entries}


def why_not_used(path: pathlib.Path) -> str:
    """Empty if the library takes the file or there is none, else why it ignores it.

    Raises:
        OSError: there is something that cannot be read.
    """
    # With its folder, so that it is no word that stands for something else.
    found: Dict[str, Any] = json.loads(_hattn.tuning_database(str(path.absolute())))
    if found["state"] == "unreadable":
        raise OSError(f"{path}: cannot be read: {found['why_ignored']}")
    return str(found["why_ignored"])


def check_usual(name: str) -> None:
    """Raises ValueError if `--usual` names neither tunings of the library nor a file that it takes."""
    path = pathlib.Path(name)
    if name in ("none", "rule"):
        return
    if not path.exists():
        raise ValueError(f"--usual: {name} does not exist")
    try:
        why = why_not_used(path)
    except OSError as error:
        raise ValueError(f"--usual: {error}") from None
    if why:
        raise ValueError(f"--usual: {name} cannot be used: {why}")


def _content(path: pathlib.Path) -> List[Entry]:
    """The entries of a file that the library takes, if it is there. Each has a member "packs": those that it needs.

    Raises:
        ValueError: it has a member that the library knows nothing of, and that Python does not read.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except RecursionError:
        raise ValueError(f"{path}: is nested too deeply; remove it") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}; remove it") from None
    entries: Dict[str, Entry] = {}
    for entry in document["entries"]:
        # An entry that does not say so may need all that there are.
        packs = entry.get("packs", document.get("packs", [])) if entry["choice"] else []
        if not isinstance(packs, list) or not all(isinstance(pack, str) for pack in packs):
            raise ValueError(f"{path}: an entry's packs is {json.dumps(packs)}, but must be a list of names; remove it")
        entries.setdefault(class_key(entry), {**entry, "packs": packs})  # of a class the library takes the first
    return list(entries.values())


def read(path: pathlib.Path) -> List[Entry]:
    """The entries of the file; none if it is missing, damaged or of another machine."""
    return [] if why_not_used(path) else _content(path)


def _packs_of(entries: Iterable[Entry]) -> List[str]:
    return sorted({pack for entry in entries for pack in entry["packs"]})


def is_file(path: pathlib.Path) -> bool:
    """Whether there is such a file, and its name is none that no file can have."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def pack_names(path: pathlib.Path) -> List[str]:
    """The kernel packs that the file's entries need: names in its folder, or paths."""
    return _packs_of(read(path))


def named_packs(path: pathlib.Path) -> List[pathlib.Path]:
    """Those of them that are there."""
    return [path.parent / name for name in pack_names(path) if is_file(path.parent / name)]


def check_named(path: pathlib.Path, option: str) -> None:
    """Raises ValueError if what a user named is a file that never was a database, which is not to be renamed, nor written
    over; or if its folder is not there, which may be misspelt.

    Args:
        option: what named the file, for messages.
    """
    folder = path.resolve().parent
    if not folder.is_dir():
        raise ValueError(f"{option}: {folder} is no folder")
    if not is_file(path):
        return
    with path.open("rb") as file:
        content = file.read(_MOST_BYTES)
    if content and b'"hattn-tuning"' not in content:
        raise ValueError(f"{option}: {path} is no tuning database; remove it, or name another file")


def check_target(path: pathlib.Path, results: pathlib.Path, option: str) -> None:
    """Raises ValueError if a database, or the measurements behind it, could not be written there.

    Args:
        option: what named the file, for messages.
    """
    for file in (path, results):
        if file.is_dir():
            raise ValueError(f"{option}: {file} is a folder, but must be a file")
    if results.exists() and not os.access(results, os.W_OK):
        raise ValueError(f"{option}: {results} cannot be written")
    target = path.resolve()
    lock = _lock_of(path)
    if lock.is_dir() or (lock.exists() and not os.access(lock, os.W_OK)):
        raise ValueError(f"{option}: {target} cannot be written: its lock, {lock}, is not a file that can be")
    folder = next(parent for parent in target.parents if parent.exists())  # the others are made
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(f"{option}: {target} cannot be written: {error.strerror}") from None


def _lock_of(path: pathlib.Path) -> pathlib.Path:
    return pathlib.Path(f"{path.resolve()}.lock")


@contextlib.contextmanager
def locked(path: pathlib.Path) -> Iterator[None]:
    """Alone with the file, among processes that ask. The lock is a file of its own, for the other one is replaced."""
    with open(_lock_of(path), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _text(document: Dict[str, Any]) -> str:
    """One entry a line, with nothing in between that would have to be read."""
    head = json.dumps({**document, "entries": []}).removesuffix("]}")
    entries = ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in document["entries"])
    return f"{head}\n{entries}\n]}}\n"


def write_whole(path: pathlib.Path, content: bytes, mode: int) -> None:
    """Readers see what was there before or all of it, whatever happens, and whoever else writes."""
    with tempfile.NamedTemporaryFile("wb", dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        try:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            os.chmod(file.name, mode)
            os.replace(file.name, path)
        except BaseException as error:
            pathlib.Path(file.name).unlink(missing_ok=True)
            if isinstance(error, OSError) and error.errno is not None and error.filename is None:
                error.filename = str(path)
            raise


def _write(path: pathlib.Path, entries: List[Entry]) -> None:
    """A link stays, and so does the file's mode."""
    path = path.resolve()
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o644
    write_whole(path, _text(_document(entries)).encode("utf-8"), mode)


def _set_aside(path: pathlib.Path) -> pathlib.Path:
    """Renames a file that the library ignores, to a name that nothing has. A link to it stays."""
    path = path.resolve()
    names = (pathlib.Path(f"{path}.ignored{number or ''}") for number in itertools.count())
    aside = next(name for name in names if not name.exists())
    os.replace(path, aside)
    return aside


def merge(
    path: pathlib.Path, entries: Iterable[Entry], forget: bool = False, then: Optional[Callable[[], None]] = None
) -> None:
    """Adds entries to the file, in place of those of the same classes. Concurrent callers lose nothing.

    Args:
        entries: may have a member "packs", of whose kernels they have the tiles: names in the file's folder, or paths.
        forget: whether all that the file has goes. Else one that the library ignores is renamed, with a warning.
        then: called at the end, still alone with the file.

    Raises:
        OSError: the file or its folder cannot be read or written.
    """
    path.resolve().parent.mkdir(parents=True, exist_ok=True)
    with locked(path):
        why = why_not_used(path)
        aside = _set_aside(path) if why and not forget else None
        before = [] if why or forget else _content(path)
        merged = {class_key(entry): {"packs": [], **entry} for entry in [*before, *entries]}
        _write(path, [merged[key] for key in sorted(merged)])
        if then is not None:
            then()
    if aside is not None:
        warnings.warn(f"{path}: was ignored: {why}; it is {aside} now", RuntimeWarning, stacklevel=2)


def _is_near(entry: Entry, other: Entry) -> bool:
    """Whether one decides about the class of the other where that is missing; as TuningGrid in runtime/tuning.h."""
    rows, keys = (float(entry["class"][name] / other["class"][name]) for name in ("rows", "keys"))
    return 1 / 2 <= rows <= 2 and 1 / 4 <= keys <= 4


def compact(path: pathlib.Path) -> None:
    """Removes entries without a choice, but for one per family and those that keep others from deciding."""
    families: Dict[str, List[Entry]] = {}
    with locked(path):
        for entry in read(path):
            family = {name: value for name, value in entry["class"].items() if name not in ("rows", "keys")}
            families.setdefault(json.dumps(family, sort_keys=True), []).append(entry)
        # Of any family, for another one may be the nearest where an entry is missing.
        of_float32 = [
            entry
            for entries in families.values()
            for entry in entries
            if entry["class"]["dtype"] == "float32" and entry["choice"] and entry["choice"]["algorithm"] != "naive"
        ]
        kept = []
        for entries in families.values():
            chosen = [entry for entry in entries if entry["choice"]]
            if entries[0]["class"]["dtype"] != "float32":
                chosen += of_float32
            needed = [entry for entry in entries if any(_is_near(entry, other) for other in chosen)]
            kept += needed or entries[:1]
        _write(path, kept)
