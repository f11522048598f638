"""hattn-roofline: stages sum up to the run, shares are of what kernels compute, and the rest is refused."""

import json
import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build" / "release" / "bench" / "roofline" / "hattn-roofline"

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="hattn-roofline is not built: it takes Halide")

SHORT = ("--seconds=0.05", "--heads=4", "--kv-heads=2")


def run(*arguments, **environment):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, env={**os.environ, **environment})


def figures_of(*arguments, **environment):
    finished = run(*SHORT, *arguments, "--json", **environment)
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


@pytest.mark.parametrize("algorithm, dtype, shape", [
    ("flash", "float32", ("--length=64",)),
    ("flash", "bfloat16", ("--length=64",)),
    # In bands, where the CPU multiplies matrices.
    ("flash", "float32", ("--length=512",)),
    ("flash", "bfloat16", ("--length=512", "--hooks=softcap,mask")),
    ("split_kv", "float16", ("--length=1", "--keys=512")),
    ("split_kv", "int8", ("--length=1", "--keys=512")),
    ("split_kv", "int4", ("--length=1", "--keys=512")),
])
def test_stages(algorithm, dtype, shape):
    """Every Func of the kernel has a stage, and what is more than the peak is marked."""
    figures = figures_of("--dtype=" + dtype, *shape, HATTN_FORCE="algorithm=" + algorithm)
    stages = {stage["stage"]: stage for stage in figures["stages"]}
    assert algorithm in figures["kernel"] and figures["dtype"] == dtype
    assert sum(stage["seconds"] for stage in stages.values()) == pytest.approx(figures["seconds"])
    for stage in stages.values():
        assert 0 <= stage["fetching_seconds"] <= stage["seconds"]
        assert stage["beyond_peak"] or (stage["share"] or 0) <= 1
    # Few samples: some stages may have none, as those of products have of matrices.
    products = {"QK dot": "key_scores", "PV": "value_scores"}
    assert products.keys() & stages.keys()
    assert "amx_" in figures["kernel"] or products.keys() <= stages.keys()
    of_terms = 6 if figures["kernel"].startswith("amx_float32_") else 1  # products for each
    for stage in products.keys() & stages.keys():
        assert stages[stage]["flops"] == of_terms * 2 * 128 * figures[products[stage]]
    of_softmax = {"maxima", "weights (exp2)", "chunk sum", "query transpose"} & set(stages)
    assert of_softmax and all(stages[stage]["share"] > 0 for stage in of_softmax)
    if dtype == "float32" and of_terms == 1:
        assert "keys into other types" not in stages


def test_more_than_the_peak_is_marked_and_explained():
    lines = run(*SHORT, "--length=64").stdout.splitlines()
    shares = [re.search(r"([0-9.]+)%(!?) +(?:L1|arithmetic) ", line) for line in lines]
    shares = [(float(found[1]), found[2] == "!") for found in shares if found]
    assert shares and all(marked == (share > 100.0) for share, marked in shares if abs(share - 100.0) > 0.1)
    assert any(line.startswith("! More than the peak") for line in lines) == any(marked for _, marked in shares)


@pytest.fixture(scope="module")
def prompt():
    return figures_of("--length=20", "--keys=2048")


def test_heads_of_a_kv_head_share_a_tile(prompt):
    """Of 20 rows, whose two heads fit a tile together, no row is counted twice."""
    rows = 4 * 20
    visible = rows * 2048 - 4 * sum(range(20))
    assert visible <= prompt["value_scores"] < 2 * visible
    assert visible <= prompt["key_scores"] < 2 * visible


def test_help():
    finished = run("--help")
    assert finished.returncode == 0 and finished.stdout.startswith("usage: hattn-roofline") and not finished.stderr


@pytest.fixture
def nowhere(tmp_path):
    """Nothing can be compiled there."""
    return str(tmp_path / "missing")


@pytest.mark.parametrize("arguments, message", [
    (("--kernel=merge_generic",), '--kernel: "merge_generic" is of merge, but must be of naive, flash or split_kv'),
    (("--kernel=widen_generic",), "is of widen, but must be of naive"),
    (("--kernel=nonsense",), '--kernel: "nonsense" is no kernel of this build'),
    (("--dtype=float64",), '--dtype: is "float64", but must be one of float32, float16, bfloat16, int8, int4'),
    (("--seconds=0",), '--seconds: is "0", but must be a number from 0.01'),
])
def test_refusals(nowhere, arguments, message):
    finished = run(*arguments, TMPDIR=nowhere)
    assert finished.returncode == 2 and message in finished.stderr


def test_a_kernel_of_another_type_is_refused(nowhere, prompt):
    finished = run("--dtype=int8", "--kernel=" + prompt["kernel"], TMPDIR=nowhere)
    assert finished.returncode == 2
    assert f'--kernel: "{prompt["kernel"]}" cannot compute the problem' in finished.stderr
