"""What a small call takes from Python: one head, one row, 16 keys of 64 elements, so that there is hardly anything to compute.

    python bench/python_calls.py [--rounds 20] [--build DIR]

Microseconds a call, the best of several rounds in which all take turns; PyTorch's, and of its tensors, where it is installed.
"""
import argparse
import os
import sys
import timeit
from pathlib import Path

import numpy as np

from arguments import positive

ROOT = Path(__file__).resolve().parent.parent
CALLS = 2000  # of a round


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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=positive, default=20)
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release", metavar="DIR")
    options = parser.parse_args()
    if not (options.build / "python").is_dir():
        parser.error(f"--build: {options.build} has no built package")
    os.environ.setdefault("HATTN_TUNING", "none")  # as run.py
    sys.path.insert(0, str(options.build / "python"))
    found = calls()
    seconds = {name: timeit.timeit(call, number=1) for name, call in found.items()}
    for _ in range(options.rounds):
        for name, call in found.items():
            seconds[name] = min(seconds[name], timeit.timeit(call, number=CALLS) / CALLS)
    for name, of_call in seconds.items():
        print(f"{name:36} {of_call * 1e6:6.1f} us")


if __name__ == "__main__":
    main()
