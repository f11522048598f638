"""The file that `hattn tune` writes and every later process reads. Its schema is in docs/tuning.md."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import pathlib
import tempfile
from typing import Any, Dict, Iterable, Iterator, List

import hattn

VERSION = 1

Entry = Dict[str, Any]


def default_path() -> pathlib.Path:
    """The file that processes of this user read, as the library sees it."""
    path = hattn.info()["tuning_database"]["path"]
    if not path:
        raise ValueError("HATTN_TUNING: names no file; unset it, or give --output")
    return pathlib.Path(path)


@functools.lru_cache(maxsize=None)
def stamp() -> Dict[str, Any]:
    """What tunings depend on: the library, its kernels and the machine."""
    current: Dict[str, Any] = hattn.info()["tuning_database"]["stamp"]
    return current


def class_key(entry: Entry) -> str:
    """A text that two entries share exactly if they are of one class."""
    return json.dumps(entry["class"], sort_keys=True)


def _document(entries: List[Entry], packs: List[str]) -> Dict[str, Any]:
    return {"format": "hattn-tuning", "version": VERSION, "stamp": stamp(), "packs": packs, "entries": entries}


def _read(path: pathlib.Path) -> Dict[str, Any]:
    """The file's content; one without entries if it is missing, damaged or of another machine."""
    try:
        document: Dict[str, Any] = json.loads(path.read_text())
        if (document["format"], document["version"], document["stamp"]) == ("hattn-tuning", VERSION, stamp()):
            for entry in document["entries"]:
                class_key(entry)
            return {"packs": [], **document}
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return _document([], [])


def read(path: pathlib.Path) -> List[Entry]:
    """The entries of the file; none if it is missing, damaged or of another machine."""
    entries: List[Entry] = _read(path)["entries"]
    return entries


@contextlib.contextmanager
def _locked(path: pathlib.Path) -> Iterator[None]:
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
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        try:
            file.write(_text(document))
            file.flush()
            os.fsync(file.fileno())
            os.chmod(file.name, 0o644)
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise


def merge(path: pathlib.Path, entries: Iterable[Entry], packs: Iterable[str] = ()) -> None:
    """Adds entries to the file, in place of those of the same classes. Concurrent callers lose nothing.

    Args:
        packs: names of kernel packs in the file's folder, of whose kernels entries may have the tiles.

    Raises:
        OSError: the file or its folder cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(path):
        before = _read(path)
        merged = {class_key(entry): entry for entry in before["entries"]}
        merged.update((class_key(entry), entry) for entry in entries)
        in_order = [merged[key] for key in sorted(merged)]
        _write(path, _document(in_order, sorted({*before["packs"], *packs})))


def _is_near(entry: Entry, other: Entry) -> bool:
    """Whether one decides about the class of the other where that is missing; as TuningGrid in runtime/tuning.h."""
    rows, keys = (float(entry["class"][name] / other["class"][name]) for name in ("rows", "keys"))
    return 1 / 2 <= rows <= 2 and 1 / 4 <= keys <= 4


def compact(path: pathlib.Path) -> None:
    """Removes entries without a choice, but for one per family and those that keep others from deciding."""
    families: Dict[str, List[Entry]] = {}
    with _locked(path):
        for entry in _read(path)["entries"]:
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
        _write(path, _document(kept, _read(path)["packs"]))


def clear(path: pathlib.Path) -> None:
    """Removes all entries."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(path):
        _write(path, _document([], []))
