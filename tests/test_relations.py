"""Relations between calls: each kind holds for the portable source, and fails where a backend breaks it."""

from dataclasses import replace
from functools import wraps

import numpy as np
import pytest
from tests_support import whole_suite

from attnspec.backends import load
from attnspec.conformance.gallery import entry
from attnspec.conformance.judge.call import without
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.relations.relation import Relation
from attnspec.conformance.suite import find

PORTABLE = load("numpy-portable")
right = PORTABLE.attention

REFUSED = "errors-refused-call-between-key-beside"
OUTPUT_ALONE = "softmax-output-alone-lse-and-weights-3-float32"
#: A relation of each kind, an entry of the gallery that breaks it, and the difference or the reason.
BROKEN = [
    ("invariance-place-in-the-batch-1-float32", "work_cut_in_the_middle_of_the_batch", "bits"),
    ("invariance-other-calls-between-1-float32", "workspace_that_grows", "bits"),
    ("errors-memory-around-key-length-past-the-keys-1-float32", "lengths_past_the_keys_in_memory", "bits"),
    ("invariance-threads-1-float32", "scratch_shared_by_threads", "bits"),
    ("numerics-call-repeated-plain-1-float32", "sums_in_another_order_each_time", "bits"),
    ("numerics-batch-entry-alone-1-float32", "sums_in_another_order_in_a_batch", "bits"),
    ("numerics-inputs-beside-scale-1-float32", "query_scaled_in_place", "query: expected to be unchanged"),
    ("errors-option-has-an-effect-softcap-1-float32", "softcap_without_effect", "softcap: accepted, and ch"),
    ("errors-earlier-calls-scale-1-float32", "scale_of_an_earlier_call", "value"),
    ("masking-finite-garbage-mask-and-large-1-float32", "maximum_of_disallowed_keys_too", "bits"),
    ("masking-finite-garbage-after-the-query-1-float32", "keys_scaled_by_the_largest", "bits"),
    ("masking-poison-in-one-head-mask-and-nan-1-float32", "every_head_is_nan_with_one_value", "pattern"),
    (OUTPUT_ALONE, "causal_dropped_unless_weights_are_asked_for", "value"),
    ("softmax-returned-weights-are-those-used-1-float32", "scores_returned_for_weights", "value"),
    ("caching-parts-of-its-own-two-1-float32", "merged_by_lses_to_base_2", "value"),
    ("numerics-rounding-has-no-bias-1-float16", "results_cut_off", "output: errors of one sign"),
    ("gradients-nan-that-nobody-attends-to-mask-1-float32", "masked_by_a_product", "pattern"),
    ("gradients-nan-across-a-disallowed-pair-query-1-float32", "nan_times_a_weight_of_zero", "pattern"),
    ("gradients-nan-in-one-head-query-1-float32", "nan_everywhere_backward", "pattern"),
    ("gradients-no-silent-zero-1-float32", "d_value_silently_zero", "d_value: expected a gradient"),
    ("gradients-last-rounding-has-no-bias-query-1-float16", "d_query_cut_off", "d_query: errors of one sign"),
    ("gradients-longer-than-tiles-1-float32", "last_queries_lost_in_d_key_past_256", "value"),
    ("errors-option-changed-in-turn-mask-1-float32", "mask_by_its_identity_128x64", "value"),
    ("errors-other-numbers-in-the-same-arrays-key-1-float32", "keys_by_their_identity_32x32", "value"),
    ("errors-captured-with-other-numbers-mask-1-float32", "captured_mask", "value"),
    ("errors-arrays-in-freed-memory-mask-1-float32", "mask_by_its_identity_64x128", "value"),
    (
        "errors-results-kept-by-the-caller-many-queries-1-float32",
        "output_buffer_written_again_32x32",
        "value",
    ),
    (f"{REFUSED}-is-causal-1-float32", "causal_flag_of_a_refused_call", "value"),
    ("errors-call-repeated-often-nothing-1-float32", "tile_missing_once_in_100_calls", "value"),
    ("errors-calls-from-threads-nothing-1-float32", "scores_in_scratch_of_all_threads", "value"),
    ("dropout-result-of-a-mask-1-bfloat16", "seeded_weights_left_as_they_are", "value"),
    ("dropout-share-of-dropped-weights-0-1-1-float32", "a_tenth_more_is_dropped", ""),
    ("dropout-neighbours-1-float32", "one_seeded_mask_for_all_heads", ""),
    ("dropout-other-seeds-1-float32", "seed_without_effect", ""),
    ("dropout-same-mask-1-float32", "seed_moves_with_each_call", ""),
]


def own(function):
    return replace(PORTABLE, name=function.__name__, attention=function)


def test_every_kind_of_relation_is_broken_here():
    kinds = {named(item.run) for item in whole_suite() if isinstance(item, Relation)}
    assert kinds == {named(find(name).run) for name, *_ in BROKEN}


def named(run):
    """The name of a function, or of that which a partial function calls."""
    return getattr(run, "func", run).__name__


@pytest.mark.parametrize(("name", "broken", "said"), BROKEN)
def test_a_relation_fails_where_it_is_broken_and_holds_for_what_is_right(name, broken, said):
    relation = find(name)
    # A busy machine may run the threads of one try one after the other.
    tries = (judge(entry(broken).backend(), relation) for _ in range(20))
    verdict = next(verdict for verdict in tries if verdict.status != "pass")
    rule = entry(broken).rule
    should = rule in ("NUM-9", "GRAD-12", "GRAD-20")
    assert (verdict.status, verdict.rule) == ("should not met" if should else "fail", rule)
    assert (verdict.case, verdict.group, verdict.dtype) == (name, relation.group, relation.dtype)
    assert rule in verdict.rules
    assert verdict.difference.kind == said if verdict.difference else verdict.reason.startswith(said)
    good = judge(PORTABLE, relation)
    assert (good.status, good.rule, good.difference, good.reason) == ("pass", "", None, "")


def test_the_element_of_a_batch_is_counted_in_the_batch():
    """What differs is found in the entry alone, and named where it lies in the whole."""

    @wraps(right)
    def second_alone(query, key, value, **options):
        output, *others = right(query, key, value, **options | {"return_lse": True})
        if len(query) > 1:
            output[1] = np.nextafter(output[1], 9)
        return (output, *others) if options.get("return_lse") else output

    verdict = judge(own(second_alone), find("numerics-batch-entry-alone-1-float32"))
    assert verdict.difference.element[0] == 1


@pytest.mark.parametrize(
    ("name", "lacks", "reason"),
    [
        ("errors-option-has-an-effect-softcap-1-float32", "softcap", "has no argument softcap"),
        ("softmax-output-alone-lse-1-float32", "return_lse", "does not return lse"),
        ("caching-parts-of-its-own-two-1-float32", "return_lse", "returns no lse"),
    ],
)
def test_a_relation_about_what_is_not_there_is_unsupported(name, lacks, reason):
    verdict = judge(without(PORTABLE, lacks), find(name))
    assert verdict.status == "unsupported"
    assert reason in verdict.reason


def test_a_call_that_raises_or_returns_another_shape():
    def raising(query, key, value):
        raise RuntimeError("not here")

    verdict = judge(own(raising), find("numerics-strides-reversed-and-all-1-float32"))
    assert (verdict.status, verdict.rule, verdict.raised.message) == ("error", "NUM-8", "not here")

    def transposed(query, key, value, *, is_causal=False):
        return np.swapaxes(right(query, key, value, is_causal=is_causal), -1, -2)

    assert judge(own(transposed), find("errors-option-has-an-effect-is-causal-1-float32")).status == "pass"


def test_results_that_do_not_fit_each_other_are_a_matter_of_their_shapes():
    @wraps(right)
    def exchanged(query, key, value, *, return_lse=False, return_weights=False, **options):
        output, lse, weights = right(
            query, key, value, return_lse=True, return_weights=True, **options
        )  # in another order than they are asked for
        asked = [found for found, is_asked in ((weights, return_lse), (lse, return_weights)) if is_asked]
        return (output, *asked) if asked else output

    verdict = judge(own(exchanged), find("softmax-returned-weights-are-those-used-2-float32"))
    assert (verdict.status, verdict.rule) == ("fail", "SHAPE-4")
    assert (verdict.difference.kind, verdict.difference.output) == ("shape", "weights")
