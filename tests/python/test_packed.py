"""Packed queries and keys: against the oracle, and the same bits as padded batches with lengths."""

import numpy as np
import pytest

import hattn
import oracle
from helpers import assert_close, assert_same_bits, ends, pack, random_qkv

Q_LENGTHS = [1, 70, 0, 5]  # decoding, prefill, nothing, a chunk
KV_LENGTHS = [600, 70, 9, 0]
HEADS, KV_HEADS, DIM = 4, 2, 16


@pytest.fixture
def padded(rng):
    """q, k, v of four sequences, with NaN behind their lengths."""
    arrays = random_qkv(rng, len(Q_LENGTHS), HEADS, KV_HEADS, max(Q_LENGTHS), max(KV_LENGTHS), DIM)
    for array, lengths in zip(arrays, (Q_LENGTHS, KV_LENGTHS, KV_LENGTHS)):
        for b, n in enumerate(lengths):
            array[b, :, n:] = np.nan
    return arrays


@pytest.fixture(params=["padded keys", "packed keys"])
def key_options(request, padded):
    """(k, v, options) both ways."""
    _, k, v = padded
    if request.param == "padded keys":
        return k, v, {"kv_lengths": KV_LENGTHS}
    return pack(k, KV_LENGTHS), pack(v, KV_LENGTHS), {"cu_seqlens_k": ends(KV_LENGTHS)}


OPTIONS = {
    "plain": {},
    "causal": {"causal": True},
    "window": {"window": (20, 3), "softcap": 2.0},
    "offsets": {"causal": True, "causal_offset": [599, 3, 0, 2]},
    "sinks": {"sinks": np.arange(HEADS, dtype=np.float32), "alibi_slopes": np.full(HEADS, 0.1, np.float32)},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_same_bits_as_padded(padded, key_options, algorithm, name):
    q, k, v = padded
    options = {"algorithm": algorithm, "return_lse": True, **OPTIONS[name]}
    out, lse = hattn.attention(q, k, v, q_lengths=Q_LENGTHS, kv_lengths=KV_LENGTHS, **options)
    packed_k, packed_v, lengths = key_options
    packed_q = pack(q, Q_LENGTHS)
    packed_out, packed_lse = hattn.attention(
        packed_q, packed_k, packed_v, cu_seqlens_q=ends(Q_LENGTHS), **lengths, **options
    )
    assert_same_bits(packed_out, pack(out, Q_LENGTHS))
    assert_same_bits(packed_lse, pack(lse[..., None], Q_LENGTHS)[..., 0])


@pytest.mark.parametrize("name", OPTIONS)
def test_each_sequence_against_the_oracle(padded, key_options, name):
    q, k, v = padded
    packed_k, packed_v, lengths = key_options
    packed_q = pack(q, Q_LENGTHS)
    out = hattn.attention(packed_q, packed_k, packed_v, cu_seqlens_q=ends(Q_LENGTHS), **lengths, **OPTIONS[name])
    for b, (rows, keys, first) in enumerate(zip(Q_LENGTHS, KV_LENGTHS, ends(Q_LENGTHS))):
        options = dict(OPTIONS[name])
        if "causal_offset" in options:
            options["causal_offset"] = options["causal_offset"][b]
        one = slice(b, b + 1)
        expected = oracle.attention(q[one, :, :rows], k[one, :, :keys], v[one, :, :keys], **options)
        assert_close(out[:, :, first : first + rows], expected.out, f"sequence {b}")


def test_bias_and_mask_follow_the_rows(rng, padded):
    q, k, v = padded
    bias = rng.standard_normal((len(Q_LENGTHS), HEADS, max(Q_LENGTHS), max(KV_LENGTHS)), np.float32)
    mask = rng.random(bias.shape) < 0.7
    arguments = {"cu_seqlens_q": ends(Q_LENGTHS), "cu_seqlens_k": ends(KV_LENGTHS)}
    packed = [pack(q, Q_LENGTHS), pack(k, KV_LENGTHS), pack(v, KV_LENGTHS)]
    lengths = {"q_lengths": Q_LENGTHS, "kv_lengths": KV_LENGTHS}
    expected = hattn.attention(q, k, v, bias=bias, mask=mask, **lengths)
    out = hattn.attention(*packed, bias=pack(bias, Q_LENGTHS), mask=pack(mask, Q_LENGTHS), **arguments)
    assert_same_bits(out, pack(expected, Q_LENGTHS))
    # One row of each for all rows of a sequence.
    expected = hattn.attention(q, k, v, bias=bias[:, :, :1], mask=mask[:, :1, :1], **lengths)
    out = hattn.attention(*packed, bias=bias[:, :, :1], mask=mask[:, :1, :1], **arguments)
    assert_same_bits(out, pack(expected, Q_LENGTHS))


def test_layout_and_out(padded):
    q, k, v = padded
    q = pack(q, Q_LENGTHS)
    arguments = {"cu_seqlens_q": ends(Q_LENGTHS), "kv_lengths": KV_LENGTHS}
    expected = hattn.attention(q, k, v, **arguments)
    swapped = [np.ascontiguousarray(array.transpose(0, 2, 1, 3)) for array in (q, k, v)]
    out = np.empty((1, sum(Q_LENGTHS), HEADS, DIM), np.float32)
    assert hattn.attention(*swapped, layout="bshd", out=out, **arguments) is out
    assert_same_bits(np.ascontiguousarray(out.transpose(0, 2, 1, 3)), expected)


def test_threads_do_not_matter(padded, key_options):
    packed_k, packed_v, lengths = key_options
    q = pack(padded[0], Q_LENGTHS)
    one, seven = (
        hattn.attention(q, packed_k, packed_v, cu_seqlens_q=ends(Q_LENGTHS), threads=threads, **lengths)
        for threads in (1, 7)
    )
    assert_same_bits(one, seven)


def test_prefill_and_decoding_over_a_cache(rng):
    cache = hattn.KVCache(3, KV_HEADS, 100, DIM)
    _, k, v = random_qkv(rng, 3, HEADS, KV_HEADS, 1, 60, DIM)
    cache.append(k, v, lengths=[60, 0, 13])
    q_lengths = [1, 0, 13]
    q = rng.standard_normal((1, HEADS, sum(q_lengths), DIM), np.float32)
    out = cache.attend(q, cu_seqlens_q=ends(q_lengths), causal=True)
    for b, first, rows, keys in ((0, 0, 1, 60), (2, 1, 13, 13)):
        one = slice(b, b + 1)
        rows = slice(first, first + rows)
        expected = oracle.attention(q[:, :, rows], k[one, :, :keys], v[one, :, :keys], causal=True)
        assert_close(out[:, :, rows], expected.out)


STORAGE = {
    "contiguous": {},
    "int8": {"dtype": "int8"},
    "pages": {"page_size": 16, "dtype": "bfloat16"},
    "ring": {"window": 64},
}


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
@pytest.mark.parametrize("turned", ["as they are", "by place", "by positions"])
@pytest.mark.parametrize("storage", STORAGE)
def test_packed_keys_are_appended_as_padded_ones(rng, storage, turned, layout):
    """A step of a server, twice: decoding, a prompt, nothing and a chunk in one call each."""
    padded, packed = (hattn.KVCache(4, KV_HEADS, 160, DIM, **STORAGE[storage]) for _ in range(2))
    rope = None if turned == "as they are" else hattn.Rope()
    for lengths in (Q_LENGTHS, [3, 0, 20, 64]):
        _, k, v = random_qkv(rng, 4, HEADS, KV_HEADS, 1, max(lengths), DIM)
        positions = rng.integers(0, 900, (4, max(lengths))) if turned == "by positions" else None
        padded.append(k, v, lengths, rope, positions)
        rows = [pack(array, lengths) for array in (k, v)]
        places = None if positions is None else np.concatenate([row[:n] for row, n in zip(positions, lengths)])
        if layout == "bshd":
            rows = [np.ascontiguousarray(array.swapaxes(1, 2)) for array in rows]
        packed.append(*rows, rope=rope, positions=places, cu_seqlens=ends(lengths), layout=layout)
        np.testing.assert_array_equal(packed.lengths, padded.lengths)
        q = rng.standard_normal((1, HEADS, sum(lengths), DIM), np.float32)
        options = {"cu_seqlens_q": ends(lengths), "causal": True, "window": (63, 0)}
        assert_same_bits(packed.attend(q, **options), padded.attend(q, **options))


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"cu_seqlens": [0, 1, 3]}, "cu_seqlens: has 3 entries, but one more than the batch of the cache is 4"),
        ({"cu_seqlens": [1, 1, 3, 5]}, r"cu_seqlens\[0\]: is 1, but must be 0"),
        ({"cu_seqlens": [0, 3, 1, 5]}, r"cu_seqlens\[2\]: is 1, but the entry before is 3"),
        ({"cu_seqlens": [0, 1, 3, 4]}, r"cu_seqlens\[3\]: is 4, but k has 5 rows"),
        ({"cu_seqlens": [0, 1, 3, 5], "lengths": [1, 2, 2]}, "lengths: is given, but cu_seqlens is too"),
        ({"cu_seqlens": [0, 1, 3, 5], "rope": hattn.Rope(), "positions": np.zeros((3, 5))}, "positions: .*"),
        ({"cu_seqlens": [0, 0, 0, 5]}, "k: sequence 2 has 12 keys and would have 17, but the cache's capacity is 16"),
        ({"cu_seqlens": [0, 1, 3, 5], "layout": "bshd"}, r"k: extent\[1\] .*5.*2"),
    ],
)
def test_packed_keys_that_are_refused(rng, wrong, message):
    cache = hattn.KVCache(3, KV_HEADS, 16, DIM)
    full = rng.standard_normal((3, KV_HEADS, 12, DIM), np.float32)
    cache.append(full, full)
    rows = rng.standard_normal((1, KV_HEADS, 5, DIM), np.float32)
    with pytest.raises((ValueError, TypeError), match=message):
        cache.append(rows, rows, **wrong)
    np.testing.assert_array_equal(cache.lengths, [12] * 3)


def test_rows_over_a_ring_are_those_of_each_sequence(rng):
    batch, window = 8, 14
    cache = hattn.KVCache(batch, KV_HEADS, 16, DIM, window=window)
    _, k, v = random_qkv(rng, batch, HEADS, KV_HEADS, 1, 40, DIM)
    for first in range(0, 40, 8):
        cache.append(k[:, :, first : first + 8], v[:, :, first : first + 8])
    q = rng.standard_normal((batch, HEADS, 1, DIM), np.float32)
    padded = cache.attend(q, causal=True, window=(window - 1, 0))
    packed = cache.attend(
        pack(q, [1] * batch), cu_seqlens_q=ends([1] * batch), causal=True, window=(window - 1, 0)
    )
    assert_same_bits(pack(padded, [1] * batch), packed)
    with pytest.raises(ValueError, match="q: its first row in sequence 1 stands at position 30"):
        rows = [1, 10] + [0] * (batch - 2)
        long = rng.standard_normal((1, HEADS, 11, DIM), np.float32)
        cache.attend(long, cu_seqlens_q=ends(rows), causal=True, window=(window - 1, 0))


def test_no_sequence_and_no_row():
    empty = np.empty((1, HEADS, 0, DIM), np.float32)
    keys = np.empty((1, KV_HEADS, 0, DIM), np.float32)
    for cu_seqlens in ([0], [0, 0, 0]):
        out, lse = hattn.attention(
            empty, keys, keys, cu_seqlens_q=cu_seqlens, cu_seqlens_k=cu_seqlens, return_lse=True
        )
        assert out.shape == (1, HEADS, 0, DIM) and lse.shape == (1, HEADS, 0)


ERRORS = [
    ("empty", {"cu_seqlens_q": np.zeros(0, np.int32)}, ValueError, "cu_seqlens_q: is empty"),
    ("rank", {"cu_seqlens_q": np.zeros((1, 3), np.int32)}, ValueError, "cu_seqlens_q: rank is 2, but must be 1"),
    ("float", {"cu_seqlens_q": np.zeros(3, np.float32)}, TypeError, "cu_seqlens_q: dtype is float32"),
    ("start", {"cu_seqlens_q": [1, 4, 8]}, ValueError, "cu_seqlens_q[0]: is 1, but must be 0"),
    ("back", {"cu_seqlens_q": [0, 9, 8]}, ValueError, "cu_seqlens_q"),
    ("short", {"cu_seqlens_q": [0, 4, 7]}, ValueError, "cu_seqlens_q[2]: is 7, but q has 8 rows"),
    ("large", {"cu_seqlens_q": [0, 2**40, 8]}, ValueError, "cu_seqlens_q: entry 1 is 1099511627776"),
    ("keys count", {"cu_seqlens_k": [0, 20]}, ValueError, "cu_seqlens_k: has 2 entries, but the batch + 1 is 3"),
    ("keys short", {"cu_seqlens_k": [0, 5, 19]}, ValueError, "cu_seqlens_k[2]: is 19, but k has 20 rows"),
    ("keys alone", {"cu_seqlens_q": None}, ValueError, "cu_seqlens_k: is given, but cu_seqlens_q is None"),
    ("q_lengths", {"q_lengths": [1, 1]}, ValueError, "q_lengths: is given, but cu_seqlens_q is too"),
    ("kv_lengths", {"kv_lengths": [1, 1]}, ValueError, "kv_lengths: is given, but cu_seqlens_k is too"),
    ("keys padded", {"cu_seqlens_k": None}, ValueError, "k: extent[0] (batch) is 1, but the number of sequences in cu_seqlens_q is 2"),
    ("pages", {"block_table": [[0], [0]]}, ValueError, "block_table: is given, but cu_seqlens_k is too"),
    ("offsets", {"causal_offset": [1]}, ValueError, "has 1 entries, but the number of sequences in cu_seqlens_q is 2"),
    ("scores", {"return_scores": "masked"}, NotImplementedError, "packed queries have no score output yet"),
]


@pytest.mark.parametrize("change, error, message", [case[1:] for case in ERRORS], ids=[case[0] for case in ERRORS])
def test_errors(change, error, message):
    q = np.zeros((1, HEADS, 8, DIM), np.float32)
    k = np.zeros((1, KV_HEADS, 20, DIM), np.float32)
    arguments = {"cu_seqlens_q": [0, 4, 8], "cu_seqlens_k": [0, 5, 20]}
    hattn.attention(q, k, k, **arguments)
    with pytest.raises(error) as caught:
        hattn.attention(q, k, k, **{**arguments, **change})
    assert message in str(caught.value)


def test_cache_errors():
    cache = hattn.KVCache(3, KV_HEADS, 10, DIM)
    q = np.zeros((1, HEADS, 8, DIM), np.float32)
    with pytest.raises(ValueError, match="cu_seqlens_q: number of sequences is 2, but the cache has 3"):
        cache.attend(q, cu_seqlens_q=[0, 4, 8])
    with pytest.raises(TypeError, match="cu_seqlens_k: is settled by the cache"):
        cache.attend(q, cu_seqlens_q=[0, 4, 8, 8], cu_seqlens_k=[0, 0, 0, 0])
