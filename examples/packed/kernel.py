"""A packed kernel in NumPy: sequences of unequal lengths in one row, divided by cumulative lengths.

attnspec check examples/packed -k packing
"""

import numpy as np


def packed_attention(
    query,
    key,
    value,
    *,
    query_starts,
    key_starts,
    scale=None,
    is_causal=False,
    query_offset=0,
    return_lse=False,
):
    """Attend within each sequence of arrays of shape (heads, rows, features)."""
    check(query, key, value, query_starts, key_starts)
    heads, rows, depth = query.shape
    shared = np.arange(heads) // (heads // len(key))
    scale = depth**-0.5 if scale is None else scale
    wide = np.promote_types(query.dtype, np.float32)
    output = np.zeros((heads, rows, value.shape[-1]), wide)
    lse = np.full((heads, rows), -np.inf, wide)
    offsets = np.broadcast_to(query_offset, len(query_starts) - 1)
    for g, offset in enumerate(offsets):
        own, other = (slice(starts[g], starts[g + 1]) for starts in (query_starts, key_starts))
        q, k, v = (x.astype(wide) for x in (query[:, own], key[shared, other], value[shared, other]))
        scores = scale * (q @ k.swapaxes(1, 2))
        if is_causal:
            after = np.arange(k.shape[1]) > np.arange(q.shape[1])[:, None] + offset
            scores[:, after] = -np.inf
        if scores.size:
            output[:, own], lse[:, own] = attend(scores, v)
    output = output.astype(query.dtype)
    return (output, lse) if return_lse else output


def attend(scores, value):
    top = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - np.where(top == -np.inf, 0, top))
    total = weights.sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = np.where(total == 0, -np.inf, top + np.log(total))[..., 0]
    return weights @ value / np.where(total == 0, 1, total), lse


def check(query, key, value, query_starts, key_starts):
    for name, starts, rows in (("query_starts", query_starts, query), ("key_starts", key_starts, key)):
        if starts.ndim != 1 or starts.dtype.kind not in "iu" or len(starts) != len(query_starts):
            raise ValueError(f"{name}: expected {len(query_starts)} integers in one axis")
        if starts[0] != 0 or (np.diff(starts) < 0).any() or starts[-1] > rows.shape[1]:
            raise ValueError(f"{name}: expected 0, then numbers that do not decrease, up to {rows.shape[1]}")
    if key.shape[:2] != value.shape[:2]:
        raise ValueError("value: expected the heads and rows of key")


def attention(query, key, value, *, scale=None, is_causal=False):
    """Attend within each entry of a batch, (batch, heads, positions, features): each is one sequence."""
    rows = [np.concatenate(list(x), axis=1) for x in (query, key, value)]
    starts = [np.arange(len(x) + 1) * x.shape[2] for x in (query, key)]
    found = packed_attention(
        *rows, query_starts=starts[0], key_starts=starts[1], scale=scale, is_causal=is_causal
    )
    return np.stack(np.split(found, len(query), axis=1))
