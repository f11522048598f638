"""What the PTX of CUDA kernels does, counted; written to cuda_kernels.json by

    python tests/codegen/cuda_kernels.py DIRECTORY...

from the directories of a build tree (build/release/device/cuda_* and .../tests/cpp/emulated_cuda/rest/cuda_*), after a change that
is meant to change it.
"""

import json
import pathlib
import re
import sys

GOLDEN = pathlib.Path(__file__).with_name("cuda_kernels.json")
_COUNTED = {
    "fma": r"fma\.rn\.f32",
    "shared_vector_loads": r"ld\.shared\.v4",
    "shared_loads": r"ld\.shared\.[bf]",
    "barriers": r"bar\.sync",
    "local": r"(ld|st)\.local",
}
_COUNTED_OF_MATRICES = {  # in kernels for tensor cores alone
    "matrix_products": r"mma\.sync",
    "warpgroup_products": r"wgmma\.mma_async",
    "matrix_loads": r"ldmatrix\.sync",
    "wide_loads": r"ld\.global\.nc\.v4\.b32",
    "narrow_loads": r"ld\.global\.nc\.b16",
    "copies": r"cp\.async\.cg",
    "waits": r"cp\.async\.wait_group",
    "proxy_fences": r"fence\.proxy\.async",
}
_OF_WARPGROUPS = ("warpgroup_products", "proxy_fences")  # not counted where there are none


def ptx_of(path, capability="sm_80"):
    """The PTX of a file, which ends with a null, behind newlines where it has become shorter; or of the one beside it that GPUs take
    which start kernels early (runtime/device/early_start.h)."""
    path = pathlib.Path(path)
    early = path.with_suffix(".early.ptx")
    starts_early = not capability.startswith("sm_8") and early.exists()
    return (early if starts_early else path).read_bytes().rstrip(b"\0\n").decode()


def counts(ptx):
    def count(patterns):
        return {name: len(re.findall(rf"^[ \t]*(?:@%\w+ )?{pattern}", ptx, re.MULTILINE)) for name, pattern in patterns.items()}

    of_matrices = count(_COUNTED_OF_MATRICES)
    if not of_matrices["warpgroup_products"]:
        of_matrices = {name: number for name, number in of_matrices.items() if name not in _OF_WARPGROUPS}
    multiplies = of_matrices["matrix_products"] or "warpgroup_products" in of_matrices
    return {**count(_COUNTED), **(of_matrices if multiplies else {})}


def launches(directories):
    """Per kernel the file of its PTX, threads of a work group, and bytes of shared memory."""
    rows = {}
    for directory in map(pathlib.Path, directories):
        for line in (directory / "launches.txt").read_text().splitlines():
            name, threads, shared = line.split()
            rows[name] = {"ptx": directory / f"{name}.ptx", "threads": int(threads), "shared_bytes": int(shared)}
    return rows


def main(directories):
    golden = json.loads(GOLDEN.read_text())  # a build may have some of the kernels only
    for name, launch in sorted(launches(directories).items()):
        path = launch.pop("ptx")
        golden[name] = {**launch, **counts(ptx_of(path))}
    lines = ",\n".join(f'  "{name}": {json.dumps(row)}' for name, row in sorted(golden.items()))
    GOLDEN.write_text("{\n" + lines + "\n}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
