"""Attention in NumPy with a backward pass that takes the results of the forward pass."""

import numpy as np

from attnspec import reference


def attention(query, key, value, *, scale=None, mask=None):
    return reference.attention(query, key, value, scale=scale, mask=mask, dtype=query.dtype)


def attention_vjp(query, key, value, d_output, *, output, lse, scale=None, mask=None):
    scale = 1 / np.sqrt(query.shape[-1]) if scale is None else scale
    s = query @ np.swapaxes(spread(query, key), -1, -2) * scale
    with np.errstate(invalid="ignore"):
        p = np.exp(s - lse[..., None])
    p = np.where(np.isfinite(lse)[..., None] & (True if mask is None else mask), p, 0)
    r = d_output @ np.swapaxes(spread(query, value), -1, -2)
    t = p * (r - (d_output * output).sum(-1, keepdims=True))
    found = (
        scale * t @ spread(query, key),
        gathered(key, scale * np.swapaxes(t, -1, -2) @ query),
        gathered(value, np.swapaxes(p, -1, -2) @ d_output),
    )
    return tuple(x.astype(query.dtype) for x in found)


def spread(query, x):
    return x if x.ndim < 3 else np.repeat(x, query.shape[-3] // x.shape[-3], axis=-3)


def gathered(x, d):
    if x.ndim < 3:
        return d
    return d.reshape(*x.shape[:-2], -1, *x.shape[-2:]).sum(axis=-3)
