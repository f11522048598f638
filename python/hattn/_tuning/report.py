"""The page that `hattn tune --report` writes: charts as SVG within it, so that it needs no other file."""

from __future__ import annotations

import datetime
import html
import io
import math
import os
import pathlib
import re
from typing import Any, Callable, Dict, List, Tuple

import hattn

Result = Dict[str, Any]

COLOURS = {"naive": "#888888", "flash": "#1f77b4", "split_kv": "#d95f02", "unfused": "#1b9e77"}

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>hattn tune</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 75em; margin: 2em auto; padding: 0 1em; color: #222 }}
svg {{ max-width: 100%; height: auto }}
table {{ border-collapse: collapse }}
th, td {{ padding: .2em .8em; border-bottom: 1px solid #ddd; text-align: left }}
td.number {{ text-align: right }}
</style>
</head>
<body>
<h1>hattn tune</h1>
<p>{machine}</p>
{sections}
</body>
</html>
"""


def check_target(path: pathlib.Path) -> None:
    """Raises ValueError or OSError if write() could not write there, whatever it is given."""
    _pyplot()
    if path.is_dir():
        raise ValueError(f"--report: {path} is a folder, but must be a file")
    if not path.parent.is_dir():
        raise ValueError(f"--report: {path.parent} is no folder")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ValueError(f"--report: {path} cannot be written")


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise ValueError("--report: needs the package matplotlib: pip install matplotlib") from None
    matplotlib.use("svg")
    # Titles are text; and the same measurements make the same page.
    matplotlib.rcParams.update({"text.parse_math": False, "svg.hashsalt": "hattn"})
    from matplotlib import pyplot

    return pyplot


def _svg(pyplot: Any, figure: Any) -> str:
    """The figure as an element of a page."""
    file = io.StringIO()
    figure.savefig(file, format="svg", bbox_inches="tight", metadata={"Date": None})
    pyplot.close(figure)
    return re.sub(r"^.*?<svg", "<svg", file.getvalue(), flags=re.DOTALL)


def _timed(result: Result) -> List[Dict[str, Any]]:
    return [candidate for candidate in result["candidates"] if not candidate["refused"]]


def _seconds(result: Result, candidate: Dict[str, Any]) -> float:
    """Of the first shape with warm caches, by the ratio to the default in the same rounds, which is what was judged by:
    medians of rounds that some took part in and others did not are no times to compare."""
    usual = float(result["candidates"][0]["times"][0]["seconds"])
    return usual / float(candidate["speed"])


def _winner(result: Result) -> Dict[str, Any]:
    winner: Dict[str, Any] = result["candidates"][result["fastest"] if result["replaces_default"] else 0]
    return winner


def _rows_chart(pyplot: Any, results: List[Result], title: str) -> Tuple[Any, Any]:
    """A chart with a line per problem, the first one at the top."""
    figure, axes = pyplot.subplots(figsize=(10, 1 + 0.22 * len(results)))
    axes.set_yticks(range(len(results)), [result["title"] for result in results], fontsize=7)
    axes.set_ylim(len(results) - 0.5, -0.5)
    axes.set_xlabel(title)
    axes.grid(axis="x", alpha=0.3)
    return figure, axes


def _legend(pyplot: Any, figure: Any) -> None:
    marks = [pyplot.Line2D([], [], marker="o", linestyle="", color=colour) for colour in COLOURS.values()]
    figure.legend(marks, list(COLOURS), fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=len(COLOURS))


def candidates_chart(pyplot: Any, results: List[Result]) -> Any:
    """The time of every candidate over that of the fastest."""
    figure, axes = _rows_chart(pyplot, results, "time over that of the fastest candidate; a ring is the default")
    for line, result in enumerate(results):
        timed = _timed(result)
        best = min(_seconds(result, candidate) for candidate in timed)
        for candidate in timed:
            colour = COLOURS[candidate["choice"]["algorithm"]]
            is_default = candidate is result["candidates"][0]
            size, face = (50, "none") if is_default else (14, colour)
            axes.scatter(_seconds(result, candidate) / best, line, s=size, facecolors=face, edgecolors=colour)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    _legend(pyplot, figure)
    return figure


def gain_chart(pyplot: Any, results: List[Result]) -> Any:
    """The speed of what was chosen over that of the default."""
    figure, axes = _rows_chart(pyplot, results, "faster than the default, %; nothing: the default stays")
    gains = [100 * (result["entry"]["gain"] - 1) for result in results]
    axes.barh(range(len(results)), gains, color=COLOURS["flash"])
    axes.set_xlim(0, max(10, 1.1 * max(gains)))
    return figure


def limit_chart(pyplot: Any, results: List[Result], machine: Dict[str, Any]) -> Any:
    """What was chosen as a share of what the machine does at best, in arithmetic or in reading, whichever is nearer."""

    def read_speed(size: float) -> float:
        levels = machine["levels"]
        return float(next((level for level in levels if size <= level["bytes"]), levels[-1])["bytes_per_second"])

    figure, axes = _rows_chart(pyplot, results, "share of the machine's limit, % (blue: arithmetic, orange: reading)")
    for line, result in enumerate(results):
        if "device" in result["entry"]["class"]:
            continue  # whose limits nobody measured
        seconds, work = _seconds(result, _winner(result)), result["work"][0]
        arithmetic = work["flops"] / seconds / (machine["flops_per_second"] * result["threads"])
        reading = work["bytes"] / seconds / read_speed(work["bytes"])
        colour = COLOURS["flash"] if arithmetic > reading else COLOURS["split_kv"]
        axes.barh(line, 100 * max(arithmetic, reading), color=colour)
    return figure


def _kind(result: Result) -> Tuple[str, str, int, int, str]:
    """What the results of one map have in common."""
    entry = result["entry"]["class"]
    device = entry["device"]["name"] if "device" in entry else ""
    target = entry["target"] + (f" ({device})" if device else "")
    return target, entry["dtype"], entry["head"], entry["group"], ", ".join(entry["hooks"])


def _tick(axis: Any, sizes: List[int]) -> None:
    """Ticks at the sizes there are, of which a page has room for some ten, as numbers."""
    there = sorted(set(sizes))
    axis.set_ticks(there[:: math.ceil(len(there) / 10)])
    axis.set_ticks([], minor=True)
    axis.set_major_formatter("{x:.0f}")


def _maps(pyplot: Any, results: List[Result], draw: Callable[[Any, float, float, Result], None]) -> Any:
    """A map of rows and keys per target, type, head size, group and hooks."""
    kinds = sorted({_kind(result) for result in results})
    columns = min(2, len(kinds))
    lines = math.ceil(len(kinds) / columns)
    figure, grid = pyplot.subplots(lines, columns, figsize=(6 * columns, 4 * lines), squeeze=False)
    for axes, kind in zip(grid.flat, kinds):
        target, dtype, head, group, hooks = kind
        text = f"{target}, {dtype}, head size {head}, {group} query heads per kv head"
        axes.set_title(text + (f", {hooks}" if hooks else ""), fontsize=9)
        axes.set_xlabel("keys")
        axes.set_ylabel("rows")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        sizes = [result["entry"]["class"] for result in results if _kind(result) == kind]
        _tick(axes.xaxis, [size["keys"] for size in sizes])
        _tick(axes.yaxis, [size["rows"] for size in sizes])
        axes.margins(0.12)
        for result in results:
            if _kind(result) == kind:
                entry = result["entry"]["class"]
                draw(axes, entry["keys"], entry["rows"], result)
    for axes in list(grid.flat)[len(kinds) :]:
        axes.remove()
    figure.tight_layout()
    return figure


def crossover_chart(pyplot: Any, results: List[Result]) -> Any:
    """Which algorithm is fastest, over rows and keys; the default's where nothing beats it by more than the noise."""

    def draw(axes: Any, keys: float, rows: float, result: Result) -> None:
        axes.scatter(keys, rows, s=320, marker="s", color=COLOURS[_winner(result)["choice"]["algorithm"]])

    figure = _maps(pyplot, results, draw)
    _legend(pyplot, figure)
    return figure


def tile_chart(pyplot: Any, results: List[Result]) -> Any:
    """The chosen tile, rows x keys, and below it the keys per split."""

    def draw(axes: Any, keys: float, rows: float, result: Result) -> None:
        choice = _winner(result)["choice"]
        tile, split = choice["tile"], choice["split_keys"]
        text = f"{tile['rows']}x{tile['keys'] or 'all'}" + (f"\n/{split}" if split else "")
        axes.scatter(keys, rows, s=1, color="none")
        axes.annotate(text, (keys, rows), ha="center", va="center", fontsize=6, color=COLOURS[choice["algorithm"]])

    return _maps(pyplot, results, draw)


def _table(results: List[Result]) -> str:
    lines = ["<tr><th>problem</th><th>choice</th><th>time</th><th>gain</th><th>noise</th><th>candidates</th></tr>"]
    for result in results:
        winner = _winner(result)
        time = 1e6 * _seconds(result, winner)
        lines.append(
            f"<tr><td>{html.escape(result['title'])}</td><td>{html.escape(winner['plan'].split()[0])}</td>"
            f"<td class=number>{time:.1f} µs</td><td class=number>{result['entry']['gain']:.2f}</td>"
            f"<td class=number>{100 * (result['noise'] - 1):.1f} %</td>"
            f"<td class=number>{len(_timed(result))}</td></tr>"
        )
    return "<table>" + "\n".join(lines) + "</table>"


def write(path: pathlib.Path, results: List[Result], machine: Dict[str, Any]) -> None:
    """Writes the page.

    Args:
        results: what Tuner.tune() gave, with titles.
        machine: what Tuner.machine() gave.

    Raises:
        ValueError: there is nothing to report, or matplotlib is missing.
        OSError: the file cannot be written.
    """
    if not results:
        raise ValueError("--report: the database has no measurements to report; run hattn tune first")
    pyplot = _pyplot()
    results = sorted(results, key=lambda result: [str(_kind(result)), *_cell(result)])
    charts = {
        "Gain over the default": gain_chart(pyplot, results),
        "Time per candidate": candidates_chart(pyplot, results),
        "Fastest algorithm by rows and keys": crossover_chart(pyplot, results),
        "Chosen tile by rows and keys": tile_chart(pyplot, results),
        "Share of the machine's limit": limit_chart(pyplot, results, machine),
    }
    sections = [f"<h2>{html.escape(title)}</h2>\n{_svg(pyplot, figure)}" for title, figure in charts.items()]
    sections.append(f"<h2>All problems</h2>\n{_table(results)}")
    info = hattn.info()
    text = (
        f"{info['cpu']['model']}, {machine['threads']} threads, target {info['target']}, hattn {info['version']}, "
        f"{datetime.date.today()}. {1e-9 * machine['flops_per_second']:.0f} GFLOP/s per thread, "
        f"{1e-9 * machine['levels'][-1]['bytes_per_second']:.0f} GB/s from memory."
    )
    path.write_text(_PAGE.format(machine=html.escape(text), sections="\n".join(sections)), encoding="utf-8")


def _cell(result: Result) -> Tuple[int, int]:
    entry = result["entry"]["class"]
    return entry["rows"], entry["keys"]
