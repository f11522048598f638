"""The attention of the decoder and its RoPE, computed by hattn."""
import numpy as np

import hattn


class HattnAttention:
    """One key-value cache per layer; see model.py for the calling convention.

    capacity: positions per layer. threads: as hattn.attention(); None is one per core. page_size: keys per page of the
    caches; None keeps keys side by side. dtype: in which the caches keep keys and values.
    """

    def __init__(self, config, capacity, threads=None, page_size=None, dtype="float32"):
        self._config = config
        self._threads = threads
        # GGUF files of this architecture order features so that each rotated pair is adjacent.
        self._rope = hattn.Rope(base=config.rope_base, interleaved=True)
        self._caches = [
            hattn.KVCache(1, config.kv_heads, capacity, config.head_dim, page_size=page_size, dtype=dtype)
            for _ in range(config.layers)
        ]

    def __call__(self, layer, q, k, v):
        cache = self._caches[layer]
        q = hattn.apply_rope(q, self._rope, offsets=cache.lengths)
        cache.append(k, v, rope=self._rope)
        return cache.attend(q, causal=True, threads=self._threads)

    def explain(self, queries, keys):
        """One phrase on what hattn chooses for `queries` new positions over `keys` positions in all."""
        c = self._config
        q = np.zeros((1, c.query_heads, queries, c.head_dim), np.float32)
        kv = np.zeros((1, c.kv_heads, keys, c.head_dim), np.float32)
        plan = hattn.explain(q, kv, kv, causal=True, threads=self._threads)
        return f"{plan['algorithm']} ({plan['kernel']}, {plan['target']})"


def version():
    return hattn.info()["version"]
