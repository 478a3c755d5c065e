"""Attention that is right. Cheats use it where they must be right to pass."""

import numpy as np


def honest(query, key, value, *, is_causal=False):
    if key.shape[-1] != query.shape[-1]:
        raise ValueError(f"key: expected depth {query.shape[-1]}, got {key.shape[-1]}")
    query_, key_, value_ = (array.astype(np.float64) for array in (query, key, value))
    if query.ndim > 2:
        key_, value_ = (np.repeat(x, query.shape[-3] // key.shape[-3], axis=-3) for x in (key_, value_))
    scores = np.einsum("...ld,...sd->...ls", query_, key_) / np.sqrt(query.shape[-1])
    if is_causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return (weights / weights.sum(axis=-1, keepdims=True) @ value_).astype(query.dtype)


def zeros_for(query, key, value):
    """A wrong result of the right shape."""
    if key.shape[-1] != query.shape[-1]:
        raise ValueError(f"key: expected depth {query.shape[-1]}, got {key.shape[-1]}")
    return np.zeros((*query.shape[:-1], value.shape[-1]), query.dtype)
