"""How far hattn and its peers are from float64, on the inputs of tests/python/accuracy_inputs.py.

    python bench/accuracy.py [--dtype bfloat16] [--against onnxruntime,torch] [--filter REGEX]
                             [--seeds N] [--build DIR]

prints a Markdown table: the largest and the mean absolute error, and the mean error relative to the mean magnitude of
the outputs, over sampled rows. Everybody gets the same inputs, which --dtype rounds first, and gives outputs of their
type; of a peer's ways to compute, its fused one. With --seeds the largest errors over those of each peer.
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


def outcomes(make, seed, peers, dtype):
    """(what hattn and its peers give, None where one cannot; what float64 gives): of sampled rows."""
    import accuracy_inputs
    import hattn
    import stored

    problem = make(np.random.default_rng(seed))
    problem = problem._replace(**{side: getattr(problem, side).astype(stored.FLOATS[dtype]) for side in "qkv"})
    rows = accuracy_inputs.sampled_rows(problem)
    outs = [hattn.attention(problem.q, problem.k, problem.v, **problem.options)[0]]
    outs += [peer_output(peer, problem) for peer in peers]
    sampled = [None if out is None else out[:, rows].astype(np.float64) for out in outs]
    return sampled, accuracy_inputs.reference(problem, rows).out


def table(titles, rows):
    return "\n".join("| " + " | ".join(row) + " |" for row in (titles, ["---"] * len(titles), *rows))


def error_table(peers, dtype, inputs):
    from report import TITLES

    rows = []
    for title, make in inputs.items():
        outs, expected = outcomes(make, SEED, peers, dtype)
        rows.append([title, *(errors(out, expected) for out in outs)])
    return table(["inputs", *(TITLES[name] for name in ["hattn", *peers])], rows)


def ratio(logarithms):
    """Of geometric means, from the logarithm of each seed's, as text: with its standard error, and how often it is over 1."""
    if not logarithms:
        return "-"
    mean, spread = np.mean(logarithms), np.std(logarithms) / np.sqrt(len(logarithms))
    worse = sum(value > 0 for value in logarithms)
    return f"{np.exp(mean):.2f} +- {np.exp(mean) * spread:.2f}, larger in {worse} of {len(logarithms)}"


def ratio_table(peers, dtype, inputs, seeds):
    from report import TITLES

    rows = []
    for title, make in inputs.items():
        found = [[] for _ in peers]
        for seed in range(SEED, SEED + seeds):
            (ours, *others), expected = outcomes(make, seed, peers, dtype)
            largest = np.abs(ours - expected).max()
            for values, other in zip(found, others):
                theirs = 0.0 if other is None else np.abs(other - expected).max()
                if largest > 0 and theirs > 0:
                    values.append(np.log(largest / theirs))
        rows.append([title, *map(ratio, found)])
    return table(["inputs", *(TITLES[name] for name in peers)], rows)


def main(arguments=None):
    from compare import PEERS
    from run import positive, some_of

    parser = argparse.ArgumentParser(description="Errors against float64, as a Markdown table.")
    parser.add_argument("--dtype", default="float32", choices=["float32", "float16", "bfloat16"])
    parser.add_argument("--against", type=some_of(PEERS), default=[], metavar="NAME,...", help=", ".join(PEERS))
    parser.add_argument("--seeds", type=positive, metavar="N", help="in place of errors their ratios to those of peers, over "
                        "so many seeds")
    parser.add_argument("--filter", default="", metavar="REGEX", help="only inputs in whose name it occurs")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release", metavar="DIR")
    options = parser.parse_args(arguments)
    sys.path[:0] = [str(options.build / "python"), str(ROOT / "tests" / "python")]
    try:
        inputs = chosen_inputs(options.filter)
    except (ValueError, re.error) as error:
        parser.error(str(error))
    peers = options.against
    if options.seeds:
        print(f"largest error over a peer's: geometric mean of {options.seeds} seeds, its standard error\n")
        print(ratio_table(peers, options.dtype, inputs, options.seeds))
    else:
        print("largest error / mean error / mean error over mean magnitude of the outputs\n")
        print(error_table(peers, options.dtype, inputs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
