"""Correct functions with unusual conventions, for tests of adapters; `signatures` has those of libraries."""

# ruff: noqa: FBT002 - the names and the order are theirs

import numpy as np
from numpy.lib.stride_tricks import as_strided

from attnspec import reference


def _attend(query, key, value, **options):
    given = {name: thing for name, thing in options.items() if thing is not None}
    return reference.attention(query, key, value, dtype=query.dtype, **given)


def _four(*arrays):
    for array in arrays:
        if array.ndim != 4:
            raise ValueError(f"expected four axes, got {array.ndim}")


def _swapped(*arrays):
    return tuple(np.swapaxes(array, 1, 2) for array in arrays)


def _bottom_right(query, key):
    return {"is_causal": True, "query_offset": key.shape[-2] - query.shape[-2]}


def flash_attn_func(
    q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), deterministic=False
):
    _four(q, k, v)
    q, k, v = _swapped(q, k, v)
    options = _bottom_right(q, k) if causal else {}
    if window_size != (-1, -1):
        options |= {"window": window_size, "query_offset": k.shape[-2] - q.shape[-2]}
    return _swapped(_attend(q, k, v, scale=softmax_scale, **options))[0]


def jax_nn(query, key, value, bias=None, mask=None, *, scale=None, is_causal=False, implementation=None):
    _four(query, key, value)
    query, key, value = _swapped(query, key, value)
    return _swapped(_attend(query, key, value, bias=bias, mask=mask, scale=scale, is_causal=is_causal))[0]


def additive_only(queries, keys, values, attention_mask=None, scaling=None):
    if attention_mask is not None and attention_mask.dtype == bool:
        raise TypeError("attention_mask: expected numbers")
    _four(queries, keys, values)
    output, lse = _attend(queries, keys, values, bias=attention_mask, scale=scaling, return_lse=True)
    return output, lse


def true_ignores(q, k, v, attn_mask=None, need_weights=False):
    """As the modules of PyTorch: True is not allowed."""
    mask = None if attn_mask is None else ~attn_mask
    return _attend(q, k, v, mask=mask, return_weights=need_weights)


def of_two_alignments(query, key, value, causal=False, window_size=None):
    """Causal at the top left, and a window at the bottom right, which no variant describes."""
    offset = key.shape[-2] - query.shape[-2] if window_size else 0
    return _attend(query, key, value, is_causal=causal, window=window_size, query_offset=offset)


def of_keys(q, k, v, causal=False, sliding_window=None):
    """As models with a sliding window: the number of keys, that of the query among them."""
    return _attend(q, k, v, is_causal=causal, window=sliding_window and (sliding_window - 1, None))


def of_keys_needed(q, k, v, sliding_window):
    return _attend(q, k, v, is_causal=True, window=(sliding_window - 1, None))


def of_keys_and_one(q, k, v, causal=False, sliding_window=None):
    """Wrong: it reads one key more if a row has more than four."""
    more = k.shape[-2] > 4
    return of_keys(q, k, v, causal, sliding_window and sliding_window + more)


def of_left(q, k, v, window_left=-1):
    window = None if window_left < 0 else (window_left, None)
    return _attend(q, k, v, window=window, **_bottom_right(q, k))


def of_both_sides(q, k, v, window_size=0):
    return _attend(q, k, v, window=(window_size, window_size) if window_size > 0 else None)


def of_window_that_closes(q, k, v, window=None):
    """Causal with a window alone."""
    return _attend(q, k, v, window=window and (window - 1, 0))


def in_float32(q, k, v):
    return _attend(*(x.astype(np.float32) for x in (q, k, v))).astype(q.dtype)


def of_another_lse(q, k, v):
    """Wrong: the logarithm of the denominator is to base two, and the maximum is not."""
    output, lse, most = _attend(q, k, v, return_lse=True, return_max=True)
    return output, most + (lse - most) / np.log(2).astype(lse.dtype)


def with_padding(q, k, v, key_padding_mask=None):
    """As encoders: a boolean for each key of each entry, True at padding."""
    if key_padding_mask is not None:
        if key_padding_mask.shape != (q.shape[0], k.shape[2]):
            raise ValueError(f"expected (batch, keys), got {key_padding_mask.shape}")
        key_padding_mask = ~key_padding_mask[:, None, None, :]
    _four(q, k, v)
    return _attend(q, k, v, mask=key_padding_mask)


def unscaled(query, key, value, sm_scale=1.0, causal=False):
    return _attend(query, key, value, scale=sm_scale, is_causal=causal)


def unscaled_always(query, key, value, is_causal=False):
    return _attend(query, key, value, scale=1.0, is_causal=is_causal)


def scaled_by_depth(query, key, value, sm_scale=None):
    return _attend(query, key, value, scale=1 / query.shape[-1] if sm_scale is None else sm_scale)


def of_three_axes(q, k, v, mask=None):
    if not q.ndim == k.ndim == v.ndim == 3:
        raise ValueError("expected three axes")
    return _attend(q, k, v, mask=mask)


def of_some_depths(q, k, v, sm_scale=None):
    """As fused kernels that are written for a few depths."""
    if q.shape[-1] not in (64, 128):
        raise ValueError(f"head dimension must be 64 or 128, got {q.shape[-1]}")
    return _attend(q, k, v, scale=sm_scale)


def of_a_depth_that_nobody_tries(q, k, v):
    if q.shape[-1] != 20:
        raise ValueError(f"head dimension must be 20, got {q.shape[-1]}")
    return _attend(q, k, v)


def with_what_nobody_has(q, k, v, workspace):
    return _attend(q, k, v)


def of_the_length(q, k, v, kv_lens=None, causal=False):
    """As flash_attn_with_kvcache: the last query is at the last key of the length."""
    _four(q, k, v)
    options = {}
    if kv_lens is not None:
        _four(kv_lens.reshape(*kv_lens.shape, 1, 1, 1))  # a length for each batch entry
        options = {"key_lengths": kv_lens}
    if causal:
        lengths = np.full(len(q), k.shape[-2]) if kv_lens is None else kv_lens
        options |= {"is_causal": True, "query_offset": lengths - q.shape[-2]}
    return _attend(q, k, v, **options)


def of_joined_arrays(qkv, causal=False):
    """As flash_attn_qkvpacked_func."""
    _four(qkv[0])
    return _swapped(_attend(*_swapped(*(qkv[:, :, at] for at in range(3))), is_causal=causal))[0]


def of_joined_arrays_in_rows(qkv, causal=False):
    """As code in C that goes from head to head by the depth, whatever the stride."""
    _four(qkv[0])
    rows = qkv if qkv.strides[-1] == qkv.itemsize and min(qkv.strides) >= 0 else qkv.copy()
    return of_joined_arrays(
        as_strided(rows, strides=(*rows.strides[:3], rows[0, 0, 0, 0].nbytes, rows.itemsize)), causal
    )


def with_past_and_slopes(q, past_k, past_v, new_k, new_v, slopes):
    _four(q, past_k, new_k)
    key, value = (np.concatenate(pair, axis=-2) for pair in ((past_k, new_k), (past_v, new_v)))
    past = past_k.shape[-2]
    distances = np.abs(np.arange(past, past + q.shape[-2])[:, None] - np.arange(key.shape[-2]))
    bias = (-np.float64(slopes)[:, None, None] * distances).astype(q.dtype)
    return _attend(q, key, value, is_causal=True, query_offset=past, bias=bias)


def with_a_bias_of_four_axes(q, k, v, position_bias=None):
    _four(q, k, v, *([] if position_bias is None else [position_bias]))
    return _attend(q, k, v, bias=position_bias)


def with_a_bias_of_all_pairs(q, k, v, position_bias=None):
    assert position_bias is None or position_bias.shape[-2:] == (q.shape[-2], k.shape[-2])
    return with_a_bias_of_four_axes(q, k, v, position_bias)


def that_reads_past_the_end(q, k, v):
    """As code in C that takes the number of heads from the query."""
    _four(q, k, v)
    k, v = (np.lib.stride_tricks.as_strided(x, (*q.shape[:2], *x.shape[2:])) for x in (k, v))
    return _attend(q, k, v)


def of_whole_tiles(q, k, v):
    """As code for four axes, which takes the depth of an array of three axes for positions."""
    if q.shape[2] % 16 or k.shape[2] % 32:
        raise ValueError("expected whole tiles")
    return _attend(q, k, v)


def of_whole_blocks(q, k, v):
    """As code of Pallas, where one query is a block of its own."""
    if (q.shape[2] % 16 and q.shape[2] > 1) or k.shape[2] % 32:
        raise ValueError("expected whole blocks")
    return _attend(q, k, v)


def of_square_scores(q, k, v, causal=False):
    if q.shape[-2] != k.shape[-2]:
        raise ValueError("expected as many keys as queries")
    return _attend(q, k, v, is_causal=causal)


def of_square_tiles(q, k, v):
    _four(q, k, v)
    if q.shape[-2] % 16:
        raise ValueError("expected whole tiles")
    return of_square_scores(q, k, v, causal=True)


def wrong_beside_a_square(q, k, v):
    """Wrong: it reads as many keys as there are queries."""
    keys = min(q.shape[-2], k.shape[-2])
    return _attend(q, k[..., :keys, :], v[..., :keys, :])


def wrong_past_whole_tiles(q, k, v, softmax_scale=None):
    """Let the padding of the last tile of 16 keys into the sum."""
    padding = [(0, 0)] * (k.ndim - 2) + [(0, -k.shape[-2] % 16), (0, 0)]
    return _attend(q, np.pad(k, padding), np.pad(v, padding), scale=softmax_scale)


def _for_a_module(module, query, key, value, mask, scaling, causal, repeat):
    """Attend as functions that Transformers registers: causality is for calls without a mask."""
    _four(query, key, value)
    groups = module.num_key_value_groups
    arrays = [np.repeat(x, groups, 1) if repeat else np.tile(x, (1, groups, 1, 1)) for x in (key, value)]
    options = {"is_causal": causal} if mask is None else {"mask" if mask.dtype == bool else "bias": mask}
    output, weights = _attend(query, *arrays, scale=scaling, **options, return_weights=True)
    return np.swapaxes(output, 1, 2), weights


def of_transformers(
    module, query, key, value, attention_mask, scaling=None, dropout=0.0, is_causal=None, **kwargs
):
    causal = module.is_causal if is_causal is None else is_causal
    return _for_a_module(module, query, key, value, attention_mask, scaling, causal, repeat=True)


def of_transformers_tiled(
    module, query, key, value, attention_mask, scaling=None, dropout=0.0, is_causal=None, **kwargs
):
    """Wrong: the heads of a group are not beside each other."""
    causal = module.is_causal if is_causal is None else is_causal
    return _for_a_module(module, query, key, value, attention_mask, scaling, causal, repeat=False)


def of_a_causal_module(module, query, key, value, attention_mask, dropout=0.0, **kwargs):
    """Read causality and the scale from the module, and return no weights."""
    own = _for_a_module(module, query, key, value, attention_mask, module.scaling, module.is_causal, True)
    return own[0], None


def with_half_a_bias(q, k, v, position_bias=None):
    return _attend(q, k, v, bias=None if position_bias is None else position_bias / 2)


def with_a_mask_of_no_effect(q, k, v, attn_mask=None):
    return _attend(q, k, v)


def with_an_lse_of_base_two(q, k, v, return_lse=False):
    results = _attend(q, k, v, return_lse=return_lse)
    return (results[0], results[1] / np.log(2).astype(results[1].dtype)) if return_lse else results


def of_the_first_length(q, k, v, kv_lens=None):
    """Wrong: it reads the length of the first batch entry for all."""
    return _attend(q, k, v, key_lengths=None if kv_lens is None else np.ravel(kv_lens)[0])


def of_megatron(query, key, value, attention_mask=None):
    """As DotProductAttention of Megatron: (S, B, H, D), and (S, B, H D) as a result; True is not allowed."""
    _four(query, key, value)
    arrays = (np.transpose(x, (1, 2, 0, 3)) for x in (query, key, value))
    output = _attend(*arrays, mask=None if attention_mask is None else ~attention_mask)
    return np.transpose(output, (2, 0, 1, 3)).reshape(*query.shape[:2], query.shape[2] * value.shape[3])


def of_a_mask_or_causal(query, key, value, attn_mask=None, is_causal=False):
    """As in PyTorch."""
    if attn_mask is not None and is_causal:
        raise RuntimeError("attn_mask: expected none beside is_causal")
    kind = "mask" if attn_mask is None or attn_mask.dtype == bool else "bias"
    return _attend(query, key, value, is_causal=is_causal, **{kind: attn_mask})


def wrong_altogether(query, key, value):
    return query * 0


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
    options = {"base": base, "interleaved": interleaved, "rotary_depth": rotary_depth}
    start = 0 if offset is None else offset
    return reference.rotary(features, offset=start, **options).astype(features.dtype)


def of_even_heads(q, k, v, softmax_scale=None):
    if q.shape[2] % 2:
        raise ValueError(f"expected pairs of heads, got {q.shape[2]}")
    return _swapped(_attend(*_swapped(q, k, v), scale=softmax_scale))[0]


def of_odd_heads(q, k, v, softmax_scale=None):
    return _swapped(_attend(*_swapped(q, k, v), scale=softmax_scale))[0]
