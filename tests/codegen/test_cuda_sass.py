"""CUDA kernels as machine code, without a GPU: what ptxas makes of the loop over chunks is what was recorded."""

import json
import re
import subprocess
import textwrap

import pytest

import cuda_tools
import sass
from cuda_kernels import GOLDEN as PTX_GOLDEN
from cuda_kernels import ptx_of
from cuda_sass import RECORDED, assemble, assembled, chunk_loop, golden, measure, measured, registers, with_capabilities
from test_cuda_kernels import ASSEMBLED, SPILLED, ptx  # noqa: F401 # a fixture
from test_inner_loops import KERNELGEN

MISSING = [name for name in ("ptxas", "nvdisasm") if cuda_tools.find(name) is None]
KERNELS = golden()["kernels"]
PTX = json.loads(PTX_GOLDEN.read_text())
HOOKS = re.compile(r"_(softcap|bias|alibi|mask)")


@pytest.mark.skipif(not KERNELGEN.exists(), reason="the build has no hattn-kernelgen")
def test_every_kernel_is_recorded():
    names = subprocess.run([KERNELGEN, "list"], check=True, capture_output=True, text=True).stdout.split()
    assert sorted(filter(RECORDED.match, names)) == sorted(KERNELS)


@pytest.mark.skipif(not KERNELGEN.exists(), reason="the build has no hattn-kernelgen")
@pytest.mark.skipif(bool(MISSING), reason=f"there is no {' and no '.join(MISSING)}")
@pytest.mark.parametrize(("name", "capability"), with_capabilities(sorted(KERNELS)))
def test_machine_code_is_what_was_recorded(ptx, name, capability):  # noqa: F811
    recorded, here = golden()["ptxas"], cuda_tools.version(cuda_tools.find("ptxas"))
    if here != recorded:
        pytest.skip(f"ptxas is {here}, and counts are those of {recorded}")
    assert measured(*assembled(name, ptx_of(ptx(name), capability), capability, ASSEMBLED)) == KERNELS[name][capability]


@pytest.mark.parametrize(("name", "capability"), with_capabilities(sorted(KERNELS)))
def test_what_is_recorded_is_one_chunk(name, capability):
    """ptxas has not unrolled the loop: what is in it is what the PTX has for one chunk."""
    row, spilled = KERNELS[name][capability], SPILLED.get(name, {}).get(capability, 0)
    if not HOOKS.search(name):
        assert not {"LDL", "STL"} & row.keys(), "arrays of a thread belong into registers"
        assert row["local"] <= spilled // 2, "a word is stored once and loaded once"
    assert row["local"] <= spilled
    if "_warpgroups" in name:
        assert row["HGMMA"] == PTX[name]["warpgroup_products"]
        assert "HMMA" not in row and "LDSM" not in row
        # Copies of the next chunk's keys and values, and in a branch for rows that lie otherwise; a barrier for each wait.
        assert row["BAR"] == PTX[name]["proxy_fences"] - 1
    elif "float16" in name:
        assert row["HMMA"] == PTX[name]["matrix_products"]
        assert row["LDSM"] == PTX[name]["matrix_loads"]
    else:
        # The hyperbolic tangent has a division, which is multiply-adds in machine code.
        assert row["FFMA"] <= PTX[name]["fma"] * (1.15 if "_softcap" in name else 1)
        if not takes_rows(name):
            assert len(row["loops"]) >= 2, "scores and values are loops of their own"


def takes_rows(name):
    """Whether keys and values go from memory straight into registers (decision 0045)."""
    return "split_kv_cuda_r2" in name


@pytest.mark.parametrize(("name", "capability"), with_capabilities(sorted(filter(takes_rows, KERNELS))))
def test_rows_are_loaded_in_wide_words(name, capability):
    """Of the loop for float32 rows side by side: eight elements of a thread, of each of its keys and values, are two loads of 16 bytes
    and need no others; what goes through shared memory are sums over them."""
    rows, keys, slices, head = map(int, re.search(r"_r(\d+)k(\d+)s(\d+)t\d+h(\d+)", name).groups())
    row = KERNELS[name][capability]
    own_keys = keys * slices // PTX[name]["threads"]
    assert head == 8 * slices
    assert row["LDG.128"] == 2 * 2 * own_keys
    assert row.get("LDG.32", 0) == (2 if "_bias" in name else 0), "a bias of each row; no table of granules is in the way"
    assert 4 * row.get("STS.128", 0) + 2 * row.get("STS.64", 0) == rows * own_keys
    assert row.get("STS.32", 0) <= 8


def listing(code):
    return "\n".join([".text.kernel:", *(line if line.startswith(".L") else f"  /*0*/ {line} ;" for line in code.split("\n"))])


def parts(code):
    """Names of instructions in each loop."""
    parsed, labels = sass.entry(listing(textwrap.dedent(code).strip()))
    return [[parsed[at].name for at in sorted(body)] for _, body in sorted(sass.loops(parsed, labels).items())]


def test_a_loop_is_what_comes_back_to_its_start():
    assert parts(
        """\
        MOV R0, RZ
        .L_1:
        FADD R1, R1, R2
        .L_2:
        FMUL R3, R3, R3
        @P0 BRA `(.L_2)
        BRA !P1, `(.L_1)
        EXIT"""
    ) == [["FADD", "FMUL", "BRA", "BRA"], ["FMUL", "BRA"]]


def test_parts_of_a_loop_may_be_behind_it():
    assert parts(
        """\
        .L_1:
        FADD R1, R1, R2
        @P0 BRA `(.L_3)
        .L_2:
        @P1 BRA `(.L_1)
        EXIT
        .L_3:
        FMUL R3, R3, R3
        BRA `(.L_2)"""
    ) == [["FADD", "BRA", "BRA", "FMUL", "BRA"]]


def test_a_loop_may_be_left_by_a_call():
    """ptxas does that for sm_80. A call of a function, such as that of a division, comes back."""
    assert parts(
        """\
        .L_1:
        CALL.REL.NOINC `($division)
        @!P5 CALL.REL.NOINC `(.L_2)
        BRA `(.L_1)
        .L_2:
        EXIT"""
    ) == [["CALL.REL.NOINC", "CALL.REL.NOINC", "BRA"]]


def test_a_jump_to_nobody_knows_where_is_an_error():
    with pytest.raises(ValueError, match="BRX"):
        parts("BRX R2\nEXIT")


@pytest.mark.parametrize(("product", "count"), [("HMMA.16816.F32", "1 of 2 HMMA"), ("FFMA", "1 of 2 FFMA")])
def test_products_in_two_places_are_an_error(product, count):
    code = f".L_1:\n{product} R1\n@P0 BRA `(.L_1)\n{product} R1\nEXIT"
    parsed, labels = sass.entry(listing(code))
    with pytest.raises(ValueError, match=re.escape(count)):
        chunk_loop(parsed, sass.loops(parsed, labels))


@pytest.mark.skipif(bool(MISSING), reason=f"there is no {' and no '.join(MISSING)}")
def test_one_multiply_add_more_is_seen(tmp_path):
    body = textwrap.dedent(
        """\
        .version 7.0
        .target sm_80
        .address_size 64
        .visible .entry kernel(.param .u64 out, .param .u32 count) {
        .reg .f32 %f<3>; .reg .u32 %r<3>; .reg .u64 %rd<3>; .reg .pred %p<2>;
        ld.param.u64 %rd1, [out];
        ld.param.u32 %r1, [count];
        mov.f32 %f1, 0f00000000;
        $again: .pragma "nounroll";
        ld.global.v2.f32 {%f0, %f2}, [%rd1];
        FMA
        st.global.f32 [%rd1], %f1;
        add.u32 %r1, %r1, -1;
        setp.ne.u32 %p1, %r1, 0;
        bar.sync 0;
        @%p1 bra $again;
        ret;
        }
        """
    )
    found = []
    for times in (1, 2):
        path = tmp_path / f"{times}.ptx"
        path.write_text(body.replace("FMA", "fma.rn.f32 %f1, %f0, %f2, %f1;\n" * times))
        found.append(measure(path, "sm_80"))
        assert registers(assemble(path, "sm_80", tmp_path / "cubin")) == found[-1]["registers"]
    assert [row["FFMA"] for row in found] == [1, 2]
    assert all(row["LDG.64"] == row["STG.32"] == row["BAR"] == 1 and row["local"] == 0 for row in found)
