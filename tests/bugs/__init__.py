"""Attention functions as people write them, each with one bug: what the suite has to find, and how to say it.

They take float32 and float64, return no weights, refuse next to nothing, and multiply what is
masked by zero; none of that is the bug.
"""

from typing import NamedTuple


class Bug(NamedTuple):
    """One wrong function: where it is, the rules of which one is its cause, and its twins in the gallery.

    What ends the process has a kind of cause instead of a rule.
    """

    place: str
    culprits: tuple[str, ...]
    twins: tuple[str, ...] = ()
    kind: str = "no kind"


_FOUND = {
    "scores:no_default_scale": (("SCORE-2",), ("no_default_scale",)),
    "scores:scale_by_value_depth": (("SCORE-2",), ("scale_of_the_value_depth",)),
    "scores:scale_without_root": (("SCORE-2",), ("scale_without_the_root",)),
    "scores:scale_zero_is_default": (("SCORE-3",), ("scale_of_zero_is_the_default",)),
    "scores:cap_after_mask": (("SCORE-5", "MASK-5"), ("cap_after_the_mask",)),
    "scores:cap_after_bias": (("SCORE-5",), ("cap_after_the_bias",)),
    "scores:cap_ignored": (("ERR-3", "SCORE-5"), ("softcap_without_effect",)),
    "scores:bias_scaled": (("SCORE-4",), ("bias_before_the_scale",)),
    "masks:causal_bottom_right": (("MASK-3",), ("causal_bottom_right",)),
    "masks:causal_strict": (("MASK-3",), ("causal_without_the_diagonal",)),
    "masks:mask_inverted": (("MASK-1",), ("inverted_polarity",)),
    "masks:mask_multiplied": (("MASK-1", "MASK-5"), ()),
    "masks:mask_discarded": (("MASK-1", "ERR-3"), ("mask_discarded",)),
    "masks:filled_with_minus_1e9": (("MASK-6",), ("empty_rows_are_the_mean",)),
    "masks:filled_with_lowest": (("MASK-6",), ("empty_rows_are_the_mean",)),
    "masks:empty_rows_nan": (("MASK-6",), ("empty_rows_are_nan",)),
    "masks:mask_replaces_causal": (("MASK-4",), ("mask_replaces_causal",)),
    "masks:window_narrow_on_the_left": (("MASK-8",), ("window_without_its_left_bound",)),
    "masks:window_wide_on_the_right": (("MASK-8",), ()),
    "masks:offset_ignored": (("MASK-7", "ERR-3"), ()),
    "masks:length_one_too_long": (("MASK-9",), ("key_at_the_length_allowed",)),
    "masks:segments_of_the_queries": (("MASK-11",), ()),
    "sums:softmax_over_queries": (("SOFT-1",), ()),
    "sums:whole_matrix": (("SOFT-1",), ()),
    "sums:no_shift": (("SOFT-2",), ("no_shift",)),
    "sums:softmax_in_half": (("NUM-2", "NUM-3", "NUM-5"), ()),
    "sums:lse_to_base_two": (("SOFT-6",), ("lse_to_base_two",)),
    "sums:lse_without_sink": (("SOFT-6",), ("lse_without_the_sink",)),
    "sums:sink_in_the_output": (("SOFT-5",), ("sink_with_the_first_value",)),
    "sums:remainder_dropped": (("SOFT-3", "SHAPE-5"), ()),
    "sums:not_rescaled": (("SOFT-2",), ()),
    "sums:heads_tiled": (("HEAD-1",), ("key_heads_tiled",)),
    "effects:output_in_float32": (("NUM-1",), ()),
    "effects:float64_in_float32": (("NUM-2",), ("float64_in_float32",)),
    "effects:scaled_in_place": (("NUM-4",), ("query_scaled_in_place",)),
    "effects:noisy": (("NUM-9",), ()),
    "effects:mask_of_the_first_call": (("ERR-13",), ("mask_of_an_earlier_call",)),
    "effects:nan_to_zero": (("NUM-11",), ()),
    "effects:more_queries_refused": (("SHAPE-5",), ()),
    "effects:crashes_on_one_shape": ((), (), "ended"),
    "with_torch:mask_filled_where_true": (("MASK-1",), ("inverted_polarity",)),
    "with_torch:causal_bottom_right": (("MASK-3",), ("causal_bottom_right",)),
}
BUGS = tuple(Bug(f"bugs.{place}", *rest) for place, rest in _FOUND.items())
