"""Reading the assembly of kernels: innermost loops and what they do."""

import dataclasses
import re

_LABEL = re.compile(r"^(\.LBB\d+_\d+):")
# On x86 j..., on ARM b.ne and the like, cbnz x0, tbz w0, #3.
_JUMP = re.compile(r"^\s+(?:j\w+|b\.\w+|cbn?z\s+\w+,|tbn?z\s+\w+, #\d+,)\s+(\.LBB\d+_\d+)")


@dataclasses.dataclass(frozen=True)
class InstructionSet:
    """Patterns of instructions."""

    architecture: str  # as hattn-kernelgen --architecture takes it
    lanes: int
    fma: str
    whole_fma: str  # of a full vector
    arithmetic: str  # other than FMAs, on vectors
    gather: str  # on ARM, which has none: a lane at a time
    gathered: str  # once for each vector that is
    fetch: str  # ahead, into a cache
    kept: str  # the same, into all caches, as lines are that will be read more than once
    table_entry: str  # a 32-bit index that is loaded as a 64-bit one
    # A fixed stack slot. Small intermediates live on the stack too, but are indexed by a loop counter.
    stack: str
    vector_stack: str  # the same, of a vector
    spill: str  # a store there


def _avx(register, lanes):
    return InstructionSet(
        architecture="x86-64",
        lanes=lanes,
        fma=r"\bvfn?m(add|sub)\d+ps\b",
        whole_fma=rf"\bvfn?m(add|sub)\d+ps\b.*%{register}\d+",
        arithmetic=rf"\bv(mul|add|sub|div|max|min|cmp\w*|blendv)ps\b|\bvmov[au]ps\s+%{register}\d+, [^%]",
        gather=r"\bvp?gather",
        gathered=r"\bvp?gather",
        fetch=r"\bprefetch\w+\b",
        kept=r"\bprefetcht0\b",
        table_entry=r"\bmovslq\s.*\(",
        stack=r"\(%r[sb]p\)",
        vector_stack=r"\bv\w+.*\(%r[sb]p\)",
        spill=r"\bv\w+\s+%[yz]mm\d+, -?\w*\(%r[sb]p\)",
    )


INSTRUCTION_SETS = {
    "x86_avx2": _avx("ymm", 8),
    "x86_avx512": _avx("zmm", 16),
    "arm_neon": InstructionSet(
        architecture="aarch64",
        lanes=4,
        fma=r"\bfml[as]\b",
        whole_fma=r"\bfml[as]\s+v\d+\.4s",
        # Not compares: whether any row sees a key is asked once per key, on a vector whose other lanes are unused.
        arithmetic=r"\bf(mul|add|sub|div|max|min)\s+v|\b(bsl|bit|bif)\b|\bmov\s+v|\bstr\s+q",
        gather=r"\bld1\s+\{.*\}\[\d+\]",
        gathered=r"\bld1\s+\{v\d+\.[sh]\}\[3\]",
        fetch=r"\bprfm\b",
        kept=r"\bprfm\s+pldl1keep\b",
        table_entry=r"\bldrsw\b",
        stack=r"\[sp\b",
        vector_stack=r"\b(ldr|str|ldp|stp|ldur|stur)\s+q.*\[sp\b",
        spill=r"\b(str|stp|stur)\s+q.*\[sp\b",
    ),
}


@dataclasses.dataclass
class Loop:
    first_line: int
    instructions: list  # text, without labels and directives
    isa: InstructionSet

    def count(self, pattern):
        return sum(1 for instruction in self.instructions if re.search(pattern, instruction))

    @property
    def fmas(self):
        return self.count(self.isa.fma)

    @property
    def sums(self):
        """Registers that FMAs add to: their first operands on ARM, their last ones on x86-64."""
        operand = 0 if self.isa.architecture == "aarch64" else -1
        return len({text.split(None, 1)[1].split(",")[operand].strip() for text in self.instructions if re.search(self.isa.fma, text)})

    @property
    def is_register_block(self):
        """FMAs of full width on accumulators that stay in registers: the loop loads, multiplies and does nothing else with vectors."""
        # With those of the lines that it asks for, a loop may have more addresses than registers.
        stack = self.isa.vector_stack if self.count(self.isa.fetch) else self.isa.stack
        others = (self.isa.arithmetic, self.isa.gather, stack)
        return self.fmas > 0 and self.count(self.isa.whole_fma) == self.fmas and not any(map(self.count, others))

    def text(self):
        return f"loop at line {self.first_line}:\n" + "\n".join(self.instructions)


def gathers(text, isa, allowed=0):
    """The first loop with FMAs in which more vectors than are allowed are loaded a lane at a time, or None."""
    return next((loop for loop in innermost_loops(text, isa) if loop.fmas and loop.count(isa.gathered) > allowed), None)


def straight_runs(text, isa):
    """What lies between labels and jumps."""
    runs, start = [], 0
    lines = text.splitlines()
    for number, line in enumerate([*lines, ".LBB0_0:"]):
        if _LABEL.match(line) or _JUMP.match(line):
            body = [i.strip() for i in lines[start:number]]
            runs.append(Loop(start + 1, [i for i in body if i and not i.startswith((".", "#", "//"))], isa))
            start = number + 1
    return runs


def _all_loops(lines, isa):
    """Whatever lies between a label and a jump back to it."""
    labels = {match.group(1): number for number, line in enumerate(lines) if (match := _LABEL.match(line))}
    for number, line in enumerate(lines):
        match = _JUMP.match(line)
        start = labels.get(match.group(1)) if match else None
        if start is not None and start <= number:
            body = lines[start + 1 : number + 1]
            yield body, Loop(start + 1, [i.strip() for i in body if i.strip() and not i.lstrip().startswith((".", "#", "//"))], isa)


def innermost_loops(text, isa):
    """Backward jumps whose bodies hold no other label."""
    return [loop for body, loop in _all_loops(text.splitlines(), isa) if not any(map(_LABEL.match, body))]


def smallest_loop_around(text, isa, run):
    """Of those that a straight run lies in."""
    around = [(len(body), loop) for body, loop in _all_loops(text.splitlines(), isa) if loop.first_line <= run.first_line <= loop.first_line + len(body)]
    return min(around, key=lambda found: found[0])[1]
