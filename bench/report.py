"""Figures for people: a table on the terminal, or Markdown for docs/performance.md."""

TITLES = {"hattn": "hattn", "onnxruntime": "ONNX Runtime", "torch": "PyTorch"}
_SPEEDS = {"flop": "GFLOP/s", "byte": "GB/s", "call": "calls/ms"}
_SETS = {
    "prefill": "Prefill: GFLOP/s over visible keys, and their share of the peak of multiply-adds",
    "decode": "Decode: GB/s of visible K and V, and their share of the speed at which as many bytes are read",
    "other": "Other",
}


def duration(seconds):
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


def _speed(row):
    scale = 1e3 if row["unit"] == "call" else 1e9
    return f"{row['speed'] / scale:.1f} {_SPEEDS[row['unit']]}"


_GOALS = {
    "share": "{:.0%}",
    "versus": "{:.2f}x peers",
    **{name: "{:.2f}x " + title for name, title in TITLES.items()},
    "beside": "relative time {:.2f}",
    "bound": "{:.2f} of the bound",
    "seconds": "{:.1e} s",
}


def _goal(row):
    parts = [_GOALS[name].format(row["goal"][name]) + ("" if met else " (missed)")
             for name, met in row["checks"].items()]
    if not parts:
        return "-"
    return ", ".join(parts) + (": met" if row["met"] else ": missed")


def _share(row):
    held = row["held_share"]
    return (f"{row['share']:.0%}" if row["share"] else "-") + (f" ({held:.0%})" if held else "")


def _cells(row, peers):
    cells = [row["title"], duration(row["seconds"]), _speed(row), _share(row)]
    for peer in peers:
        result = row["peers"].get(peer)
        cells.append(f"{result['versus']:.2f}x ({duration(result['seconds'])})" if result else "-")
    cells.append(f"{row['beside_ratio']:.2f} of {row['beside']}" if row["beside_ratio"] else "-")
    return cells + [_goal(row)]


def _header(figures):
    beside = [f"vs {TITLES[peer]} {version}" for peer, version in figures["peers"].items()]
    return ["case", "hattn", "speed", "of limit (of held)", *beside, "relative time", "goal"]


def _tables(figures):
    """(title, rows of cells) for each set that was run."""
    for name, title in _SETS.items():
        rows = [row for row in figures["rows"] if row["set"] == name]
        if rows:
            yield title, [_header(figures)] + [_cells(row, figures["peers"]) for row in rows]


def _limits(figures):
    peaks = {row["limit_name"]: row["limit"] for row in figures["rows"] if row["unit"] == "flop"}
    return [f"Peak of {name}: {peak / 1e9:.0f} GFLOP/s." for name, peak in peaks.items()]


def _notes(figures):
    lines = [f"{figures['shape']}; best of {figures['rounds']} rounds.", *_limits(figures)]
    if figures["peers"]:
        lines.append("vs: time of the peer / time of hattn, more than 1 where hattn is faster; in brackets the peer's "
                     "time at its best setting; - where it cannot compute the case.")
    if any(row["beside_ratio"] for row in figures["rows"]):
        lines.append("Relative time: over that of the case named.")
    if any(row["held_share"] for row in figures["rows"]):
        lines.append("The limit is the best half of a millisecond of the run; what was held, in brackets, is the most that the "
                     "machine gave for as long as the case's fastest run took.")
    if any(row["goal"]["bound"] for row in figures["rows"]):
        lines.append("The bound: the time of reading the keys, or of the multiply-adds at 85% of their peak if longer.")
    lines += [f"{name} was left out: {why}." for name, why in figures["skipped"].items()]
    return lines


def print_table(title, rows):
    """Rows of cells, of which the first is the header."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    print(f"\n{title}\n")
    for row in rows:
        _, *others = (cell.rjust(width) for cell, width in zip(row, widths))
        print("  ".join([row[0].ljust(widths[0]), *others]).rstrip())


def markdown_table(title, rows):
    """The same as text."""
    header, *others = rows
    lines = ["| " + " | ".join(row) + " |" for row in (header, ["---"] * len(header), *others)]
    return title + ".\n\n" + "\n".join(lines)


def print_tables(figures):
    for line in _notes(figures):
        print(line)
    for title, rows in _tables(figures):
        print_table(title, rows)
    print()
    for row in figures["rows"]:
        settings = "".join(f"; {TITLES[peer]}: {result['variant']}" for peer, result in row["peers"].items())
        print(f"{row['name']}: {row['kernel']}, threads: {row['threads']}{settings}")


def markdown(figures):
    """The tables as one text."""
    parts = [" ".join(_notes(figures))]
    parts += [markdown_table(title, rows) for title, rows in _tables(figures)]
    return "\n\n".join(parts) + "\n"
