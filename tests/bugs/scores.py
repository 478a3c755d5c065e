"""Bugs of scale, softcap and bias."""

import numpy as np

from bugs.common import causal, heads, scored, softmax


def no_default_scale(query, key, value, *, mask=None, is_causal=False, scale=None):
    key, value = heads(query, key, value)
    scores = query @ np.swapaxes(key, -1, -2)
    if scale is not None:
        scores = (scores * scale).astype(query.dtype)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    if is_causal:
        scores = causal(scores)
    return softmax(scores) @ value


def scale_by_value_depth(query, key, value, *, mask=None, is_causal=False, scale=None):
    key, value = heads(query, key, value)
    scale = value.shape[-1] ** -0.5 if scale is None else scale
    scores = scored(query, key, scale)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    if is_causal:
        scores = causal(scores)
    return softmax(scores) @ value


def scale_without_root(query, key, value, *, mask=None, scale=None):
    key, value = heads(query, key, value)
    scale = 1 / query.shape[-1] if scale is None else scale
    scores = scored(query, key, scale)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    return softmax(scores) @ value


def scale_zero_is_default(query, key, value, *, mask=None, is_causal=False, scale=None):
    key, value = heads(query, key, value)
    scores = scored(query, key, scale or query.shape[-1] ** -0.5)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    if is_causal:
        scores = causal(scores)
    return softmax(scores) @ value


def cap_after_mask(query, key, value, *, mask=None, is_causal=False, scale=None, softcap=None):
    key, value = heads(query, key, value)
    scores = scored(query, key, scale)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    if is_causal:
        scores = causal(scores)
    if softcap is not None:
        scores = (softcap * np.tanh(scores / softcap)).astype(query.dtype)
    return softmax(scores) @ value


def cap_after_bias(query, key, value, *, bias=None, mask=None, scale=None, softcap=None):
    key, value = heads(query, key, value)
    scores = scored(query, key, scale)
    allowed = np.True_ if bias is None else bias != -np.inf
    if bias is not None:
        scores = scores + np.where(allowed, bias, 0)
    if softcap is not None:
        scores = softcap * np.tanh(scores / softcap)
    if mask is not None:
        allowed = allowed & mask
    return (softmax(np.where(allowed, scores, -np.inf)) @ value).astype(query.dtype)


def cap_ignored(query, key, value, *, mask=None, is_causal=False, scale=None, softcap=None):
    key, value = heads(query, key, value)
    scores = scored(query, key, scale)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    if is_causal:
        scores = causal(scores)
    return softmax(scores) @ value


def bias_scaled(query, key, value, *, bias=None, is_causal=False, scale=None):
    key, value = heads(query, key, value)
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = query @ np.swapaxes(key, -1, -2)
    allowed = np.True_
    if bias is not None:
        allowed = bias != -np.inf
        scores = scores + np.where(allowed, bias, 0)
    scores = np.where(allowed, (scores * scale).astype(query.dtype), -np.inf)
    if is_causal:
        scores = causal(scores)
    return (softmax(scores) @ value).astype(query.dtype)
