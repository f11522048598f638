"""The attention of the decoder, computed by hattn."""
import hattn
import numpy as np


class HattnAttention:
    """One key-value cache per layer; see model.py for the calling convention.

    capacity: positions per layer. threads: as hattn.attention(); None is one per core.
    """

    def __init__(self, config, capacity, threads=None):
        self._config = config
        self._threads = threads
        self._caches = [
            hattn.KVCache(batch=1, kv_heads=config.kv_heads, capacity=capacity, head_dim=config.head_dim)
            for _ in range(config.layers)
        ]

    def __call__(self, layer, q, k, v):
        cache = self._caches[layer]
        cache.append(k, v)
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
