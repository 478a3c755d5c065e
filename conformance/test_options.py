"""The chapter `errors`: an argument that is accepted has its effect, alone and beside every other (ERR-3)."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnspec.backends import Backend
from attnspec.conformance.extent import examples, some, tried
from attnspec.conformance.judge.budget import budgets_of
from attnspec.conformance.judge.call import observe
from attnspec.conformance.judge.cause import ignored
from attnspec.conformance.judge.comparison import compare
from attnspec.conformance.judge.expected import differ, exact
from attnspec.conformance.judge.failure import Failure
from attnspec.conformance.suite.options import OPTIONS, Options, drawn, takes
from attnspec.conformance.report.reproduction import of_arguments
from attnspec.conformance.suite.problem import (
    GROUPED,
    MASKED,
    SETTINGS,
    SHAPES,
    Problem,
    Shape,
    problem_of,
    problems,
)
from attnspec.conformance.suite import Record, check, require, rule, unsupported_skips
from attnspec.reference.budget.budget import budget

#: More keys than queries, so that a bottom-right mask is not a top-left one, and room for every mask.
_SHAPE, _SHARED = MASKED[0], GROUPED[0]
_SEEDS = (1, 2)
#: Longer than tiles of 16 and 32, and no multiple of them.
_TILED = Shape((1, 1), 19, 35, 2, 2)
#: How many budgets apart results have to be that an option makes different.
_APART = 20
_MASKS = ("mask", "bias", "is_causal", "query_offset", "window", "query_lengths", "key_lengths", "segments")
#: An offset is always beside a causal mask, and a rate beside its mask.
_PAIRS = [
    *(
        pair
        for pair in combinations(OPTIONS, 2)
        if pair != ("is_causal", "query_offset") and pair[1] != "dropout_rate"
    ),
    *(("grouped", name) for name in OPTIONS),
]


@rule("ERR-3")
@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_changes_the_result(option: str, backend: Backend) -> None:
    """With and without it, where it has to matter."""
    for dtype in tried(backend.dtypes):
        problem, needs, own = _that_matters(option, dtype)
        require(backend, *needs, *own)
        calls = [problem.arguments | needs | options for options in ({}, own)]
        with unsupported_skips():
            less, more = (observe(backend, "attention", arguments) for arguments in calls)
        few, many = (budgets_of(backend, "attention", arguments, dtype) for arguments in calls)
        changed = [
            compare(name, x, less[name].astype(np.float64), few[name] + many[name], str(x.dtype)).problem
            for name, x in more.items()
        ]
        if not any(changed):
            names = " and ".join(own)
            finding = f"{names}: accepted, and changes nothing in {dtype}, on {backend.name}"
            raise Failure("ERR-3", f"{finding}\n{of_arguments(backend, 'attention', calls[1])}")


@pytest.mark.parametrize(
    ("one", "other"),
    [pytest.param(*pair, marks=rule("ERR-3", *(["MASK-4"] * (set(pair) <= set(_MASKS))))) for pair in _PAIRS],
)
def test_options_in_pairs(one: str, other: str, backend: Backend, record_property: Record) -> None:
    """Each beside each other, on problems in which both matter."""
    for number, seed in enumerate(some(_SEEDS)):
        # float32, and one of the other dtypes in turn.
        turn = _PAIRS.index((one, other)) + number
        for dtype in some(list(dict.fromkeys(("float32", backend.dtypes[turn % len(backend.dtypes)])))):
            if dtype in backend.dtypes:
                arguments = _both_matter(one, other, dtype, seed)
                _check_pair(backend, (one, other), arguments, record_property)


def _check_pair(backend: Backend, pair: tuple[str, str], arguments: Options, record: Record) -> None:
    """Judge two options together; one that was passed over is named, under the rule of its own kind."""
    require(backend, *arguments)
    rule_id = (
        "MASK-4"
        if set(pair) <= set(_MASKS)
        else next(OPTIONS[name].rule for name in reversed(pair) if name in OPTIONS)
    )
    try:
        check(backend, rule_id, arguments, record)
    except Failure as failure:
        names = ignored(backend, "attention", arguments, observe(backend, "attention", arguments))
        if not names:
            raise
        beside = next((name for name in pair if name not in names), pair[0])
        finding = f"{names[0]}: accepted beside {beside}, and changes nothing there\n{failure.finding}"
        raise Failure("ERR-3", finding) from failure


def _that_matters(option: str, dtype: str) -> tuple[Problem, Options, Options]:
    """Find a problem in which an option makes a difference, by the second oracle."""
    for seed in range(100):
        problem = problem_of(_SHAPE, dtype, seed)
        needs, own = drawn(problem, option)
        if _apart(problem.arguments | needs, problem.arguments | needs | own):
            return problem, needs, own
    raise AssertionError(f"{option}: expected a problem in which it matters, got none")


def _both_matter(one: str, other: str, dtype: str, seed: int) -> Options:
    """Find a problem in which leaving out either of two options makes a difference."""
    shape = _SHARED if one == "grouped" else _SHAPE
    for attempt in range(seed * 1000, seed * 1000 + 100):
        problem = problem_of(shape, dtype, attempt)
        names = [name for name in (one, other) if name in OPTIONS]
        parts = [drawn(problem, name) for name in names]
        needs = {name: thing for part, _ in parts for name, thing in part.items()}
        owns = [own for _, own in parts]
        together: Options = problem.arguments | needs
        for own in owns:
            together |= own
        less = [{name: x for name, x in together.items() if name not in own} for own in owns]
        if all(_apart({**needs, **rest}, together) for rest in less):
            return together
    raise AssertionError(f"{one}, {other}: expected a problem in which both matter, got none")


def _apart(less: Options, more: Options) -> bool:
    """Whether two calls have to give different outputs, by many budgets of the longest of them."""
    values = [{"output": exact("attention", arguments)["output"]} for arguments in (less, more)]
    allowed = {"output": _APART * budget("attention", more, "bfloat16", accuracy="cast")["output"]}
    return differ(values[0], values[1], allowed, values[0])


@pytest.mark.parametrize("option", [pytest.param(name, marks=rule(it.rule)) for name, it in OPTIONS.items()])
def test_an_option_past_every_tile(option: str, backend: Backend, record_property: Record) -> None:
    """It holds for the last query and the last key as for the first."""
    for dtype in some([dtype for dtype in ("float32", "float64") if dtype in backend.dtypes]):
        problem = problem_of(_TILED, dtype, 5)
        needs, own = drawn(problem, option)
        check(backend, OPTIONS[option].rule, problem.arguments | needs | own, record_property)


@rule("MASK-4", "ERR-3", "SCORE-3", "SCORE-4", "SCORE-5")
@settings(SETTINGS, max_examples=examples(40))
@given(data=st.data())
def test_options_together(data: st.DataObject, backend: Backend, record_property: Record) -> None:
    """Any of all options that a backend has, mask and bias of every shape that broadcasts.

    Rows may be left without a key by several sources together. The numbers of the
    bias are not exact in a shorter dtype, and some of them are large.
    """
    problem = data.draw(problems(backend, (*SHAPES, *GROUPED)))
    options: dict[str, Any] = {}
    for name in OPTIONS:
        needs, own = drawn(problem, name) if min(problem.shape[-2:]) > 1 else ({}, {})
        if problem.random.random() < 0.4 and takes(backend, needs | own):
            options |= needs | own
    if "bias" in options:
        bias = problem.random.normal(size=problem.shape) * problem.choice(1.0, 300.0)
        bias[problem.random.random(problem.shape) < 0.2] = -np.inf
        options["bias"] = problem.broadcastable(bias.astype(problem.query.dtype))
    if "mask" in options:
        options["mask"] = problem.broadcastable(problem.random.random(problem.shape) < 0.7)
    check(backend, "MASK-4", problem.arguments | options, record_property)
