"""Draws the chart of docs/performance.md from the figures of ./dev bench --against NAME --json FILE.

    python bench/plot.py FILE [--output docs/images/prefill]

writes OUTPUT.png and OUTPUT.svg: speed over sequence length, with the machine's FMA peak as a line.
"""
import argparse
import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
LABELS = {"hattn": "hattn", "onnxruntime": "ONNX Runtime"}
COLOURS = {"hattn": "#c2410c", "onnxruntime": "#1d4ed8"}
GREY = "#6b7280"


def draw(comparison):
    """A figure from what compare.compare() returned."""
    rows = comparison["rows"]
    lengths = [row["length"] for row in rows]
    figure, axes = plt.subplots(figsize=(7.2, 4.2), layout="constrained")
    peak = comparison["fma_peak"] / 1e9
    axes.axhline(peak, color=GREY, linestyle="--", linewidth=1.2)
    axes.annotate(f"FMA peak {peak:.0f}", (lengths[0], peak), xytext=(0, -13), textcoords="offset points", color=GREY)
    for name in ["hattn", *comparison["peers"]]:
        speeds = [row["results"][name]["flops"] / 1e9 for row in rows]
        version = comparison["peers"].get(name, comparison["hattn"])
        axes.plot(lengths, speeds, marker="o", color=COLOURS.get(name), label=f"{LABELS.get(name, name)} {version}")
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths, [str(length) for length in lengths])
    axes.set_ylim(0, peak * 1.08)
    axes.set_xlabel("sequence length")
    axes.set_ylabel("GFLOP/s over visible keys")
    axes.set_title(f"{comparison['shape']}\n{comparison['cpu']}, {comparison['threads']} threads", fontsize=10)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    return figure


def main(arguments=None):
    parser = argparse.ArgumentParser(description="Draw the figures of a comparison.")
    parser.add_argument("file", type=Path, metavar="FILE", help="JSON of ./dev bench --against NAME --json FILE")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "images" / "prefill",
                        help="without extension (default: docs/images/prefill)")
    options = parser.parse_args(arguments)
    try:
        comparison = json.loads(options.file.read_text(encoding="utf-8"))
        if "rows" not in comparison:
            raise ValueError("holds no comparison; make it with --against")
        # The same figures give the same files.
        matplotlib.rcParams["svg.hashsalt"] = "hattn"
        figure = draw(comparison)
        options.output.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(options.output.with_suffix(".png"), dpi=150, metadata={"Software": None})
        figure.savefig(options.output.with_suffix(".svg"), metadata={"Date": None})
    except (OSError, ValueError) as error:
        print(f"plot: error: {options.file}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
