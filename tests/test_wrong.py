"""Wrong implementations, judged: each is found by the test, and under the rule, that is there for it."""

from dataclasses import replace

import numpy as np
import pytest
import wrong
import wrong_companions

from attnspec.backends import DTYPES, Backend
from attnspec.conformance import (
    test_caching,
    test_denominator,
    test_dropout,
    test_empty_rows,
    test_errors,
    test_heads,
    test_layouts,
    test_masking,
    test_merging,
    test_numerics,
    test_options,
    test_positions,
    test_scores,
    test_special_numbers,
)
from attnspec.conformance.judge.failure import Failure


def backend_of(name, operation="attention"):
    """One of the wrong functions in place of the portable one."""
    function = getattr(wrong if operation == "attention" else wrong_companions, name)
    if operation == "attention":
        return Backend(name, wrong.portable.array_library, function, DTYPES, wrong.portable.companions)
    return replace(wrong.portable, name=name, companions={**wrong.portable.companions, operation: function})


def judged(test, backend, **parameters):
    """Run a test of the suite as pytest would, and return what it finds."""
    given = {"backend": backend, **parameters}
    if "record_property" in _parameters(test):
        given["record_property"] = lambda *_: None
    try:
        test(**given)
    except Failure as failure:
        return failure
    return None


def _parameters(test):
    inner = getattr(test, "hypothesis", None)
    function = inner.inner_test if inner else test
    return function.__code__.co_varnames[
        : function.__code__.co_argcount + function.__code__.co_kwonlyargcount
    ]


CASES = [
    (
        "softcap_after_mask",
        test_scores.test_a_tiny_cap_brings_no_disallowed_key_back,
        {"source": "mask"},
        "SCORE-5",
    ),
    ("softcap_ignored", test_scores.test_softcap, {"softcap": 0.5}, "SCORE-5"),
    ("softcap_ignored", test_options.test_an_option_changes_the_result, {"option": "softcap"}, "ERR-3"),
    ("bias_before_cap", test_scores.test_the_cap_is_on_the_scaled_score_alone, {}, "SCORE-5"),
    ("softcap_of_zero", test_errors.test_misuse_is_refused, {"misuse": "softcap of 0"}, "SCORE-6"),
    ("bottom_right", test_masking.test_causal, {}, "MASK-3"),
    ("offset_negated", test_masking.test_causal_with_an_offset, {}, "MASK-7"),
    ("offset_of_the_first", test_masking.test_causal_with_an_offset, {}, "MASK-7"),
    ("exclusive_left", test_masking.test_windows, {"beside": "alone"}, "MASK-8"),
    (
        "window_lost_beside_a_mask",
        test_options.test_options_in_pairs,
        {"one": "mask", "other": "window"},
        "ERR-3",
    ),
    (
        "causal_lost_beside_dropout",
        test_options.test_options_in_pairs,
        {"one": "is_causal", "other": "dropout"},
        "ERR-3",
    ),
    ("lengths_off_by_one", test_masking.test_key_lengths, {}, "MASK-9"),
    ("query_lengths_ignored", test_masking.test_query_lengths, {}, "MASK-10"),
    ("segments_of_sign", test_masking.test_segments, {}, "MASK-11"),
    (
        "added_sentinel",
        test_empty_rows.test_finite_garbage_leaves_no_trace,
        {"source": "mask", "size": "large"},
        "MASK-12",
    ),
    ("finite_sentinel", test_masking.test_a_score_below_any_sentinel_is_still_a_score, {}, "MASK-5"),
    (
        "finite_sentinel",
        test_empty_rows.test_a_row_with_nothing_to_attend_to,
        {"route": "mask", "place": "middle"},
        "MASK-6",
    ),
    (
        "zero_times_nan",
        test_empty_rows.test_poison_leaves_no_trace,
        {"source": "mask", "poison": np.nan},
        "MASK-13",
    ),
    ("scale_folded_into_sink", test_denominator.test_sinks, {}, "SOFT-5"),
    ("sink_of_first_head", test_heads.test_options_belong_to_query_heads, {"option": "sinks"}, "HEAD-1"),
    ("base_two", test_denominator.test_the_lse, {}, "SOFT-6"),
    ("base_two", test_merging.test_parts_of_its_own_merge_to_the_whole, {"cuts": "two"}, "CACHE-6"),
    (
        "plus_infinity",
        test_empty_rows.test_a_row_with_nothing_to_attend_to,
        {"route": "mask", "place": "first"},
        "SOFT-7",
    ),
    ("lse_flat", test_denominator.test_the_lse, {}, "SHAPE-8"),
    ("lse_short", test_numerics.test_the_lse_is_held_in_float32, {"level": 300.0}, "NUM-7"),
    ("tiled_heads", test_heads.test_shared_key_heads, {}, "HEAD-1"),
    ("few_heads", test_errors.test_misuse_is_refused, {"misuse": "key heads that do not divide"}, "HEAD-2"),
    ("dropout_as_mask", test_dropout.test_dropped_and_kept, {}, "DROP-1"),
    ("dropout_without_rate", test_dropout.test_kept_weights_are_divided, {"rate": 0.25}, "DROP-2"),
    ("lse_of_what_is_left", test_dropout.test_the_lse_knows_nothing_of_dropout, {}, "DROP-3"),
    ("dropout_without_rate", test_errors.test_misuse_is_refused, {"misuse": "rate without a mask"}, "DROP-4"),
    (
        "memory_order",
        test_layouts.test_strides_do_not_matter,
        {"layout": "transposed", "name": "key"},
        "NUM-8",
    ),
    ("noisy", test_numerics.test_a_call_repeated, {"option": None}, "NUM-9"),
    ("batch_dependent", test_numerics.test_a_batch_entry_alone, {}, "NUM-10"),
    (
        "nan_to_number",
        test_special_numbers.test_a_number_that_is_none,
        {"name": "query", "number": np.nan, "place": "first"},
        "NUM-11",
    ),
    ("value_cleaned", test_special_numbers.test_nan_in_a_value, {"place": "last"}, "NUM-12"),
    ("value_cleaned", test_special_numbers.test_infinity_in_a_value, {"signs": "plus"}, "NUM-13"),
    ("infinity_as_zero", test_special_numbers.test_a_score_of_minus_infinity, {}, "NUM-14"),
    ("promoting", test_errors.test_mixed_dtypes, {"name": "key"}, "ERR-1"),
    (
        "converting",
        test_errors.test_arrays_that_are_not_floating_point,
        {"dtype": "int32", "which": ("query",)},
        "ERR-2",
    ),
    ("mask_of_anything", test_errors.test_misuse_is_refused, {"misuse": "mask of bytes"}, "ERR-4"),
    ("depth_of_nothing", test_errors.test_misuse_is_refused, {"misuse": "depth of 0"}, "ERR-5"),
    ("scale_of_anything", test_errors.test_misuse_is_refused, {"misuse": "scale of NaN"}, "ERR-6"),
    ("window_of_minus_one", test_errors.test_misuse_is_refused, {"misuse": "window below 0"}, "ERR-7"),
    ("offset_truncated", test_errors.test_misuse_is_refused, {"misuse": "offset of a fraction"}, "ERR-8"),
    ("lengths_clamped", test_errors.test_misuse_is_refused, {"misuse": "key length past the keys"}, "ERR-9"),
    ("ids_of_one_side", test_errors.test_misuse_is_refused, {"misuse": "ids of keys alone"}, "ERR-10"),
    ("sinks_broadcast", test_errors.test_misuse_is_refused, {"misuse": "sinks for key heads"}, "ERR-11"),
    ("unnamed_errors", test_errors.test_the_error_names_the_argument, {"misuse": "window below 0"}, "ERR-12"),
    ("stale_scale", test_errors.test_a_call_knows_nothing_of_earlier_ones, {"option": "scale"}, "ERR-13"),
    ("bias_rounded", test_errors.test_a_bias_of_another_dtype, {"name": "bias", "numbers": "fine"}, "ERR-14"),
    (
        "bias_rounded",
        test_errors.test_a_bias_of_another_dtype,
        {"name": "bias", "numbers": "large"},
        "ERR-14",
    ),
]

COMPANIONS = [
    ("split_heads", "split_heads", test_heads.test_splitting_and_merging, {}, "HEAD-3"),
    ("merge_heads", "merge_heads", test_heads.test_splitting_and_merging, {}, "HEAD-4"),
    (
        "memory_for_keys_alone",
        "multi_head_attention",
        test_heads.test_cross_attention,
        {"depth": 5},
        "HEAD-7",
    ),
    ("append_late", "append_cache", test_caching.test_appending, {"count": 1}, "CACHE-1"),
    (
        "append_at_the_end",
        "append_cache",
        test_errors.test_misuse_is_refused,
        {"misuse": "cache that is full"},
        "CACHE-2",
    ),
    ("append_late", "append_cache", test_caching.test_steps_with_a_cache, {"by": "causality"}, "CACHE-3"),
    ("sorted_pages", "gather_pages", test_caching.test_pages_in_any_order, {}, "CACHE-4"),
    ("sorted_pages", "gather_pages", test_caching.test_attention_over_pages, {}, "CACHE-4"),
    (
        "wrapped_pages",
        "gather_pages",
        test_errors.test_misuse_is_refused,
        {"misuse": "page below 0"},
        "CACHE-5",
    ),
    ("mean_of_partials", "merge_partials", test_merging.test_merging, {"shift": 0.0}, "CACHE-6"),
    (
        "partials_unmasked",
        "merge_partials",
        test_merging.test_parts_with_nothing_to_attend_to,
        {"poison": np.nan},
        "CACHE-7",
    ),
    (
        "partials_unmasked",
        "merge_partials",
        test_merging.test_parts_with_nothing_to_attend_to,
        {"poison": 0.0},
        "CACHE-7",
    ),
    (
        "rotary_swapped",
        "rotary",
        test_positions.test_both_layouts,
        {"interleaved": False, "rotary_depth": None},
        "POS-2",
    ),
    (
        "rotary_swapped",
        "rotary",
        test_positions.test_both_layouts,
        {"interleaved": True, "rotary_depth": 8},
        "POS-3",
    ),
    (
        "rotary_of_depth",
        "rotary",
        test_positions.test_both_layouts,
        {"interleaved": False, "rotary_depth": 6},
        "POS-4",
    ),
    (
        "rotary_of_even_part",
        "rotary",
        test_errors.test_misuse_is_refused,
        {"misuse": "rotary depth that is odd"},
        "POS-6",
    ),
    (
        "split_what_fits",
        "split_heads",
        test_errors.test_misuse_is_refused,
        {"misuse": "heads that do not divide"},
        "HEAD-5",
    ),
    (
        "scale_of_all_heads",
        "multi_head_attention",
        test_heads.test_multi_head_attention,
        {"key_heads": 4},
        "HEAD-6",
    ),
    (
        "rotary_at_zero",
        "rotary",
        test_positions.test_the_offset_is_the_position_of_the_first_row,
        {},
        "POS-5",
    ),
    ("alibi_as_for_powers", "alibi_bias", test_positions.test_alibi, {"heads": 6}, "POS-7"),
    ("alibi_signed", "alibi_bias", test_positions.test_alibi, {"heads": 4}, "POS-8"),
]


@pytest.mark.parametrize(
    ("name", "test", "parameters", "rule"), CASES, ids=[f"{name}-{rule}" for name, *_, rule in CASES]
)
def test_wrong_attention_is_found(name, test, parameters, rule):
    found = judged(test, backend_of(name), **parameters)
    assert found is not None, "passes"
    assert found.rule == rule, str(found)[:2000]
    assert judged(test, wrong.portable, **parameters) is None


@pytest.mark.parametrize(
    ("name", "operation", "test", "parameters", "rule"),
    COMPANIONS,
    ids=[f"{name}-{rule}" for name, *_, rule in COMPANIONS],
)
def test_a_wrong_companion_is_found(name, operation, test, parameters, rule):
    found = judged(test, backend_of(name, operation), **parameters)
    assert found is not None, "passes"
    assert found.rule == rule, str(found)[:2000]
    assert judged(test, wrong.portable, **parameters) is None
