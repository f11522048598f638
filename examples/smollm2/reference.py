"""The same model in float64 from the weights to the logits: what the float32 decoder is measured against.

Written for plainness and separately from the decoder: the two share the model file and nothing else, and this one
knows nothing of hattn. Sequences are run whole, without a cache.
"""
import numpy as np

# Attention weights of this many query rows are held at once, [ROWS, S] per head.
ROWS = 512


def logits(model, ids, positions):
    """Float64 logits [len(positions), vocabulary] after the tokens at `positions` of the sequence `ids`."""
    config = model.config
    embedding = model.tensor("token_embd.weight")
    x = embedding[np.asarray(ids)].astype(np.float64)
    for block in range(config.layers):
        def weight(name, block=block):
            return model.tensor(f"blk.{block}.{name}.weight").astype(np.float64)

        h = normalise(x, weight("attn_norm"), config.rms_epsilon)
        q = turn(split_heads(h @ weight("attn_q").T, config.query_heads), config.rope_base)
        k = turn(split_heads(h @ weight("attn_k").T, config.kv_heads), config.rope_base)
        v = split_heads(h @ weight("attn_v").T, config.kv_heads)
        x = x + attend(q, k, v) @ weight("attn_output").T
        h = normalise(x, weight("ffn_norm"), config.rms_epsilon)
        gate = h @ weight("ffn_gate").T
        x = x + (gate / (1.0 + np.exp(-gate)) * (h @ weight("ffn_up").T)) @ weight("ffn_down").T
    h = normalise(x[np.asarray(positions)], model.tensor("output_norm.weight").astype(np.float64), config.rms_epsilon)
    return h @ embedding.T.astype(np.float64)


def normalise(x, weight, epsilon):
    """Root-mean-square normalisation of each row."""
    scale = np.sqrt((x ** 2).mean(axis=1) + epsilon)
    return x / scale[:, None] * weight


def split_heads(x, heads):
    """[S, heads * D] to [heads, S, D]."""
    return np.stack(np.split(x, heads, axis=1))


def turn(x, base):
    """Rotary position embedding of x [heads, S, D]: features 2n and 2n + 1 turn by position * base^(-2n / D)."""
    _, length, size = x.shape
    angle = np.arange(length)[:, None] / base ** (np.arange(0, size, 2) / size)
    cos, sin = np.cos(angle), np.sin(angle)
    even, odd = x[:, :, 0::2], x[:, :, 1::2]
    turned = np.empty_like(x)
    turned[:, :, 0::2] = even * cos - odd * sin
    turned[:, :, 1::2] = even * sin + odd * cos
    return turned


def attend(q, k, v):
    """Causal softmax attention of q [Hq, S, D] over k, v [Hkv, S, D], to [S, Hq * D].

    Query head h reads kv head h // (Hq / Hkv).
    """
    heads, length, size = q.shape
    ratio = heads // len(k)
    out = np.empty((length, heads, size))
    for head in range(heads):
        keys, values = k[head // ratio], v[head // ratio]
        for start in range(0, length, ROWS):
            stop = min(start + ROWS, length)
            score = q[head, start:stop] @ keys[:stop].T / np.sqrt(size)
            score[np.arange(stop) > np.arange(start, stop)[:, None]] = -np.inf
            weight = np.exp(score - score.max(axis=1, keepdims=True))
            out[start:stop, head] = (weight / weight.sum(axis=1, keepdims=True)) @ values[:stop]
    return out.reshape(length, heads * size)
