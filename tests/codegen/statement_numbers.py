"""What the numbers of a lowered statement are for given arguments: how often loops run, without running them."""

import re

LET = re.compile(r"^\s*let (\S+) = (.*)$", re.M)
LOOP = re.compile(r"^\s*for \((.*)\) \{$", re.M)
NAME = re.compile(r"[A-Za-z_][\w.$]*")


def identifier(name):
    return re.sub(r"[.$]", "_", name)


def arguments_of(text):
    parts, depth = [""], 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def without_inner_lets(text):
    """`let a = x in y`, whose names are unique, is y where a is known to be x: y, and pairs of names and texts."""
    lets = []
    while match := re.search(r"let (\S+) = ", text):
        depth, end = 0, match.end()
        while depth > 0 or not text.startswith(" in ", end):
            depth += (text[end] == "(") - (text[end] == ")")
            end += 1
        lets.append((match[1], text[match.end() : end]))
        text = text[: match.start()] + text[end + len(" in ") :]
    return text, lets


class Numbers:
    """Of names: arguments, lets, and 0 for the first pass of a loop."""

    def __init__(self, statement, arguments):
        self.known = {identifier(name): value for name, value in arguments.items()}
        self.known.update(max=max, min=min, select=lambda chosen, one, other: one if chosen else other)
        self.lets = {identifier(name): text for name, text in LET.findall(statement)}
        self.loops = [arguments_of(loop) for loop in LOOP.findall(statement)]
        for name, _, _ in self.loops:
            self.known.setdefault(identifier(name), 0)

    def __getitem__(self, name):
        if name not in self.known:
            self.known[name] = self.of(self.lets[name])
        return self.known[name]

    def of(self, text):
        text, lets = without_inner_lets(text)
        self.lets.update((identifier(name), of_name) for name, of_name in lets)
        text = NAME.sub(lambda match: identifier(match[0]), text)
        text = text.replace("&&", " and ").replace("||", " or ").replace("/", "//")
        return eval(re.sub(r"!(?!=)", " not ", text), {"__builtins__": {}}, self)  # noqa: S307, of our own generator's text

    def passes(self, pattern):
        """How often each loop whose name matches runs, within the first pass of those around it."""
        return [(name, self.of(extent)) for name, _, extent in self.loops if re.match(pattern, name)]
