"""Attention in NumPy with a backward pass that takes the results of the forward pass."""

import numpy as np


def attention(query, key, value, *, scale=None, mask=None):
    p = weights(query, key, scale, mask)
    return (p @ spread(query, value)).astype(query.dtype)


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


def weights(query, key, scale, mask):
    scale = 1 / np.sqrt(query.shape[-1]) if scale is None else scale
    s = query @ np.swapaxes(spread(query, key), -1, -2) * scale
    s = s if mask is None else np.where(mask, s, -np.inf)
    top = s.max(axis=-1, keepdims=True, initial=-np.inf)
    e = np.exp(s - np.where(top == -np.inf, 0, top))
    total = e.sum(axis=-1, keepdims=True)
    return e / np.where(total == 0, 1, total)
