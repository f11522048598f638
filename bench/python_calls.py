"""What calls take from Python: of one head, one row, 16 keys of 64 elements, so that there is hardly anything to compute; and of
a step of decoding, D128, of 16 heads on 8 over 512 and 2048 keys, and of 32 heads over 300 that lie side by side for each token; one
call after the other, and in turn with a small product of PyTorch's, which leaves its threads looking for more.

    python bench/python_calls.py [--rounds 20] [--threads 2] [--build DIR]

Microseconds a call: the best of several rounds in which all take turns; of decoding the best call and the median. PyTorch's, and of its
tensors, where it is installed. Before each turn all threads have come to rest, so that nobody pays for a pool that still spins.
"""
import argparse
import functools
import os
import statistics
import sys
import time
import timeit
from pathlib import Path

import numpy as np

import compare
from arguments import positive

ROOT = Path(__file__).resolve().parent.parent
CALLS = 2000  # of a round
TURN = 0.1  # seconds of decoding, likewise
# Of decoding: keys, query heads, kv heads, whether a token's heads lie side by side.
STEPS = ((512, 16, 8, False), (2048, 16, 8, False), (300, 32, 32, True))


def calls():
    """Functions by what they are."""
    import hattn

    q, k = np.ones((1, 1, 1, 64), np.float32), np.ones((1, 1, 16, 64), np.float32)
    cache = hattn.KVCache(1, 1, 64, 64)
    cache.append(k, k)
    found = {
        "hattn.attention, NumPy": lambda: hattn.attention(q, k, k),
        "KVCache.attend, NumPy": lambda: cache.attend(q),
    }
    try:
        import torch
    except ImportError:
        return found
    tq, tk = torch.from_numpy(q), torch.from_numpy(k)
    return {
        **found,
        "hattn.attention, PyTorch": lambda: hattn.attention(tq, tk, tk),
        "KVCache.attend, PyTorch": lambda: cache.attend(tq),
        "torch scaled_dot_product_attention": lambda: torch.nn.functional.scaled_dot_product_attention(tq, tk, tk),
    }


def tensors_of(rng, query_heads, kv_heads, keys, side_by_side):
    """q, k and v in float32; with the heads of a token side by side in memory, as most models have them, or not."""
    for heads, rows in ((query_heads, 1), (kv_heads, keys), (kv_heads, keys)):
        shape = (1, rows, heads, 128) if side_by_side else (1, heads, rows, 128)
        array = rng.standard_normal(shape, np.float32)
        yield array.transpose(0, 2, 1, 3) if side_by_side else array


def decoding(threads):
    """Functions by what they are: a step over a type, a number of keys, and heads."""
    import hattn
    import stored

    rng = np.random.default_rng(0)
    found = {}
    for dtype in ("float32", "bfloat16"):
        for keys, query_heads, kv_heads, side_by_side in STEPS:
            what = f"{dtype}, {keys} keys" + f", {kv_heads} heads side by side" * side_by_side
            q, k, v = tensors_of(rng, query_heads, kv_heads, keys, side_by_side)
            arrays = tuple(array.astype(stored.FLOATS[dtype], order="K") for array in (q, k, v))
            step = functools.partial(hattn.attention, *arrays, causal=True, threads=threads)
            found[f"hattn.attention, {what}"] = step
            try:
                import torch
            except ImportError:
                continue
            torch.set_num_threads(threads)
            tensors = tuple(torch.from_numpy(array).to(getattr(torch, dtype)) for array in (q, k, v))
            attend = functools.partial(torch.nn.functional.scaled_dot_product_attention, *tensors, enable_gqa=True)
            found[f"torch scaled_dot_product_attention, {what}"] = attend
            product = functools.partial(torch.mm, torch.ones(1, 256), torch.ones(256, 256))
            for name, call in (("hattn.attention", step), ("torch scaled_dot_product_attention", attend)):
                found[f"{name} behind torch.mm, {what}"] = lambda call=call, product=product: (product(), call())
    return found


def times_of(call):
    """Seconds of calls one after the other, for a turn."""
    compare.settle()
    call()
    times, end = [], time.perf_counter() + TURN
    while time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=positive, default=20)
    parser.add_argument("--threads", type=positive, default=2, help="of decoding (default: 2)")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release", metavar="DIR")
    options = parser.parse_args()
    if not (options.build / "python").is_dir():
        parser.error(f"--build: {options.build} has no built package")
    os.environ.setdefault("HATTN_TUNING", "none")  # as run.py
    sys.path[:0] = [str(options.build / "python"), str(ROOT / "tests" / "python")]
    found = calls()
    seconds = {name: timeit.timeit(call, number=1) for name, call in found.items()}
    for _ in range(options.rounds):
        for name, call in found.items():
            seconds[name] = min(seconds[name], timeit.timeit(call, number=CALLS) / CALLS)
    for name, of_call in seconds.items():
        print(f"{name:80} {of_call * 1e6:6.1f} us")
    steps = decoding(options.threads)
    times = {name: [] for name in steps}
    for _ in range(options.rounds):
        for name, call in steps.items():
            times[name] += times_of(call)
    for name, of_calls in times.items():
        print(f"{name:80} {min(of_calls) * 1e6:6.1f} us, median {statistics.median(of_calls) * 1e6:6.1f} us")


if __name__ == "__main__":
    main()
