"""Each option of an operation has a call in which it acts with what it needs alone."""

import numpy as np
import pytest
from tests_support import whole_suite

from attnspec import OPERATIONS
from attnspec.conformance.suite.alone import ALONE, acts, needs_of
from attnspec.reference.budget.budget import budget

NAMES = {*ALONE, "latent_zero_points", "dropout_rate", "d_lse"}
#: How arrays are stored, which a function for one storage always has.
STORAGE = ("_scales", "encoding", "block_mask", "block_counts", "block_indices")


def given(case):
    """The arguments of a call that a function needs in its signature, apart from those of its storage."""
    declared, call = OPERATIONS[case.operation].arguments, case.arguments
    optional = {name for name in call if name in declared and not declared[name].required}
    default = {name for name in optional if np.ndim(call[name]) == 0 and call[name] == declared[name].default}
    return {name for name in optional - default if not name.endswith(STORAGE) and name[:7] != "return_"}


def act_alone(case):
    """Yield the options that stand alone in a call and change its results by eight times the budget."""
    names, operation = given(case), case.operation.replace("seeded_dropout_", "")
    call = {name: x for name, x in case.arguments.items() if name in OPERATIONS[operation].arguments}
    for name in names & options_of(case.operation):
        if names <= needs_of(case.operation, name, call.get("scaling", "none")):
            allowed = budget(operation, call, case.dtype).values()
            if acts(operation, call, name, 8 * max(np.max(x, initial=0) for x in allowed)):
                yield case.operation, name


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


@pytest.fixture(scope="module")
def found():
    """The operations and options of all calls in float32 and float64."""
    calls = (case for item in whole_suite() for case in item.calls)
    every = (case for case in calls if case.operation not in ("attention", "attention_vjp"))
    valid = (case for case in every if case.misuse is None and case.dtype in ("float32", "float64"))
    met = set()
    for case in valid:
        lacking = {(case.operation, name) for name in given(case)} - met
        with np.errstate(invalid="ignore"):  # of infinities that are equal
            met |= {*act_alone(case)} if lacking else set()
    return met


@pytest.mark.exhaustive
def test_each_option_acts_alone(found):
    operations = {*OPERATIONS} - {"attention", "attention_vjp"}
    wanted = {(operation, name) for operation in operations for name in options_of(operation)}
    assert len(wanted) > 780
    assert wanted - found == set()
