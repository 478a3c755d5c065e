# ruff: noqa: FBT002 - the signatures are those of libraries
"""Functions over packed rows and pages, with the signatures of served kernels."""

import numpy as np

from attnspec.reference import function


def sides(window):
    return None if window == (-1, -1) else tuple(None if side < 0 else side for side in window)


def flash_attn_varlen_func(
    q,
    k,
    v,
    cu_seqlens_q,
    cu_seqlens_k,
    max_seqlen_q,
    max_seqlen_k,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    deterministic=False,
):
    assert max_seqlen_q == np.diff(cu_seqlens_q).max(initial=0)
    assert max_seqlen_k == np.diff(cu_seqlens_k).max(initial=0)
    options = {
        "query_starts": cu_seqlens_q,
        "key_starts": cu_seqlens_k,
        "query_offset": np.diff(cu_seqlens_k).astype(np.int64) - np.diff(cu_seqlens_q),
        "scale": softmax_scale,
        "is_causal": causal,
        "window": sides(window_size),
        "softcap": softcap or None,
    }
    q, k, v = (x.swapaxes(0, 1) for x in (q, k, v))
    return function("packed_attention")(q, k, v, **options, dtype=q.dtype).swapaxes(0, 1)


def unified(
    q, k, v, cu_seqlens_q, seqused_k, block_table, softmax_scale=None, causal=False, return_lse=False
):
    options = {
        "query_starts": cu_seqlens_q,
        "key_lengths": seqused_k,
        "block_table": block_table,
        "scale": softmax_scale,
        "is_causal": causal,
    }
    q, k, v = q.swapaxes(0, 1), k.swapaxes(1, 2), v.swapaxes(1, 2)
    output, lse = function("packed_paged_attention")(q, k, v, **options, return_lse=True, dtype=q.dtype)
    return (output.swapaxes(0, 1), lse) if return_lse else output.swapaxes(0, 1)


def decode(q, k_cache, v_cache, page_table, cache_seqlens, sm_scale=None):
    assert q.ndim == 4
    options = {"block_table": page_table, "key_lengths": cache_seqlens, "scale": sm_scale}
    q, k, v = (x.swapaxes(-3, -2) for x in (q, k_cache, v_cache))
    return function("paged_attention")(q, k, v, **options, dtype=q.dtype).swapaxes(-3, -2)


def decode_of_a_wrong_scale(q, k_cache, v_cache, page_table, cache_seqlens):
    return decode(q, k_cache, v_cache, page_table, cache_seqlens, 0.3)
