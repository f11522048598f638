"""What the machine code of CUDA kernels does for one chunk of keys, counted; written to cuda_sass.json by

    python tests/codegen/cuda_sass.py DIRECTORY...

from the directories of a build tree (build/release/device/cuda_* and .../tests/cpp/emulated_cuda/rest/cuda_*), after a change that is meant to change it.
"""

import collections
import functools
import hashlib
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import cuda_tools
import sass
from cuda_kernels import launches, ptx_of

GOLDEN = pathlib.Path(__file__).with_name("cuda_sass.json")
CAPABILITIES = ("sm_80", "sm_90")


def capabilities_of(name):
    """Those that a kernel is assembled for here: one of warpgroups is for one alone."""
    return ("sm_90a",) if "_warpgroups" in name else CAPABILITIES


def with_capabilities(names):
    """Of all of them, for parameters of tests."""
    return [(name, capability) for name in names for capability in capabilities_of(name)]


# All with a loop over chunks of keys.
RECORDED = re.compile(r"(?:flash|split_kv)_cuda_r")
_LOCAL = ("LDL", "STL")
_COUNTED = ("HMMA", "HGMMA", "FFMA", "MUFU", "LDSM", "LDS", "STS", "LDG", "LDGSTS", "STG", "BAR", *_LOCAL)
_BY_WIDTH = ("LDS", "STS", "LDG", "LDGSTS", "STG")


def assemble(ptx, capability, cubin):
    """What ptxas reports."""
    command = [cuda_tools.find("ptxas"), "-v", f"-arch={capability}", str(ptx), "-o", str(cubin)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stderr


def assembled(name, text, capability, folder):
    """The machine code of a kernel's PTX and what ptxas reported: seconds of work, which tests and their processes share in `folder`."""
    of_ptxas = cuda_tools.version(cuda_tools.find("ptxas"))
    key = hashlib.sha256(f"{of_ptxas} {text}".encode()).hexdigest() + "\n"
    cubin, report = (folder / f"{name}.{capability}.{kind}" for kind in ("cubin", "txt"))
    if not report.exists() or not report.read_text().startswith(key):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as directory:
            ptx, new_cubin, new_report = (pathlib.Path(directory, file) for file in ("ptx", "cubin", "txt"))
            ptx.write_text(text)
            new_report.write_text(key + assemble(ptx, capability, new_cubin))
            new_cubin.replace(cubin)
            new_report.replace(report)  # the last: who finds it finds both
    return cubin, report.read_text()[len(key) :]


def registers(report):
    return int(re.search(r"Used (\d+) registers", report).group(1))


def _kind(instruction):
    """Such as LDG.128 or HMMA: with the bits of an access where these differ."""
    if instruction.root not in _BY_WIDTH:
        return instruction.root
    width = next((part for part in instruction.name.split(".") if re.fullmatch(r"128|64|[US]?(?:16|8)", part)), "32")
    return f"{instruction.root}.{width.lstrip('US')}"


def _counts(code):
    count = collections.Counter(_kind(instruction) for instruction in code if instruction.root in _COUNTED)
    return {"instructions": len(code), **dict(sorted(count.items()))}


def chunk_loop(code, found):
    """The outermost loop that holds the kernel's products: all those of matrices, or most multiply-adds, or of those that are
    there for several types and layouts the one for float32 rows side by side."""
    roots = {instruction.root for instruction in code}
    root = next((of_matrices for of_matrices in ("HGMMA", "HMMA") if of_matrices in roots), "FFMA")

    def products(body):
        return sum(code[at].root == root for at in body)

    def wide_loads(body):
        return sum(_kind(code[at]) == "LDG.128" for at in body)

    loops = sass.outermost(found)
    if root == "FFMA" and sum(map(bool, map(wide_loads, loops))) > 1:
        # float32 is loaded in the most words, and without a look-up in the fewest instructions.
        return max(loops, key=lambda body: (wide_loads(body), -len(body)))
    body = max(loops, key=products)
    everywhere = products(range(len(code)))
    if products(body) < everywhere if root != "FFMA" else 2 * products(body) <= everywhere:
        raise ValueError(f"{products(body)} of {everywhere} {root} are in one loop")
    return body


def counts(cubin):
    """Of the loop over chunks: loops in it, and paths of which a chunk takes one, count once. "loops" are those of multiply-adds."""
    command = [cuda_tools.find("nvdisasm"), "--print-code", "--no-dataflow", str(cubin)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    code, labels = sass.entry(text)
    found = sass.loops(code, labels)
    body = chunk_loop(code, found)
    innermost = [inner for inner in found.values() if inner < body and not any(other < inner for other in found.values())]
    products = [_counts([code[at] for at in sorted(inner)]) for inner in sorted(innermost, key=min)]
    result = {"local": sum(instruction.root in _LOCAL for instruction in code), **_counts([code[at] for at in sorted(body)])}
    if products := [row for row in products if row.get("FFMA", 0) >= 8]:
        result["loops"] = products
    return result


def measured(cubin, report):
    return {"registers": registers(report), **counts(cubin)}


def measure(path, capability):
    """Of a file as ptx_of() takes it."""
    with tempfile.TemporaryDirectory() as directory:
        ptx, cubin = (pathlib.Path(directory, f"kernel.{kind}") for kind in ("ptx", "cubin"))
        ptx.write_text(ptx_of(path, capability))
        return measured(cubin, assemble(ptx, capability, cubin))


@functools.lru_cache(maxsize=None)
def golden():
    return json.loads(GOLDEN.read_text())


def main(directories):
    assembler = cuda_tools.version(cuda_tools.find("ptxas"))
    # A build may have some of the kernels only.
    kernels = {name: rows for name, rows in golden()["kernels"].items() if RECORDED.match(name)}
    for name, launch in sorted(launches(directories).items()):
        if RECORDED.match(name):
            kernels[name] = {capability: measure(launch["ptx"], capability) for capability in capabilities_of(name)}
    rows = ",\n".join(
        f'  "{name}": {{\n' + ",\n".join(f'    "{capability}": {json.dumps(row)}' for capability, row in of.items()) + "}"
        for name, of in sorted(kernels.items())
    )
    GOLDEN.write_text(f'{{"ptxas": "{assembler}", "kernels": {{\n{rows}\n}}}}\n')


if __name__ == "__main__":
    main(sys.argv[1:])
