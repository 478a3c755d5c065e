"""The design of the sized cases: what they cover, and that a small fault shows in nearly all of them."""

from itertools import chain

import ml_dtypes
import numpy as np
import pytest

from attnspec import find_rule
from attnspec.backends import load
from attnspec.conformance import expected, find, observe
from attnspec.conformance.sizes.cases import sized_cases
from attnspec.conformance.sizes.codebook.words import intervals
from attnspec.conformance.sizes.dialect import Dialect, Precision
from attnspec.conformance.sizes.groups import _FACTORS
from attnspec.conformance.sizes.judge import compare_outputs, values_of
from attnspec.conformance.suite.options import NAMES, edge, formula_option
from attnspec.conformance.verdict import Difference
from attnspec.formula import Formula

portable = load("numpy-portable")
SINGLE = tuple(chain.from_iterable(NAMES))
COVERING = [one for one in sized_cases() if one.group == "sizes: covering"]
#: What an option adds to the call; a window and a left bound are told apart by their values.
MARKS = {
    "plain": set(),
    "query_offset": {"is_causal", "query_offset"},
    "left": {"window", "is_causal"},
    "dropout": {"dropout_mask", "dropout_rate"},
}


def of_option(name):
    """The problems with one option alone."""
    # A window has an offset where there are more queries than keys, or fewer.
    free = {"query_offset"} if name in ("left", "window") else set()
    return [one for one in COVERING if set(one.formula.options) - free == MARKS.get(name, {name})]


def test_names_are_unique_and_rules_exist():
    names = [one.name for one in sized_cases()]
    assert len(set(names)) == len(names)
    assert [one.work for one in sized_cases()] == sorted(one.work for one in sized_cases())
    for one in sized_cases():
        assert one.rules
        assert one.title
        for rule in one.rules:
            assert find_rule(rule).id == rule
    one = next(one for one in COVERING if one.formula.keys == 513 and "key_lengths" in one.formula.options)
    assert {"key_lengths", "more than 512 keys", "keys not a multiple of 2"} <= set(one.traits)
    assert "more than 1024 keys" not in one.traits
    assert "layout" in next(one for one in sized_cases() if one.layout).traits
    found = {frozenset(one.formula.options) for one in COVERING}
    assert frozenset({"segments", "dropout_mask", "dropout_rate"}) in found
    assert frozenset({"key_lengths", "query_lengths"}) in found
    assert frozenset({"bias", "softcap"}) in found


@pytest.mark.parametrize("name", SINGLE)
def test_each_option_meets_each_factor_and_both_orders_of_lengths(name):
    met = {
        "queries": {one.formula.queries for one in of_option(name)},
        "keys": {one.formula.keys for one in of_option(name)},
        "depth": {one.formula.depth for one in of_option(name)},
        "value_depth": {one.formula.value_depth for one in of_option(name)},
        "heads": {(one.formula.heads, one.formula.key_heads) for one in of_option(name)},
        "batch": {one.formula.batch for one in of_option(name)},
        "dtype": {one.dtype for one in of_option(name)},
    }
    for factor, values in _FACTORS.items():
        assert set(values) <= met[factor], factor
    differences = [one.formula.keys - one.formula.queries for one in of_option(name)]
    assert sum(one > 0 for one in differences) >= 5
    assert sum(one < 0 for one in differences) >= 5


@pytest.mark.parametrize("name", ["is_causal", "window", "left"])
def test_masks_of_places_meet_many_lengths_as_both_lengths_and_then_have_no_offset(name):
    square = [one.formula for one in of_option(name) if one.formula.queries == one.formula.keys]
    assert len({formula.keys for formula in square}) >= 15
    assert not any("query_offset" in formula.options for formula in square)


@pytest.mark.parametrize("most", [1, 2, 9, 17, 18, 33, 300, 5000])
def test_an_edge_is_below_the_length_and_near_a_tile(most):
    for number in range(100):
        found = edge(number, most)
        assert 1 <= found < max(most, 2)
        if most >= 18:
            assert min(found % 16, -found % 16) <= 1
            assert found >= 15


@pytest.mark.parametrize("name", [one for one in SINGLE if one != "plain"])
def test_an_option_makes_a_difference_in_nearly_all_problems(name):
    found, told = [one for one in of_option(name) if one.work < 2**21 and one.formula.keys > 2], 0
    if name in ("mask", "bias", "dropout", "sinks", "scale", "softcap"):
        for one in found:
            formula = one.formula
            without = Formula(**{**vars(formula), "options": {}})
            told += not np.array_equal(values_of(formula)["output"], values_of(without)["output"])
    else:
        for one in found:
            low, high = intervals(one.formula.options, one.formula.queries, one.formula.keys, 0)
            told += bool((low > 0).any() or (high < one.formula.keys).any())
    assert told >= 0.7 * len(found)
    assert len(found) > 10


def test_no_value_of_an_option_allows_everything():
    for name in ("is_causal", "query_offset", "window", "left", "key_lengths", "query_lengths", "segments"):
        kept = 0
        for number in range(30):
            options = formula_option(name, number, (1,), 300, 300)
            low, high = intervals(options, 300, 300, 0)
            kept += bool((low > 0).any() or (high < 300).any())
        assert kept >= 15, name


def wrong_results(item):
    """The result of a case in two ways slightly wrong; None for a case whose rows have one key each."""
    given = item.formula.arguments("float64")
    query, key, value = (given.pop(name) for name in ("query", "key", "value"))
    rate, kept = given.pop("dropout_rate", 0.0), given.pop("dropout_mask", True)
    _, lse, weights = portable.attention(query, key, value, return_lse=True, return_weights=True, **given)
    heard = weights * kept / (1 - rate)
    values = np.repeat(value, item.formula.heads // item.formula.key_heads, axis=-3)
    output = heard @ values
    lost, of_lse, moved, several = output.copy(), lse.copy(), output.copy(), False
    for head in np.ndindex(weights.shape[:-2]):
        rows = np.flatnonzero((weights[head] > 0).sum(axis=-1) > 1)
        if not len(rows):
            continue
        several, row = True, rows[-1]
        *_, other, last = np.flatnonzero(weights[head][row])
        p, given_to = weights[head][row, last], heard[head][row, last]
        lost[head][row] = (output[head][row] - given_to * values[head][last]) / (1 - p)
        of_lse[head][row] += np.log1p(-p)
        moved[head] += heard[head][:, last, None] * (values[head][other] - values[head][last])
    return (
        {"a lost key": (lost, of_lse), "another value": (moved, lse), "none": (output, lse)}
        if several
        else None
    )


def test_a_small_fault_is_told_in_nearly_all_problems():
    """The last key of the last row is lost, or all rows take a wrong value for one key."""
    few = [one for one in sized_cases() if one.work < 2**20 and not one.gradients]
    small = [one for one in few if one.dtype == "float32"][::4]
    told = {"a lost key": [], "another value": [], "none": []}
    for item in small:
        for fault, (output, lse) in (wrong_results(item) or {}).items():
            outputs = {"output": output.astype(np.float32), "lse": lse.astype(np.float32)}
            found = compare_outputs(item, Dialect(item.formula), outputs, Precision("full"), threads=1)
            told[fault].append(isinstance(found, Difference))
    assert len(told["none"]) >= 40
    assert not any(told["none"])
    assert np.mean(told["a lost key"]) >= 0.95
    assert np.mean(told["another value"]) >= 0.95


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("group", ["covering", "decode", "views"])
def test_a_case_is_found_and_its_expected_values_are_those_of_the_reference(group, dtype):
    item = next(
        one for one in sized_cases() if group in one.group and one.dtype == dtype and one.formula.keys > 5
    )
    case = find(item.name)
    assert case.rules == item.rules
    got, want = observe(portable, case), expected(case)
    assert sorted(got) == sorted(want) == ["lse", "output"]
    unit = {"float32": 2.0**-18, "bfloat16": 2.0**-5}[dtype]
    for name, values in want.items():
        finite = np.isfinite(values)
        assert np.abs(got[name].astype(np.float64)[finite] - values[finite]).max(initial=0) < 4 * unit
    assert case.arguments["query"].dtype == (ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float32)
