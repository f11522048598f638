"""The problems of a file that `hattn tune --shapes` names: a list of shapes, or what a model says of itself."""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any, List, Optional

from hattn._tuning.model import LAST_CLASS, MOST, Model, check_group, heads_of_layers, problems_of, shown, whole
from hattn._tuning.model_config import problems_of_config
from hattn._tuning.shapes import DTYPES, Problem, Shape

# Members of a shape, all but the first four with a default; docs/tuning.md says what they mean.
_NEEDED = ("query_heads", "query_length", "kv_length", "key_dim")
_SIZES = (*_NEEDED, "kv_heads", "value_dim", "batch")
_TRUTHS = ("causal", "softcap", "bias", "alibi", "mask")
_MEMBERS = (*_SIZES, "window_left", *_TRUTHS, "dtype")
_OTHERWISE = {"batch": 1, "window_left": -1, **{name: name == "causal" for name in _TRUTHS}}

_GGUF_MAGIC = b"GGUF"  # that a file starts with


class _Gguf:
    """The numbers that a GGUF file says of its model."""

    def __init__(self, path: pathlib.Path) -> None:
        try:
            import gguf
        except ImportError:
            raise ValueError(f"{path}: needs the package gguf: pip install gguf") from None
        self._path = path
        with open(path, "rb"):  # what cannot be opened is not a matter of what it holds
            pass
        try:
            self._reader = gguf.GGUFReader(path)
            self._architecture = bytes(self._parts("general.architecture")[0]).decode()
        except Exception as error:  # whatever the package stumbles over where a file is damaged
            raise ValueError(f"{path}: is no GGUF model ({error})") from None

    def _parts(self, name: str) -> List[Any]:
        found = self._reader.get_field(name)
        if found is None:
            raise ValueError(f"it has no {name}")
        return [found.parts[at] for at in found.data]

    def numbers(self, name: str, otherwise: Optional[List[int]] = None) -> List[int]:
        """A number, or one per layer."""
        key = f"{self._architecture}.{name}"
        if self._reader.get_field(key) is None:
            if otherwise is None:
                raise ValueError(f"{self._path}: has no {key}")
            return otherwise
        parts = self._parts(key)
        if not parts or not all(part.size for part in parts):
            raise ValueError(f"{self._path}: is no GGUF model (it ends within {key})")
        return [whole(str(self._path), key, part[0].item(), 0) for part in parts]

    def real(self, name: str, otherwise: float) -> float:
        """A number that need not be whole, or a truth."""
        key = f"{self._architecture}.{name}"
        if self._reader.get_field(key) is None:
            return otherwise
        try:
            return float(self._parts(key)[0][0])
        except (IndexError, TypeError, ValueError):
            raise ValueError(f"{self._path}: is no GGUF model ({key} is no number)") from None

    def number(self, name: str, otherwise: Optional[int] = None) -> int:
        """A number that all layers share; positive."""
        found = self.numbers(name, None if otherwise is None else [otherwise])
        return whole(str(self._path), f"{self._architecture}.{name}", max(found, default=0))


def _of_gguf(path: pathlib.Path) -> List[Problem]:
    model = _Gguf(path)
    if not model.real("attention.causal", 1.0):
        raise ValueError(f"{path}: is of an encoder, but problems are made for decoders alone; give a list of shapes")
    heads = model.numbers("attention.head_count")
    pairs = heads_of_layers(str(path), heads, model.numbers("attention.head_count_kv", heads))
    windows = model.numbers("attention.sliding_window", [0])
    all_windowed = len(windows) > 1 and 0 not in windows
    hooks = model.real("attn_logit_softcapping", 0.0) > 0, model.real("attention.max_alibi_bias", 0.0) > 0
    problems = []
    for of_query, of_kv in sorted(pairs):
        usual = model.number("embedding_length") // of_query if _lacks_lengths(model) else 0
        key_dim = model.number("attention.key_length", usual)
        dims = key_dim, model.number("attention.value_length", key_dim)
        for window in sorted(set(windows) - {0}) or [0]:
            context = model.number("context_length")
            problems += problems_of(str(path), Model(of_query, of_kv, *dims, context, window, all_windowed, *hooks))
    return problems


def _lacks_lengths(model: _Gguf) -> bool:
    return not model.numbers("attention.key_length", [])


def _check_member(where: str, name: str, value: Any) -> None:
    if name in _SIZES:
        whole(where, name, value, most=LAST_CLASS if name in ("key_dim", "value_dim") else MOST)
    elif name == "window_left":
        whole(where, name, value, -1)
    elif name in _TRUTHS and not isinstance(value, bool):
        raise ValueError(f"{where}: {name} is {shown(value)}, but must be true or false")
    elif name == "dtype" and value not in DTYPES:
        raise ValueError(f"{where}: dtype is {shown(value)}, but must be one of {', '.join(DTYPES)}")
    elif name not in _MEMBERS:
        raise ValueError(f"{where}: {shown(name)} is unknown; members are {', '.join(_MEMBERS)}")


def _check_memory(where: str, shape: Shape) -> None:
    """Raises ValueError if the machine is too small, before it is found out page by page."""
    heads, kv_heads, rows, keys = (shape[name] for name in ("query_heads", "kv_heads", "query_length", "kv_length"))
    dims = shape["key_dim"] + shape.get("value_dim", shape["key_dim"])
    operands = rows * keys * (shape.get("mask", False) + shape.get("bias", False))
    # As they are, in float32 for the oracle, and in copies.
    needed = 3 * 4 * shape.get("batch", 1) * ((heads * rows + kv_heads * keys) * dims + operands)
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > there:
        raise ValueError(f"{where}: takes {needed >> 20} MiB, but the machine has {there >> 20}")


def _of_list(path: pathlib.Path, shapes: List[Any]) -> List[Problem]:
    problems = []
    for at, given in enumerate(shapes):
        where = f"{path}: shapes[{at}]"
        if not isinstance(given, dict):
            raise ValueError(f"{where}: is {shown(given)}, but must be an object")
        missing = [name for name in _NEEDED if name not in given]
        if missing:
            raise ValueError(f"{where}: has no {', '.join(missing)}")
        for name, value in given.items():
            _check_member(where, name, value)
        shape = {**_OTHERWISE, "kv_heads": given["query_heads"], "value_dim": given["key_dim"], **given}
        check_group(where, shape["query_heads"], shape["kv_heads"])
        _check_memory(where, shape)
        problems.append(Problem([shape]))
    return problems


def _content(path: pathlib.Path) -> Optional[bytes]:
    """Of a file that is no GGUF, which is None. Read once: it may be a pipe."""
    with open(path, "rb") as file:
        head = file.read(len(_GGUF_MAGIC))
        return None if head == _GGUF_MAGIC else head + file.read()


def read(path: pathlib.Path) -> List[Problem]:
    """The problems of a file: a JSON list of shapes, a model's config.json, or a GGUF model.

    Raises:
        OSError, ValueError: the file cannot be read, or is none of these.
    """
    if path.suffix.lower() == ".gguf":
        return _of_gguf(path)
    data = _content(path)
    if data is None:
        return _of_gguf(path)
    try:
        content = json.loads(data.decode("utf-8"))
    except UnicodeDecodeError:
        raise ValueError(f"{path}: is neither JSON nor a GGUF file") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: is no JSON ({error})") from None
    if isinstance(content, list) and content:
        return _of_list(path, content)
    if isinstance(content, dict):
        return problems_of_config(path, content)
    raise ValueError(f"{path}: must be a list of shapes or a model's config.json")
