"""Array arguments: layouts, strides, foreign tensors, and out=."""

import sys
import types

import numpy as np
import pytest

import hattn
import oracle
from hattn import _arrays
from helpers import BareTensor, Tensor, assert_close, assert_same_bits, random_qkv


def test_bshd_is_a_view(rng, algorithm):
    q, k, v = random_qkv(rng)
    swapped = [np.ascontiguousarray(array.transpose(0, 2, 1, 3)) for array in (q, k, v)]
    expected = oracle.attention(q, k, v, causal=True)
    out, lse, scores = hattn.attention(
        *swapped, layout="bshd", causal=True, algorithm=algorithm, return_lse=True, return_scores="raw"
    )
    assert_close(out.transpose(0, 2, 1, 3), expected.out)
    assert_close(lse, expected.lse, "lse")
    assert_close(scores, expected.scores["raw"], "scores")


def test_packed_qkv(rng, algorithm):
    packed = rng.standard_normal((2, 5, 3, 4, 16), np.float32)  # [B, S, 3, H, D]
    q, k, v = (packed[:, :, i] for i in range(3))
    expected = oracle.attention(*(array.transpose(0, 2, 1, 3) for array in (q, k, v)))
    out = hattn.attention(q, k, v, layout="bshd", algorithm=algorithm)
    assert_close(out.transpose(0, 2, 1, 3), expected.out)


def test_slices_of_a_larger_array(rng, algorithm):
    q, k, v = (array[:, :, 1:, 4:13] for array in random_qkv(rng))
    assert_close(hattn.attention(q, k, v, algorithm=algorithm), oracle.attention(q, k, v).out)


def test_broadcast_batch(rng, algorithm):
    q, k, v = random_qkv(rng, batch=1)
    k, v = (np.broadcast_to(array, (3, *array.shape[1:])) for array in (k, v))
    q = np.repeat(q, 3, axis=0)
    assert_close(hattn.attention(q, k, v, algorithm=algorithm), oracle.attention(q, k, v).out)


def test_read_only_inputs(rng):
    arrays = random_qkv(rng)
    expected = hattn.attention(*arrays)
    for array in arrays:
        array.flags.writeable = False
    assert_same_bits(hattn.attention(*arrays), expected)


def test_head_dimension_of_one_has_no_stride(rng):
    q, k, v = (array[..., ::16] for array in random_qkv(rng))
    assert q.shape[-1] == 1
    assert_close(hattn.attention(q, k, v), oracle.attention(q, k, v).out)


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_out_is_written_in_place(rng, layout):
    q, k, v = random_qkv(rng)
    expected = hattn.attention(q, k, v)
    arrays = [q, k, v]
    frame = np.full((2, 4, 5, 20), np.float32(7))
    out = frame[..., 2:18]
    if layout == "bshd":
        arrays = [array.transpose(0, 2, 1, 3) for array in arrays]
        out = out.transpose(0, 2, 1, 3)
    assert hattn.attention(*arrays, layout=layout, out=out) is out
    assert_same_bits(np.ascontiguousarray(frame[..., 2:18]), expected)
    assert np.all(frame[..., :2] == 7) and np.all(frame[..., 18:] == 7)
    result = hattn.attention(*arrays, layout=layout, out=out, return_lse=True)
    assert result[0] is out and len(result) == 2


def test_results_are_the_kind_of_q(rng):
    q, k, v = random_qkv(rng)
    expected = hattn.attention(q, k, v, return_lse=True, return_scores="masked")
    results = hattn.attention(Tensor(q), Tensor(k), v, return_lse=True, return_scores="masked")
    for result, wanted in zip(results, expected):
        assert type(result) is Tensor
        assert_same_bits(result.numpy(), wanted)
    assert type(hattn.attention(q, Tensor(k), Tensor(v))) is np.ndarray


def test_a_tensor_that_offers_no_way_back_gets_numpy(rng):
    q, k, v = random_qkv(rng)
    out = hattn.attention(BareTensor(q), BareTensor(k), BareTensor(v))
    assert type(out) is np.ndarray
    assert_same_bits(out, hattn.attention(q, k, v))


def test_subclasses_are_the_kind_of_their_base(monkeypatch):
    library = types.ModuleType("some_library")
    library.from_dlpack = print
    monkeypatch.setitem(sys.modules, "some_library", library)
    base = type("Base", (), {"__module__": "some_library.tensors"})
    derived = type("Derived", (base,), {})
    assert _arrays.package_of(derived()) is library


def test_every_array_option_may_be_a_tensor(rng):
    q, k, v = random_qkv(rng)
    options = {
        "sinks": rng.standard_normal(4, np.float32),
        "bias": rng.standard_normal((5, 7), np.float32),
        "mask": rng.random((5, 7)) < 0.7,
        "alibi_slopes": rng.random(4, np.float32),
        "q_lengths": np.array([5, 2]),
        "kv_lengths": np.array([3, 7]),
        "causal_offset": np.array([1, 2]),
    }
    expected = hattn.attention(q, k, v, causal=True, **options)
    out = Tensor(np.empty_like(expected))
    tensors = {name: Tensor(value) for name, value in options.items()}
    assert hattn.attention(q, k, v, causal=True, out=out, **tensors) is out
    assert_same_bits(out.numpy(), expected)


def test_merge_states_of_tensors(rng):
    q, k, v = random_qkv(rng)
    out, lse = hattn.attention(q, k, v, return_lse=True)
    merged, merged_lse = hattn.merge_states([Tensor(out)], [Tensor(lse)])
    assert type(merged) is Tensor and type(merged_lse) is Tensor
    assert_close(merged.numpy(), out)


def test_tensors_on_another_device_are_refused(rng):
    q, k, v = random_qkv(rng)
    cuda = (2, 1)
    with pytest.raises(NotImplementedError, match=r"q: the Tensor lives on DLPack device \(10, 0\), which is not supp"):
        hattn.attention(Tensor(q, (10, 0)), k, v)
    with pytest.raises(ValueError, match=r"k: the ndarray lives on the host, but q lives on DLPack device \(2, 1\)"):
        hattn.attention(Tensor(q, cuda), k, v)
    with pytest.raises(TypeError, match="q: expected an array with shape and dtype, as it is on a device, got Tensor"):
        hattn.attention(Tensor(q, cuda), Tensor(k, cuda), Tensor(v, cuda))
    with pytest.raises(ValueError, match=r"v: the ndarray lives on the host, but k lives on DLPack device \(2, 1\)"):
        hattn.attention(q, Tensor(k, cuda), v)
    with pytest.raises(NotImplementedError, match=r"v: the Tensor lives on DLPack device \(2, 1\)"):
        hattn.attention(q, k, Tensor(v, cuda))
    with pytest.raises(NotImplementedError, match="mask: "):
        hattn.attention(q, k, v, mask=Tensor(np.ones((5, 7), bool), cuda))


def test_inputs_are_left_alone(rng, algorithm):
    arrays = random_qkv(rng)
    copies = [array.copy() for array in arrays]
    hattn.attention(*arrays, algorithm=algorithm, causal=True, return_scores="probabilities")
    for array, copy in zip(arrays, copies):
        assert_same_bits(array, copy)


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def test_torch_tensors_that_want_a_gradient(rng, torch):
    """There is none, so they are refused unless nobody asks for one."""
    q, k, v = (torch.from_numpy(array) for array in random_qkv(rng))
    wanting = torch.ones(4, requires_grad=True)
    expected = hattn.attention(q, k, v, sinks=wanting.detach())
    for name, arguments in {
        "q": {"q": q.clone().requires_grad_()},
        "v": {"v": v.clone().requires_grad_()},
        "out": {"out": torch.zeros_like(q).requires_grad_()},
        "bias": {"bias": torch.ones(5, 7, requires_grad=True)},
        "sinks": {"sinks": wanting},
        "k_scale": {"k": torch.ones(2, 2, 7, 16, dtype=torch.int8), "k_scale": torch.ones(2, requires_grad=True)},
    }.items():
        given = {"q": q, "k": k, "v": v, **arguments}
        with pytest.raises(ValueError, match=rf"^{name}: requires a gradient, but .* use {name}\.detach\(\) or torch"):
            hattn.attention(**given)
        with torch.no_grad():
            hattn.attention(**given)
    with torch.no_grad():
        out = hattn.attention(q.clone().requires_grad_(), k, v, sinks=wanting)
    assert not out.requires_grad and torch.equal(out, expected)


def test_gradients_elsewhere(rng, torch):
    x, table = torch.ones(1, 1, 3, 4, requires_grad=True), torch.ones(5, 2, requires_grad=True)
    cache = hattn.KVCache(1, 1, 16, 4)
    plain = x.detach()
    for name, call in {
        "x": lambda: hattn.apply_rope(x, hattn.Rope()),
        "cos": lambda: hattn.Rope(cos=table, sin=table),
        "outs": lambda: hattn.merge_states([x], [plain[..., 0]]),
        "lses": lambda: hattn.merge_states([plain], [x[..., 0]]),
        "v": lambda: cache.append(plain, x),
        "q": lambda: cache.attend(x),
        "k_scale": lambda: hattn.KVCache(1, 2, 16, 4, dtype="int8", k_scale=torch.ones(2, requires_grad=True)),
    }.items():
        with pytest.raises(ValueError, match=f"^{name}: requires a gradient"):
            call()
        with torch.no_grad():
            call()


def test_torch_tensors_that_are_not_what_their_memory_holds(rng, torch):
    q, k, v = (torch.from_numpy(array) for array in random_qkv(rng))
    negated = torch.conj(torch.complex(k, k)).imag
    assert negated.is_neg()
    with pytest.raises(ValueError, match=r"^k: is_neg\(\) is true, .* use resolve_neg\(\)"):
        hattn.attention(q, negated, v)
    assert torch.equal(hattn.attention(q, negated.resolve_neg(), v), hattn.attention(q, -k, v))
    with pytest.raises(ValueError, match=r"^mask: is_neg\(\) is true"):
        hattn.attention(q, k, v, mask=negated)
    with pytest.raises(ValueError, match="^v: the Tensor cannot be read through DLPack: .*meta"):
        hattn.attention(q, k, v.to("meta"))
    with pytest.raises(ValueError, match="^q: the Tensor cannot be read through DLPack: .*meta"):
        hattn.attention(q.to("meta"), k, v)


def test_torch_wrappers_that_show_nothing_but_memory(rng, torch):
    from torch.utils import dlpack

    if not hasattr(dlpack, "ReadOnlyTensorWrapper"):
        pytest.skip("this PyTorch has none")
    q, k, v = (torch.from_numpy(array) for array in random_qkv(rng))
    wrapped = hattn.attention(q, dlpack.ReadOnlyTensorWrapper(k), dlpack.ReadOnlyTensorWrapper(v))
    assert torch.equal(wrapped, hattn.attention(q, k, v))


def test_torch_without_numpy(rng, torch, monkeypatch):
    q, k, v = (torch.from_numpy(array) for array in random_qkv(rng))
    expected = hattn.attention(q, k, v)

    def from_numpy(array):
        raise RuntimeError("Numpy is not available")

    monkeypatch.setattr(torch, "from_numpy", from_numpy)
    assert torch.equal(hattn.attention(q, k, v), expected)


def test_torch_dtypes_that_numpy_does_not_have(rng, torch):
    q, _, v = random_qkv(rng)
    k, half = np.ones(v.shape, np.int8), torch.ones(2, 2, dtype=torch.bfloat16)
    for name, call in {
        "k_scale": lambda: hattn.attention(q, k, v, k_scale=half),
        "block_table": lambda: hattn.attention(q, v, v, block_table=half, kv_lengths=[1, 1]),
        "positions": lambda: hattn.apply_rope(q, hattn.Rope(), positions=half),
        "sin": lambda: hattn.Rope(cos=torch.ones(2, 2), sin=half),
        "kv_lengths": lambda: hattn.attention(q, v, v, kv_lengths=half[0]),
    }.items():
        with pytest.raises(TypeError, match=rf"^{name}: dtype is (torch\.)?bfloat16, but must be "):
            call()
    with pytest.raises(TypeError, match="^q: dtype is float8_e5m2, but must be float32, float16 or bfloat16"):
        hattn.attention(torch.from_numpy(q).to(torch.float8_e5m2), v, v)
