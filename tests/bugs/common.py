"""What the functions with a bug share, and have right: heads, the softmax, numbers of batch entries."""

import numpy as np


def heads(query, key, value):
    """Repeat key heads for the query heads that share them."""
    if query.ndim < 3 or query.shape[-3] == key.shape[-3]:
        return key, value
    groups = query.shape[-3] // key.shape[-3]
    return np.repeat(key, groups, axis=-3), np.repeat(value, groups, axis=-3)


def scored(query, key, scale=None):
    """Take scaled dot products."""
    scale = 1 / np.sqrt(query.shape[-1]) if scale is None else scale
    return (query @ np.swapaxes(key, -1, -2) * scale).astype(query.dtype)


def softmax(scores):
    """Take the softmax of each row; one of minus infinity alone gives zeros."""
    top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(top == -np.inf, 0, top))
    total = weights.sum(axis=-1, keepdims=True)
    return weights / np.where(total == 0, 1, total)


def entries(numbers):
    """Let a number of each batch entry stand before heads, queries and keys."""
    numbers = np.asarray(numbers)
    return numbers[..., None, None, None] if numbers.ndim else numbers


def causal(scores, offset=0):
    """Disallow keys after the query."""
    rows, columns = np.indices(scores.shape[-2:])
    return np.where(columns <= rows + entries(offset), scores, -np.inf)
