"""The same keys and values side by side and in randomly placed pages, for comparisons to the bit."""

from __future__ import annotations

import numpy as np

from cache_model import KEY_DIM, KV_HEADS, VALUE_DIM, new_rows

HEADS = 2 * KV_HEADS


class Paged:
    """Keys side by side, [B, Hkv, Sk, D], and the same in randomly placed pages. What is no key is NaN.

    hidden: leading keys of each sequence that hold `poison`, as nobody sees them.
    """

    def __init__(self, rng, lengths, page_size, spare=3, hidden=None, poison=np.nan):
        self.lengths = np.array(lengths, np.int32)
        self.page_size = page_size
        counts = -(-self.lengths // page_size)
        self.k, self.v = new_rows(rng, len(lengths), int(self.lengths.max()))
        for b, count in enumerate(hidden or []):
            self.k[b, :, :count] = self.v[b, :, :count] = poison
        total = int(counts.sum()) + spare
        self.order = rng.permutation(total).astype(np.int32)
        self.k_pages = np.full((total, KV_HEADS, page_size, KEY_DIM), np.nan, np.float32)
        self.v_pages = np.full((total, KV_HEADS, page_size, VALUE_DIM), np.nan, np.float32)
        self.table = np.full((len(lengths), int(counts.max()) + 1), -1, np.int32)
        pages = iter(self.order)
        for b, length in enumerate(lengths):
            for n in range(int(counts[b])):
                self.table[b, n] = page = next(pages)
                rows = slice(n * page_size, min((n + 1) * page_size, length))
                self.k_pages[page, :, : rows.stop - rows.start] = self.k[b, :, rows]
                self.v_pages[page, :, : rows.stop - rows.start] = self.v[b, :, rows]

    def arguments(self):
        return {"k": self.k_pages, "v": self.v_pages, "block_table": self.table, "kv_lengths": self.lengths}

    def moved(self, rng):
        """The same with all pages elsewhere."""
        to = rng.permutation(len(self.k_pages)).astype(np.int32)
        k, v = np.empty_like(self.k_pages), np.empty_like(self.v_pages)
        k[to], v[to] = self.k_pages, self.v_pages
        return {**self.arguments(), "k": k, "v": v, "block_table": np.where(self.table < 0, -1, to[self.table])}

    def finite(self):
        """k and v side by side with 0 in place of what is not finite, for the oracle."""
        return tuple(np.where(np.isfinite(array), array, np.float32(0)) for array in (self.k, self.v))


def queries(rng, batch, rows):
    return rng.standard_normal((batch, HEADS, rows, KEY_DIM), np.float32)


def everything(rng, batch, rows, keys):
    """Options that use every hook, with operands of Sk = the longest of the lengths."""
    return {
        "causal": True,
        "window": (70, -1),
        "softcap": 3.0,
        "bias": rng.standard_normal((batch, 1, rows, keys), np.float32),
        "mask": rng.integers(0, 4, (HEADS, 1, keys)) > 0,
        "alibi_slopes": np.abs(rng.standard_normal(HEADS)).astype(np.float32),
        "sinks": rng.standard_normal(HEADS).astype(np.float32),
        "q_lengths": rng.integers(0, rows + 1, batch),
    }
