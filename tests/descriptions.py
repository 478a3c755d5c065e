"""What `attnspec init` has to write for the functions of `conventions`."""

QKV = {"query": "q", "key": "k", "value": "v"}
PLURAL = {"query": "queries", "key": "keys", "value": "values"}
SCALED_BY_ONE = {"layout": "BHSD", "dialect": {"SCORE-2": "one"}}
OF_TRANSFORMERS = {
    "layout": "BHSD",
    "output_layout": "BSHD",
    "axes": 4,
    "mask": "attend",
    "module": "module",
    "takes_none": ["attention_mask"],
    "causal_in_mask": True,
}
#: Function to what has to stand in the file that is written.
CONVENTIONS = {
    "flash_attn_func": {
        "layout": "BSHD",
        "axes": 4,
        "names": QKV | {"scale": "softmax_scale", "is_causal": "causal", "window": "window_size"},
        "dialect": {"MASK-3": "bottom-right"},
        "ignore": ["dropout_p", "deterministic"],
    },
    "additive_only": {
        "layout": "BHSD",
        "axes": 4,
        "returns": ["output", "lse"],
        "names": PLURAL | {"bias": "attention_mask", "scale": "scaling"},
    },
    "true_ignores": {
        "layout": "BHSD",
        "mask": "ignore",
        "names": QKV | {"mask": "attn_mask", "return_weights": "need_weights"},
    },
    "unscaled": SCALED_BY_ONE | {"names": {"scale": "sm_scale", "is_causal": "causal"}},
    "unscaled_always": SCALED_BY_ONE,
    "scaled_by_depth": {"layout": "BHSD", "given": ["scale"], "names": {"scale": "sm_scale"}},
    "of_three_axes": {"layout": "BHSD", "mask": "attend", "axes": 3},
    "of_two_alignments": {"names": {"is_causal": "causal"}, "ignore": ["window_size"], "layout": "BHSD"},
    "of_the_length": {
        "axes": 4,
        "per_entry": True,
        "at_length": True,
        "names": QKV | {"key_lengths": "kv_lens", "is_causal": "causal"},
        "layout": "BHSD",
    },
    "with_past_and_slopes": {
        "layout": "BHSD",
        "axes": 4,
        "always": {"is_causal": True},
        "past": ["past_k", "past_v"],
        "slopes": "slopes",
        "names": {"query": "q", "key": "new_k", "value": "new_v"},
    },
    "with_a_bias_of_four_axes": {
        "layout": "BHSD",
        "axes": 4,
        "mask_axes": 4,
        "names": QKV | {"bias": "position_bias"},
    },
    "with_a_bias_of_all_pairs": {
        "layout": "BHSD",
        "axes": 4,
        "mask_axes": 4,
        "mask_pairs": True,
        "names": QKV | {"bias": "position_bias"},
    },
    "with_padding": {
        "layout": "BHSD",
        "axes": 4,
        "mask": "ignore",
        "mask_of_keys": True,
        "names": QKV | {"mask": "key_padding_mask"},
    },
    "of_transformers": OF_TRANSFORMERS
    | {"returns": ["output", "weights"], "names": {"scale": "scaling"}, "ignore": ["dropout", "kwargs"]},
    "of_a_causal_module": OF_TRANSFORMERS
    | {
        "returns": ["output", "_"],
        "names": {"is_causal": "module.is_causal", "scale": "module.scaling"},
        "ignore": ["dropout", "kwargs"],
    },
    "of_square_scores": {"layout": "BHSD", "lengths": "equal", "names": QKV | {"is_causal": "causal"}},
    "of_megatron": {"layout": "SBHD", "mask": "ignore", "names": {"mask": "attention_mask"}},
    "of_a_mask_or_causal": {
        "layout": "BHSD",
        "mask": "attend",
        "causal_in_mask": True,
        "names": {"mask": "attn_mask", "bias": "attn_mask"},
    },
    "in_float32": {"layout": "BHSD", "names": QKV, "dialect": {"NUM-2": "float32"}},
    "of_keys": {
        "layout": "BHSD",
        "window": "keys",
        "names": QKV | {"is_causal": "causal", "window": "sliding_window"},
    },
    "of_keys_needed": {
        "layout": "BHSD",
        "always": {"is_causal": True},
        "window": "keys",
        "names": {"window": "sliding_window"},
    },
    "of_left": {
        "layout": "BHSD",
        "always": {"is_causal": True},
        "window": "left",
        "open_side": -1,
        "names": {"window": "window_left"},
        "dialect": {"MASK-3": "bottom-right"},
    },
    "of_both_sides": {"layout": "BHSD", "window": "both", "open_side": 0, "names": {"window": "window_size"}},
    "of_window_that_closes": {"layout": "BHSD", "window": "keys", "names": {"query": "q"}},
    "of_some_depths": {"layout": "BHSD", "depths": [64, 128], "names": {"query": "q", "scale": "sm_scale"}},
}
#: The keys of `of_keys` and of `of_left`.
BY_KEYS = {"names": QKV | {"is_causal": "causal", "window": "sliding_window"}, "window": "keys"}
BY_LEFT = {
    "names": QKV | {"window": "window_left"},
    "window": "left",
    "always": {"is_causal": True},
    "dialect": {"MASK-3": "bottom-right"},
}
