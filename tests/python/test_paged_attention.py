"""Attention over pages and rings: the same bits as over the same keys side by side, and errors of block tables."""

import mmap

import numpy as np
import pytest

import hattn
import oracle
from cache_model import KEY_DIM, KV_HEADS, STORAGES, VALUE_DIM, Operations, new_rows
from helpers import Tensor, assert_close, assert_same_bits, ends, pack, random_qkv
from paged_keys import HEADS, Paged, everything, queries


@pytest.mark.parametrize("hooks", [False, True])
@pytest.mark.parametrize("rows", [1, 3, 40])
@pytest.mark.parametrize("page_size", [16, 32, 64, 128])
def test_pages_give_the_bits_of_contiguous_keys(rng, algorithm, page_size, rows, hooks):
    paged = Paged(rng, [600, 0, 5, 128, 257], page_size)
    q = queries(rng, 5, rows)
    options = everything(rng, 5, rows, 600) if hooks else {"causal": bool(rng.integers(2))}
    asked = {"algorithm": algorithm, "return_lse": True, "return_scores": "masked"}
    expected = hattn.attention(q, paged.k, paged.v, kv_lengths=paged.lengths, **options, **asked)
    for given in (paged.arguments(), paged.moved(rng)):
        for ours, theirs in zip(hattn.attention(q, **given, **options, **asked), expected):
            assert_same_bits(ours, theirs)
    truth = oracle.attention(q, *paged.finite(), kv_lengths=paged.lengths, **options)
    assert_close(expected[0], truth.out)
    assert_close(expected[1], truth.lse, "lse")


@pytest.mark.parametrize("hooks", [False, True])
@pytest.mark.parametrize("poison", [np.nan, np.inf])
@pytest.mark.parametrize("rows", [1, 5, 40])
@pytest.mark.parametrize("page_size", [16, 64])
def test_what_no_row_sees_does_not_leak(rng, algorithm, page_size, rows, poison, hooks):
    """Keys before the window and rows past the length, in granules that hold visible keys too."""
    left, lengths = 37, [600, 41, 5, 257]
    hidden = [max(0, length - rows - left) for length in lengths]
    assert hidden[0] % 16 and lengths[0] % 16
    paged = Paged(rng, lengths, page_size, hidden=hidden, poison=poison)
    q = queries(rng, len(lengths), rows)
    options = everything(rng, len(lengths), rows, max(lengths)) if hooks else {"causal": True}
    options.update(window=(left, -1), q_lengths=None)
    asked = {"algorithm": algorithm, "return_lse": True}
    k, v = paged.finite()
    expected = hattn.attention(q, k, v, kv_lengths=paged.lengths, **options, **asked)
    for given in (paged.arguments(), paged.moved(rng), {"k": paged.k, "v": paged.v, "kv_lengths": paged.lengths}):
        for ours, theirs in zip(hattn.attention(q, **given, **options, **asked), expected):
            assert_same_bits(ours, theirs)
    truth = oracle.attention(q, k, v, kv_lengths=paged.lengths, **options)
    assert_close(expected[0], truth.out)
    assert_close(expected[1], truth.lse, "lse")


@pytest.mark.parametrize("window", [(-1, -1), (21, 4)])
@pytest.mark.parametrize("page_size", [16, 128])
def test_packed_queries_over_pages(rng, algorithm, page_size, window):
    """Decoding, prefill, nothing, a chunk and a sequence without keys in one call."""
    q_lengths, kv_lengths = [1, 70, 0, 5, 3], [600, 70, 9, 257, 0]
    paged = Paged(rng, kv_lengths, page_size)
    q = queries(rng, len(q_lengths), max(q_lengths))
    options = {"causal": window[1] < 0, "window": window, "algorithm": algorithm, "return_lse": True}
    out, lse = hattn.attention(q, paged.k, paged.v, q_lengths=q_lengths, kv_lengths=kv_lengths, **options)
    packed = {"q": pack(q, q_lengths), "cu_seqlens_q": ends(q_lengths)}
    for given in (paged.arguments(), paged.moved(rng)):
        packed_out, packed_lse = hattn.attention(**packed, **given, **options)
        assert_same_bits(packed_out, pack(out, q_lengths))
        assert_same_bits(packed_lse, pack(lse[..., None], q_lengths)[..., 0])


def test_layouts_kinds_and_wide_tables(rng):
    paged = Paged(rng, [40, 100], 32)
    q = queries(rng, 2, 2)
    expected = hattn.attention(q, **paged.arguments())
    swapped = {name: np.ascontiguousarray(paged.arguments()[name].swapaxes(1, 2)) for name in "kv"}
    out = hattn.attention(
        np.ascontiguousarray(q.swapaxes(1, 2)), **{**paged.arguments(), **swapped}, layout="bshd", causal=False
    )
    assert_same_bits(np.ascontiguousarray(out.swapaxes(1, 2)), expected)
    given = {name: Tensor(array) for name, array in paged.arguments().items()}
    assert_same_bits(hattn.attention(Tensor(q), **given).numpy(), expected)
    table = np.full((2, 50), 10**6, np.int64)
    table[:, :4] = paged.table[:, :4]
    table[0, 2:] = table[1, 4:] = 10**6  # past the last pages: not looked at
    assert_same_bits(hattn.attention(q, **{**paged.arguments(), "block_table": table}), expected)


def test_sequences_may_share_pages(rng):
    paged = Paged(rng, [64, 1], 16)
    table = np.repeat(paged.table[:1], 3, axis=0)
    q = queries(rng, 3, 1)
    lengths = [64, 33, 64]
    out = hattn.attention(q, paged.k_pages, paged.v_pages, block_table=table, kv_lengths=lengths)
    k, v = (np.repeat(array[:1], 3, axis=0) for array in (paged.k, paged.v))
    assert_same_bits(out, hattn.attention(q, k, v, kv_lengths=lengths))


@pytest.mark.parametrize("storage", STORAGES)
def test_caches_attend_as_over_contiguous_keys(rng, algorithm, storage):
    run = Operations(rng, storage)
    for _ in range(60):
        getattr(run, rng.choice(["append", "truncate", "fork"], p=[0.7, 0.15, 0.15]))()
        model = run.model
        options = {"causal": True, "algorithm": algorithm}
        if model.window:
            options["window"] = (int(rng.integers(0, model.window)), -1)
        # A ring holds a full window for its last row, always.
        rows = 1 if model.window else int(rng.integers(1, 5))
        q = queries(rng, run.batch, rows)
        k, v = model.padded()
        expected = hattn.attention(q, k, v, kv_lengths=model.lengths, return_lse=True, **options)
        for ours, theirs in zip(run.cache.attend(q, return_lse=True, **options), expected):
            assert_same_bits(ours, theirs)


@pytest.mark.parametrize("window", [(-1, -1), (21, -1)])
@pytest.mark.parametrize("page_size", [16, 32, 64, 128])
def test_prefill_in_chunks_then_decoding(rng, algorithm, page_size, window):
    """Each chunk has the bits of contiguous storage, and all of them together are attention at once."""
    chunks = [64, 1, 17, 100, 1, 1, 30, 1]
    plain, paged = (
        hattn.KVCache(3, KV_HEADS, 256, KEY_DIM, value_dim=VALUE_DIM, **options)
        for options in ({}, {"page_size": page_size})
    )
    paged.append(*new_rows(rng, 3, 200), lengths=[200, 30, 90])  # pages come back in another order
    paged.reset()
    k, v = new_rows(rng, 3, sum(chunks))
    q = queries(rng, 3, sum(chunks))
    truth = oracle.attention(q, k, v, causal=True, window=window).out
    options = {"causal": True, "window": window, "algorithm": algorithm}
    for end, rows in zip(np.cumsum(chunks), chunks):
        now = slice(end - rows, end)
        for cache in (plain, paged):
            cache.append(k[:, :, now], v[:, :, now])
        out = paged.attend(q[:, :, now], **options)
        assert_same_bits(out, plain.attend(q[:, :, now], **options))
        assert_close(out, truth[:, :, now])
    assert np.any(np.diff(paged.block_table[0]) != 1)


@pytest.mark.parametrize("rows", [1, 20])
def test_sequences_go_apart_after_a_common_prefix(rng, algorithm, rows):
    """A prompt of 75 keys in pages of 32: two of its pages stay shared, the third becomes one of each sequence."""
    cache = hattn.KVCache(3, KV_HEADS, 128, KEY_DIM, value_dim=VALUE_DIM, page_size=32)
    prompt = new_rows(rng, 3, 75)
    cache.append(*prompt, lengths=[75, 0, 0])
    cache.fork(0, 1)
    cache.fork(0, 2)
    assert cache.pages[0] == 3
    more = new_rows(rng, 3, rows)
    cache.append(*more)
    assert cache.pages[0] == 2 + 3
    k, v = (np.concatenate([np.repeat(old[:1], 3, axis=0), new], axis=2) for old, new in zip(prompt, more))
    q = queries(rng, 3, rows)
    options = {"causal": True, "algorithm": algorithm}
    assert_same_bits(cache.attend(q, **options), hattn.attention(q, k, v, **options))


@pytest.mark.parametrize("rows", [1, 7, 29])
def test_a_ring_is_attention_with_a_window(rng, algorithm, rows):
    """Chunks of up to R - window + 1 rows, far past the ring's own size."""
    cache = hattn.KVCache(2, KV_HEADS, 48, KEY_DIM, value_dim=VALUE_DIM, window=20)
    total = rows * (300 // rows)
    k, v = new_rows(rng, 2, total)
    q = queries(rng, 2, total)
    truth = oracle.attention(q, k, v, causal=True, window=(19, -1)).out
    for at in range(0, total, rows):
        now = slice(at, at + rows)
        cache.append(k[:, :, now], v[:, :, now])
        out = cache.attend(q[:, :, now], causal=True, window=(19, -1), algorithm=algorithm)
        assert_close(out, truth[:, :, now].astype(np.float64))


def test_own_plans_over_a_cache(rng):
    cache = hattn.KVCache(2, KV_HEADS, 200, KEY_DIM, value_dim=VALUE_DIM, page_size=64)
    cache.append(*new_rows(rng, 2, 150), [150, 20])
    q = queries(rng, 2, 3)
    out = hattn.attention(q, *cache.view(), block_table=cache.block_table, kv_lengths=cache.lengths, causal=True)
    assert_same_bits(out, cache.attend(q, causal=True))


def filled_ring(rng, lengths):
    cache = hattn.KVCache(2, KV_HEADS, 48, KEY_DIM, value_dim=VALUE_DIM, window=20)
    cache.append(*new_rows(rng, 2, 100), lengths)
    return cache


@pytest.mark.parametrize(
    "rows, options, pattern",
    [
        (1, {}, r"window\[0\]: is -1, .*below the cache's window, which is 20"),
        (1, {"window": (20, 0)}, r"window\[0\]: is 20, .* 20"),
        (30, {"window": (19, -1)}, "q: its first row in sequence 0 stands at position 70 .* from 51 on.* 52 on"),
        (1, {"window": (19, 0), "causal_offset": [70, 0]}, "position 70 and sees keys from 51 .* 52 on"),
    ],
)
def test_a_ring_refuses_what_it_has_lost(rng, rows, options, pattern):
    cache = filled_ring(rng, [100, 30])
    out = np.full((2, HEADS, rows, VALUE_DIM), np.float32(7))
    with pytest.raises(ValueError, match=pattern):
        cache.attend(queries(rng, 2, rows), out=out, **options)
    assert np.all(out == 7)


def test_rows_of_a_ring_that_see_no_key(rng):
    """Of a query before the first position; those of keys that are lost are refused."""
    q, k, v = random_qkv(rng, batch=1, heads=2, kv_heads=2, queries=2, keys=40)
    ring = hattn.KVCache(1, 2, 32, k.shape[-1], window=8)
    ring.append(k, v)
    assert not ring.attend(q, window=(7, 0), causal_offset=-100).any()
    assert not ring.attend(q, causal=True, window=(7, -1), causal_offset=-2).any()
    with pytest.raises(ValueError, match="q: its first row in sequence 0 stands at position -1 and sees keys from -8 on"):
        ring.attend(q, causal=True, window=(7, -1), causal_offset=-1)


def test_entries_that_are_not_read_may_be_anything(rng):
    q, k, v = random_qkv(rng, batch=1, heads=2, kv_heads=2, queries=1, keys=16)
    for dtype, unused in ((np.uint32, 0xFFFFFFFF), (np.int64, np.iinfo(np.int64).max), (np.int64, -1)):
        table = np.array([[0, unused]], dtype)
        assert_same_bits(hattn.attention(q, k, v, block_table=table, kv_lengths=[16]), hattn.attention(q, k, v))
    with pytest.raises(ValueError, match="block_table"):
        hattn.attention(q, k, v, block_table=table, kv_lengths=[17])


def test_pages_that_span_more_than_kernels_count(rng):
    """To the last element, of strides that lie between pages, in memory that nothing else is in and nobody touches."""
    q, k, v = random_qkv(rng, batch=1, heads=2, kv_heads=1, queries=1, keys=16)
    farthest = (2**31 - 1 - k.size) // 2
    reserved = mmap.mmap(-1, (farthest + 1 + k.size) * k.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    first = np.frombuffer(reserved, np.float32, k.size).reshape(k.shape)
    first[:] = k

    def pages(array, stride):
        return np.lib.stride_tricks.as_strided(array, (2, *array.shape[1:]), (stride * array.itemsize, *array.strides[1:]))

    given = {"block_table": [[0]], "kv_lengths": [16]}
    assert_same_bits(hattn.attention(q, pages(first, farthest), pages(v, 0), **given), hattn.attention(q, k, v))
    message = r"k: extent\[0\] is 2, .* which span 2147483648 elements, but pages may span at most 2147483647$"
    with pytest.raises(NotImplementedError, match=message):
        hattn.attention(q, pages(first, farthest + 1), pages(v, 0), **given)


def test_a_ring_remembers_what_a_truncation_left(rng):
    cache = filled_ring(rng, [100, 30])
    cache.truncate([80, 30])
    with pytest.raises(ValueError, match="position 70 and sees keys from 51 .* 52 on"):
        cache.attend(queries(rng, 2, 10), window=(19, -1))


def test_a_ring_gives_no_scores(rng):
    with pytest.raises(NotImplementedError, match="scores: .*ring"):
        filled_ring(rng, [20, 20]).attend(queries(rng, 2, 1), window=(3, 0), return_scores="raw")


BAD_TABLES = [
    ("float", {"block_table": np.zeros((2, 2))}, TypeError, "block_table: dtype is float64, but must be an integer"),
    ("rank", {"block_table": [0, 1]}, ValueError, "block_table: rank is 1, but must be 2"),
    ("ragged", {"block_table": [[0], [1, 2]]}, ValueError, "block_table: is ragged"),
    ("rows", {"block_table": np.zeros((3, 2), int)}, ValueError, "block_table: has 3 rows, but the batch of q is 2"),
    ("wide", {"block_table": np.full((2, 2), 2**32)}, ValueError, "block_table\\[0\\]\\[0\\]: is 2147483647, but k has 7 pages"),
    ("negative", {"block_table": [[0, 1], [2, -1]]}, ValueError, r"block_table\[1\]\[1\]: is -1, but k has 7 pages"),
    ("large", {"block_table": [[0, 7], [2, 1]]}, ValueError, r"block_table\[0\]\[1\]: is 7, but k has 7 pages"),
    ("short", {"kv_lengths": [33, 0]}, ValueError, r"kv_lengths\[0\]: is 33, .*the kv length of k, 32"),
    ("long negative", {"kv_lengths": [1, -1]}, ValueError, r"kv_lengths\[1\]: is -1"),
    ("no lengths", {"kv_lengths": None}, ValueError, "kv_lengths: is None, but must be given with a block_table$"),
    ("page size", {n: np.zeros((7, KV_HEADS, 24, KEY_DIM), np.float32) for n in "kv"}, ValueError, r"k: extent\[2\] \(page size\) is 24"),
    ("heads", {"k": np.zeros((7, 3, 16, KEY_DIM), np.float32)}, ValueError, "3"),
    ("pages of v", {"v": np.zeros((6, KV_HEADS, 16, 6), np.float32)}, ValueError, r"v: extent\[0\] \(pages\) is 6.* 7"),
    ("rows of v", {"v": np.zeros((7, KV_HEADS, 32, 6), np.float32)}, ValueError, r"v: .*\(page size\) is 32.* 16"),
    ("key dim", {"k": np.zeros((7, KV_HEADS, 16, 9), np.float32)}, ValueError, "k: .* 9.* 8"),
    ("stride", {"k": np.zeros((7, KV_HEADS, 16, 16), np.float32)[..., ::2]}, ValueError, r"k: stride\[3\] is 2"),
    ("mask", {"mask": np.ones((1, 32), bool)}, ValueError, "mask: .* 32.* 30"),
]


@pytest.mark.parametrize("case", BAD_TABLES, ids=[case[0] for case in BAD_TABLES])
def test_bad_block_table(rng, case):
    _, replaced, exception, pattern = case
    given = {
        "k": np.zeros((7, KV_HEADS, 16, KEY_DIM), np.float32),
        "v": np.zeros((7, KV_HEADS, 16, VALUE_DIM), np.float32),
        "block_table": np.array([[0, 1], [2, 3]], np.int32),
        "kv_lengths": [30, 17],
    }
    out = np.full((2, HEADS, 1, VALUE_DIM), np.float32(7))
    with pytest.raises(exception, match=pattern):
        hattn.attention(queries(rng, 2, 1), out=out, **{**given, **replaced})
    assert np.all(out == 7)
