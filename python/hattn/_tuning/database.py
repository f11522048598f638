"""The file that `hattn tune` writes and every later process reads. Its schema is in docs/tuning.md."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import itertools
import json
import os
import pathlib
import tempfile
import warnings
from typing import Any, Dict, Iterable, Iterator, List

import hattn
from hattn import _hattn

VERSION = 1

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


def class_text(problem_class: Dict[str, Any]) -> str:
    """A text that two classes share exactly if they are the same to the library."""
    known = dict(problem_class)
    # OpenCL calls a CPU's memory what the machine has at the moment; see is_same_device() in runtime/tuning.cpp.
    if known["target"] == "opencl" and "device" in known:
        known["device"] = {name: value for name, value in known["device"].items() if name != "memory_bytes"}
    return json.dumps(known, sort_keys=True)


def class_key(entry: Entry) -> str:
    """A text that two entries share exactly if they are of one class."""
    return class_text(entry["class"])


def _document(entries: List[Entry], packs: List[str]) -> Dict[str, Any]:
    return {"format": "hattn-tuning", "version": VERSION, "stamp": stamp(), "packs": packs, "entries": entries}


def why_not_used(path: pathlib.Path) -> str:
    """Empty if the library takes the file or there is none, else why it ignores it.

    Raises:
        OSError: there is something that cannot be read.
    """
    # With its folder, so that it is no word that stands for something else.
    found: Dict[str, Any] = json.loads(_hattn.tuning_database(os.path.abspath(path)))
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
    why = why_not_used(path)
    if why:
        raise ValueError(f"--usual: {name} is ignored: {why}")


def _content(path: pathlib.Path) -> Dict[str, Any]:
    """Of a file that the library takes, if it is there.

    Raises:
        ValueError: it has a member that the library knows nothing of, and that Python does not read.
    """
    try:
        return {"packs": [], **json.loads(path.read_text(encoding="utf-8"))}
    except FileNotFoundError:
        return _document([], [])
    except RecursionError:
        raise ValueError(f"{path}: is nested too deeply; remove it") from None


def _read(path: pathlib.Path) -> Dict[str, Any]:
    """The file's content; one without entries if it is missing or the library ignores it."""
    return _document([], []) if why_not_used(path) else _content(path)


def read(path: pathlib.Path) -> List[Entry]:
    """The entries of the file; none if it is missing, damaged or of another machine."""
    entries: List[Entry] = _read(path)["entries"]
    return entries


def named_packs(path: pathlib.Path) -> List[pathlib.Path]:
    """The kernel packs that the file names and that are there."""
    found = (path.parent / name for name in _read(path)["packs"])
    return [pack for pack in found if pack.is_file()]


@contextlib.contextmanager
def locked(path: pathlib.Path) -> Iterator[None]:
    """Alone with the file, among processes that ask. The lock is a file of its own, for the other one is replaced."""
    with open(f"{path}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _text(document: Dict[str, Any]) -> str:
    """One entry a line, with nothing in between that would have to be read."""
    head = json.dumps({**document, "entries": []}).removesuffix("]}")
    entries = ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in document["entries"])
    return f"{head}\n{entries}\n]}}\n"


def _write(path: pathlib.Path, document: Dict[str, Any]) -> None:
    """Readers see the old file or the new one, whole, whatever happens."""
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False
    ) as file:
        try:
            file.write(_text(document))
            file.flush()
            os.fsync(file.fileno())
            os.chmod(file.name, 0o644)
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise


def _set_aside(path: pathlib.Path) -> pathlib.Path:
    """Renames a file that the library ignores, to a name that nothing has."""
    names = (pathlib.Path(f"{path}.ignored{number or ''}") for number in itertools.count())
    aside = next(name for name in names if not name.exists())
    os.replace(path, aside)
    return aside


def merge(path: pathlib.Path, entries: Iterable[Entry], packs: Iterable[str] = (), forget: bool = False) -> None:
    """Adds entries to the file, in place of those of the same classes. Concurrent callers lose nothing.

    Args:
        packs: of whose kernels entries may have the tiles: names in the file's folder, or paths.
        forget: whether all that the file has goes. Else one that the library ignores is renamed, with a warning.

    Raises:
        OSError: the file or its folder cannot be read or written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path):
        why = why_not_used(path)
        aside = _set_aside(path) if why and not forget else None
        before = _document([], []) if why or forget else _content(path)
        merged = {class_key(entry): entry for entry in before["entries"]}
        merged.update((class_key(entry), entry) for entry in entries)
        in_order = [merged[key] for key in sorted(merged)]
        _write(path, _document(in_order, sorted({*before["packs"], *packs})))
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
        before = _read(path)
        for entry in before["entries"]:
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
        _write(path, _document(kept, before["packs"]))
