"""Kernels of packs beside the library's own."""

import json

import numpy as np
import pytest

import hattn
from hattn._tuning import deep
from stored import FLOATS
from tuning_entries import entry_for

TILE = {"rows": 512, "keys": 128, "row_vectors": 1, "key_unroll": 16, "value_unroll": 16}
KERNEL = "amx_flash_x86_avx512_r512k128v1u16d16_alibi_mask"


def test_what_is_not_finite_has_a_kernel_to_fall_back_to(kernelgen, rng, tmp_path, monkeypatch):
    """Though none of the library's that the problem might take leaves it to another."""
    q, k, v = (rng.standard_normal((1, heads, 300, 64), np.float32).astype(FLOATS["bfloat16"]) for heads in (2, 1, 1))
    options = {"causal": True, "alibi_slopes": np.ones(2, np.float32)}
    if not hattn.explain(q, k, v, **options)["kernel"].startswith("amx_flash_"):
        pytest.skip("this CPU has no AMX")
    deep.compile_pack(kernelgen, tmp_path / "packed.so", [KERNEL])
    entry = entry_for((q, k, v), "flash", **options)
    entry["choice"]["tile"] = TILE
    stamp = json.loads(json.dumps(hattn.info()["tuning_database"]["stamp"]))
    path = tmp_path / "tuning.json"
    path.write_text(json.dumps({"format": "hattn-tuning", "version": 1, "stamp": stamp, "entries": [entry], "packs": ["packed.so"]}))
    expected = hattn.attention(q, k, v, algorithm="split_kv", **options).astype(np.float32)
    monkeypatch.setenv("HATTN_TUNING", str(path))
    plan = hattn.explain(q, k, v, **options)
    assert (plan["kernel"], plan["decided_by"]) == (KERNEL, "machine"), plan
    for number in (1.0, np.nan, np.inf):
        late = v.copy()
        late[:, :, -1] = number  # which the last row alone sees
        output = hattn.attention(q, k, late, **options).astype(np.float32)
        np.testing.assert_allclose(output[:, :, :200], expected[:, :, :200], rtol=0.02, atol=0.02)
