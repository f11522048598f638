"""hattn and its peers side by side: one process, the same inputs, turns in rounds, the best time of each."""
import time

import numpy as np
from contestants import HEAD_DIM, KV_HEADS, PEERS, QUERY_HEADS, Hattn, Inputs

LENGTHS = (512, 1024, 2048, 4096)
LIMIT = 1e-4  # allowed difference of any output from the float64 reference; outputs are of order 1

_TURN_SECONDS = 0.15  # how long one contestant runs at a time; one run at least


class Disagreement(Exception):
    """A contestant computed something else."""


def settle():
    """Waits until no thread of this process runs: a pool that spins after its turn would take a core from the next."""
    idle, longest = 0.02, 2.0
    for _ in range(int(longest / idle)):
        before = time.process_time()
        time.sleep(idle)
        if time.process_time() - before < 0.05 * idle:
            return
    raise RuntimeError("threads of this process keep running between turns")


def reference_error(inputs, result):
    """Largest difference of sampled rows from attention in float64."""
    length, group = inputs.length, QUERY_HEADS // KV_HEADS
    rows = sorted({0, 1, length // 3, length // 2, length - 2, length - 1})
    worst = 0.0
    for head in range(QUERY_HEADS):
        keys = inputs.k[0, :, head // group].astype(np.float64)
        values = inputs.v[0, :, head // group].astype(np.float64)
        for row in rows:
            scores = keys[: row + 1] @ inputs.q[0, row, head].astype(np.float64) / np.sqrt(HEAD_DIM)
            weights = np.exp(scores - scores.max())
            expected = weights @ values[: row + 1] / weights.sum()
            worst = np.maximum(worst, np.abs(result[row, head] - expected).max())  # keeps a NaN
    return float(worst)


def verify(inputs, contestants):
    """Runs everybody once; returns the largest error of each, and the largest difference from the first, hattn."""
    errors, results = [], []
    for contestant in contestants:
        contestant.prepare(inputs)
        contestant.run()
        results.append(contestant.result())
        errors.append(reference_error(inputs, results[-1]))
    difference = float(max(np.abs(results[0] - other).max() for other in results[1:]))
    for contestant, error in zip(contestants, errors):
        if not error <= LIMIT or not difference <= LIMIT:
            raise Disagreement(f"S = {inputs.length}: {contestant.name} ({contestant.variant}) is {error:.1e} from "
                               f"float64, and results differ by {difference:.1e}; allowed are {LIMIT:.0e}")
    return errors, difference


def take_turn(contestant):
    """The fastest of the runs that fit into a turn, in seconds."""
    best, begin = float("inf"), time.perf_counter()
    while True:
        start = time.perf_counter()
        contestant.run()
        end = time.perf_counter()
        best = min(best, end - start)
        if end - begin > _TURN_SECONDS:
            return best


def measure(contestants, limits, rounds):
    """Seconds of each contestant's fastest run.

    Turns alternate between hattn, the first, and one of the others, so that hattn has as many as all others together:
    where a peer's best setting is picked from several, hattn is not to have fewer chances of a quiet moment. Which of
    the two begins changes from round to round.
    """
    best = [float("inf")] * len(contestants)
    for turn in range(rounds):
        for peer in range(1, len(contestants)):
            for index in (0, peer) if turn % 2 == 0 else (peer, 0):
                settle()
                limits.measure()
                best[index] = min(best[index], take_turn(contestants[index]))
    return best


def compare_length(length, contestants, limits, rounds):
    """One row of the table, as a dict."""
    inputs = Inputs.of_length(length)
    errors, difference = verify(inputs, contestants)
    seconds = measure(contestants, limits, rounds)
    results = {}
    for contestant, error, time_taken in zip(contestants, errors, seconds):
        entry = results.setdefault(contestant.name, {"seconds": float("inf"), "variants": {}})
        entry["variants"][contestant.variant] = time_taken
        if time_taken < entry["seconds"]:
            entry.update(seconds=time_taken, flops=inputs.flops / time_taken, error=error, variant=contestant.variant)
    return {"length": length, "difference": difference, "results": results}


def compare(peers, threads, limits, rounds, progress):
    """The comparison as a dict that JSON can hold. peers: names of PEERS. progress(length) is called after each."""
    contestants = [Hattn(threads)]
    for peer in peers:
        contestants += PEERS[peer](threads)
    rows = []
    for length in LENGTHS:
        rows.append(compare_length(length, contestants, limits, rounds))
        progress(length)
    for row in rows:
        for entry in row["results"].values():
            entry["fma_share"] = entry["flops"] / limits.fma_peak
    return {
        "shape": f"causal prefill, float32, B1 Hq{QUERY_HEADS} Hkv{KV_HEADS} D{HEAD_DIM}",
        "threads": threads,
        "rounds": rounds,
        "isa": limits.isa,
        "fma_peak": limits.fma_peak,
        "peers": {peer: __import__(peer).__version__ for peer in peers},
        "rows": rows,
    }


def print_table(comparison):
    """The comparison for people; times in milliseconds."""
    peers = comparison["peers"]
    print(f"{comparison['shape']}, {comparison['threads']} threads; best of {comparison['rounds']} rounds; "
          f"FMA peak ({comparison['isa']}) {comparison['fma_peak'] / 1e9:.0f} GFLOP/s")
    for peer, version in peers.items():
        print(f"{peer} {version}: GroupQueryAttention, the best of its settings at each length")
    names = ["hattn", *peers]
    print(f"\n{'S':>6}" + "".join(f"  {name + ' ms':>14} {'GFLOP/s':>8} {'of peak':>8}" for name in names) +
          "".join(f"  {'vs ' + peer:>15}" for peer in peers) + f"  {'difference':>10}")
    for row in comparison["rows"]:
        line = f"{row['length']:>6}"
        for name in names:
            entry = row["results"][name]
            line += f"  {entry['seconds'] * 1e3:>14.2f} {entry['flops'] / 1e9:>8.1f} {entry['fma_share']:>8.1%}"
        for peer in peers:
            ratio = row["results"][peer]["seconds"] / row["results"]["hattn"]["seconds"]
            line += f"  {ratio:>14.2f}x"
        print(line + f"  {row['difference']:>10.1e}")
    print("\nvs: time of the peer / time of hattn, more than 1 where hattn is faster. difference: largest of any "
          "output.")
    for row in comparison["rows"]:
        settings = "; ".join(f"{name}: {row['results'][name]['variant']}" for name in names)
        print(f"S = {row['length']}: {settings}")
