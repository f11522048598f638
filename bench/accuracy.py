"""How far hattn and its peers are from float64, on the inputs of tests/python/accuracy_inputs.py.

    python bench/accuracy.py [--dtype bfloat16] [--against onnxruntime,torch] [--filter REGEX] [--build DIR]

prints a Markdown table: the largest and the mean absolute error, and the mean error relative to the mean magnitude of
the outputs, over sampled rows. Everybody gets the same inputs, which --dtype rounds first, and gives outputs of their
type; of a peer's ways to compute, its fused one.
"""
import argparse
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
SEED = 20


def case_of(problem):
    """The problem as peers know it."""
    _, query_heads, query_length, key_dim = problem.q.shape
    _, kv_heads, kv_length, value_dim = problem.v.shape
    return SimpleNamespace(
        work="arithmetic", batch=1, query_heads=query_heads, kv_heads=kv_heads, query_length=query_length,
        kv_length=kv_length, key_dim=key_dim, value_dim=value_dim, causal=True, window_left=-1, window_right=-1,
        softcap=problem.options.get("softcap", 0.0), has_sinks=False, smooth_softmax=False, has_alibi=False,
        kv_lengths=[], page_size=0)


def peer_output(peer, problem):
    """[Hq, Sq, D], or None where the peer cannot compute it."""
    from compare import peer_module

    # Peers may write to their arrays: caches are updated in place.
    arrays = {"q": problem.q, "k": problem.k.copy(), "v": problem.v.copy()}
    if peer == "onnxruntime" and problem.q.dtype.name == "bfloat16":
        return None
    variants = peer_module(peer).variants(case_of(problem), arrays, 1)
    if not variants:
        return None
    variants[0].run()
    return variants[0].result()[0]


def errors(out, expected):
    """The three columns as text."""
    if out is None:
        return "-"
    difference = np.abs(out - expected)
    relative = difference.mean() / np.abs(expected).mean()
    return f"{difference.max():.1e} / {difference.mean():.1e} / {relative:.1e}"


def chosen_inputs(pattern):
    import accuracy_inputs

    chosen = {title: make for title, make in accuracy_inputs.PROBLEMS.items() if re.search(pattern, title)}
    if not chosen:
        raise ValueError(f"--filter: \"{pattern}\" matches none of: {'; '.join(accuracy_inputs.PROBLEMS)}")
    return chosen


def table(peers, dtype, inputs):
    import accuracy_inputs
    import hattn
    import stored
    from report import TITLES

    names = ["hattn", *peers]
    lines = ["| inputs | " + " | ".join(TITLES[name] for name in names) + " |", "|---" * (len(names) + 1) + "|"]
    for title, make in inputs.items():
        problem = make(np.random.default_rng(SEED))
        problem = problem._replace(**{side: getattr(problem, side).astype(stored.FLOATS[dtype]) for side in "qkv"})
        rows = accuracy_inputs.sampled_rows(problem)
        expected = accuracy_inputs.reference(problem, rows).out
        outs = [hattn.attention(problem.q, problem.k, problem.v, **problem.options)[0]]
        outs += [peer_output(peer, problem) for peer in peers]
        cells = [errors(None if out is None else out[:, rows].astype(np.float64), expected) for out in outs]
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(arguments=None):
    parser = argparse.ArgumentParser(description="Errors against float64, as a Markdown table.")
    parser.add_argument("--dtype", default="float32", choices=["float32", "float16", "bfloat16"])
    parser.add_argument("--against", default="", metavar="NAME,...", help="onnxruntime, torch")
    parser.add_argument("--filter", default="", metavar="REGEX", help="only inputs in whose name it occurs")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release", metavar="DIR")
    options = parser.parse_args(arguments)
    sys.path[:0] = [str(options.build / "python"), str(ROOT / "tests" / "python")]
    try:
        inputs = chosen_inputs(options.filter)
    except (ValueError, re.error) as error:
        parser.error(str(error))
    print("largest error / mean error / mean error over mean magnitude of the outputs\n")
    print(table([name for name in options.against.split(",") if name], options.dtype, inputs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
