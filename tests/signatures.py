"""Signatures of attention functions of real libraries, with functions in NumPy that behave as theirs do."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from attnspec import reference


@dataclass(frozen=True)
class Signature:
    """A signature, what is special about the function, and what `attnspec init` makes of it."""

    parameters: str
    #: Its parameter for each canonical argument that changes its result.
    means: dict[str, str]
    #: ``BHSD``, ``BSHD``, ``SHD`` (without a batch) or ``BS(HD)``.
    layout: str = "BHSD"
    #: What it needs, returns and means otherwise, as `emulate` reads it.
    quirks: tuple[str, ...] = ()
    #: The canonical arguments that the suite tests through the written file.
    tested: tuple[str, ...] = ()
    #: The known parameters that the file says no case tests.
    untested: tuple[str, ...] = ()
    #: A part of the message if no file can be written.
    refused: str = ""


_FLASH = "dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1)"
_OF_FLASH = {"scale": "softmax_scale", "is_causal": "causal", "window": "window_size"}
_QKV = {"query": "q", "key": "k", "value": "v"}
_AS_FLASH = {
    "means": _QKV | _OF_FLASH | {"softcap": "softcap"},
    "layout": "BSHD",
    "quirks": ("bottom-right", "minus one", "zero softcap"),
    "tested": ("scale", "softcap", "is_causal", "window"),
}
_LONG = {"query": "query", "key": "key", "value": "value"}
SIGNATURES: dict[str, Signature] = {
    "flash_attn_func": Signature(
        f"q, k, v, {_FLASH}, softcap=0.0, alibi_slopes=None, deterministic=False, return_attn_probs=False",
        **_AS_FLASH | {"untested": ("alibi_slopes", "return_attn_probs")},
    ),
    "flash_attn_3": Signature(
        "q, k, v, softmax_scale=None, causal=False, qv=None, q_descale=None, k_descale=None, v_descale=None, "
        "window_size=(-1, -1), attention_chunk=0, softcap=0.0, num_splits=1, pack_gqa=None, sm_margin=0",
        **_AS_FLASH | {"quirks": ("bottom-right", "minus one", "zero softcap", "lse")},
    ),
    "flash_attn_cute": Signature(
        "q, k, v, softmax_scale=None, causal=False, window_size=(None, None), learnable_sink=None, "
        "softcap=0.0",
        _QKV | _OF_FLASH | {"softcap": "softcap", "sinks": "learnable_sink"},
        "BSHD",
        ("bottom-right", "zero softcap"),
        ("scale", "softcap", "is_causal", "window", "sinks"),
    ),
    "flash_attn_with_kvcache": Signature(
        "q, k_cache, v_cache, k=None, v=None, rotary_cos=None, rotary_sin=None, cache_seqlens=None, "
        "softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, block_table=None",
        {"query": "q", "key": "k_cache", "value": "v_cache", "key_lengths": "cache_seqlens"}
        | {"softcap": "softcap"}
        | _OF_FLASH,
        "BSHD",
        ("zero softcap", "four axes", "bottom-right", "minus one"),
        ("scale", "softcap", "key_lengths", "is_causal", "window"),
        ("block_table",),
    ),
    "ring_flash_attn_func": Signature(f"q, k, v, {_FLASH}, softcap=0.0, group=None", **_AS_FLASH),
    "flash_attn_varlen_func": Signature(
        "q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, causal=False",
        _QKV,
        refused="packed_attention",
    ),
    "flash_attn_qkvpacked_func": Signature("qkv, dropout_p=0.0, causal=False", {}, refused="expected"),
    "torch_sdpa": Signature(
        "query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False",
        _LONG | {"mask": "attn_mask", "bias": "attn_mask", "is_causal": "is_causal", "scale": "scale"},
        quirks=("equal",),
        tested=("mask", "bias", "is_causal", "scale"),
        untested=("dropout_p",),
    ),
    "torch_flex": Signature(
        "query, key, value, score_mod=None, block_mask=None, scale=None, enable_gqa=False, return_lse=False, "
        "kernel_options=None",
        _LONG | {"scale": "scale", "return_lse": "return_lse"},
        quirks=("four axes", "block mask"),
        tested=("scale", "return_lse"),
        untested=("block_mask", "score_mod"),
    ),
    "jax_nn": Signature(
        "query, key, value, bias=None, mask=None, *, scale=None, is_causal=False, query_seq_lengths=None, "
        "key_value_seq_lengths=None, local_window_size=None, implementation=None, return_residual=False",
        _LONG
        | {"bias": "bias", "mask": "mask", "scale": "scale", "is_causal": "is_causal"}
        | {"key_lengths": "key_value_seq_lengths", "window": "local_window_size"}
        | {"query_lengths": "query_seq_lengths"},
        "BSHD",
        ("four axes", "per entry"),
        ("bias", "mask", "scale", "is_causal", "key_lengths", "query_lengths", "window"),
    ),
    "flax_linen": Signature(
        "query, key, value, bias=None, mask=None, broadcast_dropout=True, dropout_rng=None, "
        "dropout_rate=0.0, "
        "deterministic=False, dtype=None, precision=None",
        _LONG | {"bias": "bias", "mask": "mask"},
        "BSHD",
        ("equal",),
        ("bias", "mask"),
        ("dropout_rng",),
    ),
    "equinox": Signature(
        "query, key_, value, mask=None, dropout=None, *, key=None, inference=None",
        {"query": "query", "key": "key_", "value": "value", "mask": "mask"},
        tested=("mask",),
        untested=("dropout",),
    ),
    "keras_ops": Signature(
        "query, key, value, bias=None, mask=None, scale=None, is_causal=False, flash_attention=None, "
        "attn_logits_soft_cap=None",
        _LONG
        | {"bias": "bias", "mask": "mask", "scale": "scale", "is_causal": "is_causal"}
        | {"softcap": "attn_logits_soft_cap"},
        "BSHD",
        ("four axes",),
        ("bias", "mask", "scale", "is_causal", "softcap"),
    ),
    "tokamax": Signature(
        "query, key, value, *, precision=None, bias=None, logits_dtype=None, logits_scale=None, "
        "logits_soft_cap=None, mask=None, is_causal=False, q_indices=None, k_indices=None",
        _LONG
        | {"bias": "bias", "scale": "logits_scale", "softcap": "logits_soft_cap"}
        | {"mask": "mask", "is_causal": "is_causal"},
        "BSHD",
        tested=("bias", "scale", "softcap", "mask"),
    ),
    "pallas_flash": Signature(
        "q, k, v, ab=None, segment_ids=None, *, causal=False, sm_scale=1.0, block_sizes=None, debug=False",
        _QKV | {"bias": "ab", "is_causal": "causal", "scale": "sm_scale"},
        quirks=("equal", "unscaled"),
        tested=("bias", "is_causal", "scale"),
        untested=("segment_ids",),
    ),
    "pallas_paged": Signature(
        "q, k_pages, v_pages, lengths, page_indices, *, mask_value=-1e9, pages_per_compute_block=8",
        {"query": "q"},
        refused="paged_attention",
    ),
    "vllm_paged_attention_v1": Signature(
        "out, query, key_cache, value_cache, num_kv_heads, scale, block_tables, seq_lens, "
        "block_size, max_seq_len",
        {"query": "query"},
        refused="paged_attention",
    ),
    "flash_mla": Signature(
        "q, k_cache, block_table, cache_seqlens, head_dim_v, softmax_scale=None, causal=False",
        {"query": "q"},
        refused="paged_attention",
    ),
    "sglang_extend": Signature(
        "q_extend, k_extend, v_extend, o_extend, k_buffer, v_buffer, qo_indptr, kv_indptr, kv_indices",
        {},
        refused="packed_paged_attention",
    ),
    "flashinfer_single_prefill": Signature(
        "q, k, v, scale_q=None, custom_mask=None, causal=False, kv_layout='NHD', pos_encoding_mode='NONE', "
        "sm_scale=None, window_left=-1, logits_soft_cap=None, rope_scale=None, backend='auto', "
        "return_lse=False",
        _QKV
        | {"mask": "custom_mask", "is_causal": "causal", "scale": "sm_scale"}
        | {"softcap": "logits_soft_cap", "return_lse": "return_lse"},
        "SHD",
        ("bottom-right", "two axes of a mask"),
        ("is_causal", "scale", "softcap"),
        ("window_left",),
    ),
    "flashinfer_single_decode": Signature(
        "q, k, v, kv_layout='NHD', pos_encoding_mode='NONE', window_left=-1, logits_soft_cap=None, "
        "sm_scale=None",
        _QKV,
        "HD",
        refused="one query",
    ),
    "splash": Signature(
        "q, k, v, q_segment_ids=None, kv_segment_ids=None, causal=False",
        _QKV
        | {"query_segment_ids": "q_segment_ids", "key_segment_ids": "kv_segment_ids"}
        | {"is_causal": "causal"},
        tested=("query_segment_ids", "key_segment_ids", "is_causal"),
    ),
    "sageattn": Signature(
        "q, k, v, tensor_layout='HND', is_causal=False, sm_scale=None, return_lse=False, **kwargs",
        _QKV | {"is_causal": "is_causal", "scale": "sm_scale", "return_lse": "return_lse"},
        quirks=("four axes", "equal depths"),
        tested=("is_causal", "scale", "return_lse"),
        untested=("kwargs",),
    ),
    "triton_tutorial": Signature(
        "q, k, v, causal, sm_scale, warp_specialize=True",
        _QKV | {"is_causal": "causal", "scale": "sm_scale"},
        quirks=("four axes", "equal", "equal depths"),
        tested=("is_causal", "scale"),
    ),
    "mlx_fast": Signature(
        "q, k, v, *, scale, mask=None, sinks=None, stream=None",
        _QKV | {"scale": "scale", "mask": "mask", "sinks": "sinks"},
        quirks=("four axes",),
        tested=("scale", "mask", "sinks"),
    ),
    "transformer_engine": Signature(
        "query_layer, key_layer, value_layer, attention_mask=None, qkv_format='bshd', cu_seqlens_q=None, "
        "window_size=None, core_attention_bias=None, alibi_slopes=None, fast_zero_fill=True",
        {"query": "query_layer", "key": "key_layer", "value": "value_layer", "mask": "attention_mask"}
        | {"window": "window_size"},
        "BSHD",
        ("ignores", "minus one"),
        ("mask", "window"),
        ("alibi_slopes",),
    ),
    "cudnn_sdpa": Signature(
        "q, k, v, attn_scale=None, bias=None, use_causal_mask=False, seq_len_q=None, "
        "seq_len_kv=None, dropout=None",
        _QKV | {"scale": "attn_scale", "bias": "bias", "is_causal": "use_causal_mask"},
        quirks=("four axes",),
        tested=("scale", "bias", "is_causal"),
        untested=("dropout",),
    ),
    "xformers": Signature(
        "query, key, value, attn_bias=None, p=0.0, scale=None, *, op=None, output_dtype=None",
        _LONG | {"bias": "attn_bias", "scale": "scale"},
        "BSHD",
        ("equal",),
        ("bias", "scale"),
        ("p",),
    ),
    "paddle_flash_attention": Signature(
        "query, key, value, dropout=0.0, causal=False, return_softmax=False, *, training=True, name=None",
        _LONG | {"is_causal": "causal"},
        "BSHD",
        ("none beside",),
        ("is_causal",),
        ("dropout",),
    ),
    "paddle_sdpa": Signature(
        "query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, training=True, name=None",
        _LONG | {"mask": "attn_mask", "bias": "attn_mask", "is_causal": "is_causal"},
        "BSHD",
        (),
        ("mask", "bias", "is_causal"),
        ("dropout_p",),
    ),
    "mindspore_flash": Signature(
        "query, key, value, head_num, attn_mask=None, keep_prob=1.0, scalar_value=None",
        _LONG | {"mask": "attn_mask"},
        "BS(HD)",
        ("equal", "equal depths", "ignores"),
        ("mask",),
    ),
    "onnx_like": Signature(
        "Q, K, V, attn_mask=None, past_key=None, past_value=None, is_causal=0, scale=None, softcap=0.0",
        {"query": "Q", "key": "K", "value": "V", "mask": "attn_mask", "bias": "attn_mask", "scale": "scale"}
        | {"is_causal": "is_causal", "softcap": "softcap"},
        quirks=("zero softcap",),
        tested=("mask", "bias", "is_causal", "scale", "softcap"),
    ),
    "tinygrad": Signature(
        "self, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, enable_gqa=False",
        {"query": "self", "key": "key", "value": "value", "mask": "attn_mask", "bias": "attn_mask"}
        | {"is_causal": "is_causal"},
        tested=("mask", "bias", "is_causal"),
        untested=("dropout_p",),
    ),
    "llama": Signature(
        "xq, xk, xv, mask",
        {"query": "xq", "key": "xk", "value": "xv", "bias": "mask"},
        quirks=("equal",),
        tested=("bias",),
    ),
    "nano": Signature("q, k, v", _QKV, quirks=("equal", "equal depths", "four axes")),
    "transformers_eager": Signature(
        "module, query, key, value, attention_mask, scaling, dropout=0.0, **kwargs",
        _LONG,
        refused="module",
    ),
    "evoformer": Signature(
        "Q, K, V, biases", {"query": "Q", "key": "K", "value": "V"}, quirks=("list",), refused="biases"
    ),
    "gpt_oss": Signature(
        "q, k, v, sinks, sm_scale, bandwidth, start_q",
        _QKV | {"sinks": "sinks", "scale": "sm_scale"},
        refused="bandwidth",
    ),
    "attention_ref": Signature(
        "q, k, v, query_padding_mask=None, key_padding_mask=None, attn_bias=None, dropout_p=0.0, "
        "dropout_mask=None, "
        "causal=False, window_size=(-1, -1), upcast=True, reorder_ops=False",
        _QKV
        | {"bias": "attn_bias", "is_causal": "causal", "window": "window_size"}
        | {"dropout_mask": "dropout_mask"},
        "BSHD",
        ("bottom-right", "minus one", "weights"),
        ("bias", "is_causal", "window"),
        ("key_padding_mask",),
    ),
    "local_attention": Signature(
        "q, k, v, window_size=(-1, -1), causal=False, scale=None",
        _QKV | {"window": "window_size", "is_causal": "causal", "scale": "scale"},
        quirks=("minus one",),
        tested=("window", "is_causal", "scale"),
    ),
    "sliding": Signature(
        "q, k, v, sliding_window=None, is_causal=True, scaling=None",
        _QKV | {"window": "sliding_window", "is_causal": "is_causal", "scale": "scaling"},
        quirks=("number of keys",),
        tested=("is_causal", "scale"),
        untested=("sliding_window",),
    ),
    "quantized_scales": Signature(
        "q, k, v, q_scale=None, k_scale=None, v_scale=None, sm_scale=None",
        _QKV | {"scale": "sm_scale"},
        tested=("scale",),
        untested=("k_scale", "v_scale"),
    ),
}


def emulate(signature: Signature, given: dict[str, Any]) -> Any:
    """Compute what the function of a signature returns for its arguments."""
    own = {ours: given[theirs] for ours, theirs in signature.means.items() if given.get(theirs) is not None}
    quirks = signature.quirks
    if signature.layout == "HD":
        _require(own["query"].ndim == 2 and own["key"].ndim == 3, "expected one query")
    query, key, value = (_from_layout(own.pop(name), signature.layout, given) for name in _LONG)
    axes = 3 if signature.layout == "SHD" else 4
    if "four axes" in quirks or signature.layout != "BHSD":
        _require(query.ndim == key.ndim == value.ndim == axes, f"expected {axes} axes")
    _require("equal" not in quirks or query.ndim < 3 or query.shape[-3] == key.shape[-3], "heads")
    _require("float32" not in quirks or query.dtype == np.float32, "dtype")
    _require("equal depths" not in quirks or value.shape[-1] == key.shape[-1], "depths")
    _require("list" not in quirks or isinstance(given["biases"], list), "expected a list of biases")
    _require("block mask" not in quirks or given["block_mask"] is None, "expected a BlockMask")
    for name in ("key_lengths", "query_lengths") if "per entry" in quirks else ():
        _require(name not in own or np.ndim(own[name]) == 1, "expected a length for each batch entry")
    if given.get("alibi_slopes") is not None:
        _require(given["alibi_slopes"].ndim <= 2, "alibi_slopes")
    _with_meaning(own, quirks)
    if "bottom-right" in quirks and ("window" in own or own.get("is_causal")):
        own["query_offset"] = key.shape[-2] - query.shape[-2]
    more = [kind for kind in ("lse", "weights") if kind in quirks]
    options = own | {f"return_{kind}": True for kind in more}
    results = reference.attention(query, key, value, **options, dtype=query.dtype)
    output, *rest = results if isinstance(results, tuple) else (results,)
    output = _to_layout(output, signature.layout)
    rest = [*rest, None] if "none beside" in quirks else rest
    return (output, *rest) if rest else output


def _with_meaning(own: dict[str, Any], quirks: tuple[str, ...]) -> None:
    """Write the options of a call as the standard has them."""
    if own.get("mask") is not None and own.get("mask") is own.get("bias"):
        del own["bias" if own["mask"].dtype == bool else "mask"]
    if "ignores" in quirks and "mask" in own:
        own["mask"] = ~own["mask"]
    if "zero softcap" in quirks and own.get("softcap") == 0:
        del own["softcap"]
    if "number of keys" in quirks and "window" in own:
        own["window"] = (own["window"] - 1, 0)
    if "minus one" in quirks and "window" in own:
        own["window"] = tuple(None if side < 0 else side for side in own["window"])
    if own.get("window") == (None, None):
        del own["window"]
    if "is_causal" in own:
        own["is_causal"] = bool(own["is_causal"])


def _require(holds: object, message: str) -> None:
    if not holds:
        raise ValueError(message)


def _from_layout(array: Any, layout: str, given: dict[str, Any]) -> Any:
    if layout == "BS(HD)":
        array = array.reshape(*array.shape[:-1], given["head_num"], -1)
    return array if layout == "BHSD" else np.swapaxes(array, -2, -3)


def _to_layout(array: Any, layout: str) -> Any:
    array = array if layout == "BHSD" else np.swapaxes(array, -2, -3)
    return array.reshape(*array.shape[:-2], -1) if layout == "BS(HD)" else array
