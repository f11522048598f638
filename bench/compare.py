"""hattn and its peers side by side: one process, the same inputs, turns in rounds, the best time of each."""
import contextlib
import importlib
import random
import time

import numpy as np

from peer import rows_that_see

PEERS = ("onnxruntime", "torch")
LIMIT = 1e-4  # allowed difference of any output from hattn's, which the oracle has verified; outputs are of order 1

_TURN_SECONDS = 0.15  # how long one contestant runs at a time; one run at least
HOPELESS = 1.25      # variants that take this much longer than their peer's best get one turn only


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


class Contestant:
    """Somebody's turns: the fastest run so far, in seconds."""

    def __init__(self, who, variant, run, turn=contextlib.nullcontext):
        """turn(): what runs of a turn are made within."""
        self.who = who
        self.variant = variant
        self._run = run
        self._turn = turn
        self.seconds = float("inf")

    def take_turn(self):
        settle()
        with self._turn():
            begin = time.perf_counter()
            while True:
                start = time.perf_counter()
                self._run()
                end = time.perf_counter()
                self.seconds = min(self.seconds, end - start)
                if end - begin > _TURN_SECONDS:
                    return


def turn_of(variant):
    """Variants that need nothing around their runs do not say so."""
    return getattr(variant, "turn", contextlib.nullcontext)


class Ours:
    """hattn: timed in C++, through its C interface. Looks at the machine's limits before each turn, and after it at what the
    machine holds for as long as a run."""

    who = "hattn"

    def __init__(self, measured):
        self._measured = measured

    def take_turn(self):
        settle()
        self._measured.measure_limits()
        self._measured.run_for(_TURN_SECONDS)
        self._measured.measure_held_limit(_TURN_SECONDS)


def peer_module(name):
    return importlib.import_module("peer_" + name)


def verified_peers(case, measured, peers):
    """Contestants of all variants, each run once and compared with hattn's output."""
    arrays = measured.tensors()
    expected = arrays["out"].copy() if "out" in arrays else None
    contestants = []
    for peer in peers:
        for variant in peer_module(peer).variants(case, arrays, measured.threads):
            with turn_of(variant)():
                variant.run()
            error = np.abs(variant.result() - expected).max(axis=-1)
            worst = error[np.broadcast_to(rows_that_see(case, arrays), error.shape)].max()
            if not worst <= LIMIT:
                raise Disagreement(f"{case.name}: {peer} ({variant.name}) differs from hattn by {worst:.1e}; "
                                   f"allowed is {LIMIT:.0e}")
            contestants.append(Contestant(peer, variant.name, variant.run, turn_of(variant)))
    return contestants


def best_by_peer(contestants):
    best = {}
    for contestant in contestants:
        if contestant.who not in best or contestant.seconds < best[contestant.who].seconds:
            best[contestant.who] = contestant
    return best


def race(ours, others, rounds, order):
    """The first round sorts out hopeless variants. Then all take turns, in an order of their own in each round.

    hattn has as many as the peer with most variants: whose best of several counts is not to have more chances of a quiet
    moment.
    """
    for contestant in [ours, *others]:
        contestant.take_turn()
    best = best_by_peer(others)
    others = [other for other in others if other.seconds < HOPELESS * best[other.who].seconds]
    names = [other.who for other in others]
    chances = max((names.count(name) for name in names), default=1)
    for _ in range(rounds - 1):
        turns = others + [ours] * chances
        order.shuffle(turns)
        for contestant in turns:
            contestant.take_turn()


def measure_case(module, case, peers, threads, rounds):
    """One row, as a dict."""
    measured = module.open(case.name, threads)
    wrong = measured.check()
    if wrong:
        raise Disagreement(f"{case.name}: {measured.label}: {wrong}")
    others = verified_peers(case, measured, peers)
    race(Ours(measured), others, rounds, random.Random(case.name))
    row = {"name": case.name, "title": case.title, "set": case.set, "work": case.work, "beside": case.beside,
           "goal": case.goal, "threads": measured.threads, "kernel": measured.label, **measured.figures()}
    row["peers"] = {name: {"seconds": best.seconds, "versus": best.seconds / row["seconds"], "variant": best.variant}
                    for name, best in best_by_peer(others).items()}
    return row


def reached(row):
    """What the row has of each thing a goal may ask for, None where this run cannot tell; ratios of at least and of at
    most the goal's."""
    versus = {name: peer["versus"] for name, peer in row["peers"].items()}
    at_least = {"share": row["share"], "versus": min(versus.values(), default=None),
                **{name: versus.get(name) for name in PEERS}}
    at_most = {"beside": row["beside_ratio"], "bound": row["seconds"] / row["bound"] if row["bound"] else None,
               "seconds": row["seconds"]}
    return at_least, at_most


def checks(row):
    """Whether the row reaches each part of its goal that this run can tell, by name."""
    at_least, at_most = reached(row)
    told = {name: value >= row["goal"][name] for name, value in at_least.items() if row["goal"][name] and value}
    return {**told, **{name: value <= row["goal"][name] for name, value in at_most.items()
                       if row["goal"][name] and value}}


def is_met(row):
    """Whether the row reaches its goal; None if it has none that this run can tell."""
    results = checks(row)
    return all(results.values()) if results else None


def compare(module, cases, peers, threads, rounds, progress):
    """The rows as a dict that JSON can hold. threads: 0 for one per core. progress(case) is called after each."""
    rows, skipped = [], {}
    for case in cases:
        if case.why_not:
            skipped[case.name] = case.why_not
            continue
        rows.append(measure_case(module, case, peers, threads, rounds))
        progress(case)
    seconds = {row["name"]: row["seconds"] for row in rows}
    # The limit of arithmetic is the machine's, so the best look of the whole run counts, whichever case saw it.
    peaks = {}
    for row in rows:
        peaks[row["limit_name"]] = max(peaks.get(row["limit_name"], 0), row["limit"])
    for row in rows:
        if row["unit"] == "flop":
            row["limit"] = peaks[row["limit_name"]]
        row["share"] = row["speed"] / row["limit"] if row["limit"] else None
        row["held_share"] = row["speed"] / row["held_limit"] if row["held_limit"] else None
        row["beside_ratio"] = row["seconds"] / seconds[row["beside"]] if row["beside"] in seconds else None
        row["checks"] = checks(row)
        row["met"] = is_met(row)
    return {
        "shape": "float32, causal, B1 Hq16 Hkv8 D128 unless said",
        "rounds": rounds,
        "isa": module.widest_isa(),
        "peers": {peer: peer_module(peer).version() for peer in peers},
        "rows": rows,
        "skipped": skipped,
    }
