"""The chapter `caching`: partial results, merged by their lse."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnspec.backends import Backend
from attnspec.conformance.judge.budget import budgets_of
from attnspec.conformance.judge.comparison import compare
from attnspec.conformance.judge.dtypes import lse_dtype
from attnspec.conformance.judge.failure import Failure
from attnspec.conformance.suite.problem import SETTINGS, SHAPES, Problem, Shape, grid, problems
from attnspec.conformance.suite import Record, check, exact, observed, require, rule

_SPLIT = (SHAPES[1], SHAPES[4], Shape((2, 4), 3, 5, 4, 4, groups=2))
#: Where the keys are cut: into parts of different sizes, or with a part of none.
_CUTS = {"two": (3,), "three": (1, 3), "an empty one": (0, 2), "an empty one last": (2, None)}


def _parts(backend: Backend, seed: int, data: st.DataObject) -> tuple[dict[str, Any], np.random.Generator]:
    """Draw three parts of (2, 4) rows, of values 3 deep."""
    require(backend, operation="merge_partials")
    random, dtype = np.random.default_rng(seed), data.draw(st.sampled_from(backend.dtypes))
    return {
        "outputs": grid(random, (3, 2, 4, 3), 1.0).astype(dtype),
        "lses": grid(random, (3, 2, 4), 2.0).astype(lse_dtype(dtype)),
    }, random


@rule("CACHE-6")
@pytest.mark.parametrize("shift", [0.0, 10000.0, -10000.0])
@SETTINGS
@given(seed=st.integers(0, 2**16), data=st.data())
def test_merging(
    shift: float, seed: int, data: st.DataObject, backend: Backend, record_property: Record
) -> None:
    """Lses near 0 and far from it, where their exponentials would overflow."""
    arguments, _ = _parts(backend, seed, data)
    arguments["lses"] = (arguments["lses"] + shift).astype(arguments["lses"].dtype)
    check(backend, "CACHE-6", arguments, record_property, operation="merge_partials")


@rule("CACHE-7")
@pytest.mark.parametrize("poison", [0.0, 5.0, np.nan])
@SETTINGS
@given(seed=st.integers(0, 2**16), data=st.data())
def test_parts_with_nothing_to_attend_to(
    poison: float, seed: int, data: st.DataObject, backend: Backend, record_property: Record
) -> None:
    """One part, two, and in one row all of them; whatever their outputs hold."""
    arguments, random = _parts(backend, seed, data)
    empty = random.random((3, 2, 4)) < 0.4
    empty[:, 1, 2] = True
    arguments["lses"][empty] = -np.inf
    arguments["outputs"][empty] = poison
    clean = arguments | {"outputs": np.where(empty[..., None], 0, arguments["outputs"])}
    expected = exact(clean, "merge_partials")
    check(backend, "CACHE-7", arguments, record_property, operation="merge_partials", expected=expected)


@rule("CACHE-6", "CACHE-7", "SOFT-6", "SOFT-7")
@pytest.mark.parametrize("cuts", _CUTS)
@SETTINGS
@given(data=st.data())
def test_parts_of_its_own_merge_to_the_whole(cuts: str, data: st.DataObject, backend: Backend) -> None:
    """Attention over parts of the keys, merged by the lse that it gave, is attention over all of them."""
    require(backend, operation="merge_partials")
    require(backend, "return_lse")
    if {"SOFT-6", "SOFT-7"} & set(backend.dialect):
        pytest.skip(f"{backend.name} declares another lse, by which nothing is merged")
    problem = data.draw(problems(backend, _SPLIT))
    bounds = [0, *(problem.shape[-1] if cut is None else cut for cut in _CUTS[cuts]), problem.shape[-1]]
    calls = [_part(problem, start, stop) for start, stop in pairwise(bounds)]
    found = [observed(backend, call) for call in calls]
    partial = {name: np.stack([one[name] for one in found]) for name in ("output", "lse")}
    merge = {"outputs": partial["output"], "lses": partial["lse"]}
    output = observed(backend, merge, "merge_partials")["output"]
    whole = exact(problem.arguments)["output"]
    allowed = _inherited(backend, calls, whole) + _own(backend, merge)
    comparison = compare("output", output, whole, allowed, str(problem.query.dtype))
    if comparison.problem:
        raise Failure("CACHE-6", f"merged by its own lse, on {backend.name}\n{comparison.problem}")


def _part(problem: Problem, start: int, stop: int) -> dict[str, Any]:
    return problem.arguments | {
        name: problem.arguments[name][..., start:stop, :] for name in ("key", "value")
    }


def _own(backend: Backend, merge: dict[str, Any]) -> Any:
    return budgets_of(backend, "merge_partials", merge, str(merge["outputs"].dtype))["output"]


def _inherited(backend: Backend, calls: list[dict[str, Any]], whole: Any) -> Any:
    """Bound what the errors of the parts, in output and lse, make of the merged output."""
    dtype = str(calls[0]["query"].dtype)
    parts = [exact(call) for call in calls]
    budgets = [budgets_of(backend, "attention", call, dtype) for call in calls]
    top = np.max([part["lse"] for part in parts], axis=0)
    rates = [np.exp(part["lse"] - top)[..., None] for part in parts]
    # Two lses move a quotient of their exponentials by no more than twice the largest error.
    worst = np.expm1(2 * np.max([budget["lse"] for budget in budgets], axis=0))[..., None]
    bound = np.zeros_like(whole)
    for rate, part, budget in zip(rates, parts, budgets, strict=True):
        share = rate / sum(rates)
        error = budget["output"] + worst * (np.abs(part["output"] - whole) + budget["output"])
        bound += share * (1 + worst) * error
    return bound
