"""Figures of a device for people: a table on the terminal, or Markdown."""
from report import TITLES, duration, markdown_table, print_table

_SETS = {
    "prefill": "Prefill: operations of both products over visible keys, and their share of the peak",
    "decode": "Decode: bytes of visible K and V, and their share of the speed of copies",
    "small": "Small",
}
_UNITS = {"share": "{:.0%}", "tflops": "{:g} TFLOP/s"}
_NAMES = {"copy": "Copies"}


def _speed(value, name):
    if value is None:
        return "-"
    return f"{value / 1e9:.4g} GB/s" if name == "copy" else f"{value / 1e12:.4g} TFLOP/s"


def _goal(row):
    parts = [_UNITS[goal["of"]].format(goal["least"]) + ": " + {True: "met", False: "missed", None: "-"}[goal["met"]]
             for goal in row["goals"]]
    return ", ".join(parts) or "-"


def _cells(row, peers):
    if row["wrong"]:
        return [row["title"], "wrong", *["-"] * (4 + len(peers))]
    cells = [row["title"], duration(row["seconds"]), f"{row['tflops']:.3g} TFLOP/s", f"{row['gbs']:.3g} GB/s",
             f"{row['share']:.0%}" if row["share"] is not None else "-"]
    for peer in peers:
        result = row["peers"].get(peer)
        cells.append(f"{result['versus']:.2f}x ({duration(result['seconds'])})" if result else "-")
    return cells + [_goal(row)]


def _tables(figures):
    """(title, rows of cells) for each set that was run."""
    header = ["case", "hattn", "operations", "K and V", "of limit",
              *(f"vs {TITLES[peer]}" for peer in figures["peers"]), "goal"]
    for name, title in _SETS.items():
        rows = [row for row in figures["rows"] if row["set"] == name]
        if rows:
            yield title, [header] + [_cells(row, figures["peers"]) for row in rows]


def _notes(figures):
    device = figures["device"]
    timed = next((row["timed_by"] for row in figures["rows"] if not row["wrong"]), "wall")
    versions = [f"{TITLES[peer]} {version}" for peer, version in figures["peers"].items()]
    yield (f"{device['asked']}: {device['name']}, capability {device['capability']}, {device['compute_units']} compute units, "
           f"{device['memory_bytes'] / 2**30:.0f} GiB; driver {device['driver']}; "
           + "; ".join([f"hattn {device['hattn']}", *versions]) + ".")
    yield (f"Causal, B1 Hq16 Hkv8 D128 unless said (small: Hq2 Hkv1 D64); best of {figures['rounds']} rounds, timed "
           + {"events": "by events in the queue.", "wall": "on the wall, from empty queue to empty queue."}[timed])
    for name, limit in figures["limits"].items():
        others = [f"{_speed(value, name)} by {how}" for how, value in limit["measured"].items() if how != limit["how"]]
        if limit["measured"] and limit["nominal"]:
            others.append(f"{_speed(limit['nominal'], name)} by clock and units")
        yield (f"{_NAMES.get(name, f'Peak of {name}')}: {_speed(limit['value'], name)}, {limit['how']}"
               + (f" ({'; '.join(others)})." if others else "."))
    if figures["peers"]:
        yield ("vs: time of the peer / time of hattn, more than 1 where hattn is faster; in brackets the peer's time at its best "
               "setting; - where it cannot compute the case.")


def _settings(figures):
    for row in figures["rows"]:
        if row["wrong"]:
            yield f"{row['name']}: WRONG: {row['wrong']}"
            continue
        matrices = f", tensor cores: {row['matrix_type']}" if row["matrix_type"] else ""
        yield (f"{row['name']}: {row['kernel']}{matrices}"
               + "".join(f"; {TITLES[peer]}: {result['variant']}" for peer, result in row["peers"].items()))
        for variant, why in row["left_out"].items():
            yield f"{row['name']}: {variant} was left out: {why}"


def print_tables(figures):
    for line in _notes(figures):
        print(line)
    for title, rows in _tables(figures):
        print_table(title, rows)
    print()
    for line in _settings(figures):
        print(line)


def markdown(figures):
    """The tables as one text."""
    parts = [" ".join(_notes(figures))]
    parts += [markdown_table(title, rows) for title, rows in _tables(figures)]
    return "\n\n".join([*parts, "\n".join(_settings(figures))]) + "\n"
