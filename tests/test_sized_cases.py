"""The design of the sized cases, and the rows of arbitrary numbers that are judged."""

from dataclasses import replace
from itertools import chain

import ml_dtypes
import numpy as np
import pytest
from sized_results import PORTABLE, changed
from tests_support import python

from attnspec import find_rule
from attnspec.backends import load
from attnspec.conformance import expected, find, observe
from attnspec.conformance.attribution.causes import findings
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.render.reproduction import reproduction
from attnspec.conformance.run.child import judge_again, with_traits
from attnspec.conformance.sizes.cases import sized_cases
from attnspec.conformance.sizes.chosen import ROWS, chosen_rows, exact_row, row_of
from attnspec.conformance.sizes.codebook.words import intervals
from attnspec.conformance.sizes.dialect import Dialect, Precision
from attnspec.conformance.sizes.groups import _FACTORS
from attnspec.conformance.sizes.judge import compare_outputs, values_of
from attnspec.conformance.sizes.sized import SizedCase
from attnspec.conformance.suite.options import NAMES, edge, formula_option
from attnspec.conformance.verdict import Difference
from attnspec.formula import Formula
from attnspec.reference.budget.budget import budget
from attnspec.reference.exact.evaluate import evaluate

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
    _, lse, weights = PORTABLE.attention(query, key, value, return_lse=True, return_weights=True, **given)
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
    faults = {"a lost key": (lost, of_lse), "another value": (moved, lse), "none": (output, lse)}
    return faults if several else None


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
    item = next(x for x in sized_cases() if group in x.group and x.dtype == dtype and x.formula.keys > 5)
    case = find(item.name)
    assert case.rules == item.rules
    got, want = observe(PORTABLE, case), expected(case)
    assert sorted(got) == sorted(want) == ["lse", "output"]
    unit = {"float32": 2.0**-18, "bfloat16": 2.0**-5}[dtype]
    for name, values in want.items():
        finite = np.isfinite(values)
        assert np.abs(got[name].astype(np.float64)[finite] - values[finite]).max(initial=0) < 4 * unit
    assert case.arguments["query"].dtype == (ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float32)


#: A batch of two, two query heads on each of two key heads, more keys than queries. No two rows are equal.
PLAIN = Formula(5, 9, 6, 3, batch=(2,), heads=4, key_heads=2, words=0, seed=5)
SIZES = {
    "two batch axes": replace(PLAIN, batch=(2, 3), key_heads=4),
    "no batch axis": replace(PLAIN, batch=(), key_heads=1),
    "more queries": replace(PLAIN, queries=11),
    "one query": replace(PLAIN, queries=1),
}
OPTIONS = (
    {},
    {"mask": ("S",)},
    {"mask": ("L", "S")},
    {"mask": ("B", "S")},
    {"mask": ("B", "H", "L", "S"), "is_causal": True, "query_offset": 4},
    {"bias": ("L", "S")},
    {"bias": ("H", "L", "S"), "softcap": 0.5},
    {"bias": ("B", "H", "L", "S"), "mask": ("H", "L", "S")},
    {"is_causal": True},
    {"is_causal": True, "query_offset": 4},
    {"is_causal": True, "query_offset": (3, -2)},
    {"window": (2, 1)},
    {"window": (1, 0), "query_offset": (0, 4)},
    {"window": (None, 1), "query_offset": 3},
    {"window": (3, None), "is_causal": True, "query_offset": 2},
    {"query_offset": 4},
    {"key_lengths": (0, 7)},
    {"key_lengths": (9, 4), "is_causal": True, "query_offset": 3},
    {"query_lengths": (3, 0)},
    {"query_lengths": (5, 2), "key_lengths": (3, 8)},
    {"segments": 3},
    {"segments": 2, "is_causal": True, "query_offset": 4},
    {"sinks": True},
    {"sinks": True, "key_lengths": (0, 5)},
    {"softcap": 0.25},
    {"scale": -0.75},
    {"scale": 0.0},
    {"dropout_mask": ("B", "H", "L", "S"), "dropout_rate": 0.25},
    {"dropout_mask": ("L", "S"), "dropout_rate": 0.5, "sinks": True},
)
PROBLEMS = {"-".join(one) + f" {number}": replace(PLAIN, options=one) for number, one in enumerate(OPTIONS)}
PROBLEMS |= {
    name: replace(formula, options={"is_causal": True, "query_offset": 1, "mask": ("H", "L", "S")})
    for name, formula in SIZES.items()
}


def rows_of(formula):
    """The index of every row."""
    return list(np.ndindex(*formula.batch, formula.heads, formula.queries))


@pytest.mark.parametrize("name", PROBLEMS)
def test_each_row_is_that_of_the_whole_problem(name):
    """By the exact oracle, which shares nothing with the one that computes rows."""
    arguments = PROBLEMS[name].arguments("float32")
    want = evaluate("attention", arguments)
    for index in rows_of(PROBLEMS[name]):
        found = exact_row(arguments, index)
        for output in ("output", "lse", "weights"):
            np.testing.assert_array_max_ulp(found[output], want[output].values[index], maxulp=1)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_budget_of_a_row_is_that_of_the_whole_problem(name, dtype):
    arguments = PROBLEMS[name].arguments(dtype)
    want = budget("attention", arguments, dtype)
    for index in rows_of(PROBLEMS[name]):
        found = budget("attention", row_of(arguments, index), dtype)
        for output in ("output", "lse"):
            np.testing.assert_allclose(found[output][0], want[output][index], rtol=1e-5)


@pytest.mark.parametrize("shape", [(2, 3, 5), (1, 1, 1000), (3, 2, 4, 7), (4, 9)])
def test_the_last_row_is_always_among_the_judged_ones(shape):
    last, drawn = tuple(size - 1 for size in shape), set()
    for seed in range(50):
        rows = chosen_rows(shape, seed)
        assert rows[0] == last
        assert len(rows) == len(set(rows)) <= ROWS + 1
        assert all(0 <= place < size for row in rows for place, size in zip(row, shape, strict=True))
        assert rows == chosen_rows(shape, seed)
        drawn |= set(rows)
    assert len(drawn) > min(50, np.prod(shape) // 2)  # each seed has others


#: A call with an odd number of queries, in which a wrong row can be in any head.
ITEM = SizedCase(
    "one", "", ("MASK-7", "SOFT-3"), "sizes: sampled",
    Formula(41, 67, 8, 4, batch=(2,), heads=4, key_heads=2, words=0, seed=1,
            options={"is_causal": True, "query_offset": 26}),
    "float32",
)  # fmt: skip


def half(output, lse, _):
    """Every second row is wrong, but not the last one."""
    output[..., 1::2, :] += 1
    return output, lse


def test_a_kernel_that_is_wrong_in_half_of_its_rows_fails_repeatably():
    """Which rows are judged is drawn for each case, and not again when a case is judged again."""
    verdicts, drawn = [judge_again(changed(half), replace(ITEM)) for _ in range(20)], replace(ITEM)
    failing = [one for one in verdicts if one.bad]
    assert len(failing) > 6  # seven of eight, on average
    assert all(one.repeatable for one in verdicts)
    assert all(one.difference.element[2] % 2 for one in failing)
    assert len({one.difference.element for one in failing}) > 3
    assert len({judge(changed(half), drawn).difference for _ in range(5)}) == 1
    (cause,) = findings(failing, verdicts)
    assert (cause.rule, {one.rule for one in failing}) == ("MASK-7", {"MASK-7"})


def test_a_wrong_last_row_always_fails():
    def last(output, lse, _):
        output[-1, -1, -1] += 1
        return output, lse

    def last_lse(output, lse, _):
        lse[-1, -1, -1] += 1
        return output, lse

    for change, name in ((last, "output"), (last_lse, "lse")):
        for _ in range(5):
            verdict = judge(changed(change), replace(ITEM))
            assert (verdict.status, verdict.rule, verdict.difference.output) == ("fail", "MASK-7", name)
            assert verdict.difference.element[:3] == (1, 3, 40)


HALF = """
from attnspec.backends import load

right = load("numpy-portable").attention

def half(query, key, value, *, return_lse=False, **options):
    output, lse = right(query, key, value, return_lse=True, **options)
    {wrong}
    return (output, lse) if return_lse else output

half.__wrapped__ = right
"""
#: What is wrong: with every second row and the last one, because any case has to show it.
WRONG = {"output": "output[..., ::-2, :] += 1", "lse": "lse[..., ::-2] += 1"}


@pytest.mark.parametrize("output", WRONG)
def test_the_printed_reproduction_prints_two_numbers_of_a_row(output, tmp_path, monkeypatch):
    name = f"wrong_rows_of_{output}"
    (tmp_path / f"{name}.py").write_text(HALF.format(wrong=WRONG[output]))
    monkeypatch.syspath_prepend(tmp_path)
    item = next(x for x in sized_cases() if x.sampled and "is_causal" in x.named and x.formula.keys < 999)
    verdict = with_traits(judge(load(f"{name}:half"), item), item)
    assert (verdict.status, verdict.difference.output) == ("fail", output)
    script = reproduction(verdict)
    assert "exact_row(" in script  # all rows would take too long
    got, expected = map(float, python("-c", script, cwd=tmp_path).stdout.split())
    assert got == pytest.approx(verdict.difference.got)
    assert expected == pytest.approx(verdict.difference.expected)
    assert got == pytest.approx(expected + 1, abs=0.01)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_the_portable_backend_passes_in_each_dtype(dtype):
    for formula in PROBLEMS.values():
        verdict = judge(PORTABLE, SizedCase("one", "", ("SOFT-3",), "sizes: sampled", formula, dtype))
        assert (verdict.status, verdict.difference) == ("pass", None), formula
        assert 0 <= verdict.share <= 1
