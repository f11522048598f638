"""What a model's config.json says of its attention, whatever its configuration class calls it."""

from __future__ import annotations

import pathlib
from typing import Any, Dict, List, Tuple

from hattn._tuning.model import Model, heads_of_layers, problems_of, shown, whole
from hattn._tuning.shapes import Problem

# Where models of text and images, or of speech, keep the language model's members.
_LANGUAGE_MODELS = ("thinker_config", "text_config", "llm_config", "language_config")

# What classes call the same thing, the most usual name first. After a dot: a member of an object.
_NAMES = {
    "query_heads": ("num_attention_heads", "n_head", "n_heads", "num_heads", "num_query_heads"),
    "kv_heads": (
        "num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num", "attn_config.kv_n_heads",
    ),
    "hidden": ("hidden_size", "n_embd", "n_embed", "d_model", "model_dim"),
    "head": ("head_dim", "kv_channels", "attention_head_dim"),
    "context": (
        "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "max_sequence_length",
        "max_context_length", "n_ctx",
    ),
    "window": (
        "sliding_window", "sliding_window_size", "attention_window_size", "attn_config.sliding_window_size",
        "window_size",
    ),
    "softcap": ("attn_logit_softcapping",),
    "alibi": ("alibi", "attn_config.alibi"),
    "unrotated": ("qk_nope_head_dim",),
    "rotated": ("qk_rope_head_dim",),
    "value": ("v_head_dim",),
}  # fmt: skip

# What a missing member stands for in classes that do not have the usual number for it. None: it is not known here.
_DEFAULTS: Dict[str, Dict[str, Any]] = {
    "bloom": {"alibi": True},
    "dbrx": {"kv_heads": None},
    "falcon": {"context": 2048},
    "gemma": {"kv_heads": None, "head": None},
    "gemma2": {"query_heads": 8, "kv_heads": 4, "head": 256, "context": 8192, "window": 4096, "softcap": 50.0},
    "gemma3_text": {"query_heads": 8, "kv_heads": 4, "head": 256, "context": 131072, "window": 4096},
    "gemma3n_text": {"kv_heads": None, "head": None, "window": None},
    "gpt_oss": {"kv_heads": None, "head": None, "window": None},
    "llama": {"hidden": 4096, "query_heads": 32, "context": 2048},
    "mistral": {"hidden": 4096, "query_heads": 32, "kv_heads": 8, "context": 131072, "window": 4096},
    "mixtral": {"kv_heads": None},
    "mpt": {"alibi": None},
    "nemotron-nas": {"kv_heads": None},
    "qwen2": {},
    "qwen3": {"hidden": 4096, "query_heads": 32, "kv_heads": 32, "head": 128, "context": 32768},
    "qwen3_moe": {"kv_heads": None, "head": None},
}

# Members that say that all query heads share one kv head, and such that take others' word for something else.
_ONE_KV_HEAD = (("multi_query", True), ("attn_config.attn_type", "multiquery_attention"))
_NOT_ONE_KV_HEAD = ("new_decoder_architecture", True)
_OWN_KV_HEADS = (("multi_query_attention", False), ("attn_config.attn_type", "multihead_attention"))

# What says that not all layers have the window, and classes in which that is so without a word.
_MIXED_LAYERS = ("sliding_window_pattern", "_sliding_window_pattern", "max_window_layers", "attention_types")
_MIXED_CLASSES = ("cohere2", "gemma2", "gemma3_text", "gemma3n_text", "gpt_neo", "gpt_oss")

# Classes whose rows see all tokens, or those of an encoder, if they do not say that they are decoders.
_ENCODERS = (
    "albert", "bart", "bert", "camembert", "deberta", "deberta-v2", "distilbert", "electra", "modernbert", "mt5",
    "nomic_bert", "roberta", "t5", "umt5", "whisper", "xlm-roberta",
)  # fmt: skip


class _Config:
    """The members that a language model has, by what they mean."""

    def __init__(self, path: pathlib.Path, members: Dict[str, Any]) -> None:
        self.where = str(path)
        self._is_inner = False
        for name in _LANGUAGE_MODELS:
            if isinstance(members.get(name), dict):
                self.where, members, self._is_inner = f"{self.where}: {name}", members[name], True
        self._members = members
        model_type = members.get("model_type")
        self.model_type = model_type if isinstance(model_type, str) else ""
        self._defaults = _DEFAULTS.get(self.model_type, {})

    def get(self, name: str) -> Any:
        """The member of that name; None if there is none."""
        outer, _, inner = name.rpartition(".")
        members = self._members.get(outer) if outer else self._members
        return members.get(inner) if isinstance(members, dict) else None

    def has(self, name_and_value: Tuple[str, Any]) -> bool:
        """Whether a member has that value."""
        name, value = name_and_value
        return self.get(name) == value and type(self.get(name)) is type(value)

    def find(self, what: str) -> Tuple[str, Any]:
        """Name and value of a member with that meaning, or of what it stands for if it is missing; else None.

        Raises:
            ValueError: it is missing, and the class has a number of its own for it.
        """
        names = _NAMES[what]
        for name in names:
            if self.get(name) is not None:
                return name, self.get(name)
        default = self._defaults.get(what)
        if what in self._defaults and default is None:
            raise self.missing(what)
        # What is null is none.
        return names[0], None if names[0] in self._members else default

    def missing(self, what: str) -> ValueError:
        """That a member is missing."""
        first, *others = _NAMES[what]
        return ValueError(
            f"{self.where}: has no {first}"
            + (f", nor another name for it ({', '.join(others)})" if others else "")
            + (f", of which model_type {self.model_type} has a number of its own" if what in self._defaults else "")
            + "; add it, or give a list of shapes"
        )

    def number(self, what: str) -> int:
        """The member, which has to be there, as a positive number."""
        name, value = self.find(what)
        if value is None:
            raise self.missing(what)
        return whole(self.where, name, value)

    def numbers(self, what: str) -> List[int]:
        """Likewise, or one per layer, of which some may be 0."""
        name, value = self.find(what)
        if isinstance(value, list) and value:
            return [whole(self.where, name, of_layer, 0) for of_layer in value]
        return [self.number(what)]

    def is_known(self, what: str) -> bool:
        """Whether there is such a member, or a known number in its place."""
        return self.find(what)[1] is not None

    def leaves_out(self, what: str) -> bool:
        """Whether it is not even null, and left to a class that nothing is known of, as in a part of a config."""
        is_there = any(name in self._members for name in _NAMES[what])
        return self._is_inner and self.model_type not in _DEFAULTS and not is_there


def _kv_heads(config: _Config, heads: List[int]) -> List[int]:
    if any(map(config.has, _ONE_KV_HEAD)) and not config.has(_NOT_ONE_KV_HEAD):
        return [1]
    if any(map(config.has, _OWN_KV_HEADS)):
        return heads
    if config.leaves_out("kv_heads"):
        raise config.missing("kv_heads")
    return config.numbers("kv_heads") if config.is_known("kv_heads") else heads


def _hidden_per_head(config: _Config, heads: int) -> int:
    hidden = config.number("hidden")
    if hidden % heads != 0:
        raise ValueError(
            f"{config.where}: {config.find('hidden')[0]} is {hidden}, but must be a multiple of the {heads} query "
            f"heads where there is no {_NAMES['head'][0]}"
        )
    return hidden // heads


def _head_dims(config: _Config, heads: int) -> Tuple[int, int]:
    """Of keys and of values, which multi-head latent attention has of different sizes."""
    if config.is_known("unrotated") or config.is_known("rotated"):
        key_dim = config.number("unrotated") + config.number("rotated")
        return key_dim, config.number("value") if config.is_known("value") else _hidden_per_head(config, heads)
    head = config.number("head") if config.is_known("head") else _hidden_per_head(config, heads)
    return head, head


def _window(config: _Config) -> Tuple[int, bool]:
    """How many keys a row of some layers sees, 0 if all, and whether that is so in all layers."""
    if config.get("use_sliding_window") is False:
        return 0, False
    layers = config.get("layer_types")
    if isinstance(layers, list) and "sliding_attention" not in layers:
        return 0, False
    name, window = config.find("window")
    if window is None or whole(config.where, name, window, -1) <= 0:
        return 0, False
    if isinstance(layers, list):
        return window, "full_attention" not in layers
    mixed = config.model_type in _MIXED_CLASSES or any(config.get(name) is not None for name in _MIXED_LAYERS)
    return window, not mixed


def _has_softcap(config: _Config) -> bool:
    name, value = config.find("softcap")
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0):
        raise ValueError(f"{config.where}: {name} is {shown(value)}, but must be a number from 0, or null")
    return bool(value)


def _has_alibi(config: _Config) -> bool:
    name, value = config.find("alibi")
    if value is not None and not isinstance(value, bool):
        raise ValueError(f"{config.where}: {name} is {shown(value)}, but must be true or false")
    return bool(value) or config.has(("position_embedding_type", "alibi"))


def _check_causal(config: _Config) -> None:
    """Raises ValueError if rows see later tokens, or those of another sequence."""
    is_encoder = config.model_type in _ENCODERS and not config.has(("is_decoder", True))
    if is_encoder or config.has(("use_bidirectional_attention", True)) or config.has(("is_encoder_decoder", True)):
        raise ValueError(
            f"{config.where}: is of an encoder (model_type {config.model_type or 'unknown'}), but problems are made "
            'for decoders alone; give a list of shapes, with "causal": false'
        )


def problems_of_config(path: pathlib.Path, members: Dict[str, Any]) -> List[Problem]:
    """The problems of a Hugging Face config.json.

    Raises:
        ValueError: a member is missing whose value cannot be known, or is wrong; or the model is no decoder.
    """
    config = _Config(path, members)
    _check_causal(config)
    heads = config.numbers("query_heads")
    context = config.number("context")
    window, all_windowed = _window(config)
    hooks = _has_softcap(config), _has_alibi(config)
    problems: List[Problem] = []
    for of_query, of_kv in sorted(heads_of_layers(config.where, heads, _kv_heads(config, heads))):
        model = Model(of_query, of_kv, *_head_dims(config, of_query), context, window, all_windowed, *hooks)
        problems += problems_of(config.where, model)
    return problems
