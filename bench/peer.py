"""What peers have in common: a problem as arrays, and what a peer without an option of its own is given instead.

A peer is a module with `version()` and `variants(case, arrays, threads)`, a list of ways to compute the case, empty if
there is none. A variant has `name`, `run()`, and `result()`: the output of the last run as [B, Hq, Sq, D]. Data is
prepared before anything is timed, in the layout that the peer likes best.
"""
import numpy as np

LOWEST = np.finfo(np.float32).min
SMALL_SCORES = 2**26  # elements of [B, Hq, Sq, Sk]: up to here a peer's way with materialised scores is tried, too


def score_count(case):
    return case.batch * case.query_heads * case.query_length * case.kv_length


def is_ragged(case):
    return len(set(case.kv_lengths)) > 1


def sees(case):
    """[Sq, Sk] bool: what the causal limit and the window let through."""
    position = np.arange(case.query_length)[:, None] + case.kv_length - case.query_length
    key = np.arange(case.kv_length)[None, :]
    visible = np.ones((case.query_length, case.kv_length), bool)
    if case.causal:
        visible &= key <= position
    if case.window_left >= 0:
        visible &= key >= position - case.window_left
    if case.window_right >= 0:
        visible &= key <= position + case.window_right
    return visible


def additive(case, arrays):
    """Bias, ALiBi and bool mask as one float32 array that broadcasts to [B, Hq, Sq, Sk], or None."""
    if case.has_alibi:
        position = np.arange(case.query_length)[:, None] + case.kv_length - case.query_length
        distance = np.abs(position - np.arange(case.kv_length)[None, :]).astype(np.float32)
        return -arrays["alibi_slopes"].reshape(1, -1, 1, 1) * distance
    if "bias" in arrays:
        return arrays["bias"]
    if "mask" in arrays:
        return np.where(arrays["mask"] != 0, np.float32(0), LOWEST)
    return None


def rows_that_see(case, arrays):
    """Broadcasts to [B, Hq, Sq]: rows with a visible key. Peers differ in what they make of the others."""
    if "mask" not in arrays:
        return np.ones((1, 1, 1), bool)
    return ((arrays["mask"] != 0) & sees(case)).any(axis=-1)
