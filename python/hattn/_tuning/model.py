"""What decides about a model's attention, and the problems that a model stands for."""

from __future__ import annotations

import json
from typing import Any, Iterator, List, NamedTuple, Set, Tuple

from hattn._tuning.shapes import MOST_WORK, Problem, work

MOST = 2**31 - 1  # of a whole number

# Of a head's elements and of query heads per kv head: the last class there is (runtime/tuning_text.cpp).
LAST_CLASS = 2**16

_LONGEST_TEXT = 60  # of a value in a message

# Keys at which a model is tuned, up to its context.
_CONTEXTS = (128, 512, 2048, 8192, 32768)


class Model(NamedTuple):
    """What decides about a model's attention."""

    query_heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    context: int
    window: int = 0  # keys that a row of some layers sees; 0: all
    all_windowed: bool = False  # or of all layers
    softcap: bool = False
    alibi: bool = False


def shown(value: Any) -> str:
    """The value as JSON, for a message."""
    text = json.dumps(value)
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}..."


def whole(where: str, name: str, value: Any, least: int = 1, most: int = MOST) -> int:
    """The value, if it is a whole number in range."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"{where}: {name} is {shown(value)}, but must be a whole number from {least} to {most}")
    return value


def _windows(model: Model, keys: int) -> Iterator[int]:
    """window_left of the layers, over so many keys."""
    if model.window and keys > model.window:
        yield model.window - 1
    if not model.window or keys <= model.window or not model.all_windowed:
        yield -1


def check_group(where: str, query_heads: int, kv_heads: int) -> None:
    """Raises ValueError if kv heads do not divide the query heads, or into parts that there is no class of."""
    if query_heads % kv_heads != 0:
        raise ValueError(f"{where}: query_heads is {query_heads}, but must be a multiple of kv_heads, {kv_heads}")
    if query_heads // kv_heads > LAST_CLASS:
        raise ValueError(
            f"{where}: query_heads is {query_heads}, but must be at most {LAST_CLASS} times kv_heads, {kv_heads}"
        )


def problems_of(where: str, model: Model) -> List[Problem]:
    """Decoding, drafted tokens and prompts of a model, at lengths up to its context.

    Raises:
        ValueError: it has heads that there is no class of.
    """
    check_group(where, model.query_heads, model.kv_heads)
    for name in ("key_dim", "value_dim"):
        whole(where, name, getattr(model, name), most=LAST_CLASS)
    last = min(model.context, _CONTEXTS[-1])
    # Of what is in the same class as the last one, that alone.
    counts = [count for count in _CONTEXTS if 2 * count**2 <= last**2] + [last]
    hooks = {name: True for name in ("softcap", "alibi") if getattr(model, name)}
    problems = []
    for rows in (1, 512, 4, 64):
        for count in counts:
            for window in _windows(model, count):
                shape = {
                    "query_heads": model.query_heads,
                    "kv_heads": model.kv_heads,
                    "query_length": rows,
                    "kv_length": count,
                    "key_dim": model.key_dim,
                    "value_dim": model.value_dim,
                    "causal": True,
                    "window_left": window,
                    **hooks,
                }
                if rows <= count and work(shape) <= 8 * MOST_WORK:
                    problems.append(Problem([shape]))
    if not problems:
        raise ValueError(f"{where}: its problems take more than {8 * MOST_WORK:.0e} multiply-adds, all of them: too long to measure")
    return problems


def heads_of_layers(where: str, heads: List[int], kv_heads: List[int]) -> Set[Tuple[int, int]]:
    """Query and kv heads of the layers, of each kind once; layers without attention have none of them.

    Args:
        heads, kv_heads: of all layers, or a number for each.
    """
    layers = max(len(heads), len(kv_heads))
    if min(len(heads), len(kv_heads)) not in (1, layers):
        raise ValueError(f"{where}: has query heads of {len(heads)} layers, but kv heads of {len(kv_heads)}")
    pairs = {
        (of_query, of_kv)
        for of_query, of_kv in zip(heads * (layers // len(heads)), kv_heads * (layers // len(kv_heads)))
        if of_query and of_kv
    }
    if not pairs:
        raise ValueError(f"{where}: is a model without attention, of {heads} query and {kv_heads} kv heads")
    return pairs
