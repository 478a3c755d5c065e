"""Bugs of who may attend to what."""

import numpy as np

from bugs.common import causal, entries, heads, scored, softmax


def causal_bottom_right(query, key, value, *, mask=None, is_causal=False, scale=None):
    key, value = heads(query, key, value)
    scores = scored(query, key, scale)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    if is_causal:
        rows, columns = scores.shape[-2:]
        scores = np.where(np.tri(rows, columns, columns - rows, dtype=bool), scores, -np.inf)
    return softmax(scores) @ value


def causal_strict(query, key, value, *, mask=None, is_causal=False, scale=None):
    key, value = heads(query, key, value)
    scores = scored(query, key, scale)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    if is_causal:
        scores = np.where(np.tri(*scores.shape[-2:], -1, dtype=bool), scores, -np.inf)
    return softmax(scores) @ value


def mask_inverted(query, key, value, *, mask=None, is_causal=False, scale=None):
    key, value = heads(query, key, value)
    scores = scored(query, key, scale)
    if mask is not None:
        scores = np.where(mask, -np.inf, scores)
    if is_causal:
        scores = causal(scores)
    return softmax(scores) @ value


def mask_multiplied(query, key, value, *, mask=None, is_causal=False, scale=None):
    key, value = heads(query, key, value)
    scores = scored(query, key, scale)
    if mask is not None:
        scores = scores * mask
    if is_causal:
        scores = causal(scores)
    return softmax(scores) @ value


def mask_discarded(query, key, value, *, mask=None, is_causal=False, scale=None):
    key, value = heads(query, key, value)
    scores = scored(query, key, scale)
    if mask is not None:
        np.where(mask, scores, -np.inf)
    if is_causal:
        scores = causal(scores)
    return softmax(scores) @ value


def filled_with_minus_1e9(query, key, value, *, mask=None, is_causal=False, scale=None):
    key, value = heads(query, key, value)
    scores = scored(query, key, scale)
    if mask is not None:
        scores = np.where(mask, scores, -1e9).astype(query.dtype)
    if is_causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -1e9).astype(query.dtype)
    return softmax(scores) @ value


def filled_with_lowest(query, key, value, *, mask=None, scale=None):
    key, value = heads(query, key, value)
    scores = scored(query, key, scale)
    if mask is not None:
        scores = np.where(mask, scores, np.finfo(query.dtype).min)
    return softmax(scores) @ value


def empty_rows_nan(query, key, value, *, mask=None, is_causal=False, scale=None):
    key, value = heads(query, key, value)
    scores = scored(query, key, scale)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    if is_causal:
        scores = causal(scores)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=-np.inf))
    return weights / weights.sum(axis=-1, keepdims=True) @ value


def mask_replaces_causal(query, key, value, *, mask=None, is_causal=False, scale=None):
    key, value = heads(query, key, value)
    scores = scored(query, key, scale)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    elif is_causal:
        scores = causal(scores)
    return softmax(scores) @ value


def window_narrow_on_the_left(query, key, value, *, is_causal=False, scale=None, window=None):
    key, value = heads(query, key, value)
    scores = scored(query, key, scale)
    if is_causal:
        scores = causal(scores)
    if window is not None:
        rows, columns = np.indices(scores.shape[-2:])
        left, right = window
        if left is not None:
            scores = np.where(columns > rows - left, scores, -np.inf)
        if right is not None:
            scores = np.where(columns <= rows + right, scores, -np.inf)
    return softmax(scores) @ value


def window_wide_on_the_right(query, key, value, *, is_causal=False, scale=None, window=None):
    key, value = heads(query, key, value)
    scores = scored(query, key, scale)
    if is_causal:
        scores = causal(scores)
    if window is not None:
        rows, columns = np.indices(scores.shape[-2:])
        left, right = window
        if left is not None:
            scores = np.where(columns >= rows - left, scores, -np.inf)
        if right is not None:
            scores = np.where(columns <= rows + right + 1, scores, -np.inf)
    return softmax(scores) @ value


def offset_ignored(query, key, value, *, mask=None, is_causal=False, scale=None, query_offset=0):
    key, value = heads(query, key, value)
    scores = scored(query, key, scale)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    if is_causal:
        scores = causal(scores)
    return softmax(scores) @ value


def length_one_too_long(query, key, value, *, mask=None, scale=None, key_lengths=None):
    key, value = heads(query, key, value)
    scores = scored(query, key, scale)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    if key_lengths is not None:
        scores = np.where(np.arange(key.shape[-2]) <= entries(key_lengths), scores, -np.inf)
    return softmax(scores) @ value


def segments_of_the_queries(
    query, key, value, *, mask=None, scale=None, query_segment_ids=None, key_segment_ids=None
):
    key, value = heads(query, key, value)
    scores = scored(query, key, scale)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    if query_segment_ids is not None:
        ids = np.resize(query_segment_ids, (*query_segment_ids.shape[:-1], key.shape[-2]))
        same = query_segment_ids[..., :, None] == ids[..., None, :]
        scores = np.where(
            same[..., None, :, :] if query.ndim > 2 and same.ndim > 2 else same, scores, -np.inf
        )
    return softmax(scores) @ value
