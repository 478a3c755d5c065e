"""Each option of an operation has a call in which it acts alone; any two meet in one in which both act."""

from itertools import combinations

import numpy as np
import pytest
from tests_support import backend_ignoring, whole_suite

from attnspec import OPERATIONS, Case
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.suite import groups_of
from attnspec.conformance.suite.alone import ALONE, acting, needs_of
from attnspec.conformance.suite.pairs_of_companions import OPTIONS_OF
from attnspec.reference.budget.budget import budget

WIDE = ("float32", "float64")
NAMES = {*ALONE, "latent_zero_points", "dropout_rate", "d_lse"}
#: How arrays are stored, which a function for one storage always has.
STORAGE = ("_scales", "encoding", "block_mask", "block_counts", "block_indices")


def given(case):
    """The arguments of a call that a function needs in its signature, apart from those of its storage."""
    declared, call = OPERATIONS[case.operation].arguments, case.arguments
    optional = {name for name in call if name in declared and not declared[name].required}
    default = {name for name in optional if np.ndim(call[name]) == 0 and call[name] == declared[name].default}
    return {name for name in optional - default if not name.endswith(STORAGE) and name[:7] != "return_"}


def acting_in(case, names):
    """Choose the arguments that change the results of a call by eight times the budget."""
    operation = case.operation.replace("seeded_dropout_", "")
    call = {name: x for name, x in case.arguments.items() if name in OPERATIONS[operation].arguments}
    allowed = budget(operation, call, case.dtype).values()
    return acting(operation, call, names, 8 * max(np.max(x, initial=0) for x in allowed))


def act_alone(case):
    """Return the options that stand alone in a call and act in it, each with the operation."""
    names, scaling = given(case), case.arguments.get("scaling", "none")
    stand = names & options_of(case.operation)
    alone = [name for name in stand if names <= needs_of(case.operation, name, scaling)]
    return {(case.operation, name) for name in (acting_in(case, alone) if alone else ())}


def options_of(operation):
    """The options of an operation that have to stand alone."""
    form = OPERATIONS[operation]
    # A bias of keys shifts all scores of a row, and no gradient depends on a bias of the output.
    without = {"key_bias", *(["output_bias"] if form.differentiates else [])}
    reduced = NAMES if reduces(operation) else {*form.options} - without
    options = {x for x in reduced & {*form.options} if not form.arguments[x].required}
    return {x for x in options if not x.startswith("return_") and not x.endswith(STORAGE)}


def reduces(operation):
    """Whether an operation is a form, a stack or their gradients."""
    return OPERATIONS[operation].reduces in ("attention", "attention_vjp")


@pytest.mark.exhaustive
def test_each_option_acts_alone():
    calls = (case for item in whole_suite() for case in item.calls)
    every = (case for case in calls if case.operation not in ("attention", "attention_vjp"))
    valid = (case for case in every if case.misuse is None and case.dtype in WIDE)
    met = set()
    for case in valid:
        lacking = {(case.operation, name) for name in given(case)} - met
        with np.errstate(invalid="ignore"):  # of infinities that are equal
            met |= act_alone(case) if lacking else set()
    operations = {*OPERATIONS} - {"attention", "attention_vjp"}
    wanted = {(operation, name) for operation in operations for name in options_of(operation)}
    assert len(wanted) > 780
    assert wanted - met == set()


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


def met(cases):
    """The pairs of options that act in some call, both of them."""
    acting = (acting_in(case, given(case) & options_of(case.operation)) for case in cases)
    return {frozenset(pair) for names in acting for pair in combinations(names, 2)}


@pytest.mark.sample(6)
@pytest.mark.parametrize("operation", [name for name in GROUPS if name in OPERATIONS])
def test_each_pair_of_options_acts_in_a_call(operation):
    cases = [*GROUPS[operation].items()]
    assert set(wanted(operation)) - met(cases) == set()
    assert set(wanted(operation)) - met(cases[: len(cases) // 3])


@pytest.mark.parametrize("scaling", [name for name in GROUPS if name not in OPERATIONS])
def test_each_pair_of_options_of_frequencies_acts_in_a_call(scaling):
    pairs = {frozenset(pair) for pair in combinations(OPTIONS_OF[scaling], 2)}
    assert pairs <= met(GROUPS[scaling].items())


@pytest.mark.parametrize("operation", ["attention_vjp", "packed_attention_vjp", "latent_attention_vjp"])
def test_the_gradient_of_the_scale_meets_each_option(operation):
    cases = [case for case in GROUPS[operation].items() if "return_d_scale" in case.arguments]
    names = options_of(operation)
    acts = {
        name for case in cases for name in acting(operation, case.arguments, given(case) & names, first=-1)
    }
    assert acts == names


@pytest.mark.exhaustive
@pytest.mark.parametrize(("operation", "ignored", "beside"), WRONG)
def test_an_option_ignored_beside_another_is_seen_in_these_calls_alone(operation, ignored, beside):
    backend = backend_ignoring(operation, ignored, beside, WIDE)
    own = [item for item in whole_suite() if isinstance(item, Case) and item.operation == operation]
    # With nothing in an axis, other options have no effect, and whatever is ignored shows.
    full = (case for case in own if all(np.size(x) for x in case.arguments.values()))
    cases = [case for case in full if {ignored, beside} <= {*case.arguments}]
    failing = {case.group for case in cases if judge(backend, case).status == "fail"}
    assert failing == {GROUPS[operation].name}
