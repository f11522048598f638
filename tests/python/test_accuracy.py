"""How far results are from float64, on inputs that are hard on float32: within the bound of accuracy_inputs.py."""

import numpy as np
import pytest

import hattn
from accuracy_inputs import PROBLEMS, Problem, normal, reference, sampled_rows


def share_of_bound(problem: Problem, **options) -> float:
    """The largest error, in bounds."""
    rows = sampled_rows(problem)
    expected = reference(problem, rows)
    out = hattn.attention(problem.q, problem.k, problem.v, **problem.options, **options)[0][:, rows]
    return float((np.abs(out - expected.out) / expected.bound).max())


@pytest.mark.parametrize("name", PROBLEMS)
def test_error_is_within_the_bound(rng, name):
    share = share_of_bound(PROBLEMS[name](rng))
    print(f"{share:.2f} of the bound")
    assert share <= 1


@pytest.mark.parametrize("queries, keys", [(67, 67), (1, 700)])
def test_every_algorithm(rng, algorithm, queries, keys):
    assert share_of_bound(normal(rng, queries, keys), algorithm=algorithm) <= 1


def test_the_bound_is_worth_something(rng):
    """It allows single precision and no less: a result that keeps 12 bits of q breaks it."""
    problem = PROBLEMS["normal, S = 512"](rng)
    rows = sampled_rows(problem)
    expected = reference(problem, rows)
    assert expected.bound.max() < 1e-4
    coarse = (problem.q.view(np.uint32) & np.uint32(0xFFFFF000)).view(np.float32)
    out = hattn.attention(coarse, problem.k, problem.v, **problem.options)[0][:, rows]
    assert (np.abs(out - expected.out) > expected.bound).any()


def bfloat16_errors(name, rng):
    """Mean errors of hattn and of PyTorch over the same bfloat16 inputs, with bfloat16 outputs."""
    torch = pytest.importorskip("torch")
    ml_dtypes = pytest.importorskip("ml_dtypes")
    problem = PROBLEMS[name](rng)
    arrays = [array.astype(ml_dtypes.bfloat16) for array in problem[:3]]
    rows = sampled_rows(problem)
    expected = reference(problem._replace(q=arrays[0], k=arrays[1], v=arrays[2]), rows).out
    tensors = [torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16) for array in arrays]
    peer = torch.nn.functional.scaled_dot_product_attention(*tensors, is_causal=True, enable_gqa=True).float().numpy()
    own = hattn.attention(*arrays, **problem.options)
    return [np.abs(out[0][:, rows].astype(np.float64) - expected).mean() for out in (own, peer)]


@pytest.mark.parametrize("name", [name for name in PROBLEMS if name.endswith(("S = 128", "S = 512")) and "softcap" not in name])
def test_bfloat16_is_no_worse_than_pytorch(rng, name):
    own, peer = bfloat16_errors(name, rng)
    print(f"{own:.2e}, PyTorch {peer:.2e}")
    assert own <= 1.05 * peer  # where both round weights to bfloat16, errors are the same but for chance
