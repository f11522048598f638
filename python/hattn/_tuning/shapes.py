"""Which problems are worth tuning for: a grid for everybody, or those of one's own model."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, NamedTuple, Tuple

Shape = Dict[str, Any]


def title(shape: Shape) -> str:
    """A line for people, which shapes that differ do not share."""
    key_dim, dtype, device = shape["key_dim"], shape.get("dtype", "float32"), shape.get("device", "cpu")
    value_dim, window, batch = shape.get("value_dim", key_dim), shape.get("window_left", -1), shape.get("batch", 1)
    parts = [
        f"{shape['query_length']} x {shape['kv_length']}",
        f"heads {shape['query_heads']}/{shape['kv_heads']}",
        f"size {key_dim}" + ("" if value_dim == key_dim else f"/{value_dim}"),
        "" if dtype == "float32" else dtype,
        "" if batch == 1 else f"batch {batch}",
        "" if shape.get("causal", True) else "not causal",
        "" if window < 0 else f"window {window}",
        *(hook for hook in ("softcap", "bias", "alibi", "mask") if shape.get(hook, False)),
        "" if device == "cpu" else device,
    ]
    return ", ".join(part for part in parts if part)


class Problem(NamedTuple):
    """Shapes of one class, which get one choice together."""

    shapes: List[Shape]
    asked_for: int = 1  # of them; others are there so that a winner does not just happen to fit one

    @property
    def title(self) -> str:
        """A line for people."""
        more = self.asked_for - 1
        return title(self.shapes[0]) + (f" and {more} more of its class" if more else "")


# Of keys and values. Queries and outputs are tuned with the same, or with float32 where it is quantised.
DTYPES = ("float32", "float16", "bfloat16", "int8", "int4")

# Rows of a head and keys that a prompt, a step of decoding, or a step with drafted tokens may have. Each stands for
# sizes of half to twice as many rows and a quarter to four times as many keys.
QUICK_ROWS = (1, 512, 4, 64, 16)
QUICK_KEYS = (1024, 128, 8192)
QUICK_HEADS = ((128, 4), (64, 1), (128, 1), (64, 4))  # head size, query heads per kv head

ALL_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
ALL_KEYS = (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
ALL_HEADS = tuple((size, group) for size in (64, 128) for group in (1, 2, 4, 8))

# Multiply-adds, as work() counts them, beyond which a problem takes too long to be measured often.
MOST_WORK = 2.5e9

LAST_KEYS = 2**16  # of the last class there is (runtime/tuning.h)

_LONG_WORK = 3e8  # multiply-adds, likewise


def work(shape: Shape) -> float:
    """Multiply-adds of both products over the keys that rows see between them, without any other skipping."""
    keys, window = shape["kv_length"], shape.get("window_left", -1)
    if window >= 0 and shape.get("causal", True):
        keys = min(keys, window + shape["query_length"])
    pairs = shape["query_heads"] * shape["query_length"] * keys
    return float(shape.get("batch", 1) * pairs * (shape["key_dim"] + shape.get("value_dim", shape["key_dim"])))


def is_long(shape: Shape) -> bool:
    """Whether a problem takes so long that fewer candidates are tried on it, and on it alone."""
    return work(shape) > _LONG_WORK


def _variant(shape: Shape) -> Shape:
    """Another shape of the same class, so that a winner does not just happen to fit the tiles of one, and with a single
    kv head, so that it leaves threads enough to do."""
    rows, keys = shape["query_length"], shape["kv_length"]
    return {
        **shape,
        "query_heads": shape["query_heads"] // shape["kv_heads"],
        "kv_heads": 1,
        "query_length": rows if rows < 4 else rows * 3 // 4,
        "kv_length": keys if keys < 32 else keys * 5 // 4,
    }


def _problem(rows: int, keys: int, size: int, group: int) -> Problem:
    kv_heads = 2 if rows * keys * group <= 1 << 20 else 1
    shape = {
        "query_heads": kv_heads * group,
        "kv_heads": kv_heads,
        "query_length": rows,
        "kv_length": keys,
        "key_dim": size,
        "causal": True,
    }
    return Problem([shape] if is_long(shape) else [shape, _variant(shape)])


def grid(
    rows: Iterable[int], keys: Iterable[int], heads: Iterable[Tuple[int, int]], most_work: float = MOST_WORK
) -> List[Problem]:
    """All problems with no more rows than keys, those first that matter to most people."""
    heads = list(heads)
    problems = [
        _problem(row_count, key_count, size, group)
        for row_count in rows
        for key_count in keys
        for size, group in heads
        if row_count <= key_count
    ]
    return [problem for problem in problems if work(problem.shapes[0]) <= most_work]


def quick() -> List[Problem]:
    """What `hattn tune` measures by default."""
    return grid(QUICK_ROWS, QUICK_KEYS, QUICK_HEADS)


def everything() -> List[Problem]:
    """Every class worth an entry; what tunings that ship with the library are made of."""
    return grid(ALL_ROWS, ALL_KEYS, ALL_HEADS)


def with_dtypes(problems: Iterable[Problem], dtypes: Iterable[str]) -> List[Problem]:
    """Each problem in each of the types, one after the other; those that have one keep it."""
    dtypes = list(dtypes)
    return [
        Problem([{**shape, "dtype": dtype} for shape in problem.shapes])
        for problem in problems
        for dtype in ([problem.shapes[0]["dtype"]] if "dtype" in problem.shapes[0] else dtypes)
    ]


def on_device(problems: Iterable[Problem], device: str) -> List[Problem]:
    """The problems on a device: "cpu", "opencl", "cuda" or "cuda:1"."""
    return [Problem([{**shape, "device": device} for shape in problem.shapes]) for problem in problems]
