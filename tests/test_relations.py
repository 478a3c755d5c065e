"""Relations between calls: each holds for the portable source, and fails where a backend breaks it."""

from dataclasses import replace
from functools import wraps
from itertools import pairwise

import numpy as np
import pytest
from tests_support import own_case, whole_suite

from attnspec.backends import BackendError, implementation, load
from attnspec.backends.check import check_backend
from attnspec.backends.user.function import backend_of
from attnspec.backends.user.settings import Settings
from attnspec.conformance import check
from attnspec.conformance.gallery import entry
from attnspec.conformance.judge.call import without
from attnspec.conformance.judge.comparison import compare
from attnspec.conformance.judge.expected import expected
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.relations.memory import in_any_surroundings
from attnspec.conformance.relations.relation import Relation
from attnspec.conformance.suite import find, memory
from attnspec.conformance.verdict import Difference
from attnspec.reference.budget.budget import budget

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
    ("notation-fewer-results-attention-2-float32", "causal_dropped_unless_weights_are_asked_for", "value"),
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
    (
        "numerics-lengths-out-of-range-key-lengths-1-float32",
        "key_lengths_past_the_axis_begin_again",
        "value",
    ),
    ("numerics-scores-far-apart-small-weights-6-float32", "given_scale_without_effect", "value"),
    ("dropout-result-of-a-mask-1-bfloat16", "seeded_weights_left_as_they_are", "value"),
    ("dropout-share-of-dropped-weights-0-1-1-float32", "a_tenth_more_is_dropped", ""),
    ("dropout-neighbours-1-float32", "one_seeded_mask_for_all_heads", ""),
    ("dropout-other-seeds-1-float32", "seed_without_effect", ""),
    ("dropout-many-seeds-1-float32", "seed_in_sixteen_bits", ""),
    ("dropout-same-mask-1-float32", "seed_moves_with_each_call", ""),
]


def own(function):
    return replace(PORTABLE, name=function.__name__, attention=function)


def test_every_kind_of_relation_is_broken_here():
    kinds = {named(item.run) for item in whole_suite() if isinstance(item, Relation)}
    kinds.remove("_judge_with_slopes")  # tests/test_own_options.py breaks a kernel that takes slopes
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
    assert (verdict.status, verdict.rule) == ("unsupported", "")
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


ITEMS = {item.name: item for group in memory.chapter for item in group.items()}
ARRAYS = ("query", "key", "value")


@pytest.mark.parametrize("change", ["raises", "returns", "nothing"])
def test_a_call_may_not_depend_on_what_lies_around_its_arrays(change):
    def attention(query, key, value):
        before = query.base[0, 0, 0]  # outside of the array
        if change == "raises" and before > 0:
            raise ValueError("query: expected another neighbour")
        return right(query, key, value) + before * (change == "returns")

    arrays = {name: np.ones((2, 3, 4)) for name in ARRAYS}
    case = own_case("ERR-19", arrays)
    found = in_any_surroundings(replace(PORTABLE, attention=attention), (case,))
    assert (found is None) == (change == "nothing")
    assert ("raises with some" in str(found)) == (change == "raises")


def tell_apart(one, other):
    """Whether two calls have different results, by more than their budgets."""
    found = [expected(case) for case in (one, other)]
    name = next(iter(found[0]))
    allowed = [budget(case.operation, case.arguments, case.dtype)[name] for case in (one, other)]
    if allowed[0].shape != allowed[1].shape:
        return True
    return isinstance(compare(name, found[0][name], found[1][name], sum(allowed), "float64"), Difference)


@pytest.mark.parametrize("group", {item.group: 0 for item in ITEMS.values() if "often" not in item.group})
def test_each_group_has_calls_with_other_results(group):
    """So that an implementation that keeps what belongs to one call fails in another."""
    own = [item.calls for item in ITEMS.values() if item.group == group]
    legal = [[case for case in calls if case.misuse is None] for calls in own]
    assert any(tell_apart(*pair) for calls in legal for pair in pairwise(calls))


def test_the_number_of_keys_changes_in_both_directions():
    pairs = [ITEMS[f"errors-sizes-in-turn-nothing-{n}-float32"].calls[:2] for n in (1, 2)]
    keys = [[call.arguments["key"].shape[-2] for call in pair] for pair in pairs]
    assert [before > after for before, after in keys] == [True, False]


@pytest.mark.parametrize("name", ITEMS)
@pytest.mark.sample(14)
def test_the_portable_source_has_no_memory(name):
    verdict = judge(PORTABLE, ITEMS[name])
    assert (verdict.status, verdict.difference, verdict.reason) == ("pass", None, "")


@pytest.mark.exhaustive
def test_a_scratch_buffer_of_all_threads_is_noticed_every_time():
    (item,) = (one for one in ITEMS.values() if one.group == "calls of one shape from threads")
    backend = entry("exponentials_in_scratch_of_all_threads").backend()
    assert {judge(backend, item).status for _ in range(5)} == {"fail"}


def test_arrays_that_cannot_be_written_are_unsupported():
    def attention(query, key, value):
        return right(query, key, value)

    @wraps(PORTABLE.array_library.to_library)
    def fixed(array, device):
        made = PORTABLE.array_library.to_library(array, device)
        made.flags.writeable = False
        return made

    library = replace(PORTABLE.array_library, to_library=fixed)
    backend = replace(PORTABLE, attention=attention, array_library=library)
    verdict = judge(backend, ITEMS["errors-other-numbers-in-the-same-arrays-key-1-float32"])
    assert (verdict.status, verdict.reason) == ("unsupported", "arrays of numpy cannot be written")


def test_numbers_are_written_into_the_arrays_that_the_function_got_before():
    seen = []

    @wraps(right)
    def attention(query, key, value, **options):
        seen.append((key, options["mask"], key.copy(), options["mask"].copy()))
        return right(query, key, value, **options)

    item = ITEMS["errors-other-numbers-in-the-same-arrays-mask-1-float32"]
    verdict = judge(replace(PORTABLE, attention=attention), item)
    assert verdict.status == "pass"
    assert len(seen) == 3
    for place in range(2):
        assert len({id(one[place]) for one in seen}) == 1
    assert not np.array_equal(seen[0][3], seen[1][3])
    assert np.array_equal(seen[0][3], seen[2][3])


@pytest.mark.parametrize("concurrent", [True, False])
def test_a_function_that_must_not_be_called_concurrently_says_so(concurrent, tmp_path):
    @implementation(concurrent=concurrent)
    def attention(query, key, value):
        return right(query, key, value)

    name = "errors-calls-from-threads-nothing-1-float32"
    assert check(attention, cases=["softmax-002-float32", name]).good
    backend = backend_of("mine", attention, Settings(), "numpy")
    assert backend.concurrent is concurrent
    assert judge(backend, ITEMS[name]).status == ("pass" if concurrent else "unsupported")
    (tmp_path / "mine.py").write_text("def attention(query, key, value):\n    return query\n")
    said = f'function = "{tmp_path}/mine.py:attention"\nconcurrent = {str(concurrent).lower()}\n'
    (tmp_path / "attnspec.toml").write_text(f"[backend]\n{said}")
    assert load(str(tmp_path)).concurrent is concurrent


@pytest.mark.parametrize("concurrent", [0, "no", None])
def test_what_is_said_about_threads_is_true_or_false(concurrent):
    with pytest.raises(BackendError, match="concurrent: expected true or false, got"):
        implementation(concurrent=concurrent)(right)
    with pytest.raises(BackendError, match="concurrent: expected True or False, got"):
        check_backend("p", replace(PORTABLE, concurrent=concurrent))
