"""Attention over 16-bit and quantised arrays: against float64 on the numbers they stand for."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import hattn
import oracle
import stored
from helpers import ATOL, RTOL, BareTensor, assert_same_bits, pack

TARGETS = [target["name"] for target in hattn.info()["targets"] if target["runnable"]]
# Who made a CPU that a kernel is made for, in the words of /proc/cpuinfo.
VENDORS = {"": "", "amd": "AuthenticAMD"}


def targets_with(storage):
    """Targets of kernels over a storage that this CPU runs, and that are made for it."""
    cpu = Path("/proc/cpuinfo").read_text()
    kernels = (k for k in hattn.info()["kernels"] if k["storage"] == storage and k["runnable"])
    return {k["target"] for k in kernels if VENDORS[k["made_for"]] in cpu}


# Targets with kernels that multiply bfloat16 numbers as they are, on this CPU.
NATIVE_MATRICES = targets_with("bfloat16_matrices")
NATIVE_BFLOAT16 = targets_with("bfloat16") | NATIVE_MATRICES
HALVES = ("float16", "bfloat16")
MATRICES = ("bfloat16_matrices", "float32_matrices", "any_matrices", "halves_matrices")  # of storage
BYTE_MATRICES = ("int8_matrices", "int4_matrices")
BFLOAT16 = ml_dtypes.bfloat16


@pytest.fixture(params=TARGETS)
def target(request, monkeypatch):
    monkeypatch.setenv("HATTN_FORCE", f"target={request.param}")


def inputs(rng, types, batch=2, queries=5, keys=70, dim=40, scales="keys", query_heads=4):
    """q, k, v of (type of q, of k, of v)."""
    values = (rng.standard_normal((batch, query_heads if i == 0 else 2, queries if i == 0 else keys, dim), np.float32) for i in range(3))
    return [stored.store(rng, value, dtype, scales) for value, dtype in zip(values, types)]


def scales_of(k, v):
    return {name: side.scale for name, side in (("k_scale", k), ("v_scale", v)) if side.scale is not None}


def check(out, expected, dtype):
    """Within float32's tolerance of the oracle, and half a unit in the last place of the output's type."""
    assert out.dtype == stored.FLOATS[dtype]
    unit = 0 if dtype == "float32" else float(ml_dtypes.finfo(out.dtype).eps) / 2
    # Kernels that multiply bfloat16 as it is round weights too: by as much relative to the values, of order 1, they weigh.
    rounded = 2 * unit if dtype == "bfloat16" and NATIVE_BFLOAT16 else 0
    np.testing.assert_allclose(out.astype(np.float64), expected, rtol=RTOL + unit, atol=ATOL + rounded)


@pytest.mark.parametrize("types", [("bfloat16",) * 3, ("float32", "bfloat16", "bfloat16"), ("bfloat16", "float16", "bfloat16")])
def test_kernels_for_bfloat16_alone_serve_it_where_the_cpu_can(rng, types):
    q, k, v = inputs(rng, types, queries=200, keys=200)
    plan = hattn.explain(q.array, k.array, v.array, algorithm="flash")
    native = plan["target"] in NATIVE_BFLOAT16 and types == ("bfloat16",) * 3
    family = "amx_flash_" if plan["target"] in NATIVE_MATRICES else "bfloat16_flash_"
    assert plan["kernel"].startswith(family if native else "stored_flash_")


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_long_prompts_are_multiplied_as_sums_of_bfloat16_numbers_where_the_cpu_has_matrices(rng, dtype):
    kernels = []
    for keys in (384, 400):
        q, k, v = inputs(rng, ("float32", dtype, dtype), queries=keys, keys=keys, dim=96)
        scales = {} if k.scale is None else {"k_scale": k.scale, "v_scale": v.scale}
        kernels.append(hattn.explain(q.array, k.array, v.array, algorithm="flash", **scales))
    family = "flash_" if dtype == "float32" else "stored_flash_"
    matrices = "amx_float32_flash_" if dtype == "float32" else "amx_stored_flash_"
    assert kernels[0]["kernel"].startswith(family)
    assert kernels[1]["kernel"].startswith(matrices if kernels[1]["target"] in NATIVE_MATRICES else family)


def test_sums_over_thousands_of_values_of_one_sign_are_as_exact_as_float32(rng):
    """All roundings of a sum that only grows have the same sign, if it has one for each key. Weights but that of the first key are nearly 1/2."""
    q, k = np.zeros((1, 2, 256, 96), np.float32), np.zeros((1, 1, 8192, 96), np.float32)
    q[..., 0], k[:, :, 1:, 0] = 1, -0.69 * np.sqrt(96)
    v = np.broadcast_to(1 + rng.random(96, np.float32), k.shape).copy()
    out = hattn.attention(q, k, v)
    np.testing.assert_allclose(out, np.broadcast_to(v[:, :1, :1], out.shape), rtol=4e-6)


@pytest.mark.parametrize("types", [("float16",) * 3, ("bfloat16", "float16", "float16"), ("float16", "float16", "int4"), ("float16", "bfloat16", "float16")])
def test_two_terms_do_where_all_is_of_16_bits(rng, types):
    q, k, v = inputs(rng, types, queries=65, keys=200, dim=96)
    arrays, scales = (q.array, k.array, v.array), scales_of(k, v)
    plan = hattn.explain(*arrays, algorithm="flash", **scales)
    matrices = plan["target"] in NATIVE_MATRICES
    assert plan["kernel"].startswith("amx_halves_flash_" if matrices else "stored_flash_")
    expected = oracle.attention(q.numbers, k.numbers, v.numbers, causal=True)
    out, lse = hattn.attention(*arrays, algorithm="flash", causal=True, return_lse=True, **scales)
    check(out, expected.out, types[0])
    np.testing.assert_allclose(lse, expected.lse, rtol=RTOL, atol=ATOL)


def test_an_output_in_float32_takes_three_terms(rng):
    q, k, v = inputs(rng, ("float16",) * 3, queries=400, keys=400, dim=96)
    for dtype, family in (("float32", "amx_stored_flash_"), ("float16", "amx_halves_flash_")):
        out = np.empty(q.array.shape, dtype)
        plan = hattn.explain(q.array, k.array, v.array, algorithm="flash", out=out)
        assert plan["kernel"].startswith(family if plan["target"] in NATIVE_MATRICES else "stored_flash_")
        hattn.attention(q.array, k.array, v.array, algorithm="flash", out=out)
        check(out, oracle.attention(q.numbers, k.numbers, v.numbers).out, dtype)


def test_what_kernels_need_beside_their_target():
    for kernel in hattn.info()["kernels"]:
        types = [f"all_{dtype}" for dtype in ("float16", "bfloat16", "int8", "int4")]
        assert kernel["storage"] in ("float32", "any", "bfloat16", "bfloat16_rows", *MATRICES, *types, "int8_lines", "int4_lines", *BYTE_MATRICES)
        in_integers = kernel["storage"] in ("all_int8", "all_int4", "int8_lines", "int4_lines", *BYTE_MATRICES)
        pairs, integers = {"x86-avx512": ("avx512bf16", "avx512vnni"), "arm-neon": ("bf16", "asimddp")}.get(kernel["target"], (None, None))
        needs = kernel["needs"].split()
        assert (pairs in needs) == (kernel["storage"] in ("bfloat16", "bfloat16_rows", *MATRICES, *BYTE_MATRICES))
        assert (integers in needs) >= (in_integers and integers is not None)
        assert ("amx_bf16" in kernel["needs"]) == (kernel["storage"] in MATRICES)
        assert ("amx_int8" in kernel["needs"]) == (kernel["storage"] in BYTE_MATRICES)
        assert kernel["target"] in TARGETS or not kernel["runnable"]


@pytest.mark.parametrize("scales", ["tensor", "heads", "channels", "keys"])
@pytest.mark.parametrize("dtype", stored.LIMITS)
def test_scales(rng, target, dtype, scales):
    q, k, v = inputs(rng, ("float32", dtype, dtype), scales=scales)
    out = hattn.attention(q.array, k.array, v.array, causal=True, **scales_of(k, v))
    check(out, oracle.attention(q.numbers, k.numbers, v.numbers, causal=True).out, "float32")


@pytest.mark.parametrize("values", stored.TYPES)
@pytest.mark.parametrize("keys", stored.TYPES)
@pytest.mark.parametrize("queries", stored.FLOATS)
def test_mixed_types(rng, queries, keys, values):
    q, k, v = inputs(rng, (queries, keys, values))
    expected = oracle.attention(q.numbers, k.numbers, v.numbers)
    out, lse = hattn.attention(q.array, k.array, v.array, return_lse=True, **scales_of(k, v))
    check(out, expected.out, queries)
    np.testing.assert_allclose(lse, expected.lse, rtol=RTOL, atol=ATOL)


@pytest.mark.parametrize("dtype", stored.FLOATS)
def test_the_output_has_a_type_of_its_own(rng, dtype):
    q, k, v = inputs(rng, ("float32", "int8", "bfloat16"))
    out = np.empty(q.array.shape, stored.FLOATS[dtype])
    assert hattn.attention(q.array, k.array, v.array, out=out, **scales_of(k, v)) is out
    check(out, oracle.attention(q.numbers, k.numbers, v.numbers).out, dtype)


@pytest.mark.parametrize("mode", ["raw", "capped", "masked", "probabilities"])
@pytest.mark.parametrize("dtype", ("float16", "bfloat16", "int8", "int4"))
def test_score_outputs_are_float32(rng, dtype, mode):
    q, k, v = inputs(rng, (dtype if dtype in stored.FLOATS else "float16", dtype, dtype))
    options = {"causal": True, "softcap": 3.0}
    out, scores = hattn.attention(q.array, k.array, v.array, return_scores=mode, **options, **scales_of(k, v))
    expected = oracle.attention(q.numbers, k.numbers, v.numbers, **options)
    assert scores.dtype == np.float32 and out.dtype == q.array.dtype
    np.testing.assert_allclose(scores, expected.scores[mode], rtol=RTOL, atol=ATOL)


# Rows of a kv head: 2, 4, 8, 15 and 74, which have kernels of their own.
@pytest.mark.parametrize("queries, query_heads", [(1, 4), (1, 8), (1, 16), (5, 6), (37, 4)])
@pytest.mark.parametrize("dtype", stored.TYPES)
def test_bits_do_not_depend_on_threads_batch_layout_or_packing(rng, dtype, queries, query_heads):
    q, k, v = inputs(rng, ("bfloat16", dtype, dtype), batch=3, queries=queries, keys=1100, dim=32, query_heads=query_heads)
    options = {"causal": True}
    out = hattn.attention(q.array, k.array, v.array, threads=1, **options, **scales_of(k, v))
    assert_same_bits(hattn.attention(q.array, k.array, v.array, threads=2, **options, **scales_of(k, v)), out)
    alone = {name: scale[1:2] for name, scale in scales_of(k, v).items()}
    assert_same_bits(hattn.attention(*(side.array[1:2] for side in (q, k, v)), **options, **alone), out[1:2])

    swapped = [np.ascontiguousarray(side.array.swapaxes(1, 2)) for side in (q, k, v)]
    swapped_scales = {name: scale.swapaxes(1, 2) for name, scale in scales_of(k, v).items()}
    by_rows = hattn.attention(*swapped, layout="bshd", **options, **swapped_scales)
    assert_same_bits(np.ascontiguousarray(by_rows.swapaxes(1, 2)), out)

    ends = np.arange(4) * queries, np.arange(4) * 1100
    packed = [pack(side.array, lengths) for side, lengths in zip((q, k, v), ([queries] * 3, [1100] * 3, [1100] * 3))]
    packed_scales = {name: pack(scale, [1100] * 3) for name, scale in scales_of(k, v).items()}
    result = hattn.attention(*packed, cu_seqlens_q=ends[0], cu_seqlens_k=ends[1], **options, **packed_scales)
    assert_same_bits(result, pack(out, [queries] * 3))


def single_key(values, **options):
    """Attention that sees one key gives its value row, exactly."""
    q = np.zeros((1, 1, 1, 8), np.float32)
    k = np.zeros((1, 1, 1, 8), np.float32)
    return hattn.attention(q, k, values.reshape(1, 1, 1, -1), **options).reshape(-1)


@pytest.mark.parametrize("dtype", HALVES)
def test_every_number_of_16_bits(target, dtype):
    """Subnormals included. Infinities and NaN in values promise nothing."""
    numbers = np.arange(1 << 16, dtype=np.uint16).view(stored.FLOATS[dtype])
    numbers = numbers[np.isfinite(numbers.astype(np.float32))]
    assert_same_bits(single_key(numbers) + 0.0, numbers.astype(np.float32) + 0.0)


@pytest.mark.parametrize("dtype", HALVES)
def test_rounding_of_outputs(rng, target, dtype):
    """To nearest even, subnormals and ties included; what is too large becomes infinite."""
    kind = stored.FLOATS[dtype]
    exact = np.arange(1 << 16, dtype=np.uint16).view(kind).astype(np.float32)
    exact = np.sort(exact[np.isfinite(exact)])
    ties = ((exact[1:].astype(np.float64) + exact[:-1]) / 2).astype(np.float32)
    random = rng.standard_normal(5000).astype(np.float32) * np.float32(2.0) ** rng.integers(-120, 120, 5000)
    edge = np.array([65519, 65520, -65520, 1e30, 3.3895314e38, 3.3961775e38, -3.4e38], np.float32)
    values = np.concatenate([ties, np.nextafter(ties, np.float32(np.inf)), random.astype(np.float32), edge])
    values = values[(np.abs(values) >= np.finfo(np.float32).tiny) | (values == 0)]
    for part in np.array_split(values, 4):  # heads have up to 2^16 elements
        out = np.empty((1, 1, 1, part.size), kind)
        single_key(part, out=out)
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(out.reshape(-1).astype(np.float32), part.astype(kind).astype(np.float32))


def test_every_int8_and_int4(target):
    scale = np.float32(0.37)
    for integers, array in (
        (np.arange(-128, 128, dtype=np.int8),) * 2,
        (np.arange(-8, 8, dtype=np.int8), stored.pack(np.arange(-8, 8, dtype=np.int8))),
    ):
        out = single_key(array, v_scale=scale)
        np.testing.assert_allclose(out, integers * np.float64(scale), rtol=3e-7)


@pytest.mark.parametrize("dim", [1, 2, 7, 8, 15, 31, 33, 40, 63, 80, 129])
@pytest.mark.parametrize("dtype", ("float16", "int8", "int4"))
def test_any_head_dimension(rng, dim, dtype):
    q, k, v = inputs(rng, ("float32", dtype, dtype), dim=dim, keys=33)
    for algorithm in ("naive", "flash", "split_kv", "unfused"):
        out = np.empty((*q.array.shape[:3], dim), np.float32)  # bytes do not tell an odd value dimension
        hattn.attention(q.array, k.array, v.array, algorithm=algorithm, out=out, **scales_of(k, v))
        check(out, oracle.attention(q.numbers, k.numbers, v.numbers).out, "float32")


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_what_tells_an_odd_value_dimension_of_int4(rng, layout):
    """`out` or a scale for each channel; without either the last element of the last byte is a column as well."""
    q, k, v = inputs(rng, ("float32", "int4", "int4"), dim=33, scales="channels")
    expected = oracle.attention(q.numbers, k.numbers, v.numbers).out

    def arranged(array):
        return array if layout == "bhsd" else array.swapaxes(1, 2)

    def attend(v_scale, call=hattn.attention, **options):
        arrays = (arranged(side.array) for side in (q, k, v))
        return call(*arrays, layout=layout, k_scale=k.scale, v_scale=v_scale, **options)

    check(arranged(attend(v.scale)), expected, "float32")
    assert attend(v.scale, call=hattn.explain)["algorithm"]
    for v_scale in (0.5, np.float32([0.5, 0.25])):
        wide = attend(v_scale)
        assert wide.shape[-1] == 34 and not wide[..., 33].any()
        narrow = np.full((*wide.shape[:-1], 33), np.float32(7))
        assert_same_bits(attend(v_scale, out=narrow), np.ascontiguousarray(wide[..., :33]))
    for dim in (32, 35):
        with pytest.raises(ValueError, match=rf"out: extent\[3\] .*{dim}, but .* 34"):
            attend(0.5, out=np.empty((*wide.shape[:-1], dim), np.float32))


def test_values_of_one_element_of_int4():
    """A scale for each channel says that there is one."""
    q, k, v = np.ones((1, 2, 1, 8), np.float32), np.ones((1, 2, 4, 8), np.float32), np.full((1, 2, 4, 1), 0x21, np.uint8)
    np.testing.assert_array_equal(hattn.attention(q, k, v, v_scale=np.float32([[3], [2]])), [[[[3]], [[2]]]])
    assert hattn.attention(q, k, v, v_scale=np.float32([3, 2])).shape == (1, 2, 1, 2)


def test_bfloat16_of_something_without_a_dtype(rng):
    torch = pytest.importorskip("torch")
    q, k, v = (side.array.astype(np.float32) for side in inputs(rng, ("bfloat16",) * 3))
    out = hattn.attention(*(BareTensor(torch.from_numpy(array).to(torch.bfloat16)) for array in (q, k, v)))
    assert_same_bits(out, hattn.attention(*(array.astype(BFLOAT16) for array in (q, k, v))))


def test_views_of_a_cache_of_odd_heads_of_int4(rng):
    q, k, v = (rng.standard_normal((1, 2, rows, 33), np.float32) for rows in (1, 20, 20))
    cache = hattn.KVCache(1, 2, 32, 33, dtype="int4", page_size=16)
    cache.append(k, v)
    keys, values = cache.view()
    k_scale, v_scale = cache.scales
    out = np.empty_like(q)
    options = {"block_table": cache.block_table, "kv_lengths": cache.lengths, "k_scale": k_scale, "v_scale": v_scale}
    assert_same_bits(hattn.attention(q, keys, values, out=out, **options), cache.attend(q))


def test_a_cache_of_int4_knows_its_value_dimension(rng):
    """That of an `out`, or of queries, with one element less is no hint."""
    cache = hattn.KVCache(1, 2, 16, 34, dtype="int4")
    with pytest.raises(ValueError, match=r"out: extent\[3\] .*33, but .* 34"):
        cache.attend(np.zeros((1, 2, 1, 34), np.float32), out=np.zeros((1, 2, 1, 33), np.float32))
    with pytest.raises(ValueError, match=r"q: extent\[3\] .*33, but .* 34"):
        cache.attend(np.zeros((1, 2, 1, 33), np.float32))


def test_torch_bfloat16(rng):
    torch = pytest.importorskip("torch")
    q, k, v = (side.array.astype(np.float32) for side in inputs(rng, ("bfloat16",) * 3))
    tensors = [torch.from_numpy(array).to(torch.bfloat16) for array in (q, k, v)]
    out = hattn.attention(*tensors)
    assert out.dtype == torch.bfloat16
    expected = hattn.attention(*(array.astype(BFLOAT16) for array in (q, k, v)))
    np.testing.assert_array_equal(out.float().numpy(), expected.astype(np.float32))


@pytest.mark.parametrize("scale", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", stored.LIMITS)
def test_scales_of_seen_values_that_are_no_numbers(rng, target, dtype, scale):
    """Reach what they scale, however values are multiplied."""
    q, k, v = (rng.standard_normal((1, heads, length, 64), np.float32) for heads, length in ((4, 1), (2, 90), (2, 90)))
    k, v = stored.store(rng, k, dtype), stored.store(rng, v, dtype)
    v.scale[0, 0, 40, 1] = scale
    out = hattn.attention(q, k.array, v.array, k_scale=k.scale, v_scale=v.scale)
    assert not np.isfinite(out[0, :2, 0, 32:]).any()
    assert np.isfinite(out[0, 2:]).all()
