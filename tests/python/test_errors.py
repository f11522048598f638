"""Bad arguments of the public functions: the exception, the argument it names, and nothing written."""

import ml_dtypes
import numpy as np
import pytest

import hattn
from device_arrays import KDL_CPU, DeviceArray
from helpers import Tensor, random_qkv

BATCH, HEADS, QUERIES, KEYS, DIM = 2, 4, 5, 7, 16


def f32(*shape):
    return np.ones(shape, np.float32)


class Undumpable(Tensor):
    def __dlpack__(self, **arguments):
        raise BufferError("this tensor requires grad")


# (name, replaced arguments, exception, pattern of the message)
BAD_ARRAYS = [
    ("list", {"q": [[1.0]]}, TypeError, "q: expected a NumPy array or a DLPack tensor, got list"),
    ("none", {"k": None}, TypeError, "k: expected a NumPy array or a DLPack tensor, got NoneType"),
    ("float64", {"q": np.ones((BATCH, HEADS, QUERIES, DIM))}, TypeError, "q: dtype is float64"),
    ("complex", {"v": np.ones((BATCH, 2, KEYS, DIM), np.complex64)}, TypeError, "v: dtype is complex64|v: .*complex"),
    ("queries int8", {"q": np.ones((BATCH, HEADS, QUERIES, DIM), np.int8)}, TypeError, "q: dtype is int8, but must be float32, float16 or bf"),
    ("int32 keys", {"k": np.ones((BATCH, 2, KEYS, DIM), np.int32)}, TypeError, "k: dtype is int32, but must be float32, .* uint8"),
    (
        "one int4 a byte",
        {"k": np.ones((BATCH, 2, KEYS, DIM), ml_dtypes.int4)},
        TypeError,
        "k: dtype is int4, one element a byte",
    ),
    ("no scale", {"k": np.ones((BATCH, 2, KEYS, DIM), np.int8)}, ValueError, "k_scale: is None, but k is int8$"),
    ("scale of floats", {"v_scale": 0.5}, ValueError, "v_scale: is given, but v is float32$"),
    ("scale's rank", {"k_scale": f32(2, 3, 4)}, ValueError, "k_scale: rank is 3, but must be 0, 1, 2 or 4"),
    ("scale's dtype", {"k_scale": np.ones(2)}, TypeError, "k_scale: dtype is float64, but must be float32"),
    (
        "scale's heads",
        {"k": np.ones((BATCH, 2, KEYS, DIM), np.int8), "k_scale": f32(3)},
        ValueError,
        r"k_scale: extent\[1\] \(kv heads\) is 3, but must be 1 or 2",
    ),
    (
        "scale's channels",
        {"k": np.ones((BATCH, 2, KEYS, DIM), np.int8), "k_scale": f32(2, 3)},
        ValueError,
        rf"k_scale: extent\[3\] \(head dimension\) is 3, but must be 1, {DIM}, one for each channel of k, or 1, one for each 32",
    ),
    (
        "scales of keys",
        {"k": np.ones((BATCH, 2, KEYS, DIM), np.int8), "k_scale": f32(BATCH, 2, KEYS, 2)},
        ValueError,
        r"k_scale: extent\[3\] .*is 2, but must be 1, one for each 32",
    ),
    ("bool", {"q": np.ones((BATCH, HEADS, QUERIES, DIM), bool)}, TypeError, "q: dtype is bool"),
    ("big endian", {"q": np.ones((BATCH, HEADS, QUERIES, DIM), ">f4")}, TypeError, "q: dtype is >f4, which hattn"),
    ("objects", {"k": np.ones((BATCH, 2, KEYS, DIM), object)}, TypeError, "k: dtype is object, which hattn"),
    ("float8", {"v": np.ones((BATCH, 2, KEYS, DIM), ml_dtypes.float8_e4m3fn)}, TypeError, "v: dtype is float8_e4m3fn"),
    ("masked", {"q": np.ma.ones((BATCH, HEADS, QUERIES, DIM), "f4")}, TypeError, "q: expected an array without a mask"),
    ("masked lengths", {"kv_lengths": np.ma.ones(2, int)}, TypeError, "kv_lengths: expected an array without a mask"),
    (
        "scales of keys too far apart",
        {
            "k": np.ones((BATCH, 2, KEYS, 64), np.int8),
            "q": f32(BATCH, 4, QUERIES, 64),
            "k_scale": np.lib.stride_tricks.as_strided(f32(1), (BATCH, 2, KEYS, 2), (0, 0, 0, 2**33)),
        },
        NotImplementedError,
        r"k_scale: extent\[3\] is 2 and stride\[3\] is 2147483648, but scales of a row may span at most 1073741824",
    ),
    ("ragged scale", {"k_scale": [[1.0], [1.0, 2.0]]}, ValueError, "k_scale: is ragged"),
    ("float16 scale", {"v_scale": Tensor(np.ones(2, np.float16))}, TypeError, "v_scale: dtype is float16, but must be"),
    ("table of words", {"block_table": "a"}, TypeError, "block_table: dtype is <U1, but must be an integer type"),
    ("rank 3", {"q": f32(HEADS, QUERIES, DIM)}, ValueError, r"q: rank is 3, but must be 4 \[batch, heads"),
    ("rank 5", {"v": f32(1, BATCH, 2, KEYS, DIM)}, ValueError, "v: rank is 5, but must be 4"),
    ("unexportable", {"q": Undumpable(f32(1, 1, 1, 1))}, ValueError, "q: .*DLPack: this tensor requires grad"),
    ("stride q", {"q": f32(BATCH, HEADS, QUERIES, DIM * 2)[..., ::2]}, ValueError, "q: .*stride.* 2"),
    ("stride k", {"k": f32(BATCH, 2, DIM, KEYS).transpose(0, 1, 3, 2)}, ValueError, "k: .*stride.* 7"),
    ("stride v", {"v": f32(BATCH, 2, KEYS, DIM)[..., ::-1]}, ValueError, "v: .*stride.* -1"),
    ("head ratio", {"q": f32(BATCH, 5, QUERIES, DIM)}, ValueError, r"q: extent\[1\] \(query heads\) is 5, but .* 2"),
    ("no kv heads", {"k": f32(BATCH, 0, KEYS, DIM), "v": f32(BATCH, 0, KEYS, DIM)}, ValueError, r"k: extent\[1\] \(kv heads\) is 0, but .* 1"),
    ("no query heads", {"q": f32(BATCH, 0, QUERIES, DIM)}, ValueError, r"q: extent\[1\] \(query heads\) is 0, but .* 1"),
    ("head dimension 0", {"q": f32(BATCH, HEADS, QUERIES, 0), "k": f32(BATCH, 2, KEYS, 0)}, ValueError, r"q: extent\[3\] \(head dimension\) is 0, but .* 1"),
    ("value dimension 0", {"v": f32(BATCH, 2, KEYS, 0)}, ValueError, r"v: extent\[3\] \(head dimension\) is 0, but .* 1"),
    ("list of scales", {"k_scale": [1e300, 1.0]}, ValueError, "k_scale: is 1e\\+300, but must be finite and fit float32"),
    ("head dimensions", {"k": f32(BATCH, 2, KEYS, 8)}, ValueError, "k: .*8.*16"),
    ("batch of k", {"k": f32(3, 2, KEYS, DIM)}, ValueError, "k: .*3.*2"),
    ("batch of v", {"v": f32(3, 2, KEYS, DIM)}, ValueError, "v: .*3.*2"),
    ("heads of v", {"v": f32(BATCH, 4, KEYS, DIM)}, ValueError, "v: .*4.*2"),
    ("keys of v", {"v": f32(BATCH, 2, 8, DIM)}, ValueError, "v: .*8.*7"),
    ("bias rank", {"bias": f32(1, 1, 1, 1, 1)}, ValueError, "bias: rank is 5, but must be at most 4"),
    ("bias extent", {"bias": f32(QUERIES, 6)}, ValueError, "bias: .*6.*7"),
    ("bias dtype", {"bias": np.ones((QUERIES, KEYS))}, TypeError, "bias: dtype is float64"),
    ("bias bool", {"bias": np.ones((QUERIES, KEYS), bool)}, TypeError, "bias: dtype is bool, but must be float32"),
    ("mask extent", {"mask": np.ones((3, KEYS), bool)}, ValueError, "mask: .*3.*5"),
    ("mask uint8", {"mask": np.ones((QUERIES, KEYS), np.uint8)}, TypeError, "mask: dtype is uint8"),
    ("mask float", {"mask": f32(QUERIES, KEYS)}, TypeError, "mask: dtype is float32, but must be bool"),
    ("mask rank", {"mask": np.ones((1,) * 5, bool)}, ValueError, "mask: rank is 5"),
    ("sinks length", {"sinks": f32(3)}, ValueError, "sinks: has 3 entries, but the number of heads of q is 4"),
    ("sinks rank", {"sinks": f32(HEADS, 1)}, ValueError, "sinks: rank is 2, but must be 1"),
    ("sinks dtype", {"sinks": np.ones(HEADS)}, TypeError, "sinks: dtype is float64, but must be float32"),
    ("sinks list", {"sinks": [0.0] * HEADS}, TypeError, "sinks: expected a NumPy array or a DLPack tensor, got list"),
    ("slopes length", {"alibi_slopes": f32(5)}, ValueError, "alibi_slopes: has 5 entries, but .* is 4"),
    ("slopes dtype", {"alibi_slopes": np.ones(HEADS, np.int32)}, TypeError, "alibi_slopes: dtype is int32"),
    ("q_lengths count", {"q_lengths": [1]}, ValueError, "q_lengths: has 1 entries, but the batch of q is 2"),
    ("q_lengths large", {"q_lengths": [1, 6]}, ValueError, "q_lengths.*6.*5"),
    ("q_lengths negative", {"q_lengths": [-1, 1]}, ValueError, "q_lengths.*-1"),
    ("kv_lengths large", {"kv_lengths": np.array([8, 1])}, ValueError, "kv_lengths.*8.*7"),
    ("kv_lengths negative", {"kv_lengths": np.array([1, -2])}, ValueError, "kv_lengths.*-2"),
    (
        "kv_lengths wide",
        {"kv_lengths": np.array([1, 2**32 + 1])},
        ValueError,
        "kv_lengths: entry 1 is 4294967297.*int32",
    ),
    (
        "kv_lengths uint64",
        {"kv_lengths": np.array([1, 2**63], np.uint64)},
        ValueError,
        "kv_lengths: entry 1 is .*int32",
    ),
    ("kv_lengths float", {"kv_lengths": np.array([1.0, 2.0])}, TypeError, "kv_lengths: dtype is float64.*integer"),
    ("kv_lengths bool", {"kv_lengths": np.array([True, False])}, TypeError, "kv_lengths: dtype is bool.*integer"),
    ("kv_lengths floats", {"kv_lengths": [1, 2.5]}, TypeError, r"kv_lengths\[1\]: expected an integer, got float"),
    ("kv_lengths int", {"kv_lengths": 3}, TypeError, "kv_lengths: expected .*, got int"),
    ("kv_lengths rank", {"kv_lengths": np.ones((2, 1), np.int32)}, ValueError, "kv_lengths: rank is 2, but must be 1"),
    ("offset count", {"causal_offset": np.ones(3, np.int32)}, ValueError, "causal_offset: has 3 entries"),
    ("offset wide", {"causal_offset": 2**31}, ValueError, "causal_offset: is 2147483648.*int32"),
    ("offset far", {"causal_offset": 2**30}, ValueError, "causal_offset: is 1073741824, but must be from -5"),
    ("offsets far", {"causal_offset": [0, 2**30]}, ValueError, r"causal_offset\[1\]: is 1073741824, but must be from"),
    ("mask batch", {"mask": np.ones((3, 1, QUERIES, KEYS), bool)}, ValueError, "mask: .*is 3, but must be 1 or 2"),
    (
        "page size",
        {"k": f32(3, 2, 24, DIM), "v": f32(3, 2, 24, DIM), "block_table": [[0], [1]], "kv_lengths": [4, 4]},
        ValueError,
        r"k: extent\[2\] \(page size\) is 24, but with a block_table must be 16, 32, 64 or 128",
    ),
    ("offset float", {"causal_offset": 1.5}, TypeError, "causal_offset: expected .*, got float"),
]

BAD_OPTIONS = [
    ("layout", {"layout": "sbhd"}, ValueError, 'layout: is "sbhd", but must be one of bhsd, bshd'),
    ("layout type", {"layout": 3}, TypeError, "layout: expected a string, got int"),
    ("layout array", {"layout": np.array(["bhsd", "bshd"])}, TypeError, "layout: expected a string, got ndarray"),
    ("algorithm array", {"algorithm": np.array(["auto"])}, TypeError, "algorithm: expected a string, got ndarray"),
    ("algorithm", {"algorithm": "fast"}, ValueError, 'algorithm: is "fast", but must be one of auto, naive'),
    ("scores", {"return_scores": "logits"}, ValueError, 'return_scores: is "logits", but must be one of raw'),
    ("scores type", {"return_scores": True}, TypeError, "return_scores: expected a string, got bool"),
    ("device", {"device": "tpu"}, ValueError, 'device: is "tpu", but must be one of cpu, opencl, cuda'),
    ("scale nan", {"scale": float("nan")}, ValueError, "scale: is nan"),
    ("scale inf", {"scale": float("inf")}, ValueError, "scale: is inf"),
    ("scale range", {"scale": 1e39}, ValueError, r"scale: is 1e\+39.*float32"),
    ("scale beyond float64", {"scale": 10**400}, ValueError, "scale: is beyond float64, but must be finite"),
    ("scale type", {"scale": "1"}, TypeError, "scale: expected a number, got str"),
    ("scale bool", {"scale": True}, TypeError, "scale: expected a number, got bool"),
    ("softcap negative", {"softcap": -1.0}, ValueError, "softcap: .*-1"),
    ("softcap nan", {"softcap": float("nan")}, ValueError, "softcap: is nan"),
    ("softcap beyond float64", {"softcap": -(10**400)}, ValueError, "softcap: is beyond float64, but must be finite"),
    ("softcap tiny", {"softcap": 1e-46}, ValueError, "softcap: is 1e-46"),
    ("softcap none", {"softcap": None}, TypeError, "softcap: expected a number, got NoneType"),
    ("causal", {"causal": 1}, TypeError, "causal: expected a bool, got int"),
    ("lse", {"return_lse": "yes"}, TypeError, "return_lse: expected a bool, got str"),
    ("window int", {"window": 3}, ValueError, "window: is 3, but must be two integers"),
    ("window three", {"window": (1, 2, 3)}, ValueError, r"window: is \(1, 2, 3\), but must be two integers"),
    ("window float", {"window": (1.5, 0)}, TypeError, r"window\[0\]: expected an integer, got float"),
    ("window negative", {"window": (-2, 0)}, ValueError, r"window\[0\]: is -2, but must be at least -1"),
    ("window right", {"window": (0, -5)}, ValueError, r"window\[1\]: is -5"),
    ("window wide", {"window": (2**63, 0)}, ValueError, r"window\[0\]: is 9223372036854775808.*int64"),
    ("threads negative", {"threads": -1}, ValueError, "threads: .*-1"),
    ("threads many", {"threads": 4097}, ValueError, "threads: is 4097, but must be None, or from 1 to 4096$"),
    ("threads wide", {"threads": 2**31}, ValueError, "threads: is 2147483648.*int32"),
    ("threads float", {"threads": 2.0}, TypeError, "threads: expected an integer, got float"),
]

NOT_YET = [
    *(
        (f"large_heads_{device}", {"device": device, **{n: np.ones((1, 2, 3, 300), np.float32) for n in "qkv"}},
         "^(q and v: the larger head dimension|device:) is")
        for device in ("opencl", "cuda")
    ),
]


def ids(cases):
    return [case[0] for case in cases]


def arguments(rng, replaced):
    q, k, v = random_qkv(rng, BATCH, HEADS, 2, QUERIES, KEYS, DIM)
    return {"q": q, "k": k, "v": v, **replaced}


@pytest.mark.parametrize("case", BAD_ARRAYS + BAD_OPTIONS, ids=ids(BAD_ARRAYS + BAD_OPTIONS))
def test_attention(rng, case):
    _, replaced, exception, pattern = case
    given = arguments(rng, replaced)
    out = np.full((BATCH, HEADS, QUERIES, DIM), np.float32(7))
    with pytest.raises(exception, match=pattern):
        hattn.attention(**given, out=out)
    assert np.all(out == 7)


@pytest.mark.parametrize("case", BAD_OPTIONS, ids=ids(BAD_OPTIONS))
def test_explain(rng, case):
    _, replaced, exception, pattern = case
    with pytest.raises(exception, match=pattern):
        hattn.explain(**arguments(rng, replaced))


@pytest.mark.parametrize("case", NOT_YET, ids=ids(NOT_YET))
def test_not_supported_yet(rng, case):
    _, replaced, pattern = case
    with pytest.raises(NotImplementedError, match=pattern):
        hattn.attention(**arguments(rng, replaced))
    with pytest.raises(NotImplementedError, match=pattern):
        hattn.explain(**arguments(rng, replaced))


def test_strides_that_are_not_whole_elements(rng):
    q, k, v = random_qkv(rng)
    records = np.zeros(q.shape, np.dtype([("x", "<f4"), ("tag", "u1")]))
    with pytest.raises(ValueError, match="q: .*DLPack"):
        hattn.attention(records["x"], k, v)


BAD_OUTS = [
    ("list", lambda q: [0.0], TypeError, "out: expected a NumPy array or a DLPack tensor, got list"),
    ("extent", lambda q: f32(BATCH, HEADS, QUERIES, DIM + 1), ValueError, "out: .*17.*16"),
    ("layout", lambda q: f32(BATCH, QUERIES, HEADS, DIM), ValueError, "out: .*5.*4"),
    ("rank", lambda q: f32(HEADS, QUERIES, DIM), ValueError, "out: rank is 3"),
    (
        "dtype",
        lambda q: np.ones((BATCH, HEADS, QUERIES, DIM), np.int8),
        TypeError,
        "out: dtype is int8, but must be float32, float16 or bfloat16",
    ),
    ("float64", lambda q: np.ones((BATCH, HEADS, QUERIES, DIM)), TypeError, "out: dtype is float64"),
    ("stride", lambda q: f32(BATCH, HEADS, QUERIES, 2 * DIM)[..., ::2], ValueError, "out: .*stride.* 2"),
    ("q", lambda q: q, ValueError, "out: .*overlap.*q|out: .*q.*overlap|out: overlap"),
]


@pytest.mark.parametrize("case", BAD_OUTS, ids=ids(BAD_OUTS))
def test_out(rng, case):
    _, make, exception, pattern = case
    given = arguments(rng, {})
    before = given["q"].copy()
    out = make(given["q"])
    kept = np.array(out, copy=True)
    with pytest.raises(exception, match=pattern):
        hattn.attention(**given, out=out)
    np.testing.assert_array_equal(out, kept)
    np.testing.assert_array_equal(given["q"], before)


# PyTorch has such tensors.
@pytest.mark.parametrize(
    "name, array",
    [
        ("q", f32(BATCH, HEADS, QUERIES, DIM)),
        ("kv_lengths", np.full(BATCH, KEYS, np.int32)),
        ("causal_offset", np.zeros(BATCH, np.int64)),
        ("sinks", f32(HEADS)),
        ("alibi_slopes", f32(HEADS)),
        ("k_scale", f32(2)),
        ("block_table", np.zeros((BATCH, 1), np.int32)),
    ],
)
def test_elements_without_memory(rng, name, array):
    q, k, v = (rng.standard_normal((BATCH, heads, rows, DIM), np.float32) for heads, rows in ((HEADS, QUERIES), (2, KEYS), (2, KEYS)))
    options = {"q": q, "k": k.astype(np.int8) if name == "k_scale" else k, "v": v}
    if name == "block_table":
        options.update(k=f32(2, 2, 16, DIM), v=f32(2, 2, 16, DIM), kv_lengths=[KEYS] * BATCH)
    with pytest.raises(ValueError, match=f"^{name}: data is null$"):
        hattn.attention(**{**options, name: DeviceArray(array, (KDL_CPU, 0), data=0)})


def test_out_with_overlapping_rows(rng):
    given = arguments(rng, {})
    memory = f32(QUERIES, DIM)
    out = np.lib.stride_tricks.as_strided(memory, (BATCH, HEADS, QUERIES, DIM), (0, 0, DIM * 4, 4))
    with pytest.raises(ValueError, match="out: .*(overlap|stride)"):
        hattn.attention(**given, out=out)
    assert np.all(memory == 1)


def test_out_read_only(rng):
    given = arguments(rng, {})
    out = f32(BATCH, HEADS, QUERIES, DIM)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="out: the array is read-only"):
        hattn.attention(**given, out=out)
    assert np.all(out == 1)


@pytest.mark.parametrize("name", ["k", "v", "bias"])
def test_out_may_not_overlap(rng, name):
    given = arguments(rng, {"bias": f32(BATCH, HEADS, QUERIES, KEYS)})
    memory = f32(10_000)
    shape = given[name].shape
    given[name] = memory[: np.prod(shape)].reshape(shape)
    out = memory[3 : 3 + BATCH * HEADS * QUERIES * DIM].reshape(BATCH, HEADS, QUERIES, DIM)
    with pytest.raises(ValueError, match="out: .*overlap"):
        hattn.attention(**given, out=out)
    assert np.all(memory == 1)


def test_unknown_option(rng):
    q, k, v = random_qkv(rng)
    for call, name in ((hattn.attention, "attention"), (hattn.explain, "explain")):
        with pytest.raises(TypeError, match=rf"^{name}\(\) got an unexpected keyword argument 'flavour'"):
            call(q, k, v, flavour="plain")


def test_scores_of_packed_queries(rng):
    q, k, v = random_qkv(rng, batch=1)
    with pytest.raises(NotImplementedError, match="return_scores: is given, but so is cu_seqlens_q"):
        hattn.attention(q, k, v, cu_seqlens_q=[0, 5], return_scores="raw")


def test_what_explain_does_not_look_at(rng):
    """As its docstring has it: attention() refuses these."""
    q, k, v = random_qkv(rng, BATCH, HEADS, 2, QUERIES, KEYS, DIM)
    for replaced in (
        {"k": k[:1]},
        {"k": k[..., :8]},
        {"v": v[:, :, :3]},
        {"k": k.astype(np.int8)},
        {"bias": f32(3)},
        {"out": f32(1, HEADS, QUERIES, DIM)},
    ):
        given = {"q": q, "k": k, "v": v, **replaced}
        assert hattn.explain(**given)["algorithm"]
        with pytest.raises(ValueError):
            hattn.attention(**given)


@pytest.mark.parametrize("lengths", [{"kv_lengths": [99, 1]}, {"kv_lengths": [1, -1]}, {"q_lengths": [1, 77]}])
def test_explain_looks_at_lengths(rng, lengths):
    """Which choose what is computed."""
    arrays = random_qkv(rng, BATCH, HEADS, 2, QUERIES, KEYS, DIM)
    (wrong,) = (entry for entries in lengths.values() for entry in entries if entry != 1)
    for call in (hattn.explain, hattn.attention):
        with pytest.raises(ValueError, match=f"is {wrong}, but must be"):
            call(*arrays, **lengths)


def test_attention_backward_is_not_there_yet():
    assert not hasattr(hattn, "attention_backward")


def test_unknown_force(rng, monkeypatch):
    q, k, v = random_qkv(rng)
    monkeypatch.delenv("HATTN_FORCE", raising=False)
    expected = hattn.attention(q, k, v)
    monkeypatch.setenv("HATTN_FORCE", "gibberish")
    with pytest.raises(ValueError, match="gibberish"):
        hattn.attention(q, k, v)
    with pytest.raises(ValueError, match="gibberish"):
        hattn.info()
    monkeypatch.delenv("HATTN_FORCE")
    np.testing.assert_array_equal(hattn.attention(q, k, v), expected)


MERGE_SHAPE = (1, 2, 3, 4)
BAD_MERGES = [
    ("none", [], [], ValueError, "outs: is empty"),
    ("count", [f32(*MERGE_SHAPE)], [], ValueError, "lses: has 0 states, but outs has 1"),
    ("not a sequence", 3, [], TypeError, "outs: expected a sequence of arrays, got int"),
    ("lses not a sequence", [], 3, TypeError, "lses: expected a sequence of arrays, got int"),
    ("rank", [f32(2, 3, 4)], [f32(1, 2, 3)], ValueError, "outs: rank is 3"),
    ("lse rank", [f32(*MERGE_SHAPE)], [f32(*MERGE_SHAPE)], ValueError, "lses: rank is 4"),
    ("dtype", [np.ones(MERGE_SHAPE)], [f32(1, 2, 3)], TypeError, "outs: dtype is float64"),
    ("lse dtype", [f32(*MERGE_SHAPE)], [np.ones((1, 2, 3))], TypeError, "lses: dtype is float64"),
    ("int8", [np.ones(MERGE_SHAPE, np.int8)], [f32(1, 2, 3)], TypeError, "outs: dtype is int8, but must be float32, float16"),
    ("lse float16", [f32(*MERGE_SHAPE)], [np.ones((1, 2, 3), np.float16)], TypeError, "lses: dtype is float16, but must be float32"),
    ("extents", [f32(*MERGE_SHAPE), f32(1, 2, 3, 5)], [f32(1, 2, 3)] * 2, ValueError, "outs.*5.*4"),
    ("lse extents", [f32(*MERGE_SHAPE)], [f32(1, 2, 4)], ValueError, "lses.*4.*3"),
    ("stride", [f32(1, 2, 4, 3).transpose(0, 1, 3, 2)], [f32(1, 2, 3)], ValueError, "outs.*stride"),
    ("element", ["state"], [f32(1, 2, 3)], TypeError, "outs: expected a NumPy array .*, got str"),
]


@pytest.mark.parametrize("case", BAD_MERGES, ids=ids(BAD_MERGES))
def test_merge_states(case):
    _, outs, lses, exception, pattern = case
    with pytest.raises(exception, match=pattern):
        hattn.merge_states(outs, lses)
