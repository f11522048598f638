"""A KV cache as plain NumPy arrays, and pages as plain Python lists: what hattn.KVCache must hold. Random operations on
both."""

from __future__ import annotations

import numpy as np
import pytest

import hattn
from rotation import turned
from stored import TYPES, counted, kept

KV_HEADS, KEY_DIM, VALUE_DIM = 2, 8, 6

# (capacity, options of the cache)
STORAGES = {
    "contiguous": (90, {}),
    "pages of 16": (150, {"page_size": 16}),
    "pages of 32, few": (150, {"page_size": 32, "page_count": 7}),
    "pages of 64": (200, {"page_size": 64, "page_count": 9}),
    "pages of 128": (300, {"page_size": 128, "page_count": 5}),
    "ring": (40, {"window": 20}),
    "ring without slack": (32, {"window": 32}),
}


class CacheModel:
    """Keys and values of every sequence as one array each, [Hkv, n, D], and the pages that hold them."""

    def __init__(self, batch, kv_heads, capacity, key_dim, value_dim, page_size=None, page_count=None, window=None):
        self.k = [np.zeros((kv_heads, 0, key_dim), np.float32) for _ in range(batch)]
        self.v = [np.zeros((kv_heads, 0, value_dim), np.float32) for _ in range(batch)]
        self.capacity, self.page_size, self.window = capacity, page_size, window
        self.ring = -(-capacity // 16) * 16 if window else None
        self.kept = [0] * batch  # the first key a ring still has
        self.page_count = page_count or (batch * -(-capacity // page_size) if page_size else 0)
        self.pages = [[] for _ in range(batch)]  # a page is an object of its own

    @property
    def lengths(self):
        return np.array([k.shape[1] for k in self.k], np.int32)

    @property
    def pages_used(self):
        return len({id(page) for pages in self.pages for page in pages})

    def _shared(self, page):
        return sum(any(page is other for other in pages) for pages in self.pages) > 1

    def _grow_pages(self, counts):
        """Whether there are pages enough; takes them if so."""
        before = [list(pages) for pages in self.pages]
        for b, n in enumerate(counts):
            length = self.k[b].shape[1]
            if n and length % self.page_size and self._shared(self.pages[b][-1]):
                self.pages[b][-1] = object()
            while len(self.pages[b]) * self.page_size < length + n:
                self.pages[b].append(object())
        if self.pages_used > self.page_count:
            self.pages = before
            return False
        return True

    def append(self, k, v, counts):
        """Whether the cache has to accept it; follows if so."""
        if self.window is None and np.any(self.lengths + counts > self.capacity):
            return False
        if self.page_size and not self._grow_pages(counts):
            return False
        for b, n in enumerate(counts):
            self.k[b] = np.concatenate([self.k[b], k[b, :, :n]], axis=1)
            self.v[b] = np.concatenate([self.v[b], v[b, :, :n]], axis=1)
            if self.window:
                self.kept[b] = max(self.kept[b], self.k[b].shape[1] - self.ring)
        return True

    def may_keep(self, b, length):
        return length == 0 or self.kept[b] == 0 or length - self.kept[b] >= self.window

    def shorten(self, b, length):
        self.k[b], self.v[b] = self.k[b][:, :length], self.v[b][:, :length]
        self.kept[b] = self.kept[b] if length else 0
        if self.page_size:
            del self.pages[b][-(-length // self.page_size) :]

    def truncate(self, lengths):
        if not all(self.may_keep(b, n) for b, n in enumerate(lengths)):
            return False
        for b, n in enumerate(lengths):
            self.shorten(b, n)
        return True

    def fork(self, source, target, length):
        if not self.may_keep(source, length):
            return False
        self.k[target], self.v[target] = self.k[source][:, :length], self.v[source][:, :length]
        self.kept[target] = self.kept[source] if length else 0
        if self.page_size:
            self.pages[target] = self.pages[source][: -(-length // self.page_size)]
        return True

    def padded(self):
        """k, v [B, Hkv, max length, D]; NaN past each sequence's end and before the first key kept."""
        longest = int(self.lengths.max(initial=0))
        both = []
        for arrays in (self.k, self.v):
            heads, _, dim = arrays[0].shape
            full = np.full((len(arrays), heads, longest, dim), np.nan, np.float32)
            for b, array in enumerate(arrays):
                full[b, :, self.kept[b] : array.shape[1]] = array[:, self.kept[b] :]
            both.append(full)
        return tuple(both)


def stored(cache, model, b, side, scales=False):
    """What the cache's storage holds of a sequence, [Hkv, n - kept, D]; side 0: keys, 1: values."""
    storage = (cache.scales if scales else cache.view())[side]
    positions = np.arange(model.kept[b], model.lengths[b])
    if model.page_size:
        pages = cache.block_table[b][positions // model.page_size]
        return storage[pages, :, positions % model.page_size].swapaxes(0, 1)
    rows = positions % model.ring if model.window else positions
    return storage[b][:, rows]


def assert_close_bits(actual, expected, dtype, steps, dim):
    """At most so many numbers of the type away; with 0 the same bits."""
    assert actual.shape == expected.shape and actual.dtype == expected.dtype
    if steps == 0:
        assert actual.tobytes() == expected.tobytes()
        return
    away = counted(np.ascontiguousarray(actual), dtype, dim) - counted(expected, dtype, dim)
    assert np.abs(away).max(initial=0) <= steps


def assert_holds(cache, model, dtypes=("float32", "float32"), turns=False):
    """Lengths, contents to the bit, and pages: nobody else's, none lost, none counted twice.

    dtypes: of keys and values. turns: keys were turned, whose sines may have other last bits in NumPy, so that what is rounded
        may be the next number.
    """
    np.testing.assert_array_equal(cache.lengths, model.lengths)
    for b, (k, v) in enumerate(zip(model.k, model.v)):
        for side, rows in enumerate((k, v)):
            steps, dim = int(turns and side == 0), rows.shape[-1]
            expected, scales, _ = kept(rows[None, :, model.kept[b] :], dtypes[side])
            assert_close_bits(stored(cache, model, b, side), expected[0], dtypes[side], steps, dim)
            if scales is not None:
                assert_close_bits(stored(cache, model, b, side, scales=True), scales[0], "float32", steps, dim)
    if model.page_size:
        table = cache.block_table
        used, available = cache.pages
        assert used + available == model.page_count
        assert used == len(np.unique(table[table >= 0])) == model.pages_used
        held = np.arange(table.shape[1]) < -(-model.lengths[:, None] // model.page_size)
        np.testing.assert_array_equal(table >= 0, held)
        for pages, row in zip(model.pages, table):
            assert len(pages) == np.count_nonzero(row >= 0)


def new_rows(rng, batch, rows, kv_heads=KV_HEADS):
    return (
        rng.standard_normal((batch, kv_heads, rows, KEY_DIM), np.float32),
        rng.standard_normal((batch, kv_heads, rows, VALUE_DIM), np.float32),
    )


def make(storage, batch, dtype="float32", value_dtype=None):
    capacity, options = STORAGES[storage]
    types = {"dtype": dtype, "value_dtype": value_dtype}
    cache = hattn.KVCache(batch, KV_HEADS, capacity, KEY_DIM, value_dim=VALUE_DIM, **types, **options)
    return cache, CacheModel(batch, KV_HEADS, capacity, KEY_DIM, VALUE_DIM, **options)


class Operations:
    """Random operations on a cache and its model, which must agree on what is refused.

    dtype: of keys; values have any. turns: some keys are turned on their way into the cache.
    """

    def __init__(self, rng, storage, dtype="float32", turns=False):
        self.rng, self.turns = rng, turns
        self.batch = int(rng.integers(1, 6))
        self.dtypes = (dtype, "float32" if dtype == "float32" else str(rng.choice(TYPES)))
        self.cache, self.model = make(storage, self.batch, *self.dtypes)
        self.refused = 0

    def assert_holds(self):
        assert_holds(self.cache, self.model, self.dtypes, self.turns)

    def attempt(self, accepted, call):
        if accepted:
            call()
            return
        self.refused += 1
        with pytest.raises(ValueError):
            call()

    def append(self):
        rows = int(self.rng.choice([0, 1, 1, 1, 3, 17, 50]))
        k, v = new_rows(self.rng, self.batch, rows)
        counts = np.full(self.batch, rows)
        if self.rng.integers(2):
            counts = self.rng.integers(0, rows + 1, self.batch)
        kept_k, options = k, {}
        if self.turns and self.rng.integers(2):
            positions, how = self.random_rope(rows)
            places = self.model.lengths[:, None] + np.arange(rows)
            options = {"rope": hattn.Rope(**how), "positions": positions}
            kept_k = turned(k, np.broadcast_to(places if positions is None else positions, places.shape), **how)
        kept_k = kept_k.astype(np.float32)
        given, form = self.random_form(counts, k, v)
        if options:
            options["positions"] = self.in_form(form, counts, options["positions"], rows)
        lengths = {} if "cu_seqlens" in form else {"lengths": counts}
        self.attempt(self.model.append(kept_k, v, counts), lambda: self.cache.append(*given, **lengths, **form, **options))

    def random_form(self, counts, *arrays):
        """[B, heads, S, D] of which so many rows count in any form that calls take, and the options that say which."""
        form = {}
        if self.rng.integers(3) == 0:
            form["cu_seqlens"] = np.concatenate([[0], np.cumsum(counts)])
            arrays = [
                np.concatenate([array[b : b + 1, :, :n] for b, n in enumerate(counts)], axis=2) for array in arrays
            ]
        if self.rng.integers(2):
            form["layout"] = "bshd"
            arrays = [array.swapaxes(1, 2) for array in arrays]
        return arrays, form

    def in_form(self, form, counts, positions, rows):
        """Positions [S] or [B, S] likewise."""
        if positions is None or "cu_seqlens" not in form:
            return positions
        whole = np.broadcast_to(positions, (self.batch, rows))
        return np.concatenate([whole[b, :n] for b, n in enumerate(counts)])

    def turn(self):
        """Queries at the places of the last keys."""
        rows = int(self.rng.choice([1, 1, 2, 5]))
        counts = self.rng.integers(0, rows + 1, self.batch) if self.rng.integers(2) else np.full(self.batch, rows)
        x = self.rng.standard_normal((self.batch, 3, rows, KEY_DIM), np.float32)
        positions, how = self.random_rope(rows)
        places = (self.model.lengths - counts)[:, None] + np.arange(rows)
        at = np.broadcast_to(places if positions is None else positions, places.shape)
        (given,), form = self.random_form(counts, x)
        lengths = {} if "cu_seqlens" in form else {"lengths": counts}
        options = {**lengths, **form, "positions": self.in_form(form, counts, positions, rows)}
        fits = positions is not None or bool(np.all(counts <= self.model.lengths))
        made = []
        self.attempt(fits, lambda: made.append(self.cache.apply_rope(given, hattn.Rope(**how), **options)))
        if not fits:
            return
        seen = np.arange(rows) < counts[:, None]
        expected = np.where(seen[:, None, :, None], turned(x, np.where(seen, at, 0), **how), 0)
        if "cu_seqlens" in form:
            expected = np.concatenate([expected[b : b + 1, :, :n] for b, n in enumerate(counts)], axis=2)
        out = made[0].swapaxes(1, 2) if "layout" in form else made[0]
        np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)

    def random_rope(self, rows):
        """(positions of rows, or None for their places; options of hattn.Rope)"""
        rng = self.rng
        longest = int(self.model.lengths.max(initial=0)) + rows
        shape = [None, (rows,), (self.batch, rows)][rng.integers(3)]
        positions = None if shape is None else rng.integers(0, longest + 1, shape)
        dim = int(rng.choice(np.arange(2, KEY_DIM + 1, 2)))
        how = {"interleaved": bool(rng.integers(2))}
        if rng.integers(2):
            how["cos"], how["sin"] = rng.standard_normal((2, longest + 1, dim // 2)).astype(np.float32)
        else:
            how.update(dim=dim, base=float(rng.uniform(0.5, 1e4)), scaling_factor=float(rng.uniform(0.5, 8)))
        return positions, how

    def truncate(self):
        # Mostly by a little, as speculative decoding does.
        back = self.rng.integers(0, 4 if self.rng.integers(4) else 1000, self.batch)
        lengths = np.maximum(self.model.lengths - back, 0)
        self.attempt(self.model.truncate(lengths), lambda: self.cache.truncate(lengths))

    def fork(self):
        if self.batch == 1:
            return
        source, target = self.rng.choice(self.batch, 2, replace=False)
        whole = int(self.model.lengths[source])
        length = whole if self.rng.integers(2) else int(self.rng.integers(0, whole + 1))
        given = None if length == whole else length
        self.attempt(self.model.fork(source, target, length), lambda: self.cache.fork(source, target, given))

    def reset(self):
        self.model.truncate([0] * self.batch)
        self.cache.reset()
