"""The code of kernels as the build's objects hold it, in the form of a compiler's assembly: what assembly.py reads."""

import functools
import re
import shutil
import subprocess

_OBJDUMP = {"x86-64": "objdump", "aarch64": "aarch64-linux-gnu-objdump"}
_FUNCTION = re.compile(r"^[0-9a-f]+ <(?P<name>[^>]+)>:$")
_INSTRUCTION = re.compile(r"^ *(?P<address>[0-9a-f]+):\t(?P<text>.*?)\s*(?:(?://|#) .*)?$")
# "jne    2f8 <function+0x2f8>", "tbz\tw0, #3, 2f8 <function+0x2f8>". What calls carry there is where the next instruction starts.
_BRANCH = re.compile(r"^(?!call|bl\b)(?P<words>\S+\s.*?)(?P<address>[0-9a-f]+) <[^>]*>$")
_COMMA_BETWEEN_OPERANDS = re.compile(r",\s*(?![^(]*\))")


def can_disassemble(architecture):
    return shutil.which(_OBJDUMP[architecture]) is not None


def _assembly(lines):
    """Labels take the place of addresses."""
    code, labels = [], set()
    for line in lines:
        match = _INSTRUCTION.match(line)
        if not match:
            continue
        address, text = int(match["address"], 16), match["text"]
        if branch := _BRANCH.match(text):
            target = int(branch["address"], 16)
            labels.add(target)
            text = f"{branch['words']}.LBB0_{target}"
        code.append((address, _COMMA_BETWEEN_OPERANDS.sub(", ", text)))
    return "\n".join(f".LBB0_{address}:\n\t{text}" if address in labels else f"\t{text}" for address, text in code)


@functools.lru_cache(maxsize=None)
def functions(path, architecture):
    """The assembly of each function of an object file, by name."""
    command = [_OBJDUMP[architecture], "--disassemble", "--no-show-raw-insn", str(path)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines_of = {}
    lines = []
    for line in text.splitlines():
        if match := _FUNCTION.match(line):
            lines = lines_of.setdefault(match["name"], [])
        else:
            lines.append(line)
    return {name: _assembly(lines) for name, lines in lines_of.items()}
