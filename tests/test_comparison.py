"""The comparison of a result with its exact values, also of rules with several conforming results."""

from dataclasses import replace

import numpy as np
import pytest
from test_judge import MASKED, PORTABLE
from tests_support import own_case

from attnspec import Misuse
from attnspec.conformance import find
from attnspec.conformance.judge.comparison import compare, same_bits
from attnspec.conformance.judge.judge import judge
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
        ((..., slice(2, None), slice(None)), ("rows 2", "rows -2")),
        ((..., [1, 3], slice(None)), ("rows -3",)),
        ((..., [0, 3], slice(None)), ()),
        ((..., slice(None), slice(1, None)), ("features 1",)),
        ((slice(None), 1), ("heads 1",)),
        ((1, slice(None), slice(1, None)), ("rows 1", "rows -3", "batch entries")),
        (..., ()),
    ],
)
def test_where_the_wrong_elements_begin(wrong, starts):
    """An axis is named where all indices from one on are wrong, and rows where most are, none before it."""
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


FIRST = {name: MASKED[name] for name in ("query", "key", "value")}


@pytest.mark.parametrize(
    ("number", "lse", "status"),
    [
        (np.inf, np.inf, "pass"),
        (np.inf, np.nan, "pass"),
        (np.inf, -np.inf, "fail"),
        (np.inf, 7.0, "fail"),
        (np.nan, np.nan, "pass"),
        (np.nan, np.inf, "fail"),
        (np.nan, 7.0, "fail"),
        (0.0, np.nan, "fail"),
    ],
)
def test_the_lse_of_an_infinite_score_is_infinite_or_nan(number, lse, status):
    """And that of a score of NaN is NaN (NUM-11); the bias has the number in the first row."""

    def attention(query, key, value, *, bias=None, return_lse=False):
        output, found = PORTABLE.attention(query, key, value, bias=bias, return_lse=True)
        found = np.array([lse, found[1]])
        return (output, found) if return_lse else output

    bias = np.zeros((2, 3))
    bias[0, 1] = number
    verdict = judge(
        replace(PORTABLE, attention=attention, companions={}), own_case("NUM-11", FIRST | {"bias": bias})
    )
    assert (verdict.status, verdict.rule) == (status, "" if status == "pass" else "NUM-11")


@pytest.mark.parametrize(
    ("part", "lse", "status"),
    [(np.inf, np.inf, "pass"), (np.inf, np.nan, "pass"), (np.inf, 7.0, "fail"), (np.nan, np.inf, "fail")],
)
def test_the_lse_of_an_infinite_part_is_infinite_or_nan(part, lse, status):
    def merge_partials(outputs, lses, *, return_lse=False):
        output, found = PORTABLE.function("merge_partials")(outputs, lses, return_lse=True)
        found = np.array([lse, found[1]])
        return (output, found) if return_lse else output

    arguments = {"outputs": np.ones((2, 2, 3)), "lses": np.array([[part, 0.0], [1.0, 1.0]])}
    backend = replace(PORTABLE, companions={"merge_partials": merge_partials})
    verdict = judge(backend, own_case("CACHE-9", arguments, "merge_partials"))
    assert (verdict.status, verdict.rule) == (status, "" if status == "pass" else "CACHE-9")


@pytest.mark.parametrize(
    ("dtype", "given", "status"),
    [
        ("float16", "float16", "pass"),
        ("float16", "float32", "pass"),
        ("float16", "float64", "pass"),
        ("float32", "float16", "fail"),
        ("float64", "float32", "fail"),
    ],
)
def test_the_bias_of_alibi_may_be_wider_than_the_query(dtype, given, status):
    def alibi_bias(query, key, *, query_offset=0):
        return PORTABLE.function("alibi_bias")(query, key, query_offset=query_offset).astype(given)

    arrays = {"query": np.ones((4, 3, 2), dtype), "key": np.ones((4, 5, 2), dtype)}
    backend = replace(PORTABLE, companions={"alibi_bias": alibi_bias})
    verdict = judge(backend, own_case("POS-8", arrays, "alibi_bias"))
    assert (verdict.status, verdict.rule) == (status, "" if status == "pass" else "NUM-1")


@pytest.mark.parametrize(("heads", "status"), [(0, "pass"), (1, "fail"), (None, "pass")])
def test_no_heads_are_refused_or_give_nothing(heads, status):
    """Whatever has another shape than nothing fails (ERR-17)."""

    def attention(query, key, value):
        if len(query):
            return PORTABLE.attention(query, key, value)
        if heads is None:
            raise ValueError("query: expected heads")
        return np.zeros((heads, *query.shape[1:-1], value.shape[-1]))

    for keys in (0, 2):
        arrays = {"query": np.ones((0, 3, 2)), "key": np.ones((keys, 3, 2)), "value": np.ones((keys, 3, 2))}
        case = own_case("ERR-17", arrays, misuse=Misuse("query", allowed=True), outputs=("output",))
        verdict = judge(replace(PORTABLE, attention=attention, companions={}), case)
        assert (verdict.status, verdict.rule) == (status, "" if status == "pass" else "ERR-17")


@pytest.mark.parametrize(
    ("change", "status"),
    [("promoted", "pass"), ("refused", "pass"), ("rounded", "fail"), ("misread", "fail")],
)
def test_a_key_of_another_dtype_is_refused_or_taken_at_its_value(change, status):
    """A key of float32 beside a query of bfloat16 or float16 (ERR-1)."""

    def attention(query, key, value):
        if key.dtype != query.dtype:
            if change == "refused":
                raise TypeError("key: expected another dtype")
            if change == "rounded":
                key = key.astype(query.dtype).astype(np.float32)
            if change == "misread":
                key = key.view(np.float16)[..., ::2].astype(np.float32)
        found = PORTABLE.attention(*(array.astype(np.float32) for array in (query, key, value)))
        return found.astype(query.dtype)

    random = np.random.default_rng(0)
    key = (np.round(random.normal(size=(5, 2)) * 1024) / 1024 + 300).astype(np.float32)
    query = np.full((3, 2), 0.5, np.float16)
    arrays = {"query": query, "key": key, "value": np.arange(10.0).reshape(5, 2).astype(np.float16)}
    case = own_case("ERR-1", arrays, misuse=Misuse("key", allowed=True), outputs=("output",))
    backend = replace(PORTABLE, attention=attention, companions={})
    verdict = judge(backend, case)
    assert (verdict.status, verdict.rule) == (status, "" if status == "pass" else "ERR-1")


@pytest.mark.parametrize(
    ("name", "repeats", "status"),
    [
        ("masking-finite-garbage-mask-and-large-1-float32", False, "unsupported"),
        ("masking-finite-garbage-after-the-query-1-float32", False, "unsupported"),
        ("masking-finite-garbage-mask-and-large-1-float32", True, "fail"),
    ],
)
def test_bits_are_compared_only_where_a_repeated_call_has_the_same(name, repeats, status):
    """MASK-12 is about implementations whose calls are repeatable (NUM-9)."""
    random = np.random.default_rng(0)

    def attention(query, key, value, *, mask=None, is_causal=False):
        output = PORTABLE.attention(query, key, value, mask=mask, is_causal=is_causal)
        other = np.abs(key).max() > 1000 if repeats else random.integers(0, 2, output.shape)
        return (output + other * np.spacing(output)).astype(output.dtype)

    verdict = judge(replace(PORTABLE, attention=attention, companions={}), find(name))
    assert verdict.status == status
    assert verdict.status != "unsupported" or verdict.reason.endswith("(NUM-9)")
