"""Sized cases of arbitrary numbers: some rows are judged, each against its exact values."""

from dataclasses import replace

import numpy as np
import pytest
from sized_results import PORTABLE, changed
from tests_support import python

from attnspec.backends import load
from attnspec.conformance.attribution.causes import findings
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.render.reproduction import reproduction
from attnspec.conformance.run.child import judge_again, with_traits
from attnspec.conformance.sizes.cases import sized_cases
from attnspec.conformance.sizes.chosen import ROWS, chosen_rows, exact_row, row_of
from attnspec.conformance.sizes.sized import SizedCase
from attnspec.formula import Formula
from attnspec.reference.budget.budget import budget
from attnspec.reference.exact.evaluate import evaluate

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
    item = next(
        one for one in sized_cases() if one.sampled and "is_causal" in one.named and one.formula.keys < 999
    )
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


def test_rows_without_a_key_are_compared_unless_a_variant_is_declared():
    def nan(output, lse, _):
        output[0] = np.nan
        return output, lse

    item = replace(ITEM, formula=replace(ITEM.formula, options={"key_lengths": (0, 60)}))
    item.__dict__["seed"] = next(  # some of the chosen rows are in the first entry, which has no key
        seed for seed in range(99) if any(row[0] == 0 for row in chosen_rows((2, 4, 41), seed))
    )
    verdict = judge(changed(nan), item)
    assert (verdict.status, verdict.difference.kind, verdict.difference.element[0]) == ("fail", "pattern", 0)
    assert judge(changed(nan, dialect={"MASK-6": "nan"}), item).status == "pass"
