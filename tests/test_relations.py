"""Relations between calls: each kind holds for the portable source, and fails where a backend breaks it."""

from functools import wraps

import numpy as np
import pytest
from broken_relations import BROKEN, KEPT, PORTABLE, output_of, own, right, writing_into_the_mask

from attnspec.conformance.judge.judge import judge
from attnspec.conformance.relations.memory import RUNS
from attnspec.conformance.relations.relation import Relation
from attnspec.conformance.suite import find, items

#: The relations of dropout by a seed, which entries of the gallery break.
BROKEN_BY_ENTRIES = {
    "_as_with_the_mask",
    "drops_at_the_probability",
    "drops_independently",
    "differs_by_the_seed",
    "has_one_mask",
}


def test_every_kind_of_relation_is_broken_here():
    # In `test_memory`, `test_sizes_gradients` and `test_seeded_dropout`.
    elsewhere = {run.__name__ for run in RUNS} | {"_by_formula"} | BROKEN_BY_ENTRIES
    own = {named(item.run) for item in items() if isinstance(item, Relation)}
    assert own == set(BROKEN) | elsewhere


def named(run):
    """The name of a function, or of that which a partial function calls."""
    return getattr(run, "func", run).__name__


@pytest.mark.parametrize("kind", BROKEN)
def test_a_relation_fails_where_it_is_broken(kind):
    name, backend, status, rule, said = BROKEN[kind]
    relation = find(name)
    assert relation.run.__name__ == kind
    KEPT.clear()
    verdict = judge(backend, relation)
    assert (verdict.status, verdict.rule) == (status, rule)
    assert (verdict.case, verdict.group, verdict.dtype) == (name, relation.group, relation.dtype)
    assert rule in verdict.rules
    assert verdict.difference.kind == said if verdict.difference else verdict.reason.startswith(said)


@pytest.mark.parametrize("kind", BROKEN)
def test_the_same_relation_holds_for_what_is_right(kind):
    verdict = judge(PORTABLE, find(BROKEN[kind][0]))
    assert (verdict.status, verdict.rule, verdict.difference, verdict.reason) == ("pass", "", None, "")


def test_a_mask_that_is_written_into_is_noticed():
    verdict = judge(writing_into_the_mask, find("numerics-inputs-beside-mask-1-float32"))
    assert (verdict.status, verdict.rule) == ("fail", "NUM-4")
    assert verdict.reason.startswith("mask: expected to be unchanged")


def test_the_element_of_a_batch_is_counted_in_the_batch():
    """What differs is found in the entry alone, and named where it lies in the whole."""

    @output_of
    def second_alone(output, every):
        return output + np.spacing(np.abs(output)) * (len(every["query"]) > 1) * (
            np.arange(len(output)).reshape(-1, 1, 1, 1) == 1
        )

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
    from attnspec.conformance.judge.call import without

    verdict = judge(without(PORTABLE, lacks), find(name))
    assert verdict.status == "unsupported"
    assert reason in verdict.reason


def test_a_relation_in_which_a_call_raises_is_an_error():
    def raising(query, key, value):
        raise RuntimeError("not here")

    verdict = judge(own(raising), find("softmax-one-key-gives-its-value-1-float32"))
    assert (verdict.status, verdict.rule, verdict.raised.message) == ("error", "SOFT-3", "not here")


def test_an_option_may_have_its_effect_on_an_output_of_a_wrong_shape():
    transposed = own(output_of(lambda output, _: np.swapaxes(output, -1, -2)))
    assert judge(transposed, find("errors-option-has-an-effect-is-causal-1-float32")).status == "pass"


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
