"""Draws the charts of docs/performance.md from the figures of ./dev bench --against NAME,... --json FILE.

    python bench/plot.py FILE [--output docs/images]

writes prefill.png, prefill.svg, decode.png and decode.svg there: for each case the share of the machine's limit that
everybody reaches, and the share that is the goal.
"""
import argparse
import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

from report import TITLES  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
COLOURS = {"hattn": "#c2410c", "onnxruntime": "#1d4ed8", "torch": "#6d28d9"}
GREY = "#6b7280"
LIMITS = {"prefill": "share of the peak of multiply-adds", "decode": "share of the read bandwidth at as many bytes"}
_GROUP = 0.8  # height of a case's bars, where cases are 1 apart


def share_of(row, name):
    """Of the limit; 0 where the peer cannot compute the case."""
    if name == "hattn":
        return row["share"]
    return row["share"] / row["peers"][name]["versus"] if name in row["peers"] else 0


def draw(figures, set_name):
    """A figure, or None if the run has no such cases."""
    rows = [row for row in figures["rows"] if row["set"] == set_name and row["share"]]
    if not rows:
        return None
    names = ["hattn", *figures["peers"]]
    height = _GROUP / len(names)
    figure, axes = plt.subplots(figsize=(7.5, 1.4 + 0.17 * len(names) * len(rows)), layout="constrained")
    for place, name in enumerate(names):
        version = figures["peers"].get(name, figures["hattn"])
        at = [index - _GROUP / 2 + (place + 0.5) * height for index in range(len(rows))]
        axes.barh(at, [share_of(row, name) for row in rows], height, color=COLOURS[name],
                  label=f"{TITLES[name]} {version}")
    goals = [(index, row["goal"]["share"]) for index, row in enumerate(rows) if row["goal"]["share"]]
    if goals:
        axes.vlines([share for _, share in goals], [index - _GROUP / 2 for index, _ in goals],
                    [index + _GROUP / 2 for index, _ in goals], color="black", linewidth=1.5, label="goal")
    axes.axvline(1, color=GREY, linestyle="--", linewidth=1)
    axes.set_yticks(range(len(rows)), [row["title"] for row in rows], fontsize=8)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(0, max(1.05, 1.05 * max(share_of(row, name) for row in rows for name in names)))
    axes.xaxis.set_major_formatter(matplotlib.ticker.PercentFormatter(1.0))
    axes.set_xlabel(LIMITS[set_name])
    axes.set_title(f"{figures['shape']}\n{figures['cpu']}, threads: {rows[0]['threads']}", fontsize=9)
    axes.grid(axis="x", alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(frameon=False, loc="outside lower center", ncols=len(names) + 1, fontsize=8)
    return figure


def save(figures, folder):
    """Charts of the sets that the run has; their paths without extension."""
    # The same figures give the same files.
    matplotlib.rcParams["svg.hashsalt"] = "hattn"
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for set_name in LIMITS:
        figure = draw(figures, set_name)
        if figure is not None:
            path = folder / set_name
            figure.savefig(path.with_suffix(".png"), dpi=150, metadata={"Software": None})
            figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
            plt.close(figure)
            written.append(path)
    return written


def main(arguments=None):
    parser = argparse.ArgumentParser(description="Draw the figures of a run of the benchmarks.")
    parser.add_argument("file", type=Path, metavar="FILE", help="JSON of ./dev bench --json FILE")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "images", metavar="DIR",
                        help="default: docs/images")
    options = parser.parse_args(arguments)
    try:
        figures = json.loads(options.file.read_text(encoding="utf-8"))
        if "rows" not in figures or not save(figures, options.output):
            raise ValueError("holds no figures of prefill or decode cases")
    except (OSError, ValueError) as error:
        print(f"plot: error: {options.file}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
