"""The comparison of a result with its exact values: the wrong elements, their errors and places."""

import numpy as np
import pytest

from attnspec.conformance.judge.comparison import compare, same_bits
from attnspec.conformance.verdict import Difference

EXPECTED = np.array([[1.0, -2.0], [0.0, 4.0]])
ALLOWED = np.full((2, 2), 1e-6)


def shown(got, expected=EXPECTED, allowed=ALLOWED, dtype="float64"):
    return compare("output", np.asarray(got), np.asarray(expected), allowed, dtype)


def kind_of(compared):
    """The kind of a difference; empty for a share of the budget, which is at most 1."""
    if isinstance(compared, Difference):
        return compared.kind
    assert 0 <= compared <= 1
    return ""


@pytest.mark.parametrize(
    ("got", "kind"),
    [
        (EXPECTED, ""),
        (EXPECTED + 0.99e-6, ""),
        (EXPECTED + 1.01e-6, "value"),
        (EXPECTED - 1.01e-6, "value"),
        (np.zeros((2, 2)), "value"),
        (EXPECTED * [[1, 1], [-1, 1]], ""),  # -0.0 is 0.0
        (np.where(EXPECTED == 4, np.nan, EXPECTED), "pattern"),
        (np.where(EXPECTED == 4, np.inf, EXPECTED), "pattern"),
        (np.full((2, 2), np.nan), "pattern"),
        (EXPECTED[0], "shape"),  # would broadcast
        (EXPECTED[None], "shape"),
        (EXPECTED.T[:1], "shape"),
        (EXPECTED.astype(np.float32), "dtype"),
        (EXPECTED.astype(complex), "dtype"),
        (EXPECTED.astype(int), "dtype"),
        (EXPECTED[0, 0], "shape"),
    ],
)
def test_comparison(got, kind):
    assert kind_of(shown(got)) == kind


@pytest.mark.parametrize("wrong", [-1e-6, np.nan])
@pytest.mark.parametrize("got", [EXPECTED, EXPECTED * 12345])
def test_a_negative_budget_is_a_fault_of_the_judge(got, wrong):
    """The quotient of any error and such a budget is not above 1."""
    with pytest.raises(AssertionError, match="output: expected budgets that are not negative"):
        shown(got, allowed=np.array([[1e-6, 1e-6], [1e-6, wrong]]))


@pytest.mark.parametrize(
    ("got", "expected", "same"),
    [
        (np.nan, np.nan, True),
        (np.inf, np.inf, True),
        (-np.inf, np.inf, False),
        (np.inf, np.nan, False),
        (1.0, np.nan, False),
        (1e300, np.inf, False),
        (0.0, -np.inf, False),
    ],
)
def test_patterns(got, expected, same):
    compared = shown([got], [expected], np.full(1, 1e300))
    assert kind_of(compared) == ("" if same else "pattern")


def test_the_ends_of_a_budget():
    assert shown([1.5], [1.0], np.full(1, 0.5)) == 1
    assert shown([np.nextafter(1.5, 2)], [1.0], np.full(1, 0.5)).kind == "value"
    assert shown([5e-324], [0.0], np.zeros(1)).share == np.inf
    assert shown([0.0], [0.0], np.zeros(1)) == 0
    assert shown(EXPECTED + 1.001e-6).kind == "value"
    # A warning here would be an error of the suite's own.
    got, expected, allowed = np.full(2, 1e300), np.zeros(2), np.full(2, 1e-300)
    assert compare("output", got, expected, allowed, "float64").share == np.inf


@pytest.mark.parametrize("got", [np.nan, np.inf, -np.inf, 7.0])
def test_nothing_is_said_of_a_place_that_is_not_looked_at(got):
    seen = np.array([True, False])
    there = compare("weights", np.array([1.0, got]), np.ones(2), np.zeros(2), "float64", where=seen)
    assert there == 0
    assert kind_of(compare("weights", np.array([got, 1.0]), np.ones(2), np.zeros(2), "float64", where=seen))


@pytest.mark.parametrize(
    ("wrong", "starts"),
    [
        ((..., slice(2, None), slice(None)), ("rows 2",)),
        ((..., [1, 3], slice(None)), ()),
        ((..., slice(None), slice(1, None)), ("features 1",)),
        ((slice(None), 1), ("heads 1",)),
        ((1, slice(None), slice(1, None)), ("rows 1", "batch entries")),
        (..., ()),
    ],
)
def test_where_the_wrong_elements_begin(wrong, starts):
    """An axis is named where all indices from one on are wrong, and none before it."""
    got = np.zeros((2, 2, 4, 3))
    got[wrong] = 1
    found = compare("output", got, np.zeros(got.shape), np.full(got.shape, 0.1), "float64")
    assert found.starts == starts


def test_what_is_named():
    difference = shown(EXPECTED + np.array([[0, 5e-6], [0, 1e-5]]))
    assert (difference.kind, difference.output, difference.element) == ("value", "output", (1, 1))
    assert (difference.got, difference.expected, difference.allowed) == (4.00001, 4.0, 1e-6)
    assert difference.share == pytest.approx(10)
    assert (difference.count, difference.size) == (2, 4)
    got = EXPECTED.copy()
    got[0, 1], got[1, 1] = np.nan, np.inf
    difference = shown(got)
    assert (difference.kind, difference.element, difference.count) == ("pattern", (0, 1), 2)
    assert np.isnan(difference.got)
    assert difference.expected == -2
    shape, dtype = shown(EXPECTED[0]), shown(EXPECTED.astype(np.float32))
    assert (shape.got, shape.expected) == ("(2,)", "(2, 2)")
    assert (dtype.got, dtype.expected) == ("float32", "float64")
    empty = np.zeros((0, 3))
    assert shown(empty, empty, empty) == 0
    assert shown(np.zeros((0, 4)), empty, empty).kind == "shape"


@pytest.mark.parametrize(
    ("left", "right", "kind"),
    [
        ([1.0, np.nan], [1.0, np.nan], ""),
        ([1.0, 0.0], [1.0, -0.0], "bits"),
        ([1.0, 2.0], [1.0, np.nextafter(2, 3)], "bits"),
        ([1.0], [1.0, 2.0], "shape"),
    ],
)
def test_the_same_bits(left, right, kind):
    found = same_bits("output", np.array(left), np.array(right))
    assert (found.kind if found else "") == kind
    assert kind != "bits" or (found.element, found.count) == ((1,), 1)
