"""KVCache: random sequences of operations against a NumPy model, and errors that leave the cache as it was."""

import copy
import pickle

import numpy as np
import pytest

import hattn
import oracle
from helpers import Tensor, assert_close, assert_same_bits

HEADS, KV_HEADS, KEY_DIM, VALUE_DIM = 4, 2, 8, 12


class Model:
    """What a cache holds, as one list of keys and values per sequence."""

    def __init__(self, batch, capacity):
        self.k = [np.zeros((KV_HEADS, 0, KEY_DIM), np.float32) for _ in range(batch)]
        self.v = [np.zeros((KV_HEADS, 0, VALUE_DIM), np.float32) for _ in range(batch)]
        self.capacity = capacity

    @property
    def lengths(self):
        return np.array([k.shape[1] for k in self.k], np.int32)

    def append(self, k, v, lengths):
        for b, n in enumerate(lengths):
            self.k[b] = np.concatenate([self.k[b], k[b, :, :n]], axis=1)
            self.v[b] = np.concatenate([self.v[b], v[b, :, :n]], axis=1)

    def truncate(self, lengths):
        for b, n in enumerate(lengths):
            self.k[b], self.v[b] = self.k[b][:, :n], self.v[b][:, :n]

    def padded(self):
        """k, v [B, Hkv, max length, D]; NaN past each sequence's end."""
        longest = int(self.lengths.max(initial=0))
        pad = [((0, 0), (0, longest - n), (0, 0)) for n in self.lengths]
        return tuple(
            np.stack([np.pad(a, p, constant_values=np.nan) for a, p in zip(arrays, pad)]) for arrays in (self.k, self.v)
        )


def new_rows(rng, batch, rows):
    return (
        rng.standard_normal((batch, KV_HEADS, rows, KEY_DIM), np.float32),
        rng.standard_normal((batch, KV_HEADS, rows, VALUE_DIM), np.float32),
    )


def attend_and_check(rng, cache, model, algorithm):
    queries = int(rng.integers(1, 5))
    q = rng.standard_normal((len(model.k), HEADS, queries, KEY_DIM), np.float32)
    options = {"causal": bool(rng.integers(2)), "window": (int(rng.integers(-1, 6)), -1)}
    k, v = model.padded()
    if rng.integers(2):
        options["bias"] = rng.standard_normal((HEADS, queries, k.shape[2]), np.float32)
    expected = oracle.attention(q, k, v, kv_lengths=model.lengths, **options)
    out, lse, scores = cache.attend(q, algorithm=algorithm, return_lse=True, return_scores="masked", **options)
    assert_close(out, expected.out)
    assert_close(lse, expected.lse, "lse")
    assert_close(scores, expected.scores["masked"], "scores")


def append_and_check(rng, cache, model):
    batch = len(model.k)
    rows = int(rng.integers(0, 6))
    k, v = new_rows(rng, batch, rows)
    lengths = rng.integers(0, rows + 1, batch) if rng.integers(2) else None
    counts = np.full(batch, rows) if lengths is None else lengths
    if np.any(model.lengths + counts > model.capacity):
        with pytest.raises(ValueError, match="capacity"):
            cache.append(k, v, lengths)
        return
    cache.append(k, v, lengths)
    model.append(k, v, counts)


@pytest.mark.parametrize("seed", range(8))
def test_random_operations(rng, algorithm, seed):
    batch, capacity = int(rng.integers(1, 4)), int(rng.integers(5, 30))
    cache = hattn.KVCache(batch, KV_HEADS, capacity, KEY_DIM, value_dim=VALUE_DIM)
    model = Model(batch, capacity)
    for _ in range(40):
        operation = rng.choice(["append", "attend", "truncate", "reset"], p=[0.5, 0.35, 0.12, 0.03])
        if operation == "append":
            append_and_check(rng, cache, model)
        elif operation == "attend":
            attend_and_check(rng, cache, model, algorithm)
        elif operation == "truncate":
            lengths = rng.integers(0, model.lengths + 1)
            cache.truncate(lengths)
            model.truncate(lengths)
        else:
            cache.reset()
            model.truncate([0] * batch)
        np.testing.assert_array_equal(cache.lengths, model.lengths)


@pytest.fixture
def filled(rng):
    """A cache with sequences of 3 and 5 keys, capacity 8, and its model."""
    cache = hattn.KVCache(2, KV_HEADS, 8, KEY_DIM, value_dim=VALUE_DIM)
    model = Model(2, 8)
    k, v = new_rows(rng, 2, 5)
    cache.append(k, v, [3, 5])
    model.append(k, v, [3, 5])
    return cache, model


def test_decode_equals_prefill(rng, algorithm):
    rows = 9
    k, v = new_rows(rng, 1, rows)
    q = rng.standard_normal((1, HEADS, rows, KEY_DIM), np.float32)
    expected = oracle.attention(q, k, v, causal=True).out
    cache = hattn.KVCache(1, KV_HEADS, 16, KEY_DIM, value_dim=VALUE_DIM)
    for i in range(rows):
        cache.append(k[:, :, i : i + 1], v[:, :, i : i + 1])
        out = cache.attend(q[:, :, i : i + 1], causal=True, algorithm=algorithm)
        assert_close(out, expected[:, :, i : i + 1])


def test_layout_and_out(rng, filled):
    cache, _ = filled
    q = rng.standard_normal((2, HEADS, 3, KEY_DIM), np.float32)
    expected = cache.attend(q)
    out = np.empty((2, 3, HEADS, VALUE_DIM), np.float32)
    assert cache.attend(q.transpose(0, 2, 1, 3), layout="bshd", out=out) is out
    assert_same_bits(np.ascontiguousarray(out.transpose(0, 2, 1, 3)), expected)


def test_strided_rows_and_tensors(rng):
    packed = rng.standard_normal((2, 5, 2, KV_HEADS, KEY_DIM), np.float32)
    k, v = packed[:, :, 0].transpose(0, 2, 1, 3), packed[:, :, 1].transpose(0, 2, 1, 3)
    q = rng.standard_normal((2, HEADS, 1, KEY_DIM), np.float32)
    cache = hattn.KVCache(2, KV_HEADS, 5, KEY_DIM, dtype=np.float32)
    cache.append(Tensor(k), Tensor(v))
    out = cache.attend(Tensor(q))
    assert type(out) is Tensor
    assert_close(out.numpy(), oracle.attention(q, k, v).out)


def test_lengths_are_a_copy(filled):
    cache, _ = filled
    cache.lengths[:] = 0
    assert cache.lengths.tolist() == [3, 5]
    assert cache.lengths.dtype == np.int32


def test_empty_cache(rng):
    cache = hattn.KVCache(2, KV_HEADS, 8, KEY_DIM)
    q = rng.standard_normal((2, HEADS, 3, KEY_DIM), np.float32)
    out, lse = cache.attend(q, return_lse=True)
    assert np.all(out == 0) and np.all(lse == -np.inf)


def f32(*shape):
    return np.ones(shape, np.float32)


K, V = f32(2, KV_HEADS, 2, KEY_DIM), f32(2, KV_HEADS, 2, VALUE_DIM)
BAD_APPENDS = [
    ("list", {"k": [1]}, TypeError, "k: expected a NumPy array"),
    ("none", {"v": None}, TypeError, "v: expected a NumPy array"),
    ("rank", {"k": f32(KV_HEADS, 2, KEY_DIM)}, ValueError, "k: rank is 3"),
    ("dtype", {"k": K.astype(np.float64)}, TypeError, "k: dtype is float64"),
    ("int8", {"v": V.astype(np.int8)}, TypeError, "v: dtype is int8, but must be float32"),
    ("batch", {"k": f32(3, KV_HEADS, 2, KEY_DIM)}, ValueError, "k: .*3.*2"),
    ("heads", {"k": f32(2, 3, 2, KEY_DIM)}, ValueError, "k: .*3.*2"),
    ("key dim", {"k": f32(2, KV_HEADS, 2, 9)}, ValueError, "k: .*9.*8"),
    ("value dim", {"v": f32(2, KV_HEADS, 2, KEY_DIM)}, ValueError, "v: .*8.*12"),
    ("rows", {"v": f32(2, KV_HEADS, 3, VALUE_DIM)}, ValueError, "v: .*3.*2"),
    ("stride", {"k": f32(2, KV_HEADS, KEY_DIM, 2).transpose(0, 1, 3, 2)}, ValueError, "k: .*stride"),
    ("capacity", {"k": f32(2, KV_HEADS, 4, KEY_DIM), "v": f32(2, KV_HEADS, 4, VALUE_DIM)}, ValueError, "capacity.* 8"),
    ("lengths count", {"lengths": [1]}, ValueError, "lengths: has 1 entries, but the batch of the cache is 2"),
    ("lengths large", {"lengths": [1, 3]}, ValueError, "lengths.*3.*2"),
    ("lengths negative", {"lengths": [-1, 0]}, ValueError, "lengths.*-1"),
    ("lengths float", {"lengths": np.ones(2)}, TypeError, "lengths: dtype is float64"),
    ("rope", {"rope": {}}, TypeError, "rope: expected a hattn.Rope, got dict"),
]


@pytest.mark.parametrize("case", BAD_APPENDS, ids=[case[0] for case in BAD_APPENDS])
def test_bad_append_changes_nothing(rng, filled, case):
    _, replaced, exception, pattern = case
    cache, model = filled
    with pytest.raises(exception, match=pattern):
        cache.append(**{"k": K, "v": V, **replaced})
    np.testing.assert_array_equal(cache.lengths, model.lengths)
    attend_and_check(rng, cache, model, "auto")


@pytest.mark.parametrize(
    "lengths, exception, pattern",
    [
        ([4, 5], ValueError, "lengths.*4.*3"),
        ([0, -1], ValueError, "lengths.*-1"),
        ([1], ValueError, "lengths: has 1 entries"),
        (np.array([1.0, 1.0]), TypeError, "lengths: dtype is float64"),
        (3, TypeError, "lengths: expected"),
        (None, TypeError, "lengths: expected"),
    ],
)
def test_bad_truncate_changes_nothing(rng, filled, lengths, exception, pattern):
    cache, model = filled
    with pytest.raises(exception, match=pattern):
        cache.truncate(lengths)
    np.testing.assert_array_equal(cache.lengths, model.lengths)


@pytest.mark.parametrize(
    "replaced, exception, pattern",
    [
        ({"q": [1]}, TypeError, "q: expected a NumPy array"),
        ({"q": f32(3, HEADS, 1, KEY_DIM)}, ValueError, "q: batch is 3, but the cache has 2"),
        ({"q": f32(2, 3, 1, KEY_DIM)}, ValueError, "3.* 2"),
        ({"q": f32(2, HEADS, 1, 9)}, ValueError, "9.*8|8.*9"),
        ({"mask": np.ones((1, 8), bool)}, ValueError, "mask: .*8.*5"),
        ({"kv_lengths": [1, 1]}, TypeError, "kv_lengths: is settled by the cache"),
        ({"block_table": K}, TypeError, "block_table: is settled by the cache"),
        ({"algorithm": "best"}, ValueError, "algorithm: "),
        ({"return_lse": 1}, TypeError, "return_lse: "),
        ({"flavour": 1}, TypeError, r"^attend\(\) got an unexpected keyword argument 'flavour'"),
        ({"stream": 1}, ValueError, "stream: is given, but q lives on the host"),
    ],
)
def test_bad_attend(filled, replaced, exception, pattern):
    cache, _ = filled
    out = np.full((2, HEADS, 1, VALUE_DIM), np.float32(7))
    with pytest.raises(exception, match=pattern):
        cache.attend(**{"q": f32(2, HEADS, 1, KEY_DIM), "out": out, **replaced})
    assert np.all(out == 7)


@pytest.mark.parametrize(
    "replaced, exception, pattern",
    [
        ({"batch": -1}, ValueError, "batch.*-1"),
        ({"kv_heads": 0}, ValueError, "kv_heads.*0"),
        ({"capacity": -5}, ValueError, "capacity.*-5"),
        ({"head_dim": 0}, ValueError, "^head_dim: is 0"),
        ({"value_dim": 0}, ValueError, "value_dim: is 0"),
        ({"value_dim": -1}, ValueError, "value_dim: is -1, but must be positive$"),
        ({"window": -1}, ValueError, "window: is -1, but must be positive$"),
        ({"batch": 1.5}, TypeError, "batch: expected an integer, got float"),
        ({"capacity": 2**63}, ValueError, "capacity: is 9223372036854775808.*int64"),
        ({"capacity": 2**60}, (ValueError, MemoryError), "capacity|overflow|memory"),
        (
            {"batch": 2**20, "kv_heads": 2**10, "capacity": 2**29, "head_dim": 2**16},
            ValueError,
            r"^batch \* kv_heads \* capacity \* head dimension: .* does not fit",
        ),
        ({"dtype": "float64"}, TypeError, 'dtype: is "float64", but must be one of float32'),
        ({"value_dtype": np.float64}, TypeError, 'value_dtype: is "float64", but must be one of float32'),
        ({"k_scale": 0.5}, ValueError, "k_scale: is given, but the cache's type is float32$"),
        ({"dtype": "int8", "k_scale": f32(3)}, ValueError, r"k_scale: extent\[1\] .*is 3, but must be 1 or 2"),
        ({"dtype": "int8", "v_scale": f32(1, 1, 8)}, ValueError, "v_scale: rank is 3, but must be 0, 1, 2 or 4"),
        ({"dtype": "int8", "v_scale": f32(2, 2, 1, 1)}, ValueError, r"v_scale: extent\[0\] \(batch\) is 2, but must be 1"),
        ({"dtype": None}, TypeError, "dtype: expected a name or a NumPy dtype, got NoneType"),
        ({"dtype": object()}, TypeError, "dtype: expected a name or a NumPy dtype, got object"),
        # What may be given, in the words of Python: where C takes 0 for nothing, None.
        ({"page_size": 10}, ValueError, "page_size: is 10, but must be 16, 32, 64 or 128 keys, or None$"),
        ({"page_size": 0}, ValueError, "page_size: is 0, but must be positive$"),
        ({"page_size": 16, "window": 2}, ValueError, "window: is 2, but with a page_size, which is 16, it must be None$"),
        ({"page_count": 4}, ValueError, "page_count: is 4, but must be None without pages, page_size being None$"),
    ],
)
def test_bad_constructor(replaced, exception, pattern):
    with pytest.raises(exception, match=pattern):
        hattn.KVCache(**{"batch": 2, "kv_heads": 2, "capacity": 8, "head_dim": 8, **replaced})


def test_caches_are_not_copied(filled):
    cache, _ = filled
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="KVCache: cannot be copied"):
            copied(cache)


@pytest.mark.parametrize(
    "algorithm, window, query_heads",
    [("auto", 512, 1), ("split_kv", 512, 1), ("flash", 2048, 1), ("flash", 2048, 64), ("unfused", 1024, 8)],
)
@pytest.mark.parametrize("more", [488, 16, 1])
def test_ring_as_long_as_the_window(algorithm, window, query_heads, more):
    """The keys of a window that fills the ring start in the middle of a granule, so that they take more than the ring's granules."""
    rng = np.random.default_rng(window + more)
    cache = hattn.KVCache(batch=1, kv_heads=1, capacity=window, head_dim=16, window=window)
    k, v = (rng.standard_normal((1, 1, window + more, 16), np.float32) for _ in "kv")
    for begin in range(0, window + more, window):
        cache.append(k[:, :, begin : begin + window], v[:, :, begin : begin + window])
    q = rng.standard_normal((1, query_heads, 1, 16), np.float32)
    out = cache.attend(q, causal=True, window=(window - 1, -1), algorithm=algorithm)
    assert_close(out, oracle.attention(q, k, v, causal=True, window=(window - 1, -1)).out)


def test_forks_are_of_integers():
    cache = hattn.KVCache(2, 1, 4, 8)
    for source, target, message in (
        ("a", "a", "source: expected an integer, got str"),
        (0, 1.0, "target: expected an integer, got float"),
        (True, True, "source: expected an integer, got bool"),
    ):
        with pytest.raises(TypeError, match=message):
            cache.fork(source, target)


def test_pages_that_nobody_could_attend_to():
    """Are refused before anything is appended."""
    pages = 2**31 // (8 * 64 * 128)
    message = f"page_count: is {pages}, with which the pages of a side span 2147491840 elements, but they may span at most 2147483647$"
    with pytest.raises(NotImplementedError, match=message):
        hattn.KVCache(1, 8, 2**20, 128, dtype="int8", page_size=64, page_count=pages)


@pytest.mark.parametrize("storage", [{}, {"page_size": 16}, {"window": 4}])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8", "int4"])
def test_caches_without_sequences_have_arrays_without_elements(dtype, storage):
    cache = hattn.KVCache(0, 2, 16, 8, dtype=dtype, **storage)
    for side, scale in zip(cache.view(), cache.scales):
        assert side.size == 0 and side.ndim == 4 and side.shape[1] == 2
        assert (scale is None) == (dtype not in ("int8", "int4"))
        assert scale is None or (scale.size == 0 and scale.dtype == np.float32)
