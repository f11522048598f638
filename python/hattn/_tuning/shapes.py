"""Which problems are worth tuning for: a grid for everybody, or those of one's own model."""

from __future__ import annotations

import json
import pathlib
from typing import Any, Dict, Iterable, List, NamedTuple, Tuple

Shape = Dict[str, Any]


class Problem(NamedTuple):
    """Shapes of one class, which get one choice together."""

    shapes: List[Shape]

    @property
    def title(self) -> str:
        """A line for people."""
        shape = self.shapes[0]
        dtype, device = shape.get("dtype", "float32"), shape.get("device", "cpu")
        return (
            f"{shape['query_length']} x {shape['kv_length']}, heads {shape['query_heads']}/{shape['kv_heads']}, "
            f"size {shape['key_dim']}"
            + ("" if dtype == "float32" else f", {dtype}")
            + ("" if device == "cpu" else f", {device}")
        )


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

# Multiply-adds of both products, without skipping, beyond which a problem takes too long to be measured often.
MOST_WORK = 2.5e9


def work(shape: Shape) -> float:
    """Multiply-adds of both products, without any skipping."""
    pairs = shape["query_heads"] * shape["query_length"] * shape["kv_length"]
    return float(shape.get("batch", 1) * pairs * (shape["key_dim"] + shape.get("value_dim", shape["key_dim"])))


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
    return Problem([shape, _variant(shape)])


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


def of_model(query_heads: int, kv_heads: int, head_dim: int, context: int, window: int = -1) -> List[Problem]:
    """Decoding, drafted tokens and prompts of a model, at lengths up to its context."""
    problems = []
    keys = [count for count in (128, 512, 2048, 8192, 32768) if count < context] + [min(context, 32768)]
    for rows in (1, 512, 4, 64):
        for count in keys:
            shape = {
                "query_heads": query_heads,
                "kv_heads": kv_heads,
                "query_length": rows,
                "kv_length": count,
                "key_dim": head_dim,
                "causal": True,
                "window_left": window,
            }
            if rows <= count and work(shape) <= 8 * MOST_WORK:
                problems.append(Problem([shape]))
    return problems


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


def _of_config(path: pathlib.Path, config: Dict[str, Any]) -> List[Problem]:
    """A Hugging Face config.json. Models of text and images keep the language model's numbers under text_config."""
    config = config.get("text_config", config)
    try:
        heads = int(config["num_attention_heads"])
        head_dim = int(config.get("head_dim") or config["hidden_size"] // heads)
        context = int(config["max_position_embeddings"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path}: is no model's config.json, {error} is missing") from None
    return of_model(heads, int(config.get("num_key_value_heads") or heads), head_dim, context)


def _of_gguf(path: pathlib.Path) -> List[Problem]:
    try:
        import gguf
    except ImportError:
        raise ValueError(f"{path}: needs the package gguf: pip install 'hattn[tune]'") from None
    reader = gguf.GGUFReader(path)

    def field(name: str) -> Any:
        found = reader.get_field(name)
        if found is None:
            raise ValueError(f"{path}: has no {name}")
        return found.parts[found.data[0]]

    architecture = bytes(field("general.architecture")).decode()

    def number(name: str, otherwise: int = 0) -> int:
        key = f"{architecture}.{name}"
        return otherwise if otherwise and reader.get_field(key) is None else int(field(key)[0])

    heads = number("attention.head_count")
    return of_model(
        heads,
        number("attention.head_count_kv", heads),
        number("attention.key_length", number("embedding_length") // heads),
        number("context_length"),
    )


def _of_list(path: pathlib.Path, shapes: List[Any]) -> List[Problem]:
    for at, shape in enumerate(shapes):
        needed = ("query_heads", "query_length", "kv_length", "key_dim")
        missing = [name for name in needed if not isinstance(shape, dict) or not isinstance(shape.get(name), int)]
        if missing:
            raise ValueError(f"{path}: shapes[{at}] has no whole number {', '.join(missing)}")
        if shape.get("dtype", DTYPES[0]) not in DTYPES:
            raise ValueError(f"{path}: shapes[{at}]: dtype is {shape['dtype']}, but must be one of {', '.join(DTYPES)}")
    return [Problem([{"kv_heads": shape["query_heads"], **shape}]) for shape in shapes]


def read(path: pathlib.Path) -> List[Problem]:
    """The problems of a file: a JSON list of shapes, a model's config.json, or a GGUF model.

    Raises:
        OSError, ValueError: the file cannot be read, or is none of these.
    """
    if path.suffix == ".gguf":
        return _of_gguf(path)
    try:
        content = json.loads(path.read_text())
    except UnicodeDecodeError:
        raise ValueError(f"{path}: is neither JSON nor a .gguf file") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: is no JSON ({error})") from None
    if isinstance(content, list) and content:
        return _of_list(path, content)
    if isinstance(content, dict):
        return _of_config(path, content)
    raise ValueError(f"{path}: must be a list of shapes or a model's config.json")
