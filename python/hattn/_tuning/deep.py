"""`hattn tune --deep`: compiles kernels with other tiles, measures them beside the library's, and keeps the winners.

Kernels are compiled by hattn-kernelgen into packs, shared objects that the library loads (docs/tuning.md).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import re
import signal
import subprocess
import tempfile
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Set, Tuple

import hattn
from hattn._tuning.database import named_packs, pack_names, write_whole
from hattn._tuning.session import Result
from hattn._tuning.shapes import Problem, Shape

# Of unfused the library has the second kernel only for the tiles of its first ones.
KINDS = ("naive", "flash", "split_kv")

# Of devices, those that plans take by themselves.
DEVICE_KINDS = ("flash", "split_kv")

Kernel = Dict[str, Any]


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


def _name_of(device: str) -> str:
    """Without its number."""
    return device.partition(":")[0]


def _info_of(device: str) -> Dict[str, Any]:
    """What the library says of the CPU or a device."""
    info: Dict[str, Any] = hattn.info()
    if device == "cpu":
        return info
    row: Dict[str, Any] = next(row for row in info["devices"] if row["name"] == _name_of(device))
    return row


def _kernels(device: str) -> List[Kernel]:
    """All that there are for the CPU or a device."""
    kernels: List[Kernel] = _info_of(device)["kernels"]
    return kernels


def _has_warpgroups(device: str) -> bool:
    """Whether it runs kernels of these; of one that is not there, no."""
    found = _info_of(device)["found"]
    number = int(device.partition(":")[2] or 0)
    return number < len(found) and bool(found[number]["warpgroups"])


def _class_of(kernel: Kernel) -> Tuple[int, Optional[str]]:
    """Heads of which size a device's kernel holds, and what its tensor cores multiply."""
    return kernel["tile"]["head"], kernel["matrix_type"]


def _usual_class(kernels: List[Kernel], kind: str, shape: Shape) -> Optional[Tuple[int, Optional[str]]]:
    """That of the kernel that a plan takes by its rule (runtime/device/device_choice.cpp)."""
    head = max(shape["key_dim"], shape.get("value_dim", shape["key_dim"]))
    fitting = [
        _class_of(kernel)
        for kernel in kernels
        if kernel["algorithm"] == kind
        and kernel["matrix_type"] in (None, shape.get("dtype", "float32"))
        and kernel["tile"]["head"] >= head
    ]
    return min(fitting, key=lambda found: (found[1] is None, found[0]), default=None)


def _device_candidates(kernelgen: pathlib.Path, device: str, problems: List[Problem]) -> Iterator[str]:
    """Those for heads and types as the problems have them, and for this device."""
    kernels = _kernels(device)
    warpgroups = _has_warpgroups(device)
    for kind in DEVICE_KINDS:
        classes = {_usual_class(kernels, kind, shape) for problem in problems for shape in problem.shapes}
        for name in _run(kernelgen, "candidates", _name_of(device), kind).split():
            found = re.search(r"h(\d+)(?:_(b?float16))?(_warpgroups)?$", name)
            if found and (int(found[1]), found[2]) in classes and (warpgroups or not found[3]):
                yield name


def candidate_names(
    kernelgen: pathlib.Path, device: str = "cpu", problems: Optional[List[Problem]] = None
) -> List[str]:
    """Kernels without hooks that the library does not have: for this machine's target, or for a device and problems."""
    known = {kernel["name"] for kernel in _kernels(device) if kernel["pack"] is None}
    if device == "cpu":
        target = hattn.info()["target"]
        names = [name for kind in KINDS for name in _run(kernelgen, "candidates", target, kind).split()]
    else:
        names = list(_device_candidates(kernelgen, device, problems or []))
    return [name for name in names if name not in known]


Progress = Callable[[int], None]


def _no_progress(done: int) -> None:
    pass


def compile_pack(
    kernelgen: pathlib.Path, path: pathlib.Path, names: List[str], progress: Progress = _no_progress
) -> List[str]:
    """Writes a pack with the kernels; returns a line for each that does not compile, and is not in it.

    Args:
        progress: told from time to time how many are compiled.
    """
    done = 0
    # Where the generator has its files too, so that none stay whatever ends it.
    with tempfile.TemporaryDirectory(prefix="hattn-pack-") as folder:
        listed = pathlib.Path(folder, "names.txt")
        listed.write_text("\n".join(names))
        process = subprocess.Popen(
            [kernelgen, "try-pack", path, f"@{listed}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": folder},
            start_new_session=True,  # with the assembler and the linker that it runs
        )
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    output, errors = process.communicate(timeout=0.5)
                    break
                # At the end it takes its files away.
                done = max(done, min(len(list(pathlib.Path(folder).glob("*/*.o"))), len(names)))
                progress(done)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                pathlib.Path(f"{path}.part").unlink(missing_ok=True)
    if process.returncode != 0:
        why = "\n".join(text for text in (errors.strip(), output.strip()) if text)
        raise ValueError(f"--deep: {kernelgen.name} try-pack: {why or process.returncode}")
    return output.splitlines()


def _check_separable(pack: pathlib.Path) -> None:
    if ":" in str(pack):
        raise ValueError(f"{pack}: has a colon, which separates packs in $HATTN_PACKS; rename it, or its folder")


@contextlib.contextmanager
def loaded(*paths: pathlib.Path) -> Iterator[None]:
    """Contexts that are made meanwhile have the packs' kernels.

    Raises:
        ValueError: $HATTN_PACKS cannot name one of them.
    """
    before = os.environ.get("HATTN_PACKS")
    for path in paths:
        _check_separable(path)
    if paths:
        os.environ["HATTN_PACKS"] = ":".join([*([before] if before else []), *map(str, paths)])
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("HATTN_PACKS", None)
        else:
            os.environ["HATTN_PACKS"] = before


def _hook_sets(kind: str, kernels: List[Kernel]) -> Set[str]:
    """What the names of the library's kernels of a kind end with, by their hooks."""
    return {"".join(f"_{hook}" for hook in kernel["hooks"]) for kernel in kernels if kernel["algorithm"] == kind}


def chosen(results: List[Result], compiled: List[str]) -> Set[str]:
    """The names of compiled kernels that were chosen."""
    plans = [
        plan
        for result in results
        if result["replaces_default"]
        for plan in result["candidates"][result["fastest"]]["plan"].split()
    ]
    return {plan.split("/")[0] for plan in plans} & set(compiled)


def winners(results: List[Result], compiled: List[str], device: str = "cpu") -> List[str]:
    """The names of compiled kernels that were chosen, for every set of hooks that the library has kernels for."""
    kernels = [kernel for kernel in _kernels(device) if kernel["pack"] is None]
    return sorted(
        name + hooks
        for name in chosen(results, compiled)
        for kind in KINDS
        if name.startswith(f"{kind}_")
        for hooks in (_hook_sets(kind, kernels) if not name.endswith("_warpgroups") else {""})
    )


def _path_beside(database: pathlib.Path, content: bytes) -> pathlib.Path:
    """Where a pack belongs. A file that some process has loaded is never written to: other kernels, another name."""
    path = database.parent / f"{database.stem}-{hashlib.sha256(content).hexdigest()[:12]}.so"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _name_in(database: pathlib.Path, pack: pathlib.Path) -> str:
    """What a database calls a pack: by its name if it is beside the file, which a link's other name is not, or path."""
    is_beside = pack.parent.resolve() == database.parent.resolve()
    return pack.name if is_beside and not database.is_symlink() else str(pack.absolute())


def keep(kernelgen: pathlib.Path, database: pathlib.Path, names: List[str], progress: Progress = _no_progress) -> List[str]:
    """Compiles the winners, if any, into a pack beside the database; returns a list of its name, or an empty one.

    A name says what is in the file: one of other code has another name, and one that is there is that one.
    """
    if not names:
        return []
    with tempfile.TemporaryDirectory(prefix="hattn-deep-") as folder:
        pack = pathlib.Path(folder, "winners.so")
        compile_pack(kernelgen, pack, names, progress)
        return keep_file(pack, database)


def check_pack(pack: pathlib.Path) -> None:
    """Raises ValueError if the library cannot load it."""
    try:
        with loaded(pack):
            hattn.info()
    except (RuntimeError, ValueError) as error:
        # loaded() put it into the variable; what a user has there has been loaded before.
        raise ValueError(f"--kernels: {str(error).removeprefix('HATTN_PACKS: ')}") from error


def usable(packs: Iterable[pathlib.Path]) -> List[pathlib.Path]:
    """Those that the library can load.

    Raises:
        ValueError: $HATTN_PACKS cannot name one of them.
    """
    found = []
    for pack in packs:
        _check_separable(pack)
        with contextlib.suppress(ValueError):
            check_pack(pack)
            found.append(pack)
    return found


def lost_packs(database: pathlib.Path) -> List[str]:
    """The names of packs that a database needs and that the library cannot load."""
    found = usable(named_packs(database))
    return [name for name in pack_names(database) if database.parent / name not in found]


def _origins() -> Dict[str, str]:
    """The packs that kernels are of which the library does not have, by the kernels' names."""
    info = hattn.info()
    kernels = [*info["kernels"], *(kernel for device in info["devices"] for kernel in device["kernels"])]
    return {kernel["name"]: kernel["pack"] for kernel in kernels if kernel["pack"] is not None}


def packs_of(result: Result, database: pathlib.Path) -> List[str]:
    """The loaded packs whose kernels were chosen, as a database names them: by name if they are beside it."""
    origins = _origins() if result["replaces_default"] else {}
    return sorted({_name_in(database, pathlib.Path(origins[name])) for name in chosen([result], list(origins))})


def names_in(pack: pathlib.Path) -> List[str]:
    """The kernels of a pack that is loaded."""
    return [name for name, origin in _origins().items() if origin == str(pack)]


def keep_file(pack: pathlib.Path, database: pathlib.Path) -> List[str]:
    """Copies a pack beside the database; returns a list of its name there."""
    content = pack.read_bytes()
    path = _path_beside(database, content)
    if not path.exists() or path.read_bytes() != content:  # which a full disk may have cut short
        write_whole(path, content, 0o644)
    return [_name_in(database, path)]
