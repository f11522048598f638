"""Inner loops of kernels that multiply pairs of bfloat16 numbers, or matrices of them."""

import re

import pytest

from assembly import INSTRUCTION_SETS, innermost_loops, smallest_loop_around, straight_runs
from kernel_assembly import HOOK_SETS, KERNELGEN, SSE4A, kernel_names, kernelgen
from statement_numbers import Numbers

BFLOAT16_NAME = re.compile(r"bfloat16_flash_(?P<target>x86_avx512)_r(?P<rows>\d+)k\d+v(?P<v>\d+)u(?P<u>\d+)d(?P<d>\d+)(?P<hooks>\w*)$")
PAIR_GROUP = 4  # pairs along the head in one pass of the score loop, see generators/attention_stages.h


def test_there_are_bfloat16_kernels_to_read():
    names = kernel_names(BFLOAT16_NAME)
    assert len(names) >= len(HOOK_SETS) or not KERNELGEN.exists()


@pytest.mark.parametrize("name", kernel_names(BFLOAT16_NAME))
def test_kernels_for_bfloat16(name, emit):
    """Both loops multiply pairs by the instruction for it: whole vectors on accumulators in registers, an operand loaded per vector of
    rows, the other broadcast once per key or head element, and little else."""
    match = BFLOAT16_NAME.match(name)
    isa = INSTRUCTION_SETS[match["target"]]
    text = emit(name, isa)
    assert "gather" not in text, f"{name} gathers"
    assert not re.search(SSE4A, text), f"{name} needs SSE4a"
    v, u, d = (int(match[part]) for part in "vud")
    loops = [loop for loop in innermost_loops(text, isa) if loop.count(r"\bvdpbf16ps\b")]
    others = (isa.fma, isa.arithmetic, isa.gather, r"\(%r[sb]p\).*%zmm|%zmm.*\(%r[sb]p\)")
    for products, broadcasts, vectors in ((v * u * PAIR_GROUP, u * PAIR_GROUP, v * PAIR_GROUP), (v * d, d, v)):
        clean = [
            loop
            for loop in loops
            if loop.count(r"\bvdpbf16ps\b.*%zmm\d+$") == products
            and loop.count(r"\bvbroadcastss\b") == broadcasts
            and not any(map(loop.count, others))
            and loop.count(isa.stack) <= 1  # the loop's end
            and len(loop.instructions) <= products + broadcasts + vectors + 4  # the loop's own
        ]
        found = "\n".join(loop.text() for loop in loops)
        assert clean, f"{name}: no clean loop of {products} vdpbf16ps; loops with any:\n{found}"


PAIRS_NAME = re.compile(r"bfloat16_pairs_split_kv_(?P<target>x86_avx512)_r(?P<rows>\d+)k\d+v(?P<v>\d+)u(?P<u>\d+)d(?P<d>\d+)(?P<hooks>\w*)$")
ROWS_NAME = re.compile(r"bfloat16_rows_split_kv_(?P<target>x86_avx512)_r(?P<rows>\d+)k\d+v(?P<v>\d+)u(?P<u>\d+)d(?P<d>\d+)(?P<hooks>\w*)$")
LINE_PAIRS = 16  # of bfloat16 numbers in a cache line


def test_there_are_kernels_of_pairs_for_decode():
    rows = {int(match["rows"]) for pattern in (PAIRS_NAME, ROWS_NAME) for match in map(pattern.match, kernel_names(pattern))}
    assert rows == {4, 8, 16, 32} or not KERNELGEN.exists()


def expect_loop(name, loops, isa, products, broadcasts, asked, shuffles=0):
    """One that multiplies so many pairs of vectors and asks for so many lines, with all sums in registers and nothing else on vectors."""
    others = (isa.fma, isa.arithmetic, isa.gather, isa.vector_stack)
    found = [
        loop
        for loop in loops
        if loop.count(r"\bvdpbf16ps\b.*%zmm\d+$") == products
        and loop.count(r"\bvbroadcastss\b|\bvdpbf16ps\b.*\{1to16\}") == broadcasts
        and loop.count(isa.kept) == asked
        and loop.count(r"\bvperm[it]2w\b|\bvp?unpck[lh](wd|dq|qdq|ps|pd)\b") == shuffles
        and not any(map(loop.count, others))
    ]
    all_loops = "\n".join(loop.text() for loop in loops if loop.count(r"\bvdpbf16ps\b"))
    assert found, f"{name}: no clean loop of {products} vdpbf16ps that asks for {asked} lines; loops with any:\n{all_loops}"


@pytest.mark.parametrize("name", kernel_names(PAIRS_NAME))
def test_decode_of_pairs_with_rows_in_the_lanes(name, emit):
    """As prompts have it, but that scores ask for a block's lines, of keys further on and of its own values."""
    match = PAIRS_NAME.match(name)
    isa = INSTRUCTION_SETS[match["target"]]
    text = emit(name, isa)
    assert not re.search(SSE4A, text), f"{name} needs SSE4a"
    v, u, d = (int(match[part]) for part in "vud")
    loops = innermost_loops(text, isa)
    expect_loop(name, loops, isa, v * u * PAIR_GROUP, u * PAIR_GROUP, 2 * u * PAIR_GROUP // LINE_PAIRS)
    expect_loop(name, loops, isa, v * d, d, 0)


@pytest.mark.parametrize("name", kernel_names(ROWS_NAME, ("",)))
def test_decode_of_pairs_along_rows(name, emit):
    """Scores of keys four by four, a line of each in a pass, whose words change places once for all rows: nothing is added across lanes.
    Values of two keys at a time, interleaved once for all rows. Both ask for as many lines as they read."""
    match = ROWS_NAME.match(name)
    isa = INSTRUCTION_SETS[match["target"]]
    text = emit(name, isa)
    assert not re.search(SSE4A, text), f"{name} needs SSE4a"
    rows, u, d = (int(match[part]) for part in ("rows", "u", "d"))
    loops = innermost_loops(text, isa)
    expect_loop(name, loops, isa, rows * u, 0, u, 2 * u)
    # Of each key of two, a line for every two vectors of floats, which may end in one more.
    expect_loop(name, loops, isa, rows * d, rows, d + 2, d)


AMX_NAME = re.compile(
    r"amx_(?P<of>float32_|stored_|halves_|)flash_(?P<target>x86_avx512)_r(?P<rows>\d+)k\d+v\d+u\d+d\d+(?P<hooks>\w*)$"
)


def test_there_are_amx_kernels_to_read():
    tiles = {AMX_NAME.match(name).group("of", "rows") for name in kernel_names(AMX_NAME)}
    assert len(tiles) == 7 or not KERNELGEN.exists()


@pytest.mark.parametrize("name", kernel_names(AMX_NAME))
def test_kernels_for_amx(name, emit):
    """Both products are those of matrices, four sums in a loop that loads sides for them, see schedules/x86/matrix_tiles.h:
    two by two for one product each, in tiles of 16 rows two or four that share one side, and for the six of sums of three
    terms seven by two, for the four and three of two terms fewer, since each pair of terms shares one with the pair before;
    none is kept in memory, none fell back to vectors. Of terms there are rooms after eight products, of two after four as well.
    Numbers that change places do so by the vector, see simd/turned_stores.h, but for those past the last whole step of a head,
    which are loaded number by number too."""
    isa = INSTRUCTION_SETS["x86_avx512"]
    text = emit(name, isa)
    assert not re.search(r"\bvdpbf16ps\b", text), f"{name} multiplies pairs"
    assert not re.search(r"\b(extrq|insertq|movnts[sd])\b", text), f"{name} needs SSE4a"
    parts = AMX_NAME.match(name)
    of_one = [(2, 3), (4, 5)] if parts["rows"] == "16" else [(4, 4)]
    of_three = [(24, 14), (8, 6), (8, 4)]
    expected = {"": of_one, "halves_": [(8, 6), (8, 4), (4, 4)]}.get(parts["of"], of_three)
    # That of values is on a condition, and no innermost loop then.
    runs = [run for run in straight_runs(text, isa) if run.count(r"\btdpbf16ps\b")]
    assert len(runs) >= 2, f"{name}: scores and values need a run of tdpbf16ps each, but there are {len(runs)}"
    for run in runs:
        found = run.text()
        counts = run.count(r"\btdpbf16ps\b"), run.count(r"\btileloadd\b")
        assert counts in expected, found
        assert not run.count(r"%[xyz]mm|\btilestored\b"), found
    turned = [loop for loop in innermost_loops(text, isa) if loop.count(r"\bvperm[it]2(d|ps)\b") >= 64]
    assert len(turned) >= 2, f"{name}: queries and weights are turned in registers, but {len(turned)} loops do"
    single = [loop for loop in innermost_loops(text, isa)
              if loop.count(r"\bvpextrw\b") > 8 and loop.count(r"\bv(insertps|pinsrw)\b") < 12]
    assert not single, f"{name} stores number by number:\n" + "\n".join(loop.text() for loop in single)


IN_BANDS = [name for name in kernel_names(AMX_NAME) if AMX_NAME.match(name)["of"] or AMX_NAME.match(name)["rows"] == "256"]


@pytest.mark.parametrize("name", IN_BANDS)
def test_weights_are_computed_among_products(name, emit):
    """Loops of weights, which are brought into terms at once and ask for the next chunk, stand among products of scores and of weighted values, see
    schedules/x86/overlapped_bands.h, of three terms that of the state among the latter too. No tile is kept in memory for it, and no weight either. Scores
    start at zero, and weighted values of three terms; of fewer as what the state is, in whose place they are stored (sums_in_place.h): four tiles each."""
    isa = INSTRUCTION_SETS["x86_avx512"]
    text = emit(name, isa)
    stores = re.findall(r"\btilestored\b.*\(%r[sb]p", text)
    assert not stores, f"{name} keeps tiles on the stack: {stores}"
    counts = {what: len(re.findall(rf"\b{what}\b", text)) for what in ("tilezero", "tilestored")}
    three_terms = AMX_NAME.match(name)["of"] in ("float32_", "stored_")
    assert counts == {"tilezero": 8 if three_terms else 4, "tilestored": 8}, f"{name}: {counts}"
    loads = re.findall(r"\b(tileloadd|tdpbf16ps)\b", text)
    starts = "tileloadd " * 4 + "tdpbf16ps"  # but for the two sides of the first product
    assert three_terms != (starts in " ".join(loads)), f"{name}: tiles that sums start as: {loads}"
    lines = text.splitlines()
    products = [number for number, line in enumerate(lines) if re.search(r"\btdpbf16ps\b", line)]
    assert products, f"{name} multiplies no matrices"
    # Behind a product, up to the next one or the end of its tile of sums.
    rooms = []
    for first, last in zip(products, [*products[1:], len(lines)]):
        ends = (n for n in range(first, last) if re.search(r"\btile(zero|stored)\b|^\s+ret", lines[n]))
        rooms.append("\n".join(lines[first : next(ends, last)]))
    for what, pattern, least in (
        ("weights", r"\bvpslld\s+\$(23|0x17),\s*%zmm", 2),
        ("their terms", r"\bvperm[ti]2w\b[^$]*%zmm", 2),
        ("lines of the next chunk", r"\bprefetcht0\b", 2),
        *([("state", r"\bvfmadd\w+ps\b[^$]*\(%r[^$]*%zmm", 1)] if three_terms else []),
    ):
        count = sum(bool(re.search(pattern, room)) for room in rooms)
        assert count >= least, f"{name}: {what} in {count} rooms of {len(rooms)}, not in {least} or more"


# Two heads of 20 rows in a tile of 256, for which they fill two bands of 32.
FEW_ROWS = {"query.extent.1": 20, "query.extent.2": 2, **{f"{side}.extent.0": 128 for side in ("key", "value")}}


@pytest.mark.parametrize("name", [name for name in IN_BANDS if not AMX_NAME.match(name)["hooks"]])
def test_bands_without_rows_are_not_computed(name, tmp_path):
    """The last tile of a head has seldom as many rows as it has room for: neither are there matrices of others, nor products."""
    kernelgen("x86-64", "emit", name, tmp_path)
    numbers = Numbers((tmp_path / f"{name}.stmt").read_text(), FEW_ROWS)
    assert [count for _, count in numbers.passes(r"query_pairs.*\.s0\.band\b")] == [2]
    assert [count for _, count in numbers.passes(r"overlapped_band\b")] == [2 + 2]  # of three bands each has a stage at the same time


BYTES_NAME = re.compile(r"amx_(?P<type>int8|int4)_split_kv_(?P<target>x86_avx512)_r8k\d+v\d+u\d+d\d+(?P<hooks>)$")


def test_there_are_kernels_of_byte_matrices_to_read():
    types = {BYTES_NAME.match(name)["type"] for name in kernel_names(BYTES_NAME)}
    assert types == {"int8", "int4"} or not KERNELGEN.exists()


@pytest.mark.parametrize("name", kernel_names(BYTES_NAME))
def test_decode_by_matrices_of_bytes(name, emit):
    """Both products are of matrices, of which those that are computed together share sides: scores of a line's blocks the keys, of
    two lines of int8 at a time and of both nibbles of int4; values of a block's two panels the weights. AMX is not configured in loops with products,
    as it is behind each call, to memset() for example. Values of four keys change places by the vector, in registers, and take one load each."""
    isa = INSTRUCTION_SETS["x86_avx512"]
    text = emit(name, isa)
    assert not re.search(r"\bvpdp\w+|gather", text), f"{name} multiplies vectors, or gathers"
    assert not re.search(r"\btile(stored|loadd)\b.*\(%r[sb]p", text), f"{name} keeps tiles on the stack"
    runs = [run for run in straight_runs(text, isa) if run.count(r"\btdpbssd\b")]
    counts = sorted((run.count(r"\btdpbssd\b"), run.count(r"\btileloadd\b")) for run in runs)
    of_int4 = BYTES_NAME.match(name)["type"] == "int4"
    assert counts == ([(4, 6), (8, 10), (8, 10)] if of_int4 else [(4, 6), (4, 6)]), "\n".join(run.text() for run in runs)
    for run in runs:
        around = smallest_loop_around(text, isa, run)
        calls = [instruction for instruction in around.instructions if re.search(r"\b(ldtilecfg|call\w*)\b", instruction)]
        assert not calls, f"{name} calls, and configures AMX again, in a loop with products: {calls}"
    lines = [loop for loop in innermost_loops(text, isa) if loop.count(r"\bvpunpck[lh]bw\b.*%zmm")]
    assert lines, f"{name} has no loop that interleaves lines of values"
    for loop in lines:
        shuffles = r"\bv(punpck[lh](bw|wd)|shuf[fi]\d+x\d|insert[fi]64x4|perm[ti]2\w+|pshuf\w+|perm\w+)\b"
        assert loop.count(shuffles) == (16 if of_int4 else 12) and not loop.count(isa.vector_stack), loop.text()
