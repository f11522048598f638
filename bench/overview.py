#!/usr/bin/env python3
"""The table that docs/performance.md begins with, out of those of each machine: shares of the limit, and speed relative to peers.

    python bench/overview.py docs/performance.md            # prints it
    python bench/overview.py --update docs/performance.md   # puts it where it stands
"""
import argparse
import re
import sys
from pathlib import Path

BEGIN, END = "<!-- overview: bench/overview.py -->", "<!-- end of the overview -->"
# The sections of each machine's figures.
MACHINES = {
    "Zen 3 (AVX2)": ("Prefill", "Decode and serving"),
    "Xeon with AMX": ("With AVX-512 and AMX",),
    "Xeon 6": ("With AVX-512 and AMX on a Xeon 6",),
    "Xeon without AMX": ("With AVX-512 on a Xeon without AMX",),
    "Zen 4": ("With AVX-512 on Zen 4",),
    "Zen 5": ("With AVX-512 on Zen 5",),
}
CASES = (
    "S = 512",
    "S = 2048",
    "S = 8192",
    "B = 8, S = 256",
    "D = 64, S = 2048",
    "window 256, S = 4096",
    "bool mask [1, 1, S, S], S = 2048",
    "512 keys",
    "8192 keys",
    "32768 keys",
    "Hq = 64, 8192 keys",
    "8 rows, 8192 keys",
    "B = 64, 1 to 8192 keys",
)


def sections_of(text):
    """{title: text} of those of the second level."""
    parts = re.split(r"^## (.*)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2]))


def figures(section, case):
    """What the document says of a case: share of the limit, ratios to ONNX Runtime and PyTorch."""
    row = re.search(rf"^\| {re.escape(case)} \|(.*)\|$", section, re.MULTILINE)
    if not row:
        raise ValueError(f"no row of the case {case!r}")
    _, _, share, *ratios = (cell.strip().split(" (")[0].removesuffix("x") for cell in row[1].split("|")[:5])
    return f"{share}; " + ", ".join(ratios)


def overview(text):
    sections = sections_of(text)
    heads = [f"[{machine}](#{titles[0].lower().replace(' ', '-')})" for machine, titles in MACHINES.items()]
    lines = ["| case | " + " | ".join(heads) + " |", "|---" * (1 + len(MACHINES)) + "|"]
    for case in CASES:
        cells = []
        for machine, titles in MACHINES.items():
            if missing := [title for title in titles if title not in sections]:
                raise ValueError(f"{machine}: no section {missing[0]!r}")
            cells.append(figures("".join(sections[title] for title in titles), case))
        lines.append(f"| {case} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def parts_of(text):
    """What stands before the table, the table, and what follows it."""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ValueError(f"must have {BEGIN} and {END}, once each")
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    return text[:begin], text[begin:end].strip("\n"), text[end:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", help="write the table where it stands")
    parser.add_argument("document", type=Path)
    arguments = parser.parse_args()
    try:
        text = arguments.document.read_text()
        table = overview(text)
        if arguments.update:
            before, _, after = parts_of(text)
            arguments.document.write_text(f"{before}\n{table}\n{after}")
        else:
            print(table)
    except (OSError, ValueError) as error:
        sys.exit(f"overview.py: {arguments.document}: {error}")


if __name__ == "__main__":
    main()
