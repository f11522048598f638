"""Reading the assembly of kernels: innermost loops and what they do."""

import dataclasses
import re

_LABEL = re.compile(r"^(\.LBB\d+_\d+):")
_JUMP = re.compile(r"^\s+j\w+\s+(\.LBB\d+_\d+)")


@dataclasses.dataclass
class Loop:
    first_line: int
    instructions: list  # text, without labels and directives

    def count(self, pattern):
        return sum(1 for instruction in self.instructions if re.search(pattern, instruction))

    @property
    def fmas(self):
        return self.count(r"\bvfn?m(add|sub)\d+ps\b")

    @property
    def spills(self):
        """Accesses of a fixed stack slot. Small intermediates live on the stack too, but are indexed by a loop counter."""
        return self.count(r"\(%r[sb]p\)")

    def text(self):
        return f"loop at line {self.first_line}:\n" + "\n".join(self.instructions)


def innermost_loops(text):
    """Backward jumps whose bodies hold no other label."""
    lines = text.splitlines()
    labels = {match.group(1): number for number, line in enumerate(lines) if (match := _LABEL.match(line))}
    loops = []
    for number, line in enumerate(lines):
        match = _JUMP.match(line)
        start = labels.get(match.group(1)) if match else None
        if start is None or start > number:
            continue
        body = lines[start + 1 : number + 1]
        if not any(_LABEL.match(inner) for inner in body):
            loops.append(Loop(start + 1, [i.strip() for i in body if i.strip() and not i.lstrip().startswith((".", "#"))]))
    return loops
