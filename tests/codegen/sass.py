"""Machine code of GPUs as nvdisasm writes it: instructions, and the loops that they are in."""

import collections
import dataclasses
import re

_FUNCTION = re.compile(r"^\.text\.(?P<name>\S+):$")
_LABEL = re.compile(r"^(?P<name>\.L\S+):$")
# /*01f0*/  @!P3 BRA `(.L_x_0) ;
_INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]+\*/\s+(?:(?P<guard>@\S+)\s+)?(?P<name>[A-Z][\w.]*)\s*(?P<operands>[^;]*?)\s*;")
_TARGET = re.compile(r"`\((?P<label>\.L\w+)\)")
# After these a thread goes elsewhere, or nowhere. A call of a function comes back; one of a label is a jump, with which ptxas
# leaves loops for sm_80.
_BRANCHES = ("BRA", "JMP", "CALL")
_ENDS = ("EXIT", "RET")
# What nobody can follow without knowing registers.
_UNKNOWN = ("BRX", "JMX", "BRXU", "JMXU")


@dataclasses.dataclass(frozen=True)
class Instruction:
    name: str
    operands: str = ""
    guard: str = ""

    @property
    def root(self):
        return self.name.partition(".")[0]

    @property
    def target(self):
        match = _TARGET.search(self.operands) if self.root in _BRANCHES else None
        return match["label"] if match else None

    @property
    def falls_through(self):
        # "BRA !P1, `(.L_x_3)" has a condition of its own.
        leaves = self.root in _ENDS or (self.target and self.operands.startswith("`("))
        return bool(self.guard) or not leaves


def entry(text):
    """Instructions of the one kernel in a disassembly, and where labels are. Functions that it calls are not there."""
    functions = {}
    code, labels = [], {}
    for line in text.splitlines():
        if match := _FUNCTION.match(line):
            code, labels = functions[match["name"]] = [], {}
        elif match := _LABEL.match(line):
            labels[match["name"]] = len(code)
        elif match := _INSTRUCTION.match(line):
            code.append(Instruction(match["name"], match["operands"], match["guard"] or ""))
    if len(functions) != 1:
        raise ValueError(f"not one kernel but {sorted(functions)}")
    return code, labels


def _successors(code, labels):
    """Of each instruction, places in the code."""
    found = []
    for at, instruction in enumerate(code):
        if instruction.root in _UNKNOWN:
            raise ValueError(f"{instruction.name} goes nobody knows where")
        targets = [at + 1] if instruction.falls_through and at + 1 < len(code) else []
        if instruction.target:
            targets.append(labels[instruction.target])
        found.append([target for target in targets if target < len(code)])
    return found


def _in_post_order(successors):
    order, seen, stack = [], {0}, [(0, iter(successors[0]))]
    while stack:
        at, rest = stack[-1]
        if (after := next((s for s in rest if s not in seen), None)) is None:
            order.append(at)
            stack.pop()
        else:
            seen.add(after)
            stack.append((after, iter(successors[after])))
    return order


def _immediate_dominators(order, before):
    """Of what is reached, by the algorithm of Cooper, Harvey and Kennedy. `order`: post-order, which ends with the start."""
    rank = {at: n for n, at in enumerate(order)}
    start = order[-1]
    dominator = {start: start}

    def common(a, b):
        while a != b:
            while rank[a] < rank[b]:
                a = dominator[a]
            while rank[b] < rank[a]:
                b = dominator[b]
        return a

    is_changing = True
    while is_changing:
        is_changing = False
        for at in reversed(order[:-1]):
            known = [b for b in before[at] if b in dominator]
            new = known[0]
            for other in known[1:]:
                new = common(new, other)
            is_changing = is_changing or dominator.get(at) != new
            dominator[at] = new
    return dominator


def loops(code, labels):
    """Natural loops, as sets of places in the code, by the place where they start.

    Not the text between a label and the branch back to it: what runs seldom may be elsewhere.
    """
    successors = _successors(code, labels)
    order = _in_post_order(successors)
    before = collections.defaultdict(list)
    for at in order:
        for after in successors[at]:
            before[after].append(at)
    dominator = _immediate_dominators(order, before)

    def dominates(a, b):
        while b != a and dominator[b] != b:
            b = dominator[b]
        return a == b

    found, finished = {}, set()
    for at in order:
        finished.add(at)
        for head in successors[at]:
            # What is finished, and not the same place, is ahead.
            if (head == at or head not in finished) and dominates(head, at):
                body = found.setdefault(head, {head})
                work = [at]
                while work:
                    if (place := work.pop()) not in body:
                        body.add(place)
                        work.extend(before[place])
    return found


def outermost(found):
    return [body for head, body in found.items() if not any(head in other and body < other for other in found.values())]
