"""KVCache's kinds of storage: random operations against a NumPy model, contents to the bit, no page lost."""

import numpy as np
import pytest

import hattn
from cache_model import (
    KEY_DIM,
    KV_HEADS,
    STORAGES,
    VALUE_DIM,
    CacheModel,
    Operations,
    assert_holds,
    make,
    new_rows,
    stored,
)
from helpers import assert_same_bits
from stored import TYPES


@pytest.mark.parametrize("turns", [False, True])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("storage", STORAGES)
def test_random_operations(rng, storage, dtype, turns):
    run = Operations(rng, storage, dtype, turns)
    for _ in range(300 if dtype == "float32" else 100):
        getattr(run, rng.choice(["append", "truncate", "fork", "turn", "reset"], p=[0.6, 0.18, 0.12, 0.09, 0.01]))()
        run.assert_holds()
    run.reset()
    run.assert_holds()
    if "pages" in storage:
        assert run.cache.pages == (0, run.model.page_count)


def test_a_full_pool_refuses_and_changes_nothing(rng):
    cache = hattn.KVCache(2, KV_HEADS, 100, KEY_DIM, page_size=16, page_count=5)
    k = rng.standard_normal((2, KV_HEADS, 40, KEY_DIM), np.float32)
    cache.append(k, k, [40, 5])  # 3 pages and 1
    before = [array.copy() for array in (*cache.view(), cache.block_table, cache.lengths)]
    with pytest.raises(ValueError, match="k: the new rows want 3 pages of 16 keys, but 1 of the cache's 5 are free"):
        cache.append(k, k, [10, 30])
    for was, now in zip(before, (*cache.view(), cache.block_table, cache.lengths)):
        assert_same_bits(np.asarray(now), was)
    cache.append(k, k, [10, 5])


def test_a_refused_append_leaves_shared_pages_shared(rng):
    cache = hattn.KVCache(3, KV_HEADS, 64, KEY_DIM, page_size=16, page_count=2)
    k = rng.standard_normal((3, KV_HEADS, 5, KEY_DIM), np.float32)
    cache.append(k, k, [5, 0, 0])
    cache.fork(0, 1)
    cache.fork(0, 2)
    for _ in range(3):  # two copies wanted, one page free
        with pytest.raises(ValueError, match="want 2 pages .* 1 of"):
            cache.append(k, k)
    assert cache.pages == (1, 1)
    cache.append(k, k, [5, 0, 0])
    assert cache.pages == (2, 0)
    cache.append(k, k, [0, 0, 0])
    cache.truncate([0, 5, 0])
    cache.append(k, k, [0, 5, 0])  # the last user writes in place
    assert cache.pages == (1, 1)


def test_forks_share_until_they_differ(rng):
    cache, model = make("pages of 16", 3)
    k, v = new_rows(rng, 3, 40)
    cache.append(k, v, [40, 0, 0])
    model.append(k, v, [40, 0, 0])
    cache.fork(0, 1)
    cache.fork(0, 2, 35)
    assert cache.pages[0] == 3
    parent = [stored(cache, model, 0, side).copy() for side in (0, 1)]
    k, v = new_rows(rng, 3, 4)
    cache.append(k, v, [0, 4, 4])
    assert cache.pages[0] == 5
    for side in (0, 1):
        assert_same_bits(stored(cache, model, 0, side), parent[side])
    cache.truncate([0, 44, 39])
    assert cache.pages[0] == 4  # two whole pages in common, a last one each


def test_paged_contiguous_and_forked_hold_the_same(rng):
    lengths = [33, 20]
    k, v = new_rows(rng, 2, 33)
    holdings = []
    for storage in ("contiguous", "pages of 16", "pages of 128"):
        cache, model = make(storage, 2)
        cache.append(k[:, :, :20], v[:, :, :20])
        cache.append(k[:, :, 20:], v[:, :, 20:], [13, 0])
        model.append(k, v, lengths)
        holdings.append([stored(cache, model, b, side) for b in (0, 1) for side in (0, 1)])
    for other in holdings[1:]:
        for ours, theirs in zip(holdings[0], other):
            assert_same_bits(ours, theirs)


def test_ring_goes_back_as_far_as_its_window(rng):
    cache = hattn.KVCache(2, KV_HEADS, 40, KEY_DIM, window=20)  # 48 keys kept
    k = rng.standard_normal((2, KV_HEADS, 100, KEY_DIM), np.float32)
    cache.append(k, k, [100, 48])
    cache.truncate([72, 3])
    message = "lengths: of sequence 0 is 71, but its ring keeps keys from 52 on.*window of 20 .*at least 72, or 0"
    with pytest.raises(ValueError, match=message):
        cache.truncate([71, 0])
    with pytest.raises(ValueError, match="length: of sequence 0 is 60, .*72"):
        cache.fork(0, 1, 60)
    assert cache.lengths.tolist() == [72, 3]
    cache.truncate([0, 3])
    cache.append(k, k, [30, 0])
    cache.truncate([1, 3])


@pytest.mark.parametrize("offset", [0, 20, 39, 100])
def test_ring_of_a_sequence_without_rows(rng, offset):
    """It sees nothing, wherever it is said to stand."""
    cache = hattn.KVCache(2, KV_HEADS, 16, KEY_DIM, window=4)
    k, q = rng.standard_normal((2, KV_HEADS, 40, KEY_DIM), np.float32), rng.standard_normal((2, KV_HEADS, 1, KEY_DIM), np.float32)
    cache.append(k, k)
    options = {"causal": True, "window": (3, 0), "q_lengths": [1, 0]}
    expected = cache.attend(q, **options)
    assert_same_bits(cache.attend(q, **options, causal_offset=[39, offset])[0], expected[0])
    rows = cache.attend(q[:1], causal=True, window=(3, 0), cu_seqlens_q=[0, 1, 1], causal_offset=[39, offset])
    assert_same_bits(rows, expected[:1])


def test_ring_keeps_the_last_rows_of_a_long_append(rng):
    cache, model = make("ring", 2)
    k, v = new_rows(rng, 2, 500)
    cache.append(k, v, [500, 7])
    model.append(k, v, [500, 7])
    assert_holds(cache, model)
    assert cache.view()[0].shape == (2, KV_HEADS, 48, KEY_DIM)


def test_rows_that_belong_to_nobody_cost_nothing():
    """A broadcast array may claim any number of rows."""
    cache = hattn.KVCache(2, 1, 32, 4)
    k = np.broadcast_to(np.ones(4, np.float32), (2, 1, 2**55, 4))
    cache.append(k, k, [3, 1])
    assert cache.lengths.tolist() == [3, 1]
    assert np.all(cache.view()[0][0, 0, :3] == 1)


def test_many_rows_on_many_threads(rng):
    """Enough rows for the append to be shared out."""
    kv_heads, rows = 4, 600
    k, v = new_rows(rng, 3, rows, kv_heads)
    counts = [600, 17, 599]
    for options in ({}, {"page_size": 32}, {"window": 64}):
        cache = hattn.KVCache(3, kv_heads, 608, KEY_DIM, value_dim=VALUE_DIM, **options)
        model = CacheModel(3, kv_heads, 608, KEY_DIM, VALUE_DIM, **options)
        cache.append(k, v, counts, hattn.Rope())
        model.append(hattn.apply_rope(k, hattn.Rope()), v, counts)
        assert_holds(cache, model)


def test_views_are_read_only_and_outlive_the_name(rng):
    cache = hattn.KVCache(1, KV_HEADS, 16, KEY_DIM, page_size=16)
    k = rng.standard_normal((1, KV_HEADS, 16, KEY_DIM), np.float32)
    cache.append(k, k)
    keys, _ = cache.view()
    del cache
    assert_same_bits(np.asarray(keys), k)
    with pytest.raises(ValueError, match="read-only"):
        keys[:] = 0


def test_block_table_is_a_copy(rng):
    cache, _ = make("pages of 16", 2)
    cache.append(*new_rows(rng, 2, 20))
    cache.block_table[:] = 7
    assert cache.block_table[:, :3].tolist() == [[0, 1, -1], [2, 3, -1]]
    assert cache.block_table.dtype == np.int32


@pytest.mark.parametrize(
    "replaced, exception, pattern",
    [
        ({"page_size": 0}, ValueError, "page_size: is 0, but must be positive"),
        ({"page_size": 8}, ValueError, "page_size: is 8, but must be 16, 32, 64 or 128"),
        ({"page_size": 256}, ValueError, "page_size: is 256"),
        ({"page_size": -16}, ValueError, "page_size: is -16"),
        ({"page_size": 16.0}, TypeError, "page_size: expected an integer, got float"),
        ({"page_count": 4}, ValueError, "page_count: is 4, but must be None without pages, page_size being None"),
        ({"page_size": 16, "page_count": -1}, ValueError, "page_count: is -1"),
        ({"page_size": 16, "page_count": 2**40}, ValueError, "page_count: is 1099511627776"),
        ({"page_size": 16, "window": 4}, ValueError, "window: is 4, .*page_size, which is 16, it must be None$"),
        ({"window": 9}, ValueError, "window: is 9, but must be at most the capacity, which is 8"),
        ({"window": -1}, ValueError, "window: is -1"),
    ],
)
def test_bad_constructor(replaced, exception, pattern):
    with pytest.raises(exception, match=pattern):
        hattn.KVCache(**{"batch": 2, "kv_heads": 2, "capacity": 8, "head_dim": 8, **replaced})


@pytest.mark.parametrize(
    "arguments, exception, pattern",
    [
        ((0, 0), ValueError, "target: is 0, but must differ from source"),
        ((-1, 0), ValueError, "source: is -1, .*batch, 2"),
        ((2, 0), ValueError, "source: is 2, .*batch, 2"),
        ((0, 2), ValueError, "target: is 2, .*batch, 2"),
        ((0, 1, 6), ValueError, "length: of sequence 0 is 6, .*5"),
        ((0, 1, -1), ValueError, "length: is -1, but must be at least 0"),
        ((0.5, 1), TypeError, "source: expected an integer, got float"),
    ],
)
@pytest.mark.parametrize("storage", ["contiguous", "pages of 16", "ring"])
def test_bad_fork_changes_nothing(rng, storage, arguments, exception, pattern):
    cache, model = make(storage, 2)
    k, v = new_rows(rng, 2, 5)
    cache.append(k, v, [5, 3])
    model.append(k, v, [5, 3])
    with pytest.raises(exception, match=pattern):
        cache.fork(*arguments)
    assert_holds(cache, model)


def test_only_paged_caches_have_pages():
    for options in ({}, {"window": 4}):
        cache = hattn.KVCache(1, 1, 16, 8, **options)
        for name in ("pages", "block_table"):
            with pytest.raises(ValueError, match="cache: its page_size is 0"):
                getattr(cache, name)
