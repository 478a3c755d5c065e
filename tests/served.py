# ruff: noqa: FBT002 - the signatures are those of libraries
"""Functions of forms, with the signatures of served kernels, and wrong ones."""

import numpy as np

from attnspec.reference import function


def sides(window):
    return None if window == (-1, -1) else tuple(None if side < 0 else side for side in window)


def flash_attn_varlen_func(
    q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, softmax_scale=None, causal=False,
    window_size=(-1, -1), softcap=0.0, alibi_slopes=None, deterministic=False,
):  # fmt: skip
    assert max_seqlen_q == np.diff(cu_seqlens_q).max(initial=0)
    assert max_seqlen_k == np.diff(cu_seqlens_k).max(initial=0)
    options = {"query_starts": cu_seqlens_q, "key_starts": cu_seqlens_k, "window": sides(window_size)}
    options |= {"scale": softmax_scale, "is_causal": causal, "softcap": softcap or None}
    options["query_offset"] = np.diff(cu_seqlens_k).astype(np.int64) - np.diff(cu_seqlens_q)
    if alibi_slopes is not None:
        options["bias"] = np.zeros((q.shape[1], len(q), len(k)))
        for first, last, start, end in zip(
            cu_seqlens_q[:-1], cu_seqlens_q[1:], cu_seqlens_k[:-1], cu_seqlens_k[1:], strict=True
        ):
            distances = np.abs(np.arange(first - last, 0)[:, None] - np.arange(start - int(end), 0))
            options["bias"][:, first:last, start:end] = -alibi_slopes[:, None, None] * distances
    q, k, v = (x.swapaxes(0, 1) for x in (q, k, v))
    return function("packed_attention")(q, k, v, **options, dtype=q.dtype).swapaxes(0, 1)


def unified(
    q, k, v, cu_seqlens_q, seqused_k, block_table, softmax_scale=None, causal=False, return_lse=False
):
    options = {"query_starts": cu_seqlens_q, "key_lengths": seqused_k, "block_table": block_table}
    options |= {"scale": softmax_scale, "is_causal": causal}
    q, k, v = q.swapaxes(0, 1), k.swapaxes(1, 2), v.swapaxes(1, 2)
    output, lse = function("packed_paged_attention")(q, k, v, **options, return_lse=True, dtype=q.dtype)
    return (output.swapaxes(0, 1), lse) if return_lse else output.swapaxes(0, 1)


def unified_of_codes(
    q, k, v, cu_seqlens_q, seqused_k, block_table, causal=False, k_descale=None, v_descale=None,
    encoding="int8",
):  # fmt: skip
    options = {"key_scales": k_descale, "value_scales": v_descale, "query_starts": cu_seqlens_q}
    options |= {"key_lengths": seqused_k, "block_table": block_table, "is_causal": causal}
    q, k, v = q.swapaxes(0, 1), k.swapaxes(1, 2), v.swapaxes(1, 2)
    attend = function("packed_paged_quantized_attention")
    return attend(q, k, v, **options, encoding=encoding, dtype=q.dtype).swapaxes(0, 1)


def unified_without_codes(
    q, k, v, cu_seqlens_q, seqused_k, block_table, softmax_scale=None, causal=False, k_scale=1.0, v_scale=1.0
):
    return unified(q, k, v, cu_seqlens_q, seqused_k, block_table, softmax_scale, causal)


def decode(q, k_cache, v_cache, page_table, cache_seqlens, sm_scale=None, bias=None):
    assert q.ndim == 4
    options = {"block_table": page_table, "key_lengths": cache_seqlens, "scale": sm_scale, "bias": bias}
    q, k, v = (x.swapaxes(-3, -2) for x in (q, k_cache, v_cache))
    return function("paged_attention")(q, k, v, **options, dtype=q.dtype).swapaxes(-3, -2)


def paged_attention_v1(
    query, key_cache, value_cache, num_kv_heads, scale, block_tables, seq_lens, block_size, max_seq_len,
    alibi_slopes=None,
):  # fmt: skip
    assert query.ndim == 3
    assert (num_kv_heads, block_size) == (key_cache.shape[2], key_cache.shape[1])
    assert max_seq_len == seq_lens.max(initial=0)
    bias = None
    if alibi_slopes is not None:
        places = np.arange(block_tables.shape[-1] * block_size) - (seq_lens[:, None] - 1.0)
        bias = -alibi_slopes[:, None, None] * np.abs(places)[:, None, None]
    return decode(query[:, None], key_cache, value_cache, block_tables, seq_lens, scale, bias)[:, 0]


def flash_attn_with_kvcache(
    q, k_cache, v_cache, k=None, v=None, cache_seqlens=None, block_table=None, softmax_scale=None,
    causal=False, window_size=(-1, -1),
):  # fmt: skip
    options = {"block_table": block_table, "key_lengths": cache_seqlens, "scale": softmax_scale}
    options |= {"is_causal": causal, "window": sides(window_size)}
    options |= {} if k is None else {"new_key": k.swapaxes(-3, -2), "new_value": v.swapaxes(-3, -2)}
    q, k_cache, v_cache = (x.swapaxes(-3, -2) for x in (q, k_cache, v_cache))
    return function("paged_attention")(q, k_cache, v_cache, **options, dtype=q.dtype).swapaxes(-3, -2)


def mla(q_nope, q_pe, kv_c, k_pe, w_uk, w_uv, sm_scale=None, causal=False):
    options = {"scale": sm_scale, "is_causal": causal}
    return function("latent_attention")(q_nope, q_pe, kv_c, k_pe, w_uk, w_uv, **options, dtype=q_nope.dtype)


def mla_absorbed(q_nope, q_pe, kv_c, k_pe, w_uk, w_uv, sm_scale=None):
    """As vLLM, which multiplies the queries by the transposed weight: (H, Dn, R) and (H, R, Dv)."""
    return mla(q_nope, q_pe, kv_c, k_pe, w_uk.swapaxes(-1, -2), w_uv, sm_scale)


def mla_projected(q_nope, q_pe, kv_c, k_pe, w_uk, w_uv, sm_scale=None):
    """As two linear layers: (R, H Dn) and (R, H Dv)."""
    assert w_uk.ndim == w_uv.ndim == 2
    heads = q_nope.shape[-3]
    w_uk, w_uv = (w.reshape(len(w), heads, -1).swapaxes(0, 1) for w in (w_uk, w_uv))
    return mla(q_nope, q_pe, kv_c, k_pe, w_uk, w_uv, sm_scale)


def mla_of_the_latent_scale(q_nope, q_pe, kv_c, k_pe, w_uk, w_uv, sm_scale=None, causal=False):
    scale = (kv_c.shape[-1] + q_pe.shape[-1]) ** -0.5 if sm_scale is None else sm_scale
    return mla(q_nope, q_pe, kv_c, k_pe, w_uk, w_uv, scale, causal)


def int8_attention(q, k_codes, v_codes, k_scale, v_scale, causal=False, window_size=(-1, -1)):
    options = {"key_scales": k_scale, "value_scales": v_scale, "is_causal": causal}
    attend = function("quantized_attention")
    return attend(q, k_codes, v_codes, **options, window=sides(window_size), dtype=q.dtype)


def by_token(scales, codes):
    if scales.shape != (*codes.shape[:-1], 1):
        raise ValueError(f"expected a scale for each token and head, got {scales.shape}")
    return scales.swapaxes(-3, -2)


def int8_by_token(q, k_int8, v_int8, k_scale, v_scale, sm_scale=None, causal=False, kv_len=None):
    assert q.ndim == 4
    assert kv_len is None or kv_len.shape == (len(q),)
    options = {"key_scales": by_token(k_scale, k_int8), "value_scales": by_token(v_scale, v_int8)}
    options |= {"scale": sm_scale, "is_causal": causal, "key_lengths": kv_len}
    q, k, v = (x.swapaxes(-3, -2) for x in (q, k_int8, v_int8))
    return function("quantized_attention")(q, k, v, **options, dtype=q.dtype).swapaxes(-3, -2)


def int8_by_token_or_declined(q, k_int8, v_int8, k_scale=None, v_scale=None, causal=False):
    if k_scale is None or v_scale is None:
        raise NotImplementedError("scales are required")
    return int8_by_token(q, k_int8, v_int8, k_scale, v_scale, None, causal)


def int8_of_flat_scales(q, k, v, k_scale, v_scale, k_zp=None):
    """The scales and zero points of tokens have no axis of features."""
    assert k_scale.shape == k.shape[:-1]
    options = {"key_scales": k_scale[..., None], "value_scales": v_scale[..., None]}
    options |= {} if k_zp is None else {"key_zero_points": k_zp[..., None]}
    return function("quantized_attention")(q, k, v, **options, dtype=q.dtype)


def int8_of_tiled_scales(q, k_int8, v_int8, k_scale, v_scale, causal=False):
    """Repeat codes for each group of heads, and scales as a whole."""
    groups = q.shape[2] // k_int8.shape[2]
    k, v = (np.repeat(x, groups, axis=2) for x in (k_int8, v_int8))
    scales = (np.tile(x, (1, 1, groups, 1)) for x in (k_scale, v_scale))
    return int8_by_token(q, k, v, *scales, None, causal)


def e4m3_of_bits(q, k_fp8, v_fp8, k_descale, v_descale, softmax_scale=None, causal=False):
    """Read the bits of codes as e4m3fn, with a scale for each head."""
    k, v = (x.view("float8_e4m3fn").astype(q.dtype) for x in (k_fp8, v_fp8))
    k, v = k * k_descale[..., None, None], v * v_descale[..., None, None]
    return function("attention")(q, k, v, scale=softmax_scale, is_causal=causal, dtype=q.dtype)


def e4m3_of_bits_with_tiled_scales(q, k_fp8, v_fp8, k_descale, v_descale, softmax_scale=None):
    groups = q.shape[1] // k_fp8.shape[1]
    k, v = (np.repeat(x, groups, axis=1) for x in (k_fp8, v_fp8))
    return e4m3_of_bits(q, k, v, np.repeat(k_descale, groups, 1), np.tile(v_descale, groups), softmax_scale)


def e5m2_of_numbers(q, k_fp8, v_fp8, k_descale, v_descale, softmax_scale=None, causal=False):
    """Take arrays of numbers of 8 bits."""
    assert k_fp8.dtype == v_fp8.dtype == "float8_e5m2"
    codes = (x.view(np.uint8) for x in (k_fp8, v_fp8))
    options = {"key_scales": k_descale[..., None, None], "value_scales": v_descale[..., None, None]}
    options |= {"scale": softmax_scale, "is_causal": causal, "encoding": "e5m2"}
    return function("quantized_attention")(q, *codes, **options, dtype=q.dtype)


def of_half_precision(q, k, v, sm_scale=None):
    assert q.dtype == k.dtype == v.dtype == np.float16
    return function("attention")(q, k, v, scale=sm_scale, dtype=np.float32).astype(q.dtype)


def window_off_by_one(q, k, v, window_size=(-1, -1)):
    window = sides(window_size)
    window = window and (None if window[0] is None else window[0] + 1, window[1])
    return function("attention")(q, k, v, window=window, dtype=q.dtype)


def window_without_effect(q, k, v, window_size=(-1, -1)):
    return function("attention")(q, k, v, dtype=q.dtype)


def decode_of_a_wrong_scale(q, k_cache, v_cache, page_table, cache_seqlens):
    return decode(q, k_cache, v_cache, page_table, cache_seqlens, 0.3)
