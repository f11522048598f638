"""Array arguments: layouts, strides, foreign tensors, and out=."""

import numpy as np
import pytest

import hattn
import oracle
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
    for name, arrays in {
        "k": (q, Tensor(k, cuda), v),
        "v": (q, k, Tensor(v, cuda)),
    }.items():
        with pytest.raises(NotImplementedError, match=rf"{name}: the Tensor lives on DLPack device \(2, 1\)"):
            hattn.attention(*arrays)
    with pytest.raises(NotImplementedError, match="mask: "):
        hattn.attention(q, k, v, mask=Tensor(np.ones((5, 7), bool), cuda))


def test_inputs_are_left_alone(rng, algorithm):
    arrays = random_qkv(rng)
    copies = [array.copy() for array in arrays]
    hattn.attention(*arrays, algorithm=algorithm, causal=True, return_scores="probabilities")
    for array, copy in zip(arrays, copies):
        assert_same_bits(array, copy)
