"""Speculative decoding with a tree of drafted tokens: all branches verified in one call of attention.

A small model drafts several continuations that share their beginnings, a tree. The large model then attends from all its
nodes at once: a node sees everything cached before the tree and, of the tree, its ancestors and itself, which is what a boolean
mask over the last keys says. Each node's row is what decoding its branch token by token would give; this program
computes both ways and compares.

    PYTHONPATH=build/release/python python examples/tree_attention/tree_attention.py

Source: Miao et al., SpecInfer (2024).
"""

from __future__ import annotations

import sys
import time
from typing import Callable, List, Sequence, Tuple

import numpy as np

import hattn

HEADS, KV_HEADS, DIM = 16, 8, 128
PREFIX = 2000  # keys cached before the tree
# Node i continues node PARENTS[i], which comes before it; -1 continues the prefix.
PARENTS = (-1, 0, 0, 1, 1, 2, 3, 5)


def path_to(parents: Sequence[int], node: int) -> List[int]:
    """The nodes from the root of the tree down to `node`."""
    path = [node]
    while parents[path[0]] >= 0:
        path.insert(0, parents[path[0]])
    return path


def tree_mask(parents: Sequence[int], keys: int) -> np.ndarray:
    """[nodes, keys] bool: what each node sees of `keys` keys, the last of which are the tree's own."""
    nodes = len(parents)
    mask = np.ones((nodes, keys), bool)
    mask[:, keys - nodes :] = False
    for node in range(nodes):
        mask[node, [keys - nodes + ancestor for ancestor in path_to(parents, node)]] = True
    return mask


def verify_tree(cache: hattn.KVCache, q, k, v, parents: Sequence[int]) -> np.ndarray:
    """out [1, Hq, nodes, D] of every node, in one call; q, k, v are [1, H, nodes, D]. The cache ends with the tree."""
    cache.append(k, v)
    return cache.attend(q, mask=tree_mask(parents, int(cache.lengths[0])))


def decode_path(cache: hattn.KVCache, q, k, v, path: Sequence[int]) -> np.ndarray:
    """out [1, Hq, len(path), D] of the nodes of a path, token by token. The cache ends with the path."""
    rows = []
    for node in path:
        one = slice(node, node + 1)
        cache.append(k[:, :, one], v[:, :, one])
        rows.append(cache.attend(q[:, :, one]))
    return np.concatenate(rows, axis=2)


def timed(run: Callable[[], np.ndarray]) -> Tuple[np.ndarray, float]:
    """What run() gives, and the milliseconds of the best of three calls."""
    milliseconds = []
    for _ in range(3):
        start = time.perf_counter()
        result = run()
        milliseconds.append(1e3 * (time.perf_counter() - start))
    return result, min(milliseconds)


def main() -> int:
    rng = np.random.default_rng(0)
    nodes = len(PARENTS)
    cache = hattn.KVCache(1, KV_HEADS, PREFIX + nodes, DIM)
    cache.append(*(rng.standard_normal((1, KV_HEADS, PREFIX, DIM), np.float32) for _ in range(2)))
    q, k, v = (rng.standard_normal((1, heads, nodes, DIM), np.float32) for heads in (HEADS, KV_HEADS, KV_HEADS))

    def at_once() -> np.ndarray:
        cache.truncate([PREFIX])
        return verify_tree(cache, q, k, v, PARENTS)

    def by_branch() -> np.ndarray:
        rows = np.empty_like(tree)
        for leaf in leaves:
            path = path_to(PARENTS, leaf)
            cache.truncate([PREFIX])
            rows[:, :, path] = decode_path(cache, q, k, v, path)
        return rows

    leaves = sorted(set(range(nodes)) - set(PARENTS))
    tree, tree_time = timed(at_once)
    branches, branch_time = timed(by_branch)
    difference = float(np.abs(tree - branches).max())

    # What a decoder does next: the tree leaves the cache, and the accepted branch enters it.
    accepted = path_to(PARENTS, leaves[-1])
    cache.truncate([PREFIX])
    cache.append(k[:, :, accepted], v[:, :, accepted])

    print(f"{nodes} nodes over {PREFIX} keys: at once {tree_time:.2f} ms, {len(leaves)} branches {branch_time:.2f} ms")
    print(f"largest difference: {difference:.2g}; keys held with the accepted branch: {cache.lengths[0]}")
    return 0 if difference < 1e-5 else 1


if __name__ == "__main__":
    sys.exit(main())
