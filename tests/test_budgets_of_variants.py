"""The budgets of values in a variant: the number nearest to a value is in its budget, in every operation."""

from dataclasses import replace

import numpy as np
import pytest

from attnspec import OPERATIONS, Case, cases
from attnspec.backends import load
from attnspec.conformance.judge.budget import align, budgets_of
from attnspec.conformance.judge.dtypes import arguments_of
from attnspec.conformance.judge.expected import exact
from attnspec.conformance.suite import items
from attnspec.conformance.suite.drawn_stacks import Sizes, draw_call, options_of
from attnspec.conformance.suite.stacks import STORED
from attnspec.conformance.verdict import LISTS

PLAIN = load("numpy-portable")
#: Variants that give other keys a weight, an lse another unit, or pairs other positions, and the arguments
#: that show them.
VARIANTS = {
    ("MASK-3", "bottom-right"): ("is_causal", "window"),
    ("PACK-5", "bottom-right"): ("is_causal", "window"),
    ("MASK-8", "exclusive-left"): ("window",),
    ("MASK-6", "mask: uniform"): ("query", "tokens"),
    ("SOFT-6", "base-2"): ("query",),
    ("POS-15", "alternating"): ("axis_positions",),
}


def calls_of(operation):
    """The stored calls of an operation, and a drawn one with each option that shows a variant."""
    every = [case for case in cases() if case.operation == operation and case.dtype == "float64"]
    for case in every:
        if case.expected and not case.misuse and not case.must_raise:
            yield replace(case, arguments=arguments_of(case, "float32"), expected={}, alternatives=())
    layers = STORED[operation].layers if operation in STORED else ()
    for option in {"causality", "window"} & {*options_of(layers)} if layers else ():
        sizes = Sizes(queries=(2, 3), keys=(4, 1), heads=(4, 2))
        call = draw_call(np.random.default_rng(1), "float32", layers, sizes, option)
        yield Case("drawn", "", "stacks", operation, ("STACK-1",), call)


def misses(case, dialect):
    """The outputs of a call whose nearest numbers are not in the budgets of a dialect."""
    values = exact(case.operation, case.arguments, dialect)
    budgets = budgets_of(replace(PLAIN, dialect=dialect), case)
    for name in values.keys() - LISTS:
        value = np.nan_to_num(values[name], posinf=0, neginf=0)
        if (np.abs(value.astype(np.float32) - value) > budgets[name]).any():
            yield name
        # Nothing may be off of a key without a weight. A weight of attention may be too small for float64,
        # and a mean may be over all pages.
        exempt = case.operation == "attention" or "MASK-6" in dialect
        if name == "weights" and not exempt and budgets[name][values[name] == 0].any():
            yield name


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_nearest_number_to_a_value_in_a_variant_is_in_its_budget(operation):
    for case in calls_of(operation):
        for (rule, variant), shown in VARIANTS.items():
            if any(case.arguments.get(name, False) is not False for name in shown):
                assert list(misses(case, {rule: variant})) == [], (case.name, rule)


@pytest.mark.parametrize(
    "operation", [name for name in STORED if not {"latent", "listed"} & {*STORED[name].layers}]
)
def test_the_budget_of_tiled_heads_is_that_of_the_heads_that_are_read(operation):
    sizes = Sizes(queries=(2, 3), keys=(4, 1), heads=(4, 2))
    call = draw_call(np.random.default_rng(1), "float32", STORED[operation].layers, sizes, "nothing")
    call = {
        name: x for name, x in call.items() if name not in ("block_mask", "block_counts", "block_indices")
    }
    own = "query" if "query" in call else "query_codes"
    order = [0, 2, 1, 3]
    found = []
    for dialect, given in (
        ({"HEAD-1": "tiled"}, call),
        ({}, call | {own: np.take(call[own], order, axis=-3)}),
    ):
        case = Case("drawn", "", "stacks", operation, ("HEAD-1",), given)
        values = exact(operation, given, dialect)["output"]
        found.append((values, budgets_of(replace(PLAIN, dialect=dialect), case)["output"]))
    for tiled, plain in zip(*found, strict=True):
        np.testing.assert_array_equal(np.take(tiled, order, axis=-3), plain)


def test_an_excluded_bound_is_a_mask_of_the_axes_that_an_operation_takes():
    """A row of packed pages takes the key positions of its sequence."""
    for case in items():
        window = case.operation in STORED and case.arguments.get("window") if isinstance(case, Case) else None
        if window and window[0] is not None and not case.misuse:
            mask = align(case.operation, case.arguments, {"MASK-8": "exclusive-left"})["mask"]
            rows, axes = case.arguments.get("query", case.arguments.get("query_codes")), mask.ndim
            assert axes <= max(rows.ndim, 2), case.name
            np.broadcast_to(mask, (*rows.shape[:-1], mask.shape[-1]))
