"""How fast attention is over keys and values of each storage type, beside float32 in the same run.

    python bench/run.py --types [--against onnxruntime,torch] [--threads N] [--rounds N] [--rows LIST]
                                [--json [FILE]] [--markdown FILE] [--build DIR]

prints a Markdown table, Hq16 Hkv8 D128 unless said: time over that of float32, and for decoding the bytes of keys and values read per
second; then the goals. Types take turns in every round, and the best round counts. Outputs are float32 but for the 16-bit types,
whose queries and outputs are of the type; those of PyTorch and ONNX Runtime, where they are asked for or installed, likewise. All
variants of a peer are tried, and nothing is timed that was not verified on some rows. Limits, of the CPU's bfloat16 dot
products where it has any and of reading the bytes of keys and values, are measured in every round, too.
"""
import argparse
import json
import random
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np

import cases
import compare
import machine

LOOK = 0.02  # seconds
ROOT = Path(__file__).resolve().parent.parent
HEADS, KV_HEADS, DIM = 16, 8, 128
TYPES = ("float32", "float16", "bfloat16", "int8", "int4")  # of integers with a scale for each 32 elements of a key
PER_HEAD = {"int8 per head": "int8", "int4 per head": "int4"}  # with one for all keys of a head; for decoding
# Of outputs of order 1, from what float64 makes of the same numbers; integers multiply queries and weights in 16 bits.
ALLOWED = {"float32": 1e-4, "float16": 5e-3, "bfloat16": 3e-2, "int8": 5e-3, "int4": 5e-3}
PEER_NAMES = {"torch": "PyTorch", "onnxruntime": "ONNX Runtime"}
PEER_TYPES = {"PyTorch": ("float32", "float16", "bfloat16"), "ONNX Runtime": ("float32", "float16")}
CASES = {  # queries, keys
    "prefill 512": (512, 512),
    "prefill 2048": (2048, 2048),
    "prefill 4096": (4096, 4096),
    "decode 512": (1, 512),
    "decode 8192 Hq64": (1, 8192),
    "decode 32768": (1, 32768),
}
MORE_HEADS = {"decode 8192 Hq64": 64}  # query heads of cases with more than HEADS
# (case, type, at least so many times what: of the limits "dot products", of pairs, "matrices" or "reading", or the speed of a
# contender). None: no goal, but to be told.
GOALS = (
    ("prefill 2048", "bfloat16", 0.70, "dot products"),
    ("prefill 2048", "bfloat16", 3.5, "PyTorch bfloat16"),
    ("prefill 2048", "bfloat16", 1.6, "float32"),
    ("prefill 4096", "bfloat16", 0.70, "dot products"),
    ("prefill 4096", "bfloat16", 3.5, "PyTorch bfloat16"),
    ("prefill 4096", "bfloat16", 1.6, "float32"),
    ("prefill 512", "bfloat16", 0.55, "dot products"),
    ("prefill 2048", "bfloat16", None, "matrices"),
    ("prefill 4096", "bfloat16", None, "matrices"),
    ("prefill 2048", "float16", 0.92, "float32"),
    ("prefill 2048", "float16", 3.0, "PyTorch float16"),
    ("prefill 2048", "int8", 0.85, "float32"),
    ("decode 8192 Hq64", "bfloat16", None, "reading"),
    ("decode 8192 Hq64", "bfloat16", None, "float32"),
    ("decode 8192 Hq64", "bfloat16", None, "PyTorch bfloat16"),
    ("decode 32768", "bfloat16", 0.95, "reading"),
    ("decode 32768", "float16", 0.95, "reading"),
    ("decode 32768", "int8", 0.80, "reading"),
    ("decode 32768", "int4", 0.60, "reading"),
    ("decode 32768", "int4", 1.0, "int8"),
    ("decode 32768", "int8 per head", None, "reading"),
    ("decode 32768", "int4 per head", None, "reading"),
)


def parse_arguments(arguments=None):
    from run import positive, some_of

    parser = argparse.ArgumentParser(prog="bench", description=__doc__.partition("\n")[0])
    parser.add_argument("--types", action="store_true", help=argparse.SUPPRESS)  # how run.py was asked for this
    parser.add_argument("--against", type=some_of(compare.PEERS), metavar="NAME,...",
                        help=f"libraries beside it: {', '.join(compare.PEERS)} (default: those that are installed)")
    parser.add_argument("--threads", type=positive, default=2)
    parser.add_argument("--rounds", type=positive, default=12, help="turns of each contestant (default: 12)")
    parser.add_argument("--build", type=Path, default=ROOT / "build/release", metavar="DIR")
    parser.add_argument("--rows", type=some_of(CASES), default=list(CASES), metavar="CASE,...",
                        help="cases: " + ", ".join(CASES))
    parser.add_argument("--json", nargs="?", const="-", metavar="FILE", help="write the figures there (default: print "
                        "them instead of the table)")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write the table there, for documents")
    return parser.parse_args(arguments)


def types_of(queries):
    """Those that take part in a case."""
    return TYPES + (tuple(PER_HEAD) if queries == 1 else ())


class Ours:
    """hattn over keys and values of a type, as peers' variants are."""

    name = "hattn"

    def __init__(self, dtype, q, k, v, threads):
        import hattn
        import stored

        rng = np.random.default_rng(0)
        sides = [stored.store(rng, side, PER_HEAD.get(dtype, dtype), "heads" if dtype in PER_HEAD else "keys") for side in (k, v)]
        scales = {name: side.scale for name, side in zip(("k_scale", "v_scale"), sides) if side.scale is not None}
        queries = q.astype(stored.FLOATS.get(dtype, np.float32))
        self.numbers = (queries.astype(np.float64), *(side.numbers for side in sides))
        self.read = [array.view(np.uint8).reshape(-1) for array in (*(side.array for side in sides), *scales.values())]
        self._arguments = (queries, *(side.array for side in sides)), {"causal": True, "threads": threads, **scales}
        self._attention = hattn.attention

    def run(self):
        arrays, options = self._arguments
        self._out = self._attention(*arrays, **options)

    def result(self):
        return self._out


def peers_of(asked, q, k, v, threads):
    """(variants, the numbers that they are given), by library and type: of those that are asked for, or else installed."""
    import stored

    # ONNX Runtime's decoding appends the last key to a cache in place; PyTorch's causal limit starts at the first key.
    case = SimpleNamespace(batch=1, query_heads=q.shape[1], kv_heads=KV_HEADS, query_length=q.shape[2], kv_length=k.shape[2],
                           key_dim=DIM, value_dim=DIM, kv_lengths=[], causal=True, window_left=-1, window_right=-1, softcap=0.0,
                           has_sinks=False, has_alibi=False, smooth_softmax=False, work="attention", page_size=0)
    made = {}
    for name, title in PEER_NAMES.items():
        if asked is not None and name not in asked:
            continue
        module = compare.peer_module(name)
        try:
            module.version()
        except ImportError:
            if asked is not None:
                raise
            continue
        for dtype in PEER_TYPES[title]:
            arrays = {side: array.astype(stored.FLOATS[dtype]) for side, array in zip("qkv", (q, k, v))}
            numbers = tuple(array.astype(np.float64) for array in arrays.values())
            made[f"{title} {dtype}"] = module.variants(case, arrays, threads), numbers
    return made


def type_of(name):
    """Of a contender: "int8 per head", "PyTorch float16"."""
    return next(word for word in name.split() if word in ALLOWED)


def check(name, variant, numbers):
    """Raises compare.Disagreement unless some rows of the last run's output are those of float64 from the same numbers."""
    q, k, v = numbers
    out = variant.result()
    first = k.shape[2] - q.shape[2]  # position of the first row
    for head in {0, q.shape[1] // 2, q.shape[1] - 1}:
        of_kv = head // (q.shape[1] // k.shape[1])
        for row in {0, q.shape[2] // 2, q.shape[2] - 1}:
            seen = first + row + 1
            scores = k[0, of_kv, :seen] @ q[0, head, row] / np.sqrt(DIM)
            weights = np.exp(scores - scores.max())
            error = np.abs(weights @ v[0, of_kv, :seen] / weights.sum() - out[0, head, row].astype(np.float64)).max()
            if not error <= ALLOWED[type_of(name)]:
                raise compare.Disagreement(f"{name} ({variant.name}): row {row} of head {head} is off by {error:.1e}")


def best_times(contenders, rounds, look_at_limits):
    """The best time of each contender's best variant. contenders: (variants, numbers) by name.

    All are verified first. Each has its turn for as long as a limit is looked at, so that all find as much in the caches; variants that
    take much longer than another of theirs have one.
    """
    best = {}
    for name, (variants, numbers) in contenders.items():
        for variant in variants:
            with compare.turn_of(variant)():
                variant.run()
            check(name, variant, numbers)
            best[name, variant] = float("inf")
    order, turns = random.Random(1), list(best)

    def fastest(name):
        return min(seconds for (who, _), seconds in best.items() if who == name)

    for _ in range(rounds):
        look_at_limits()
        order.shuffle(turns)
        for name, variant in turns:
            compare.settle()
            with compare.turn_of(variant)():
                variant.run()
                end = time.perf_counter() + LOOK
                while time.perf_counter() < end:
                    start = time.perf_counter()
                    variant.run()
                    best[name, variant] = min(best[name, variant], time.perf_counter() - start)
        turns = [turn for turn in turns if best[turn] <= compare.HOPELESS * fastest(turn[0])]
    return {name: fastest(name) for name in contenders}


def size_of(arrays):
    return sum(array.nbytes for array in arrays)


class Limits:
    """The machine's, the best of every look."""

    def __init__(self, options, read):
        """read: arrays by type, where reading them is a limit."""
        self._module = cases.load(options.build)
        self._threads = options.threads
        self._read = read
        self.dot_products = 0.0  # operations per second; 0: the CPU has none on bfloat16
        self.matrices = 0.0  # likewise
        self.reading = dict.fromkeys(read, 0.0)  # bytes per second, by type

    def look(self):
        self.dot_products = max(self.dot_products, self._module.bfloat16_flops(self._threads, LOOK))
        self.matrices = max(self.matrices, self._module.matrix_flops(self._threads, LOOK))
        for dtype, arrays in self._read.items():
            speed = self._module.read_bandwidth(arrays, self._threads, LOOK)
            self.reading[dtype] = max(self.reading[dtype], speed)


def share(best, dtype, of, limits, read, queries):
    """What was reached, in terms of a goal; None where it cannot be told."""
    if of in ("dot products", "matrices"):
        products = 4 * HEADS * DIM * queries * (queries + 1) / 2  # operations of both products under the causal limit
        limit = limits.dot_products if of == "dot products" else limits.matrices
        return products / best[dtype] / limit if limit else None
    if of == "reading":
        return size_of(read) / best[dtype] / limits.reading[dtype]
    return best[of] / best[dtype] if of in best else None


def verdict(reached, least, of):
    if least is None:
        return f"{reached:.2f} of {of}" if reached else f"no {of} on this machine"
    if reached is None:
        return f"goal {least:g} of {of}, which this machine has not"
    return f"{reached:.2f} of {of}, goal {least:g}: {'reached' if reached >= least else 'missed'}"


def measure_row(title, options):
    """The figures of a case as a dict."""
    queries, keys = CASES[title]
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((1, heads, length, DIM), np.float32)
               for heads, length in ((MORE_HEADS.get(title, HEADS), queries), (KV_HEADS, keys), (KV_HEADS, keys)))
    made = {dtype: Ours(dtype, q, k, v, options.threads) for dtype in types_of(queries)}
    limits = Limits(options, {dtype: ours.read for dtype, ours in made.items()} if queries == 1 else {})
    contenders_of = {dtype: ([ours], ours.numbers) for dtype, ours in made.items()}
    contenders_of |= {name: found for name, found in peers_of(options.against, q, k, v, options.threads).items() if found[0]}
    best = best_times(contenders_of, options.rounds, limits.look)
    contenders = {}
    for name, seconds in best.items():
        decodes = queries == 1 and name in made
        contenders[name] = {"seconds": seconds, "versus_float32": best["float32"] / seconds,
                            "bytes_per_second": size_of(made[name].read) / seconds if decodes else None}
    goals = [{"type": dtype, "of": of, "least": least,
              "reached": share(best, dtype, of, limits, made[dtype].read, queries)}
             for case, dtype, least, of in GOALS if case == title]
    return {"case": title, "queries": queries, "keys": keys, "contenders": contenders, "goals": goals}


def line_of(row):
    """Of the table."""
    cells = [row["case"], f"{row['contenders']['float32']['seconds'] * 1e3:.2f} ms"]
    for name, figures in row["contenders"].items():
        speed = figures["bytes_per_second"]
        cells.append(f"{name} {figures['versus_float32']:.2f}" + (f" ({speed / 1e9:.1f} GB/s)" if speed else ""))
    return "| " + " | ".join(cells) + " |"


def lines_on_goals(rows):
    return [f"{row['case']}, {goal['type']}: {verdict(goal['reached'], goal['least'], goal['of'])}"
            for row in rows for goal in row["goals"]]


def measure(options):
    """The figures as a dict; prints the table on the way, unless figures are printed in its place."""
    cases.load(options.build)  # before the package is looked for: it says what is not there
    about = machine.describe()
    others = machine.OtherProcesses()
    rows = []
    for title in options.rows:
        rows.append(measure_row(title, options))
        if options.json != "-":
            print(line_of(rows[-1]), flush=True)
    return {**about, "threads": options.threads, "rounds": options.rounds, "others_busy": others.share(), "rows": rows}


def write(figures, options):
    """To wherever the options say."""
    text = json.dumps(figures, indent=2) + "\n"
    goals = lines_on_goals(figures["rows"])
    if options.markdown:
        lines = [*map(line_of, figures["rows"]), "", *(f"- {line}" for line in goals)]
        options.markdown.write_text("\n".join(lines) + "\n", encoding="utf-8")
    if options.json == "-":
        print(text, end="")
        return
    print("", *goals, sep="\n")
    machine.print_noise(figures["others_busy"])
    if options.json:
        Path(options.json).write_text(text, encoding="utf-8")


def main(arguments=None):
    options = parse_arguments(arguments)
    sys.path[:0] = [str(options.build / "python"), str(ROOT / "tests/python"), str(ROOT / "bench")]
    try:
        write(measure(options), options)
    except ImportError as error:
        print(f"bench: error: {error}; ./dev bench installs what is needed", file=sys.stderr)
        return 2
    except compare.Disagreement as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except (cases.BenchError, OSError) as error:
        print(f"bench: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
