"""How fast attention is over keys and values of each storage type, beside float32 in the same run.

    python bench/storage_types.py [--threads N] [--rounds N] [--build DIR] [--rows LIST]

prints a Markdown table, Hq16 Hkv8 D128: time over that of float32, and for decoding the bytes of keys and values read per
second. Types take turns in every round, and the best round counts. Outputs are float32 but for the 16-bit types, whose
queries and outputs are of the type; PyTorch's, where it is installed, likewise. With --threads 1 CPU time counts, which other
load on the machine disturbs less than time on the wall.
"""
import argparse
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
HEADS, KV_HEADS, DIM = 16, 8, 128
TYPES = ("float32", "float16", "bfloat16", "int8", "int4")
CASES = {"prefill 512": (512, 512), "prefill 2048": (2048, 2048), "decode 512": (1, 512), "decode 32768": (1, 32768)}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--build", type=Path, default=ROOT / "build/release")
    parser.add_argument("--rows", default=",".join(CASES), help="cases, separated by commas: " + ", ".join(CASES))
    return parser.parse_args()


def contender(dtype, q, k, v, threads):
    """(function to time, bytes of keys and values)."""
    import hattn
    import stored

    rng = np.random.default_rng(0)
    sides = [stored.store(rng, side, dtype) for side in (k, v)]
    scales = {name: side.scale for name, side in zip(("k_scale", "v_scale"), sides) if side.scale is not None}
    arrays = [q.astype(stored.FLOATS.get(dtype, np.float32)), *(side.array for side in sides)]
    size = sum(side.array.nbytes for side in sides) + sum(scale.nbytes for scale in scales.values())
    return lambda: hattn.attention(*arrays, causal=True, threads=threads, **scales), size


def torch_contenders(q, k, v, threads):
    try:
        import torch
    except ImportError:
        return {}
    torch.set_num_threads(threads)

    def of(dtype):
        tensors = [torch.from_numpy(array).to(dtype) for array in (q, k, v)]
        causal = q.shape[2] > 1  # PyTorch's offset is 0
        return lambda: torch.nn.functional.scaled_dot_product_attention(*tensors, is_causal=causal, enable_gqa=True)

    return {f"PyTorch {name}": of(getattr(torch, name)) for name in ("float32", "float16", "bfloat16")}


def best_times(functions, rounds, clock):
    best = dict.fromkeys(functions, float("inf"))
    for function in functions.values():
        function()
    for _ in range(rounds):
        for name, function in functions.items():
            start = clock()
            function()
            best[name] = min(best[name], clock() - start)
    return best


def row(title, options):
    queries, keys = CASES[title]
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((1, heads, length, DIM), np.float32)
               for heads, length in ((HEADS, queries), (KV_HEADS, keys), (KV_HEADS, keys)))
    made = {dtype: contender(dtype, q, k, v, options.threads) for dtype in TYPES}
    best = best_times({name: run for name, (run, _) in made.items()} | torch_contenders(q, k, v, options.threads),
                      options.rounds, time.process_time if options.threads == 1 else time.perf_counter)
    cells = []
    for name, seconds in best.items():
        speed = f"{best['float32'] / seconds:.2f}"
        decode = queries == 1 and name in made
        cells.append(f"{name} {speed}" + (f" ({made[name][1] / seconds / 1e9:.1f} GB/s)" if decode else ""))
    return f"| {title} | {best['float32'] * 1e3:.2f} ms | " + " | ".join(cells) + " |"


def main():
    options = parse_arguments()
    sys.path[:0] = [str(options.build / "python"), str(ROOT / "tests/python")]
    for title in options.rows.split(","):
        print(row(title.strip(), options), flush=True)


if __name__ == "__main__":
    main()
