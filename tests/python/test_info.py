"""info(), explain(), the version, and the package's surface."""

import inspect
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

import hattn
from helpers import assert_same_bits, random_qkv


def test_version():
    header = pathlib.Path(__file__).parents[2] / "include" / "hattn" / "hattn.h"
    parts = [line.split()[-1] for line in header.read_text().splitlines() if line.startswith("#define HATTN_VERSION_")]
    assert hattn.__version__ == ".".join(parts)


def test_info():
    info = hattn.info()
    assert info["version"] == hattn.__version__
    assert {"targets", "kernels", "tuning_database"} <= set(info)


def test_info_says_which_kernels_this_cpu_takes():
    """Those made for it, or those that are made for no other: of each family some, and one of them is what a plan takes."""
    kernels = [kernel for kernel in hattn.info()["kernels"] if kernel["runnable"] and not kernel["from_memory"]]
    families = {}
    for kernel in kernels:
        family = tuple(kernel[name] for name in ("target", "algorithm", "storage", "needs")) + tuple(kernel["hooks"])
        families.setdefault(family, []).append(kernel)
    for family, members in families.items():
        taken = [kernel for kernel in members if kernel["for_this_cpu"]]
        # A family may be for other CPUs altogether.
        assert taken or all(kernel["made_for"] for kernel in members), family
        assert all(kernel["for_this_cpu"] for kernel in members if not kernel["made_for"]) or any(kernel["made_for"] for kernel in taken), family
    halves = [np.zeros((1, 4, 200, 64), np.float16)] * 3
    plan = hattn.explain(*halves, causal=True)
    assert next(kernel["for_this_cpu"] for kernel in kernels if kernel["name"] == plan["kernel"])


def test_explain_names_its_choice(rng, algorithm):
    plan = hattn.explain(*random_qkv(rng), algorithm=algorithm, causal=True)
    assert {"algorithm", "kernel", "target", "tile", "tasks", "workspace_bytes", "why"} <= set(plan)
    if algorithm != "auto":
        assert plan["algorithm"] == algorithm
    assert plan["algorithm"] in ("naive", "flash", "split_kv", "unfused")


@pytest.mark.parametrize("device", ["cpu", "opencl"])
def test_the_page_on_tuning_has_every_member_of_explain(rng, request, device):
    """With what is there on the CPU or on devices alone marked so."""
    if device == "opencl":
        request.getfixturevalue("opencl")
    text = (pathlib.Path(__file__).parents[2] / "docs" / "tuning.md").read_text().partition("## What `explain` says")[2]
    rows = re.findall(r"^\| (`.*?) \| (.*?) \|$", text.partition("\n## ")[0], re.MULTILINE)
    elsewhere = "Devices: " if device == "cpu" else "CPU: "
    listed = [name for names, meaning in rows if not meaning.startswith(elsewhere) for name in re.findall(r"`(\w+)`", names)]
    assert sorted(listed) == sorted(hattn.explain(*random_qkv(rng), device=device))


def test_explain_takes_the_options_of_attention(rng):
    q, k, v = random_qkv(rng)
    options = dict(
        layout="bhsd",
        scale=0.5,
        causal=True,
        causal_offset=2,
        window=(3, 1),
        softcap=1.0,
        sinks=np.zeros(4, np.float32),
        bias=np.zeros((5, 7), np.float32),
        mask=np.ones((5, 7), bool),
        alibi_slopes=np.zeros(4, np.float32),
        q_lengths=[1, 2],
        kv_lengths=[3, 4],
        cu_seqlens_q=None,
        cu_seqlens_k=None,
        block_table=None,
        k_scale=None,
        v_scale=None,
        algorithm="auto",
        threads=1,
        out=np.empty_like(q),
        return_lse=True,
        device="cpu",
        stream=None,
        return_scores="raw",
    )
    assert set(options) == set(inspect.signature(hattn.attention).parameters) - {"q", "k", "v"}
    assert hattn.explain(q, k, v, **options)["algorithm"]
    hattn.attention(q, k, v, **options)


def test_each_sequence_is_explained_as_it_is_computed(rng, monkeypatch):
    """Lengths below what a plan has room for choose for themselves: as they would alone, and with those bits."""
    monkeypatch.setenv("HATTN_TUNING", "rule")
    q = rng.standard_normal((3, 8, 1, 64), np.float32)
    k, v = rng.standard_normal((2, 3, 8, 4096, 64), np.float32)
    lengths = [4096, 40, 40]
    plan = hattn.explain(q, k, v, kv_lengths=lengths)
    short, long = plan["sequences"]
    assert [(row["count"], row["rows"], row["keys"]) for row in (short, long)] == [(2, 1, 40), (1, 1, 4096)]
    assert long["kernel"] == plan["kernel"] and 3 * long["tasks"] == plan["tasks"]
    alone = hattn.explain(q[1:2], k[1:2, :, :40], v[1:2, :, :40])
    for name in ("algorithm", "kernel", "split_keys", "tile", "tasks", "decided_by", "class", "why"):
        assert short[name] == alone[name], name
    assert short["tasks"] < long["tasks"] and alone["sequences"] == []
    outputs = hattn.attention(q, k, v, kv_lengths=lengths)
    for b, length in enumerate(lengths):
        row = long if length == 4096 else short
        of_one = (array[b : b + 1, :, :length] for array in (k, v))
        assert_same_bits(outputs[b : b + 1], hattn.attention(q[b : b + 1], *of_one, algorithm=row["algorithm"]))
    packed = hattn.explain(
        np.concatenate([q[b : b + 1] for b in range(3)], axis=2), k, v, cu_seqlens_q=[0, 1, 2, 3], kv_lengths=lengths
    )
    assert [(row["count"], row["rows"], row["keys"]) for row in packed["sequences"]] == [(2, 1, 40), (1, 1, 4096)]


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ((3, 1), {"kv_lengths": [9, 40, 41]}, r"kv_lengths\[2\]: is 41, but must be from 0 to the kv length of k, 40"),
        ((3, 1), {"q_lengths": [0, -1, 1]}, r"q_lengths\[1\]: is -1, but must be from 0 to the query length of q, 1"),
        ((1, 5), {"cu_seqlens_q": [0, 2, 4, 6]}, r"cu_seqlens_q\[3\]: is 6, but q has 5 rows"),
        ((1, 5), {"cu_seqlens_q": [1, 2, 4, 5]}, r"cu_seqlens_q\[0\]: is 1, but must be 0"),
        ((1, 5), {"cu_seqlens_q": [0, 3, 2, 5]}, r"cu_seqlens_q\[2\]: is 2, but the entry before is 3"),
        ((1, 5), {"cu_seqlens_q": [0, 1, 2, 5], "kv_lengths": [1, 2, 99]}, r"kv_lengths\[2\]: is 99, but must be"),
        ((3, 1), {"q_lengths": [9, 1, 1], "kv_lengths": [99, 1, 1]}, r"kv_lengths\[0\]: is 99, but must be"),
        ((3, 5), {"cu_seqlens_q": [0, 5]}, r"q: extent\[0\] \(batch\) is 3, but the batch of packed queries is 1"),
        ((1, 5), {"cu_seqlens_q": [0, 5], "q_lengths": [5]}, "q_lengths: is given, but cu_seqlens_q is too"),
        ((1, 5), {"cu_seqlens_q": [0, 5], "cu_seqlens_k": [0, 40], "kv_lengths": [1]}, "kv_lengths: is given, but cu_seqlens_k is too"),
        ((1, 5), {"cu_seqlens_q": [0, 5], "cu_seqlens_k": [0, 39]}, r"cu_seqlens_k\[1\]: is 39, but k has 40 rows"),
        ((1, 5), {"cu_seqlens_q": [0, 5], "cu_seqlens_k": [0, 60]}, "cu_seqlens_k: sequence 0 has 60 rows, but the kv length of k is 40"),
    ],
)
def test_lengths_that_nobody_takes(rng, rows, options, message):
    """explain() refuses them as attention() does."""
    q = rng.standard_normal((rows[0], 2, rows[1], 8), np.float32)
    k = rng.standard_normal((1 if "cu_seqlens_k" in options else 3, 2, 40, 8), np.float32)
    for function in (hattn.attention, hattn.explain):
        with pytest.raises(ValueError, match=f"^{message}"):
            function(q, k, k, **options)


def test_force(rng, monkeypatch):
    arrays = random_qkv(rng)
    monkeypatch.setenv("HATTN_FORCE", "algorithm=naive")
    assert hattn.explain(*arrays)["algorithm"] == "naive"
    monkeypatch.setenv("HATTN_FORCE", "algorithm=split_kv")
    assert hattn.explain(*arrays)["algorithm"] == "split_kv"


def test_packs_of_the_environment(monkeypatch, tmp_path):
    assert hattn.info()["packs"] == hattn.info()["warnings"] == []
    (tmp_path / "broken.so").write_bytes(b"not a pack")
    monkeypatch.setenv("HATTN_PACKS", str(tmp_path))
    (warning,) = hattn.info()["warnings"]
    assert str(tmp_path / "broken.so") in warning
    monkeypatch.setenv("HATTN_PACKS", str(tmp_path / "broken.so"))
    with pytest.raises(ValueError, match="HATTN_PACKS: .*broken.so"):
        hattn.info()


@pytest.mark.parametrize("name", [b"caf\xe9.so", "é".encode() * 120 + b".so"], ids=["no UTF-8", "long"])
def test_names_of_files_in_messages(name, tmp_path):
    """Any bytes, and messages are cut off between characters."""
    folder = os.fsencode(tmp_path) + b"/" + "é".encode() * 100
    os.mkdir(folder)
    variables = {**os.environb, b"HATTN_PACKS": folder + b"/" + name, b"HATTN_TUNING": b"none"}
    code = "import hattn\ntry:\n hattn.info()\nexcept ValueError as error:\n print(ascii(error))"
    run = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True)
    assert "HATTN_PACKS: kernel pack" in run.stdout, run.stderr
    variables = {**os.environb, b"HATTN_TUNING": folder + b"/" + name}
    code = "import hattn\nprint(ascii(hattn.info()['tuning_database']['path']))"
    run = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True)
    assert run.returncode == 0 and ".so" in run.stdout, run.stderr


def test_plans_do_not_pile_up(rng):
    # More shapes than the module keeps plans for, in turn: every call must still use its own.
    for _ in range(2):
        for keys in range(1, 40):
            q, k, v = random_qkv(rng, keys=keys)
            assert hattn.attention(q, k, v, return_scores="raw")[1].shape[-1] == keys


def test_explain_does_not_take_other_options(rng):
    with pytest.raises(TypeError, match="colour"):
        hattn.explain(*random_qkv(rng), colour="red")


def test_public_names():
    functions = {"apply_rope", "attention", "explain", "info", "merge_states"}
    assert set(hattn.__all__) == {"KVCache", "Rope", "__version__"} | functions
    for name in set(hattn.__all__) - {"__version__"}:
        assert inspect.getdoc(getattr(hattn, name))
