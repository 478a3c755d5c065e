"""The names that libraries use for the arguments of attention."""

import re
from collections.abc import Mapping
from types import MappingProxyType

#: Other names of each canonical argument. One of them may stand for several arguments.
ALIASES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "query": ("q", "queries", "xq", "query_states", "query_layer"),
        "key": ("k", "keys", "xk", "key_states", "key_layer", "k_cache", "key_cache", "new_k", "new_keys"),
        "value": ("v", "values", "xv", "value_states", "value_layer", "v_cache", "value_cache", "new_v"),
        "scale": (
            "bmm1_scale",
            "softmax_scale",
            "sm_scale",
            "scaling",
            "scale_factor",
            "attn_scale",
            "logits_scale",
            "qk_scale",
            "scale_value",
            "attention_scale",
        ),
        "softcap": (
            *("logit_softcap", "attn_logit_softcap"),
            "logits_soft_cap",
            "soft_cap",
            "logit_cap",
            "logits_softcap",
            "attn_logits_soft_cap",
            "attn_logit_softcapping",
            "logit_softcapping",
            "softcapping",
            "attn_softcap",
            "tanh_cap",
        ),
        "mask": (
            *("atten_mask", "context_mask", "src_key_padding_mask", "value_mask"),
            "attn_mask",
            "attention_mask",
            "bool_mask",
            "key_padding_mask",
            "block_mask",
            "custom_mask",
            "padding_mask",
            *("kv_mask", "key_mask", "kv_valid", "key_valid"),
        ),
        "bias": (
            *("pse", "pse_shift", "real_shift", "nonbatched_bias", "shared_rel_pos_bias", "additive_mask"),
            "attn_bias",
            "attention_bias",
            "attn_mask",
            "attention_mask",
            "ab",
            "pair_bias",
            "relative_position_bias",
            "position_bias",
            "pos_bias",
            "rel_pos_bias",
            "rel_bias",
            "score_bias",
            "core_attention_bias",
        ),
        "is_causal": (
            *("do_causal", "apply_causal", "apply_causal_mask"),
            *("causal", "use_causal_mask", "causal_mask", "is_causal_mask", "use_causal", "causality"),
            *("lower_triangular", "unidirectional", "autoregressive"),
        ),
        "query_offset": (
            "start_q",
            "q_offset",
            "offset",
            "start_pos",
            "position_offset",
            "cache_position",
            "past_len",
        ),
        "window": (
            *("bandwidth", "window_size_left", "sliding_window_length"),
            "window_size",
            "sliding_window",
            "local_window_size",
            "attention_window",
            "window_left",
            "sliding_window_size",
            "local_window",
        ),
        "query_lengths": (
            *("q_seqlen", "q_seqlens", "query_lens"),
            "query_seq_lengths",
            "q_lens",
            "seqlens_q",
            "seqused_q",
            "actual_seq_lengths",
        ),
        "key_lengths": (
            *("kv_seqlen", "kv_seq_len", "kv_seq_lengths", "key_lens", "cache_seq_lens"),
            "key_value_seq_lengths",
            "kv_lens",
            "kv_len",
            "seqlens_k",
            "seqused_k",
            "cache_seqlens",
            "seq_lens",
            "context_lens",
            "kv_seq_lens",
            "nonpad_kv_seqlen",
            "kv_lengths",
            "kv_length",
            "kv_seqlens",
            "k_lens",
            "cache_lens",
            "cache_lengths",
            "context_lengths",
            "sequence_lengths",
            "memory_lengths",
            "valid_lens",
            "lengths",
            "actual_seq_lengths_kv",
        ),
        "query_segment_ids": ("q_segment_ids", "segment_ids", "q_seg", "q_seg_ids", "q_segments"),
        "key_segment_ids": ("kv_segment_ids", "segment_ids", "k_seg", "kv_seg", "k_segments"),
        "query_positions": ("q_positions", "positions", "position_ids", "q_pos"),
        "key_positions": ("kv_positions", "key_position_ids", "kv_pos", "k_pos"),
        "sinks": (
            *("head_sink", "sink_ptr", "learned_sink", "head_learned_sink"),
            "sink",
            "s_aux",
            "attention_sinks",
            "attention_sink",
            "attn_sinks",
            "attn_sink",
            "learnable_sink",
            "sink_logits",
            "sink_logit",
            "sink_weights",
            "sink_bias",
            "softmax_offset",
        ),
        "dropout_mask": ("keep_mask", "drop_mask"),
        "key_scales": ("k_scale", "k_descale", "descale_k", "key_scale", "k_scales", "key_cache_scale"),
        "value_scales": ("v_scale", "v_descale", "descale_v", "value_scale", "v_scales", "value_cache_scale"),
        "key_zero_points": ("k_zero_point", "k_zp", "key_zero_point", "k_zero", "k_zeros", "key_zero"),
        "value_zero_points": ("v_zero_point", "v_zp", "value_zero_point", "v_zero", "v_zeros", "value_zero"),
        "encoding": ("kv_cache_dtype", "cache_dtype", "kv_dtype"),
        "return_lse": (
            *("return_softmax_lse", "return_residual", "return_logsumexp", "with_lse"),
            "return_attn_probs",  # of flash-attn; of others it returns the weights
        ),
        "return_max": ("return_max_logit", "return_max_logits", "return_max_score"),
        "return_weights": (
            *("need_weights", "output_attentions", "return_attn_probs"),
            *("return_attention_scores", "return_attention_weights"),
        ),
    }
)

#: Names of a window that give a number of keys, the query's own position included, in place of two bounds.
COUNTS = frozenset({"sliding_window", "attention_window", "bandwidth"})

#: Other names of the arguments of companions, for those alone.
OF_COMPANIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "query_starts": (
            *("query_start_loc", "cu_q_lens", "cu_query_lens", "cu_seqlens_qo", "q_indptr"),
            "cu_seqlens_q",
            "cu_seq_q",
            "cum_seq_q",
            "cu_seq_lens_q",
            "qo_indptr",
            "cu_seqlens",
        ),
        "key_starts": (
            *("cu_kv_lens", "k_indptr"),
            "cu_seqlens_k",
            "cu_seqlens_kv",
            "cu_seq_k",
            "cum_seq_k",
            "cu_seq_lens_k",
            "cum_seq_lens",
            "kv_indptr",
            "cu_seqlens",
        ),
        "block_table": (
            "block_offsets",
            "block_tables",
            "page_table",
            "page_indices",
            "kv_indices",
            "block_indices",
        ),
        "key_pages": (
            *("k_pool", "key_pool", "k_paged"),
            "k_cache",
            "key_cache",
            "k_pages",
            "paged_k_cache",
            "k_buffer",
            "k",
        ),
        "value_pages": (
            *("v_pool", "value_pool", "v_paged"),
            "v_cache",
            "value_cache",
            "v_pages",
            "paged_v_cache",
            "v_buffer",
            "v",
        ),
        "new_key": ("k_new", "key_new", "knew", "k"),
        "new_value": ("v_new", "value_new", "vnew", "v"),
        "block_counts": ("kv_num_blocks",),
        "block_indices": ("kv_indices",),
        "key_block": ("block_size", "block", "kv_block_size", "block_size_k", "block_n", "block_k"),
        "query_block": ("q_block_size", "block_size_q", "block_m", "block_q"),
        "block_mask": ("layout", "block_layout", "sparse_layout", "sparsity_layout"),
        "dropout_p": ("dropout", "dropout_rate", "p_dropout", "dropout_prob", "attn_dropout", "p"),
        "seed": ("dropout_seed", "rng_seed", "philox_seed", "dropout_rng", "dropout_key"),
        "scores": ("logits", "score", "index_score", "index_scores", "input_values"),
        "top_k": ("k", "topk", "index_topk", "topk_tokens"),
        "left_padding": ("cache_leftpad", "leftpad_k", "left_pad"),
        "d_output": ("dout", "do", "grad_output", "grad_out", "d_out", "d_o"),
        "output": ("out", "o"),
        "lse": ("softmax_lse", "logsumexp"),
        "query": ("q_extend", "q_nope", "query_nope", "q_no_pe"),
        "query_scales": ("q_descale", "descale_q", "q_scales"),
        "query_rotary": ("q_pe", "q_rope", "query_pe", "query_rope", "q_rotary"),
        "latent": (
            *("ckv_cache", "kv_c_cache"),
            "kv_c",
            "c_kv",
            "ckv",
            "kv_latent",
            "compressed_kv",
            "kv_c_normed",
            "latent_cache",
        ),
        "key_rotary": (
            *("kpe_cache", "k_pe_cache", "pe_cache", "krope_cache", "k_rope_cache", "rope_cache", "kr_cache"),
            *("k_pe", "k_rope", "key_pe"),
            *("key_rope", "kpe", "k_rotary"),
        ),
        "key_indices": ("topk_indices", "topk_idxs", "topk_idx", "selected_indices"),
        "key_weight": (*("w_kc", "w_uk_t"), "w_uk", "wuk", "w_k_up", "k_up", "wkv_b_key"),
        "value_weight": ("w_vc", "w_uv", "wuv", "w_v_up", "v_up", "wkv_b_value"),
        "key_codes": (
            *("k_codes", "k_q"),
            "k_int8",
            "k_quant",
            "k_fp8",
            "key_int8",
            "key_quant",
            "quantized_key",
            *ALIASES["key"],
            "key",
        ),
        "value_codes": (
            *("v_codes", "v_q"),
            "v_int8",
            "v_quant",
            "v_fp8",
            "value_int8",
            "value_quant",
            "quantized_value",
            *ALIASES["value"],
            "value",
        ),
    }
)

#: What libraries call the sizes that a function may take, and whether query heads share key heads.
SIZES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "longest_queries": (
            *("max_seqlen", "max_seqlen_q", "max_q", "max_seqlens_q", "max_query_len", "max_length_q"),
        ),
        "longest_keys": ("max_seqlen_k", "max_k", "max_seqlens_k", "max_seqlen_kv", "max_kv", "max_seq_len"),
        "page": ("page_size", "block_size"),
        "query_heads": (
            *("q_num_heads", "num_q_heads", "num_qo_heads", "num_query_heads", "n_head"),
            *("num_heads", "n_heads", "nhead", "heads", "head_num", "num_attention_heads", "h"),
        ),
        "key_heads": (
            *("kv_num_heads", "num_key_heads", "num_heads_kv", "n_head_kv"),
            *("num_kv_heads", "n_kv_heads", "kv_heads"),
            "num_key_value_heads",
            "num_heads_k",
        ),
        "shared_heads": ("enable_gqa",),
        "group": ("group_size", "quant_group_size", "kv_group_size", "scale_group_size", "group"),
    }
)

#: What libraries call the keys and the values before the queries, which a function takes beside others.
PAST = (
    ("past_k", "past_key", "past_keys", "k_past", "key_past", "prev_k", "prev_key", "cached_k", "cached_key"),
    ("past_v", "past_value", "past_values", "v_past", "value_past", "prev_v", "prev_value", "cached_v"),
)

#: What libraries call flags that turn causality off, of functions that are causal by default.
INVERSE = ("bidirectional", "non_causal", "noncausal", "not_causal", "full", "full_attention", "is_encoder")

#: What libraries call the module that a function takes before its arrays.
MODULES = ("module", "attn_module", "attention_module", "layer")

#: Parameters for several arrays in one.
JOINED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"qkv": ("query", "key", "value"), "kv": ("key", "value"), "kv_cache": ("key", "value")}
)

#: What libraries call the slopes of ALiBi, which they take in place of a bias.
SLOPES = ("alibi_slopes", "slopes", "alibi")

#: What libraries call the angles of a rotation that a kernel applies to queries and keys.
ANGLES = (
    *("cos", "sin", "rotary_cos", "rotary_sin", "cos_cached", "sin_cached", "rope_cos", "rope_sin"),
    *("freqs", "freqs_cis", "rotary_emb", "rotary_freqs", "position_embeddings", "cos_sin_cache"),
)
#: What libraries call the base of the angles of such a rotation.
BASES = ("rope_theta", "rope_base", "rotary_base", "theta")
#: The endings of parameters for pages in lists one after the other, of which a function has several.
LISTS_OF_PAGES = ("indptr", "indices", "last_page_len")

_DROPOUT = "attention has only dropout_mask; seeded_dropout_attention has a probability"
#: The reason of those that change no result.
NO_RESULT = "does not change the result"
#: Names without a counterpart in the standard, and the reason.
NO_COUNTERPART: Mapping[str, str] = MappingProxyType(
    {
        "enable_gqa": "the numbers of heads determine this",
        "dropout_p": _DROPOUT,
        "dropout": _DROPOUT,
        "dropout_rng": _DROPOUT,
        "dropout_key": _DROPOUT,
        "p": _DROPOUT,
        "training": _DROPOUT,
        "deterministic": NO_RESULT,
        "implementation": NO_RESULT,
        "flash_attention": NO_RESULT,
        "backend": NO_RESULT,
        "precision": "NUM-2 and NUM-5 determine this",
        "softmax_precision": "NUM-5 determines this",
        "score_mod": "no argument of the standard is a function",
        "mask_mod": "no argument of the standard is a function",
        "stream": NO_RESULT,
        "dtype": "NUM-2 determines this",
        "device": NO_RESULT,
        "out": NO_RESULT,
        **dict.fromkeys(("block_m", "block_n", "num_warps", "num_stages", "num_splits"), NO_RESULT),
        **dict.fromkeys(
            ("warp_specialize", "kernel_options", "interpret", "sm_margin", "pack_gqa"), NO_RESULT
        ),
        **dict.fromkeys(("workspace", "workspace_buffer", "scheduler_metadata"), NO_RESULT),
        "keep_prob": _DROPOUT,
        "dropout_prob": _DROPOUT,
        "head_mask": "no argument of the standard weighs heads",
        "attention_chunk": "a mask by chunks expresses it (spec/recipes.md, Chunked attention)",
    }
)


def is_name_of(argument: str, name: str) -> bool:
    """Whether a name stands for an argument of attention and for no other."""
    return name.lower() == argument or (meant(name) == (argument,) and name.lower() in ALIASES[argument])


def meant_in(operation: str, name: str) -> tuple[str, ...]:
    """Return the arguments of an operation that a name may stand for."""
    from attnspec.operations import OPERATIONS

    exact = [ours for ours, theirs in OF_COMPANIONS.items() if name.lower() in theirs]
    takes = OPERATIONS[operation].parameters
    known = [ours for ours in exact if ours in takes]
    if not known and any(name.lower() in theirs for theirs in SIZES.values()):
        return ()
    return tuple(known or (ours for ours in meant(name) if ours in takes))


def meant(name: str) -> tuple[str, ...]:
    """Return the arguments of attention that a name may stand for, or none if no name is similar."""
    from difflib import get_close_matches

    if name in ALIASES:
        return (name,)
    results = tuple(ours for ours, theirs in ALIASES.items() if name.lower() in theirs)
    of_companions = {word for words in OF_COMPANIONS.values() for word in words}
    if results or name.lower() in {*NO_COUNTERPART, *ANGLES, *INVERSE, *of_companions}:
        return results
    if "window" in name.lower().split("_"):  # such as one_sided_window
        return ("window",)
    if "mask" in name.lower().split("_") and not re.search("drop|keep", name.lower()):  # such as tree_mask
        return ("mask",)
    spelled = {word: ours for ours, theirs in ALIASES.items() for word in (*theirs, ours) if len(word) > 3}
    near = get_close_matches(name.lower(), spelled, 1, 0.75)
    return (spelled[near[0]],) if near else ()
