"""How fast attention is over keys and values of each storage type, beside float32 in the same run.

    python bench/run.py --types [--against onnxruntime,torch] [--threads N] [--rounds N] [--rows LIST]
                                [--json [FILE]] [--markdown FILE] [--build DIR]

prints a Markdown table, Hq16 Hkv8 D128 unless said: time over that of float32, and for decoding the bytes of keys and values read per
second; then the goals. Types take turns in every round, and the best round counts. Outputs are float32 but for the 16-bit types,
whose queries and outputs are of the type; those of PyTorch and ONNX Runtime, where they are asked for or installed, likewise. With
--threads 1 CPU time counts, which other load on the machine disturbs less than time on the wall. Limits, of the CPU's bfloat16 dot
products where it has any and of reading the bytes of keys and values, are measured in every round, too.
"""
import argparse
import json
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
PEER_TYPES = {"PyTorch": ("float32", "float16", "bfloat16"), "ONNX Runtime": ("float32", "float16")}
CASES = {"prefill 512": (512, 512), "prefill 2048": (2048, 2048), "prefill 4096": (4096, 4096), "decode 512": (1, 512), "decode 8192 Hq64": (1, 8192), "decode 32768": (1, 32768)}  # queries, keys
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


def contender(dtype, q, k, v, threads):
    """(function to time, keys and values with their scales)."""
    import hattn
    import stored

    rng = np.random.default_rng(0)
    sides = [stored.store(rng, side, PER_HEAD.get(dtype, dtype), "heads" if dtype in PER_HEAD else "keys") for side in (k, v)]
    scales = {name: side.scale for name, side in zip(("k_scale", "v_scale"), sides) if side.scale is not None}
    arrays = [q.astype(stored.FLOATS.get(dtype, np.float32)), *(side.array for side in sides)]
    read = [array.view(np.uint8).reshape(-1) for array in (*(side.array for side in sides), *scales.values())]
    return lambda: hattn.attention(*arrays, causal=True, threads=threads, **scales), read


def torch_contenders(q, k, v, threads):
    import torch

    torch.set_num_threads(threads)

    def of(dtype):
        tensors = [torch.from_numpy(array).to(dtype) for array in (q, k, v)]
        causal = q.shape[2] > 1  # PyTorch's offset is 0
        return lambda: torch.nn.functional.scaled_dot_product_attention(*tensors, is_causal=causal, enable_gqa=True)

    return {f"PyTorch {name}": of(getattr(torch, name)) for name in PEER_TYPES["PyTorch"]}


def onnxruntime_contenders(q, k, v, threads):
    """GroupQueryAttention, whose decoding appends the last key to a cache in place."""
    import peer_onnxruntime

    peer_onnxruntime.version()
    case = SimpleNamespace(batch=1, query_heads=q.shape[1], kv_heads=KV_HEADS, query_length=q.shape[2], kv_length=k.shape[2],
                           key_dim=DIM, value_dim=DIM, kv_lengths=[], causal=True, window_left=-1, softcap=0.0,
                           has_sinks=False, has_alibi=False, smooth_softmax=False, work="attention", page_size=0)
    made = {}
    for name in PEER_TYPES["ONNX Runtime"]:
        arrays = {side: array.astype(name) for side, array in zip("qkv", (q, k, v))}
        made[f"ONNX Runtime {name}"] = peer_onnxruntime.variants(case, arrays, threads)[0].run
    return made


MAKERS = {"torch": torch_contenders, "onnxruntime": onnxruntime_contenders}


def peers_of(asked, *arguments):
    """Functions to time, by name: of the libraries that are asked for, or else of those that are installed."""
    made = {}
    for name, make in MAKERS.items():
        if asked is None or name in asked:
            try:
                made.update(make(*arguments))
            except ImportError:
                if asked is not None:
                    raise
    return made


def best_times(functions, rounds, clock, look_at_limits):
    """Each has its turn for as long as a limit is looked at, so that both find as much in the caches."""
    best = dict.fromkeys(functions, float("inf"))
    for _ in range(rounds):
        look_at_limits()
        for name, function in functions.items():
            function()
            end = time.perf_counter() + LOOK
            while time.perf_counter() < end:
                start = clock()
                function()
                best[name] = min(best[name], clock() - start)
    return best


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
    made = {dtype: contender(dtype, q, k, v, options.threads) for dtype in types_of(queries)}
    limits = Limits(options, {dtype: read for dtype, (_, read) in made.items()} if queries == 1 else {})
    peers = peers_of(options.against, q, k, v, options.threads)
    best = best_times({name: run for name, (run, _) in made.items()} | peers, options.rounds,
                      time.process_time if options.threads == 1 else time.perf_counter, limits.look)
    contenders = {}
    for name, seconds in best.items():
        decodes = queries == 1 and name in made
        contenders[name] = {"seconds": seconds, "versus_float32": best["float32"] / seconds,
                            "bytes_per_second": size_of(made[name][1]) / seconds if decodes else None}
    goals = [{"type": dtype, "of": of, "least": least,
              "reached": share(best, dtype, of, limits, made[dtype][1], queries)}
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
    except (cases.BenchError, OSError) as error:
        print(f"bench: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
