"""Attention from all nodes of a tree of drafted tokens, against decoding its branches one by one."""

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

import hattn
import oracle
from helpers import assert_close, assert_same_bits, random_qkv

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "tree_attention"
sys.path.append(str(EXAMPLE))
from tree_attention import path_to, tree_mask, verify_tree  # noqa: E402 # found through the line above

HEADS, KV_HEADS, DIM = 4, 2, 32
TREES = {
    "chain": (-1, 0, 1, 2, 3, 4),
    "star": (-1, 0, 0, 0, 0),
    "binary": (-1, 0, 0, 1, 1, 2, 2),
    "forest": (-1, -1, 0, 1, 3, 2, 5, 5, 0),
}
PREFIXES = (0, 1, 60, 1500)


def test_mask_of_a_small_tree():
    expected = [[1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 0, 0], [1, 1, 1, 0, 1, 0], [1, 1, 1, 0, 1, 1]]
    np.testing.assert_array_equal(tree_mask((-1, 0, 0, 2), 6), np.array(expected, bool))


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("name", TREES)
def test_branches_alone(rng, algorithm, name, prefix):
    """Each node with the keys of its branch and no others."""
    parents = TREES[name]
    nodes = len(parents)
    q, k, v = random_qkv(rng, 1, HEADS, KV_HEADS, nodes, prefix + nodes, DIM)
    out = hattn.attention(q, k, v, mask=tree_mask(parents, prefix + nodes), algorithm=algorithm)
    for node in range(nodes):
        seen = [*range(prefix), *(prefix + ancestor for ancestor in path_to(parents, node))]
        row, k_seen, v_seen = q[:, :, node : node + 1], k[:, :, seen], v[:, :, seen]
        alone = hattn.attention(row, k_seen, v_seen, algorithm=algorithm)
        np.testing.assert_allclose(out[:, :, node : node + 1], alone, rtol=0, atol=1e-5)
        assert_close(out[:, :, node : node + 1], oracle.attention(row, k_seen, v_seen).out)


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("algorithm", ["naive", "flash", "split_kv"])
def test_same_bits_as_rows_alone(rng, algorithm, name, prefix, monkeypatch):
    """By one kernel, a node has the same bits whether the others are there or not."""
    parents = TREES[name]
    nodes = len(parents)
    q, k, v = random_qkv(rng, 1, HEADS, KV_HEADS, nodes, prefix + nodes, DIM)
    mask = tree_mask(parents, prefix + nodes)
    monkeypatch.setenv("HATTN_FORCE", "kernel=" + hattn.explain(q, k, v, mask=mask, algorithm=algorithm)["kernel"])
    out = hattn.attention(q, k, v, mask=mask)
    for node in range(nodes):
        one = slice(node, node + 1)
        alone = hattn.attention(q[:, :, one], k, v, mask=mask[one])
        assert_same_bits(out[:, :, one], alone)


def test_over_a_cache(rng):
    """verify_tree() against appending and attending token by token."""
    parents = TREES["forest"]
    nodes = len(parents)
    cache = hattn.KVCache(1, KV_HEADS, 600 + nodes, DIM)
    _, k, v = random_qkv(rng, 1, HEADS, KV_HEADS, 1, 600, DIM)
    cache.append(k, v)
    q, k, v = random_qkv(rng, 1, HEADS, KV_HEADS, nodes, nodes, DIM)
    out = verify_tree(cache, q, k, v, parents)
    for node in range(nodes):
        cache.truncate([600])
        path = path_to(parents, node)
        cache.append(k[:, :, path[:-1]], v[:, :, path[:-1]])
        one = slice(node, node + 1)
        cache.append(k[:, :, one], v[:, :, one])
        np.testing.assert_allclose(out[:, :, one], cache.attend(q[:, :, one]), rtol=0, atol=1e-5)


def ragged_trees(rng):
    """Three cached sequences of their own lengths, each ending with its own tree: (cache, parents, q, keys, values)."""
    trees = [TREES["star"], TREES["forest"], TREES["chain"]]
    prefixes = [700, 0, 33]
    nodes = max(map(len, trees))
    cache = hattn.KVCache(3, KV_HEADS, 800, DIM)
    lengths = [prefix + len(tree) for prefix, tree in zip(prefixes, trees)]
    q, k, v = random_qkv(rng, 3, HEADS, KV_HEADS, nodes, max(lengths), DIM)
    cache.append(k, v, lengths)
    return cache, trees, q, k, v


def check_tree(rows, tree, length, q, k, v):
    """rows [1, Hq, nodes, D] of one sequence; q, k, v are the sequence's, [H, S, D]."""
    options = {"mask": tree_mask(tree, length)}
    expected = oracle.attention(q[None, :, : len(tree)], k[None, :, :length], v[None, :, :length], **options)
    assert_close(rows, expected.out)


def test_trees_of_a_padded_batch(rng):
    cache, trees, q, k, v = ragged_trees(rng)
    mask = np.zeros((3, 1, q.shape[2], max(cache.lengths)), bool)
    for b, (tree, length) in enumerate(zip(trees, cache.lengths)):
        mask[b, 0, : len(tree), :length] = tree_mask(tree, length)
    out = cache.attend(q, mask=mask, q_lengths=[len(tree) for tree in trees])
    for b, (tree, length) in enumerate(zip(trees, cache.lengths)):
        check_tree(out[b : b + 1, :, : len(tree)], tree, length, q[b], k[b], v[b])


def test_trees_of_a_packed_batch(rng):
    cache, trees, q, k, v = ragged_trees(rng)
    ends = np.cumsum([0, *map(len, trees)])
    packed = np.concatenate([q[b : b + 1, :, : len(tree)] for b, tree in enumerate(trees)], axis=2)
    mask = np.zeros((1, 1, ends[-1], max(cache.lengths)), bool)
    for b, (tree, length) in enumerate(zip(trees, cache.lengths)):
        mask[0, 0, ends[b] : ends[b + 1], :length] = tree_mask(tree, length)
    out = cache.attend(packed, mask=mask, cu_seqlens_q=ends)
    for b, (tree, length) in enumerate(zip(trees, cache.lengths)):
        check_tree(out[:, :, ends[b] : ends[b + 1]], tree, length, q[b], k[b], v[b])


def test_example(capsys):
    with pytest.raises(SystemExit) as exit_:
        runpy.run_path(str(EXAMPLE / "tree_attention.py"), run_name="__main__")
    assert exit_.value.code == 0
    assert "keys held with the accepted branch: 2004" in capsys.readouterr().out
