"""Any two options of an operation meet in a call in which both act."""

import inspect
from itertools import combinations

import numpy as np
import pytest
from test_options_alone import given, options_of
from tests_support import whole_suite

from attnspec import OPERATIONS, Case, reference
from attnspec.backends import Backend, load_library
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.suite import groups_of
from attnspec.conformance.suite.alone import acting
from attnspec.conformance.suite.pairs_of_companions import OPTIONS_OF
from attnspec.reference.budget.budget import budget

GROUPS = {group.name.partition(": ")[2]: group for group in groups_of("errors") if group.name[:5] == "pairs"}
#: Functions with a fault that nothing else in the suite shows: the option that they ignore beside another.
WRONG = (
    ("attention_vjp", "bias", "query_segment_ids"),
    ("packed_attention_vjp", "scale", "key_lengths"),
    ("sharded_attention_vjp", "dropout_mask", "key_positions"),
    ("latent_attention", "mask", "key_lengths"),
    ("paged_attention", "dropout_mask", "left_padding"),
    ("rotary_vjp", "base", "attention_factor"),
)
#: Options that stand in the place of another one, which has no effect beside them.
INSTEAD = {("base", "cosines"), ("base", "sines"), ("base", "inverse_frequencies")}


def wanted(operation):
    """The pairs of options of an operation that do not exclude each other, nor come in each other's place."""
    known = OPERATIONS[operation].arguments
    for pair in combinations([name for name in known if name in options_of(operation)], 2):
        whole = {own for name in pair for own in (name, *known[name].needs)}
        apart = {other for name in whole for other in known[name].excludes}
        if apart.isdisjoint(whole) and pair not in INSTEAD:
            yield frozenset(pair)


def met(operation, cases):
    """The pairs of options that change the results of some call by eight times the budget, both of them."""
    pairs = set()
    for case in cases:
        of = operation.replace("seeded_dropout_", "")
        call = {name: x for name, x in case.arguments.items() if name in OPERATIONS[of].arguments}
        allowed = 8 * max(np.max(x, initial=0) for x in budget(of, call, case.dtype).values())
        names = acting(of, call, given(case) & options_of(operation), allowed)
        pairs |= {frozenset(pair) for pair in combinations(names, 2)}
    return pairs


@pytest.mark.sample(6)
@pytest.mark.parametrize("operation", [name for name in GROUPS if name in OPERATIONS])
def test_each_pair_of_options_acts_in_a_call(operation):
    cases = [*GROUPS[operation].items()]
    assert set(wanted(operation)) - met(operation, cases) == set()
    assert set(wanted(operation)) - met(operation, cases[: len(cases) // 3])


@pytest.mark.parametrize("scaling", [name for name in GROUPS if name not in OPERATIONS])
def test_each_pair_of_options_of_frequencies_acts_in_a_call(scaling):
    pairs = {frozenset(pair) for pair in combinations(OPTIONS_OF[scaling], 2)}
    assert pairs <= met("rotary_frequencies", GROUPS[scaling].items())


@pytest.mark.parametrize("operation", ["attention_vjp", "packed_attention_vjp", "latent_attention_vjp"])
def test_the_gradient_of_the_scale_meets_each_option(operation):
    cases = [case for case in GROUPS[operation].items() if "return_d_scale" in case.arguments]
    names = options_of(operation)
    acts = {
        name for case in cases for name in acting(operation, case.arguments, given(case) & names, first=-1)
    }
    assert acts == names


def wrong(operation, ignored, beside):
    """A backend that ignores one option beside another."""
    run, known = reference.function(operation), OPERATIONS[operation].arguments
    signature = inspect.signature(run)

    def ignoring(*arrays, **options):
        call = {name: x for name, x in signature.bind(*arrays, **options).arguments.items() if x is not None}
        if {ignored, beside} <= {*call}:
            call = {name: x for name, x in call.items() if ignored not in (name, *known[name].needs)}
        return run(**call)

    ignoring.__signature__ = signature
    return Backend("wrong", load_library("numpy"), companions={operation: ignoring})


@pytest.mark.exhaustive
@pytest.mark.parametrize(("operation", "ignored", "beside"), WRONG)
def test_an_option_ignored_beside_another_is_seen_in_these_calls_alone(operation, ignored, beside):
    backend = wrong(operation, ignored, beside)
    own = [item for item in whole_suite() if isinstance(item, Case) and item.operation == operation]
    # With nothing in an axis, other options have no effect, and whatever is ignored shows.
    full = (case for case in own if all(np.size(x) for x in case.arguments.values()))
    cases = [case for case in full if {ignored, beside} <= {*case.arguments}]
    failing = {case.group for case in cases if judge(backend, case).status == "fail"}
    assert failing == {GROUPS[operation].name}
