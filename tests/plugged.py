"""Correct implementations with other names, for tests of adapters and configuration."""

import numpy as np

from attnspec import reference


def kernel(q, k, v, softmax_scale=None, causal=None, attn_mask=None, dropout_p=0.0):
    """Heads after positions, four axes alone, True in the mask means ignore, the lse always returned."""
    del dropout_p
    if not q.ndim == k.ndim == v.ndim == 4:
        raise ValueError(f"q, k, v: expected four axes, got {q.ndim}, {k.ndim}, {v.ndim}")
    mask = None if attn_mask is None else ~attn_mask if attn_mask.dtype == bool else attn_mask
    q, k, v = (np.swapaxes(x, 1, 2) for x in (q, k, v))
    output, lse = reference.attention(
        q, k, v, scale=softmax_scale, is_causal=bool(causal), mask=mask, return_lse=True, dtype=np.float64
    )
    return np.swapaxes(output, 1, 2).astype(q.dtype), lse.astype(q.dtype)


def kernel_of_keywords(query, key, value, **options):
    return reference.attention(query, key, value, dtype=query.dtype, **options)


def rope(features, *, offset=None, base=10000.0, interleaved=False, rotary_depth=None):
    return reference.rotary(
        features,
        offset=0 if offset is None else offset,
        base=base,
        interleaved=interleaved,
        rotary_depth=rotary_depth,
    ).astype(features.dtype)
