"""Bugs of the softmax and of sums: denominators, sinks, lse, tiles."""

import numpy as np

from bugs.common import causal, heads, scored, softmax


def softmax_over_queries(query, key, value, *, mask=None, is_causal=False, scale=None):
    key, value = heads(query, key, value)
    scores = scored(query, key, scale)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    if is_causal:
        scores = causal(scores)
    return np.swapaxes(softmax(np.swapaxes(scores, -1, -2)), -1, -2) @ value


def whole_matrix(query, key, value, *, mask=None, is_causal=False, scale=None):
    key, value = heads(query, key, value)
    scores = scored(query, key, scale)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    if is_causal:
        scores = causal(scores)
    top = scores.max(axis=(-2, -1), keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(top == -np.inf, 0, top))
    total = weights.sum(axis=(-2, -1), keepdims=True)
    return weights / np.where(total == 0, 1, total) @ value


def no_shift(query, key, value, *, mask=None, is_causal=False, scale=None):
    key, value = heads(query, key, value)
    scores = scored(query, key, scale)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    if is_causal:
        scores = causal(scores)
    weights = np.exp(scores)
    total = weights.sum(axis=-1, keepdims=True)
    return weights / np.where(total == 0, 1, total) @ value


def softmax_in_half(query, key, value, *, mask=None, is_causal=False, scale=None):
    key, value = heads(query, key, value)
    scores = scored(query, key, scale)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    if is_causal:
        scores = causal(scores)
    return softmax(scores.astype(np.float16)).astype(query.dtype) @ value


def lse_to_base_two(query, key, value, *, mask=None, is_causal=False, scale=None, return_lse=False):
    key, value = heads(query, key, value)
    scores = scored(query, key, scale)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    if is_causal:
        scores = causal(scores)
    top = scores.max(axis=-1, initial=-np.inf)
    top = np.where(top == -np.inf, 0, top)
    lse = np.log2(np.exp(scores - top[..., None]).sum(axis=-1)) + top * np.log2(np.e)
    output = softmax(scores) @ value
    return (output, lse.astype(query.dtype)) if return_lse else output


def lse_without_sink(query, key, value, *, mask=None, scale=None, sinks=None, return_lse=False):
    key, value = heads(query, key, value)
    scores = scored(query, key, scale)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    lse = np.log(np.exp(scores - np.where(top == -np.inf, 0, top)).sum(axis=-1)) + np.where(
        top == -np.inf, 0, top
    ).squeeze(-1)
    if sinks is not None:
        sink = sinks[:, None, None] if query.ndim > 2 else sinks[:, None]
        sink = np.broadcast_to(sink, (*scores.shape[:-1], 1))
        weights = softmax(np.concatenate([scores, sink], axis=-1))[..., :-1]
    else:
        weights = softmax(scores)
    output = (weights @ value).astype(query.dtype)
    return (output, lse.astype(query.dtype)) if return_lse else output


def sink_in_the_output(query, key, value, *, mask=None, scale=None, sinks=None):
    key, value = heads(query, key, value)
    scores = scored(query, key, scale)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    if sinks is not None:
        sink = sinks[:, None, None] if query.ndim > 2 else sinks[:, None]
        sink = np.broadcast_to(sink, (*scores.shape[:-1], 1))
        scores = np.concatenate([sink, scores], axis=-1)
        value = np.concatenate([value[..., :1, :], value], axis=-2)
    return (softmax(scores) @ value).astype(query.dtype)


def tiles(query, key, value, mask, is_causal, scale, *, size, last=True, rescaled=True):
    """Go over the keys in tiles, with a running maximum."""
    scores = scored(query, key, scale)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    if is_causal:
        scores = causal(scores)
    keys = scores.shape[-1]
    end = keys if last or keys < size else keys // size * size
    top = np.full((*scores.shape[:-1], 1), -np.inf, query.dtype)
    total = np.zeros_like(top)
    output = np.zeros((*scores.shape[:-1], value.shape[-1]), query.dtype)
    for start in range(0, end, size):
        tile = slice(start, start + size)
        new = np.maximum(top, scores[..., tile].max(axis=-1, keepdims=True))
        finite = np.where(new == -np.inf, 0, new)
        weights = np.exp(scores[..., tile] - finite)
        factor = np.exp(top - finite) if rescaled else 1
        total = total * factor + weights.sum(axis=-1, keepdims=True)
        output = output * factor + weights @ value[..., tile, :]
        top = new
    return (output / np.where(total == 0, 1, total)).astype(query.dtype)


def remainder_dropped(query, key, value, *, mask=None, is_causal=False, scale=None):
    key, value = heads(query, key, value)
    return tiles(query, key, value, mask, is_causal, scale, size=16, last=False)


def not_rescaled(query, key, value, *, mask=None, is_causal=False, scale=None):
    key, value = heads(query, key, value)
    return tiles(query, key, value, mask, is_causal, scale, size=4, rescaled=False)


def heads_tiled(query, key, value, *, mask=None, is_causal=False, scale=None):
    if query.ndim > 2:
        groups = query.shape[-3] // key.shape[-3]
        key, value = (np.concatenate([x] * groups, axis=-3) for x in (key, value))
    scores = scored(query, key, scale)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    if is_causal:
        scores = causal(scores)
    return softmax(scores) @ value
