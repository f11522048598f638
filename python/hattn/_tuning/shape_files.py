"""The problems of a file that `hattn tune --shapes` names: a list of shapes, or what a model says of itself."""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from hattn._tuning.shapes import DTYPES, MOST_WORK, Problem, Shape, work

# Members of a shape, all but the first four with a default; docs/tuning.md says what they mean.
_NEEDED = ("query_heads", "query_length", "kv_length", "key_dim")
_SIZES = (*_NEEDED, "kv_heads", "value_dim", "batch")
_TRUTHS = ("causal", "softcap", "bias", "alibi", "mask")
_MEMBERS = (*_SIZES, "window_left", *_TRUTHS, "dtype")

_MOST = 2**31 - 1  # of a whole number

_LONGEST_TEXT = 60  # of a value in a message

# Keys at which a model is tuned, up to its context and the last class there is.
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


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}..."


def _whole(where: str, name: str, value: Any, least: int = 1) -> int:
    """The value, if it is a whole number in range."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _MOST:
        raise ValueError(f"{where}: {name} is {_shown(value)}, but must be a whole number from {least} to {_MOST}")
    return value


def _windows(model: Model, keys: int) -> Iterator[int]:
    """window_left of the layers, over so many keys."""
    if model.window and keys > model.window:
        yield model.window - 1
    if not model.window or keys <= model.window or not model.all_windowed:
        yield -1


def of_model(model: Model) -> List[Problem]:
    """Decoding, drafted tokens and prompts of a model, at lengths up to its context."""
    last = min(model.context, _CONTEXTS[-1])
    # Of what is in the same class as the last one, that alone.
    counts = [count for count in _CONTEXTS if 2 * count**2 <= last**2] + [last]
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
                }
                if rows <= count and work(shape) <= 8 * MOST_WORK:
                    problems.append(Problem([shape]))
    return problems


def _checked(where: str, model: Model) -> Model:
    if model.query_heads % model.kv_heads != 0:
        raise ValueError(
            f"{where}: has {model.query_heads} query heads, but must have a multiple of its {model.kv_heads} kv heads"
        )
    return model


def _window_of_config(where: str, config: Dict[str, Any]) -> Tuple[int, bool]:
    """How many keys a row of some layers sees, 0 if all, and whether that is so in all layers."""
    window = config.get("sliding_window")
    layers = config.get("layer_types")
    if window is None or config.get("use_sliding_window", True) is False:
        return 0, False
    if _whole(where, "sliding_window", window, -1) <= 0:
        return 0, False
    if isinstance(layers, list):
        return window if "sliding_attention" in layers else 0, "full_attention" not in layers
    mixed = ("sliding_window_pattern", "_sliding_window_pattern", "max_window_layers")
    return window, not any(config.get(name) is not None for name in mixed)


def _of_config(path: pathlib.Path, config: Dict[str, Any]) -> List[Problem]:
    """A Hugging Face config.json. Models of text and images keep the language model's numbers under text_config."""
    inner = config.get("text_config")
    config = inner if isinstance(inner, dict) else config
    where = str(path)

    def number(name: str) -> int:
        if config.get(name) is None:
            raise ValueError(f"{where}: is no model's config.json, '{name}' is missing")
        return _whole(where, name, config[name])

    heads, context = number("num_attention_heads"), number("max_position_embeddings")
    head_dim = number("head_dim") if config.get("head_dim") is not None else number("hidden_size") // heads
    _whole(where, "hidden_size / num_attention_heads", head_dim)
    kv_heads = number("num_key_value_heads") if config.get("num_key_value_heads") is not None else heads
    window, all_windowed = _window_of_config(where, config)
    return of_model(_checked(where, Model(heads, kv_heads, head_dim, head_dim, context, window, all_windowed)))


class _Gguf:
    """The numbers that a GGUF file says of its model."""

    def __init__(self, path: pathlib.Path) -> None:
        try:
            import gguf
        except ImportError:
            raise ValueError(f"{path}: needs the package gguf: pip install 'hattn[tune]'") from None
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
        return [_whole(str(self._path), key, part[0].item(), 0) for part in parts]

    def number(self, name: str, otherwise: Optional[int] = None) -> int:
        """A number that all layers share; positive."""
        found = self.numbers(name, None if otherwise is None else [otherwise])
        return _whole(str(self._path), f"{self._architecture}.{name}", max(found, default=0))


def _of_gguf(path: pathlib.Path) -> List[Problem]:
    model = _Gguf(path)
    heads = model.numbers("attention.head_count")
    kv_heads = model.numbers("attention.head_count_kv", heads)
    layers = max(len(heads), len(kv_heads))
    if min(len(heads), len(kv_heads)) not in (1, layers):
        raise ValueError(f"{path}: has query heads of {len(heads)} layers, but kv heads of {len(kv_heads)}")
    # Layers without attention have no heads.
    pairs = {
        (of_query, of_kv)
        for of_query, of_kv in zip(heads * (layers // len(heads)), kv_heads * (layers // len(kv_heads)))
        if of_query and of_kv
    }
    if not pairs:
        raise ValueError(f"{path}: is a model without attention, of {heads} query and {kv_heads} kv heads")
    windows = model.numbers("attention.sliding_window", [0])
    all_windowed = len(windows) > 1 and 0 not in windows
    problems = []
    for of_query, of_kv in sorted(pairs):
        usual = model.number("embedding_length") // of_query if _lacks_lengths(model) else 0
        key_dim = model.number("attention.key_length", usual)
        value_dim = model.number("attention.value_length", key_dim)
        for window in sorted(set(windows) - {0}) or [0]:
            found = Model(of_query, of_kv, key_dim, value_dim, model.number("context_length"), window, all_windowed)
            problems += of_model(_checked(str(path), found))
    return problems


def _lacks_lengths(model: _Gguf) -> bool:
    return not model.numbers("attention.key_length", [])


def _check_member(where: str, name: str, value: Any) -> None:
    if name in _SIZES:
        _whole(where, name, value)
    elif name == "window_left":
        _whole(where, name, value, -1)
    elif name in _TRUTHS and not isinstance(value, bool):
        raise ValueError(f"{where}: {name} is {_shown(value)}, but must be true or false")
    elif name == "dtype" and value not in DTYPES:
        raise ValueError(f"{where}: dtype is {_shown(value)}, but must be one of {', '.join(DTYPES)}")
    elif name not in _MEMBERS:
        raise ValueError(f"{where}: {_shown(name)} is unknown; members are {', '.join(_MEMBERS)}")


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
            raise ValueError(f"{where}: is {_shown(given)}, but must be an object")
        missing = [name for name in _NEEDED if name not in given]
        if missing:
            raise ValueError(f"{where}: has no {', '.join(missing)}")
        for name, value in given.items():
            _check_member(where, name, value)
        shape = {"kv_heads": given["query_heads"], **given}
        if shape["query_heads"] % shape["kv_heads"] != 0:
            raise ValueError(
                f"{where}: query_heads is {shape['query_heads']}, but must be a multiple of kv_heads, "
                f"{shape['kv_heads']}"
            )
        _check_memory(where, shape)
        problems.append(Problem([shape]))
    return problems


def read(path: pathlib.Path) -> List[Problem]:
    """The problems of a file: a JSON list of shapes, a model's config.json, or a GGUF model.

    Raises:
        OSError, ValueError: the file cannot be read, or is none of these.
    """
    if path.suffix.lower() == ".gguf":
        return _of_gguf(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise ValueError(f"{path}: is neither JSON nor a .gguf file") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: is no JSON ({error})") from None
    if isinstance(content, list) and content:
        return _of_list(path, content)
    if isinstance(content, dict):
        return _of_config(path, content)
    raise ValueError(f"{path}: must be a list of shapes or a model's config.json")
