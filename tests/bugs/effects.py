"""Bugs of dtypes, memory, and what a call leaves behind; what raises, and what ends the process."""

import ctypes

import numpy as np

from bugs.common import causal, heads, scored, softmax

RANDOM = np.random.default_rng()
KEPT = {}


def plain(query, key, value, mask, is_causal, scale):
    """Take attention, rightly."""
    key, value = heads(query, key, value)
    scores = scored(query, key, scale)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    if is_causal:
        scores = causal(scores)
    return softmax(scores) @ value


def output_in_float32(query, key, value, *, mask=None, is_causal=False, scale=None):
    return plain(query, key, value, mask, is_causal, scale).astype(np.float32)


def float64_in_float32(query, key, value, *, mask=None, is_causal=False, scale=None):
    arrays = (array.astype(np.float32) for array in (query, key, value))
    return plain(*arrays, mask, is_causal, scale).astype(query.dtype)


def scaled_in_place(query, key, value, *, mask=None, is_causal=False, scale=None):
    query *= query.shape[-1] ** -0.5 if scale is None else scale
    return plain(query, key, value, mask, is_causal, 1.0)


def noisy(query, key, value, *, mask=None, is_causal=False, scale=None):
    output = plain(query, key, value, mask, is_causal, scale)
    if RANDOM.random() < 0.6:
        output = output + (1e-3 * RANDOM.normal(size=output.shape)).astype(output.dtype)
    return output


def mask_of_the_first_call(query, key, value, *, mask=None, is_causal=False, scale=None):
    if mask is not None:
        mask = KEPT.setdefault((query.shape, key.shape), mask)
    return plain(query, key, value, mask, is_causal, scale)


def nan_to_zero(query, key, value, *, mask=None, is_causal=False, scale=None):
    return np.nan_to_num(plain(query, key, value, mask, is_causal, scale))


def more_queries_refused(query, key, value, *, mask=None, is_causal=False, scale=None):
    if query.shape[-2] > key.shape[-2]:
        raise ValueError("seqlen_q must not be larger than seqlen_k")
    return plain(query, key, value, mask, is_causal, scale)


def crashes_on_one_shape(query, key, value, *, mask=None, is_causal=False, scale=None):
    if key.shape[-2] == 17:
        ctypes.string_at(0)
    return plain(query, key, value, mask, is_causal, scale)


def one_query_misread(query, key, value, *, mask=None, is_causal=False, scale=None):
    if query.shape[-2] == 1:
        is_causal = False
    return plain(query, key, value, mask, is_causal, scale)


def right(query, key, value, *, mask=None, is_causal=False, scale=None):
    return plain(query, key, value, mask, is_causal, scale)
