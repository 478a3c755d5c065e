"""Attention as a tree of Dask tasks: ``attnspec check dask_tree:sharded_attention``.

Each pair of a shard of queries and a shard of keys is a task. Partial results are merged in pairs, as in
decoding over a tree. The function has the arrays of all ranks, as `sharded_attention` of the standard.
"""

import math
from itertools import pairwise

import numpy as np
from dask import compute, delayed

from attnspec.backends import implementation


@implementation(array="numpy")
def sharded_attention(
    query,  # (*B, Hq, L, D), the rows of all ranks
    key,  # (*B, Hkv, S, D)
    value,  # (*B, Hkv, S, Dv)
    *,
    query_shards,
    key_shards,
    scale=None,
    mask=None,
    is_causal=False,
    query_positions=None,  # (*B, L)
    key_positions=None,  # (*B, S)
    return_lse=False,
):
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    allowed = np.ones((*query.shape[:-1], key.shape[-2]), bool) & (True if mask is None else mask)
    places = [
        np.arange(x.shape[-2]) if given is None else given
        for x, given in ((query, query_positions), (key, key_positions))
    ]
    own, other = places[0][..., None, :, None], places[1][..., None, None, :]
    allowed = allowed & (other >= 0) & (other <= own if is_causal else True)
    rows = []
    for first, end in pairwise(query_shards):
        parts = [
            delayed(partial)(
                query[..., first:end, :],
                key[..., start:stop, :],
                value[..., start:stop, :],
                allowed[..., first:end, start:stop],
                scale,
            )
            for start, stop in pairwise(key_shards)
        ]
        while len(parts) > 1:
            rest = parts[len(parts) // 2 * 2 :]
            parts = [delayed(merge)(*pair) for pair in zip(parts[::2], parts[1::2], strict=False)] + rest
        rows += parts
    results = compute(*rows)
    output = np.concatenate([output for output, _ in results], axis=-2).astype(query.dtype)
    return (output, np.concatenate([lse for _, lse in results], axis=-1)) if return_lse else output


def partial(query, key, value, allowed, scale):
    """Compute a partial result and its lse."""
    groups = query.shape[-3] // key.shape[-3]
    key, value = (np.repeat(x, groups, axis=-3) for x in (key, value))
    scores = np.where(allowed, scale * (query @ np.swapaxes(key, -1, -2)), -np.inf)
    top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(top == -np.inf, 0, top))
    total = weights.sum(axis=-1, keepdims=True)
    nothing = total == 0
    output = weights @ value / np.where(nothing, 1, total)
    lse = np.where(nothing, -np.inf, top + np.log(np.where(nothing, 1, total)))
    return output, lse[..., 0]


def merge(one, other):
    """Merge two partial results, of which any may have no key."""
    (left, of_left), (right, of_right) = one, other
    lse = np.logaddexp(of_left, of_right)
    base = np.where(lse == -np.inf, 0, lse)
    output = left * np.exp(of_left - base)[..., None] + right * np.exp(of_right - base)[..., None]
    return output, lse
