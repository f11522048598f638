"""`hattn tune --deep`: compiles kernels with other tiles, measures them beside the library's, and keeps the winners.

Kernels are compiled by hattn-kernelgen into packs, shared objects that the library loads (docs/tuning.md).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import subprocess
import tempfile
from typing import Any, Dict, Iterator, List, Set

import hattn
from hattn._tuning.session import Result

# Of unfused the library has the second kernel only for the tiles of its first ones.
KINDS = ("naive", "flash", "split_kv")


def find_kernelgen() -> pathlib.Path:
    """$HATTN_KERNELGEN, or that of the build tree this package lies in.

    Raises:
        ValueError: there is neither.
    """
    given = os.environ.get("HATTN_KERNELGEN")
    build = pathlib.Path(hattn.__file__).resolve().parents[2]
    path = pathlib.Path(given) if given else build / "generators" / "hattn-kernelgen"
    if not path.is_file():
        raise ValueError(
            f"--deep: {path} does not exist; it needs hattn-kernelgen of a build tree (./dev tune), or $HATTN_KERNELGEN"
        )
    return path


def _run(kernelgen: pathlib.Path, *words: Any) -> str:
    process = subprocess.run([kernelgen, *map(str, words)], capture_output=True, text=True)
    if process.returncode != 0:
        raise ValueError(f"--deep: {kernelgen.name} {words[0]}: {process.stderr.strip() or process.returncode}")
    return process.stdout


def candidate_names(kernelgen: pathlib.Path) -> List[str]:
    """Kernels without hooks for this machine's target that the library does not have."""
    info = hattn.info()
    known = {kernel["name"] for kernel in info["kernels"] if kernel["pack"] is None}
    names = [name for kind in KINDS for name in _run(kernelgen, "candidates", info["target"], kind).split()]
    return [name for name in names if name not in known]


def compile_pack(kernelgen: pathlib.Path, path: pathlib.Path, names: List[str]) -> None:
    """Writes a pack with the kernels."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(names))
        file.flush()
        _run(kernelgen, "pack", path, f"@{file.name}")


@contextlib.contextmanager
def loaded(path: pathlib.Path) -> Iterator[None]:
    """Contexts that are made meanwhile have the pack's kernels."""
    before = os.environ.get("HATTN_PACKS")
    os.environ["HATTN_PACKS"] = f"{before}:{path}" if before else str(path)
    try:
        yield
    finally:
        if before is None:
            del os.environ["HATTN_PACKS"]
        else:
            os.environ["HATTN_PACKS"] = before


def _hook_sets(kind: str, kernels: List[Dict[str, Any]]) -> Set[str]:
    """What the names of the library's kernels of a kind end with, by their hooks."""
    return {"".join(f"_{hook}" for hook in kernel["hooks"]) for kernel in kernels if kernel["algorithm"] == kind}


def winners(results: List[Result], compiled: List[str]) -> List[str]:
    """The names of compiled kernels that were chosen, for every set of hooks that the library has kernels for."""
    chosen = set()
    for result in results:
        if result["replaces_default"]:
            plans = result["candidates"][result["fastest"]]["plan"].split()
            chosen |= {plan.split("/")[0] for plan in plans} & set(compiled)
    kernels = hattn.info()["kernels"]
    return sorted(
        name + hooks
        for name in chosen
        for kind in KINDS
        if name.startswith(f"{kind}_")
        for hooks in _hook_sets(kind, kernels)
    )


def keep(kernelgen: pathlib.Path, database: pathlib.Path, names: List[str]) -> List[str]:
    """Compiles the winners, if any, into a pack beside the database; returns a list of its name, or an empty one."""
    if not names:
        return []
    # A file that some process has loaded is never written to: other kernels, another name.
    digest = hashlib.sha256("\n".join([*names, hattn.__version__]).encode()).hexdigest()[:12]
    path = database.parent / f"{database.stem}-{digest}.so"
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        compile_pack(kernelgen, path, names)
    return [path.name]
