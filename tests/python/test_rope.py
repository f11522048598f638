"""Rope: apply_rope() and KVCache.append() against rotations in float64, and their arguments."""

import copy
import pickle

import numpy as np
import pytest

import hattn
from cache_model import CacheModel, assert_holds
from helpers import Tensor, assert_same_bits
from rotation import turned
from stored import FLOATS

BATCH, HEADS, ROWS, DIM = 2, 3, 5, 12


def assert_turned(actual, x, expected):
    """Within rounding to float32 and the error of an angle in double precision, relative to the length of a pair."""
    bound = np.spacing(np.abs(expected).astype(np.float32)) * 0.51 + 1e-9 * np.abs(x).max()
    assert actual.dtype == np.float32
    assert np.all(np.abs(actual - expected) <= bound)


def consecutive(rows=ROWS, batch=BATCH):
    return np.tile(np.arange(rows), (batch, 1))


@pytest.fixture
def x(rng):
    return rng.standard_normal((BATCH, HEADS, ROWS, DIM), np.float32)


OPTIONS = [
    {},
    {"interleaved": True},
    {"dim": 8},
    {"dim": 2, "interleaved": True},
    {"base": 500000.0, "scaling_factor": 4.0},
    {"base": 0.5, "scaling_factor": 0.25, "interleaved": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_options(x, options):
    actual = hattn.apply_rope(x, hattn.Rope(**options))
    assert_turned(actual, x, turned(x, consecutive(), **options))
    rest = options.get("dim", DIM)
    assert_same_bits(np.ascontiguousarray(actual[..., rest:]), np.ascontiguousarray(x[..., rest:]))


@pytest.mark.parametrize("options", [*OPTIONS, "tables"], ids=str)
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda rope: pickle.loads(pickle.dumps(rope))], ids=["copy", "deepcopy", "pickle"])
def test_copies(x, rng, options, copied):
    tables = dict(zip(("cos", "sin"), rng.standard_normal((2, ROWS, DIM // 2), np.float32)))
    rope = hattn.Rope(**(tables if options == "tables" else options))
    assert_same_bits(hattn.apply_rope(x, copied(rope)), hattn.apply_rope(x, rope))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_sixteen_bits(x, dtype, layout):
    """The float32 result of the stored numbers, rounded once more; in place too, and rows past the lengths stay."""
    stored = x.astype(FLOATS[dtype])
    rope = hattn.Rope(dim=8)
    expected = hattn.apply_rope(stored.astype(np.float32), rope, lengths=[ROWS, 2]).astype(stored.dtype)
    given = stored if layout == "bhsd" else stored.transpose(0, 2, 1, 3)
    actual = hattn.apply_rope(given, rope, lengths=[ROWS, 2], layout=layout)
    actual = actual if layout == "bhsd" else actual.transpose(0, 2, 1, 3)
    assert actual.dtype == stored.dtype
    assert_same_bits(np.ascontiguousarray(actual).view(np.uint16), expected.view(np.uint16))
    rest = stored[1, :, 2:].copy()
    hattn.apply_rope(given.view(np.uint16).view(stored.dtype), rope, lengths=[ROWS, 2], layout=layout, out=given)
    assert_same_bits(stored[0].view(np.uint16), expected[0].view(np.uint16))
    assert_same_bits(stored[1, :, 2:].view(np.uint16).copy(), rest.view(np.uint16))


@pytest.mark.parametrize("interleaved", [False, True])
def test_far_positions(rng, interleaved):
    x = rng.standard_normal((1, 2, 200, 128), np.float32)
    positions = rng.integers(0, 1_000_001, (1, 200))
    positions[0, :2] = 0, 1_000_000
    actual = hattn.apply_rope(x, hattn.Rope(interleaved=interleaved), positions=positions)
    assert_turned(actual, x, turned(x, positions, interleaved=interleaved))
    assert_same_bits(np.ascontiguousarray(actual[:, :, 0]), np.ascontiguousarray(x[:, :, 0]))


def test_tables(rng, x):
    cos, sin = rng.standard_normal((2, 40, 4)).astype(np.float32)
    positions = rng.integers(0, 40, (BATCH, ROWS))
    positions[0, 0] = 39
    actual = hattn.apply_rope(x, hattn.Rope(cos=cos, sin=sin), positions=positions)
    assert_turned(actual, x, turned(x, positions, cos=cos, sin=sin))


def test_tables_of_the_angles_are_as_good_as_angles(x):
    angles = np.arange(ROWS)[:, None] * 10000.0 ** (-np.arange(0, DIM, 2) / DIM)
    rope = hattn.Rope(cos=np.cos(angles).astype(np.float32), sin=np.sin(angles).astype(np.float32))
    np.testing.assert_allclose(hattn.apply_rope(x, rope), hattn.apply_rope(x, hattn.Rope()), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "arguments, positions",
    [
        ({"offsets": [3, 70]}, np.arange(ROWS) + [[3], [70]]),
        ({"positions": [9, 8, 8, 0, 100]}, np.tile([9, 8, 8, 0, 100], (BATCH, 1))),
        ({"positions": np.arange(10, dtype=np.uint8).reshape(2, 5)}, np.arange(10).reshape(2, 5)),
        ({"positions": Tensor(np.arange(10).reshape(2, 5))}, np.arange(10).reshape(2, 5)),
    ],
)
def test_positions(x, arguments, positions):
    assert_turned(hattn.apply_rope(x, hattn.Rope(), **arguments), x, turned(x, positions))


def test_lengths(x):
    out = np.full_like(x, 7)
    assert hattn.apply_rope(x, hattn.Rope(), lengths=[2, 0], out=out) is out
    expected = turned(x, consecutive())
    assert_turned(out[0, :, :2], x, expected[0, :, :2])
    assert np.all(out[0, :, 2:] == 7) and np.all(out[1] == 7)
    fresh = hattn.apply_rope(x, hattn.Rope(), lengths=[2, 0])
    assert np.all(fresh[0, :, 2:] == 0) and np.all(fresh[1] == 0)


@pytest.mark.parametrize("options", [{}, {"interleaved": True}, {"dim": 4}], ids=str)
def test_layouts_strides_and_in_place(x, options):
    rope = hattn.Rope(**options)
    expected = hattn.apply_rope(x, rope)
    wide = np.zeros((BATCH, ROWS, 2 * HEADS, DIM + 3), np.float32)
    view = wide[:, :, ::2, :DIM]
    view[:] = x.transpose(0, 2, 1, 3)
    assert_same_bits(hattn.apply_rope(view, rope, layout="bshd"), np.ascontiguousarray(expected.transpose(0, 2, 1, 3)))
    assert hattn.apply_rope(view, rope, layout="bshd", out=view) is view
    assert_same_bits(np.ascontiguousarray(view), np.ascontiguousarray(expected.transpose(0, 2, 1, 3)))
    assert np.all(wide[..., DIM:] == 0) and np.all(wide[:, :, 1::2] == 0)
    tensor = hattn.apply_rope(Tensor(x), rope)
    assert type(tensor) is Tensor
    assert_same_bits(tensor.numpy(), expected)


def test_many_rows(rng):
    """Enough of them to be shared out to threads."""
    x = rng.standard_normal((2, 4, 700, 64), np.float32)
    assert_turned(hattn.apply_rope(x, hattn.Rope()), x, turned(x, consecutive(700)))


def test_nothing_to_turn():
    for shape in ((0, 2, 3, 8), (2, 2, 0, 8)):
        assert hattn.apply_rope(np.zeros(shape, np.float32), hattn.Rope()).shape == shape


@pytest.mark.parametrize("storage", [{}, {"page_size": 16}, {"window": 16}])
def test_append_turns_keys_as_apply_does(rng, storage):
    rope = hattn.Rope(dim=8, interleaved=True)
    cache = hattn.KVCache(2, 2, 32, DIM, value_dim=8, **storage)
    k = rng.standard_normal((2, 2, 20, DIM), np.float32)
    v = rng.standard_normal((2, 2, 20, 8), np.float32)
    cache.append(k[:, :, :10], v[:, :, :10], [10, 4], rope)
    cache.append(k[:, :, 10:], v[:, :, 10:], rope=rope, positions=np.arange(100, 110))
    model = CacheModel(2, 2, 32, DIM, 8, **storage)
    model.append(hattn.apply_rope(k[:, :, :10], rope), v[:, :, :10], [10, 4])
    model.append(hattn.apply_rope(k[:, :, 10:], rope, offsets=[100, 100]), v[:, :, 10:], [10, 10])
    assert_holds(cache, model)


F32 = np.ones((4, 6), np.float32)


@pytest.mark.parametrize(
    "options, exception, pattern",
    [
        ({"dim": 0}, ValueError, "dim: is 0, but must be positive and even"),
        ({"dim": 7}, ValueError, "dim: is 7, but must be positive and even"),
        ({"dim": -2}, ValueError, "dim: is -2, but must be positive and even"),
        ({"dim": 4.0}, TypeError, "dim: expected an integer, got float"),
        ({"base": "big"}, TypeError, "base: expected a number, got str"),
        ({"base": float("inf")}, ValueError, "base: is inf"),
        ({"base": 10**400}, ValueError, "base: is beyond float64, but must be finite"),
        ({"base": 0.0}, ValueError, "base: is 0.0, but must be positive"),
        ({"base": -3}, ValueError, "base: is -3.0, but must be positive"),
        ({"scaling_factor": 0}, ValueError, "scaling_factor: is 0.0, but must be positive"),
        ({"interleaved": 1}, TypeError, "interleaved: expected a bool"),
        ({"cos": F32}, ValueError, "sin: is None, but cos is given"),
        ({"sin": F32}, ValueError, "cos: is None, but sin is given"),
        ({"cos": F32, "sin": F32[:3]}, ValueError, r"sin: shape is \(3, 6\), but that of cos is \(4, 6\)"),
        ({"cos": F32[0], "sin": F32}, ValueError, "cos: rank is 1, but must be 2"),
        ({"cos": F32[:, :0], "sin": F32[:, :0]}, ValueError, r"cos: shape is \(4, 0\), but must be at least \(1, 1\)"),
        ({"cos": F32[:0], "sin": F32[:0]}, ValueError, r"cos: shape is \(0, 6\), but must be at least \(1, 1\)"),
        ({"cos": F32, "sin": F32.astype(np.float64)}, TypeError, "sin: dtype is float64, but must be float32"),
        ({"cos": [1.0], "sin": F32}, TypeError, "cos: expected a NumPy array"),
        ({"cos": F32, "sin": F32, "dim": 10}, ValueError, "cos: has 6 pairs, but dim is 10"),
    ],
)
def test_bad_rope(options, exception, pattern):
    with pytest.raises(exception, match=pattern):
        hattn.Rope(**options)


X = np.ones((BATCH, HEADS, ROWS, DIM), np.float32)


@pytest.mark.parametrize(
    "options, replaced, exception, pattern",
    [
        ({}, {"x": [1]}, TypeError, "x: expected a NumPy array"),
        ({}, {"x": X[0]}, ValueError, "x: rank is 3"),
        ({}, {"x": X.astype(np.float64)}, TypeError, "x: dtype is float64"),
        ({}, {"x": X[..., ::2]}, ValueError, "x: stride.* 2"),
        ({}, {"x": X[..., :9], "out": None}, ValueError, "rope.dim: is None, for all .* the head dimension is odd, 9, so that an even one must be given"),
        ({}, {"rope": None}, TypeError, "rope: expected a hattn.Rope, got NoneType"),
        ({}, {"rope": 10000.0}, TypeError, "rope: expected a hattn.Rope, got float"),
        ({"dim": 14}, {}, ValueError, "rope.dim: is 14, .* 12, or None for all of it$"),
        ({"cos": F32, "sin": F32}, {}, ValueError, "row 4 of sequence 0 is 4, .*tables, 3"),
        ({}, {"offsets": [0, -1]}, ValueError, r"offsets\[1\]: is -1, but must be at least 0"),
        ({}, {"offsets": [0, 2**29]}, ValueError, "row 1 of sequence 1 is 536870913"),
        ({}, {"offsets": [1]}, ValueError, "offsets: has 1 entries, but the batch of x is 2"),
        ({}, {"lengths": [6, 0]}, ValueError, r"lengths\[0\]: is 6, .* 5 rows"),
        ({}, {"lengths": [0, -1]}, ValueError, r"lengths\[1\]: is -1"),
        ({}, {"lengths": 3}, TypeError, "lengths: expected"),
        ({}, {"positions": [1, 2]}, ValueError, "positions: is for 1 sequences of 2 rows, .* 1 or 2 of 5"),
        ({}, {"positions": np.zeros((3, 5), int)}, ValueError, "positions: is for 3 sequences of 5 rows"),
        ({}, {"positions": np.zeros((1, 1, 5), int)}, ValueError, "positions: rank is 3, but must be 1 or 2"),
        ({}, {"positions": np.zeros(5)}, TypeError, "positions: dtype is float64"),
        ({}, {"positions": [[1], [1, 2]]}, ValueError, "positions: is ragged"),
        ({}, {"positions": [0, 0, 0, 0, 2**31]}, ValueError, "positions: an entry: is 2147483648.*int32"),
        ({}, {"positions": [0, 0, 0, 0, -1]}, ValueError, "^positions: .*row 4 of sequence 0 is -1"),
        ({}, {"layout": "hbsd"}, ValueError, 'layout: is "hbsd"'),
        ({}, {"out": X[:1].copy()}, ValueError, "out: .*1.*2"),
        ({}, {"out": X.astype(np.float64)}, TypeError, "out: dtype is float64"),
        ({}, {"out": X.astype(np.float16)}, TypeError, "out: dtype is float16, but must be float32"),
    ],
)
def test_bad_apply(options, replaced, exception, pattern):
    out = np.full_like(X, 7)
    arguments = {"x": X, "rope": hattn.Rope(**options), "out": out, **replaced}
    with pytest.raises(exception, match=pattern):
        hattn.apply_rope(**arguments)
    assert np.all(out == 7)


def test_an_offset_before_the_first_position_of_no_row():
    """As lengths - S gives it for a sequence that has no rows."""
    assert np.all(hattn.apply_rope(X, hattn.Rope(), offsets=[-5, 0], lengths=[0, 5])[0] == 0)


def test_partial_overlap_is_refused(rng):
    memory = rng.standard_normal(X.size + 1, np.float32)
    x, out = memory[:-1].reshape(X.shape), memory[1:].reshape(X.shape)
    with pytest.raises(ValueError, match="out: .*overlaps that of x"):
        hattn.apply_rope(x, hattn.Rope(), out=out)


def test_bad_append_changes_nothing(rng):
    cache = hattn.KVCache(2, 2, 20, 8, page_size=16, page_count=4)
    k = rng.standard_normal((2, 2, 4, 8), np.float32)
    cache.append(k, k)
    table = np.ones((7, 4), np.float32)
    for arguments, pattern in (
        ({"rope": hattn.Rope(dim=10)}, "rope.dim: is 10"),
        ({"rope": hattn.Rope(cos=table, sin=table)}, "row 3 of sequence 0 is 7, .*tables, 6"),
        ({"rope": hattn.Rope(), "positions": [0, 1]}, "positions: is for 1 sequences of 2 rows"),
        ({"positions": [0, 1, 2, 3]}, "positions: is given, but rope is None"),
    ):
        with pytest.raises(ValueError, match=pattern):
            cache.append(k, k, **arguments)
    assert cache.lengths.tolist() == [4, 4] and cache.pages == (2, 2)


def test_what_is_wrong_with_places(rng):
    x = rng.standard_normal((1, 2, 2, 8), np.float32)
    tables = rng.standard_normal((9, 5), np.float32)
    for call, message in (
        (lambda: hattn.apply_rope(x, hattn.Rope(), offsets=[2**29]), "offsets: the position of row 1 of sequence 0 is"),
        (lambda: hattn.apply_rope(x, hattn.Rope(), offsets=[1], positions=[1, 2]), "offsets: is given, but positions is"),
        (lambda: hattn.apply_rope(x, hattn.Rope(cos=tables, sin=tables)), "rope: cos has 5 pairs, but heads have 8"),
        (
            lambda: hattn.KVCache(1, 2, 8, 8).append(x, x, rope=hattn.Rope(cos=tables, sin=tables)),
            "rope: cos has 5 pairs, but heads have 8",
        ),
        (lambda: hattn.Rope(base=float("inf")), "base: is inf, but must be finite"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_a_base_beyond_float32(rng):
    x = rng.standard_normal((1, 1, 4, 8), np.float32)
    turned = hattn.apply_rope(x, hattn.Rope(base=1e300))
    angles = np.arange(4)[:, None] * 1e300 ** (-np.arange(4) / 4.0)
    first, second = x[0, 0, :, :4].astype(np.float64), x[0, 0, :, 4:].astype(np.float64)
    expected = np.concatenate(
        [first * np.cos(angles) - second * np.sin(angles), second * np.cos(angles) + first * np.sin(angles)], axis=1
    )
    np.testing.assert_allclose(turned[0, 0], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("storage", [{}, {"page_size": 16, "dtype": "int8"}, {"window": 20}], ids=str)
def test_queries_of_a_cache(rng, storage):
    """Padded and packed, they stand where the last keys of their sequences do."""
    rope, lengths = hattn.Rope(dim=8), np.array([4, 0, 2])
    cache = hattn.KVCache(3, 2, 64, DIM, **storage)
    rows = rng.standard_normal((3, 2, 30, DIM), np.float32)
    cache.append(rows, rows, lengths=[30, 3, 11])
    x = rng.standard_normal((3, 4, 4, DIM), np.float32)
    expected = hattn.apply_rope(x, rope, offsets=cache.lengths - lengths, lengths=lengths)
    assert_same_bits(cache.apply_rope(x, rope, lengths=lengths), expected)
    swapped = cache.apply_rope(x.swapaxes(1, 2), rope, lengths=lengths, layout="bshd")
    assert_same_bits(np.ascontiguousarray(swapped.swapaxes(1, 2)), expected)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    packed = np.concatenate([x[b, :, :count] for b, count in enumerate(lengths)], axis=1)[None]
    assert cache.apply_rope(packed, rope, cu_seqlens=ends, out=packed) is packed
    for b, count in enumerate(lengths):
        ours = packed[0, :, ends[b] : ends[b + 1]]
        assert_same_bits(np.ascontiguousarray(ours), np.ascontiguousarray(expected[b, :, :count]))
    positions = rng.integers(0, 99, (3, 4))
    assert_same_bits(cache.apply_rope(x, rope, positions=positions), hattn.apply_rope(x, rope, positions=positions))
    with pytest.raises(ValueError, match="x: sequence 1 has 4 rows, but the cache has 3 keys of it"):
        cache.apply_rope(x, rope)
    with pytest.raises(ValueError, match="lengths: is given, but cu_seqlens is too"):
        cache.apply_rope(x, rope, lengths=lengths, cu_seqlens=ends)
    with pytest.raises(ValueError, match=r"cu_seqlens\[3\]: is 6, but x has 4 rows"):
        cache.apply_rope(x[:1], rope, cu_seqlens=ends)
    with pytest.raises(ValueError, match=r"x: extent\[3\] .* is 6, but the cache's head dimension is 12"):
        cache.apply_rope(x[..., :6], rope, lengths=lengths)
