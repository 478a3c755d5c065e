"""The chapter `softmax`: scores to weights to output."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnspec import Case
from attnspec.backends import Backend
from attnspec.conformance.extent import tried
from attnspec.conformance.judge.budget import budgets_of
from attnspec.conformance.judge.comparison import compare
from attnspec.conformance.judge.failure import Failure
from attnspec.conformance.suite.options import dropout, takes
from attnspec.conformance.suite.problem import GROUPED, SETTINGS, SHAPES, Shape, problem_of, problems
from attnspec.conformance.suite import (
    Record,
    check,
    check_golden,
    exact,
    golden,
    observed,
    require,
    rule,
    without,
)

_ONE_KEY = tuple(shape for shape in SHAPES if shape.keys == 1)


@golden("softmax")
def test_golden(case: Case, dtype: str, backend: Backend, record_property: Record) -> None:
    """Golden vectors of the chapter."""
    check_golden(backend, case, dtype, record_property)


@rule("SOFT-1")
@SETTINGS
@given(data=st.data())
def test_each_row_is_a_softmax_of_its_own(
    data: st.DataObject, backend: Backend, record_property: Record
) -> None:
    """Raising all scores of one row by the bias leaves the other rows as they are."""
    problem = data.draw(problems(backend))
    bias = np.zeros(problem.shape, dtype=problem.query.dtype)
    bias[..., 0, :] = 8.0
    values = exact(problem.arguments)
    expected = {name: values[name] for name in ("output", "weights")}
    check(backend, "SOFT-1", problem.arguments | {"bias": bias}, record_property, expected=expected)


@rule("SOFT-1")
@SETTINGS
@given(data=st.data())
def test_equal_scores_give_the_mean(data: st.DataObject, backend: Backend, record_property: Record) -> None:
    """A query of zeros attends to all keys alike: a closed form, without exponentials."""
    problem = data.draw(problems(backend))
    value = problem.value.astype(np.float64)  # on the grid of 1/64: their sum is exact
    keys = value.shape[-2]
    expected = {
        "output": np.broadcast_to(value.mean(axis=-2, keepdims=True), (*problem.shape[:-1], value.shape[-1])),
        "weights": np.full(problem.shape, 1 / keys),
    }
    arguments = problem.arguments | {"query": np.zeros_like(problem.query)}
    check(backend, "SOFT-1", arguments, record_property, expected=expected)


@rule("SOFT-2")
@pytest.mark.parametrize("shift", [10000.0, -10000.0])
@SETTINGS
@given(data=st.data())
def test_a_common_shift_changes_nothing(
    shift: float, data: st.DataObject, backend: Backend, record_property: Record
) -> None:
    """Far beyond where the exponential over- or underflows; adding the shift is exact here."""
    problem = data.draw(problems(backend))
    query, key = np.round(problem.query), np.round(problem.key)
    arguments = {"query": query, "key": key, "value": problem.value, "scale": 0.125}
    bias = np.full(problem.shape, shift, dtype=problem.query.dtype)
    values = exact(arguments)
    expected = {name: values[name] for name in ("output", "weights")}
    if "SOFT-6" not in backend.dialect:
        expected["lse"] = values["lse"] + float(bias.flat[0])  # bfloat16 has no 10000
    check(backend, "SOFT-2", arguments | {"bias": bias}, record_property, expected=expected)


@rule("SOFT-2", "NUM-5")
@pytest.mark.parametrize("sign", [1.0, -1.0])
@SETTINGS
@given(data=st.data())
def test_scores_that_float16_does_not_hold(
    sign: float, data: st.DataObject, backend: Backend, record_property: Record
) -> None:
    """One large feature in common puts every score at about 130000, above or below zero."""
    problem = data.draw(problems(backend, tuple(shape for shape in SHAPES if shape.depth > 1)))
    query, key = problem.query.copy(), problem.key.copy()
    query[..., 0], key[..., 0] = 512, sign * 512
    arguments = {"query": query, "key": key, "value": problem.value, "scale": 0.5}
    check(backend, "SOFT-2", arguments, record_property)


@rule("SOFT-2")
@SETTINGS
@given(data=st.data())
def test_large_scores_do_not_overflow(data: st.DataObject, backend: Backend, record_property: Record) -> None:
    """Scores of thousands, of both signs, the largest of them late in the row."""
    problem = data.draw(problems(backend))
    key = problem.key.copy()
    key[..., -1, :] *= 4
    check(backend, "SOFT-2", problem.arguments | {"key": key, "scale": 500.0}, record_property)


@rule("SOFT-3")
@SETTINGS
@given(data=st.data())
def test_values_go_with_their_keys(data: st.DataObject, backend: Backend, record_property: Record) -> None:
    """Keys and values in another order give the same output."""
    problem = data.draw(problems(backend))
    order = problem.random.permutation(problem.key.shape[-2])
    expected = {"output": exact(problem.arguments)["output"]}
    permuted = {
        "query": problem.query,
        "key": problem.key[..., order, :],
        "value": problem.value[..., order, :],
    }
    check(backend, "SOFT-3", permuted, record_property, expected=expected)


@rule("SOFT-3")
@pytest.mark.parametrize("sizes", [(3, 33), (2, 65), (2, 257), (33, 9)], ids=str)
def test_no_key_is_lost_past_a_tile(
    sizes: tuple[int, int], backend: Backend, record_property: Record
) -> None:
    """With a query of zeros every key counts as much as any other, and every query gets their mean."""
    queries, keys = sizes
    # The long dtypes first: in a short one a key in many is no more than what rounding in it leaves.
    for dtype in sorted(tried(backend.dtypes), key=lambda dtype: "float16" in dtype):
        problem = problem_of(Shape((), queries, keys, 2, 6), dtype, 3)
        value = problem.value.astype(np.float64)
        expected = {"output": np.broadcast_to(value.mean(axis=0), (queries, 6))}
        arguments = problem.arguments | {"query": np.zeros_like(problem.query)}
        check(backend, "SOFT-3", arguments, record_property, expected=expected)


@rule("SOFT-3")
@SETTINGS
@given(data=st.data())
def test_one_key_gives_its_value(data: st.DataObject, backend: Backend) -> None:
    """Whatever the score, the output is the value to the last bit."""
    problem = data.draw(problems(backend, _ONE_KEY))
    output = observed(backend, problem.arguments)["output"]
    expected = np.broadcast_to(problem.value, output.shape)
    comparison = compare(
        "output", output, expected.astype(np.float64), np.zeros(output.shape), str(problem.value.dtype)
    )
    if comparison.problem:
        raise Failure("SOFT-3", comparison.problem)


@rule("SOFT-3")
@SETTINGS
@given(data=st.data())
def test_the_output_is_linear_in_the_values(
    data: st.DataObject, backend: Backend, record_property: Record
) -> None:
    """One set of values and twice another give the one output and twice the other."""
    problem = data.draw(problems(backend))
    dtype = problem.value.dtype
    # Whole numbers: a sum of them is exact in every dtype. None below 0: nothing cancels in what is expected.
    one, other = (problem.random.integers(0, 9, problem.value.shape).astype(dtype) for _ in range(2))
    first, second = (exact(problem.arguments | {"value": value})["output"] for value in (one, other))
    arguments = problem.arguments | {"value": (one + 2 * other).astype(dtype)}
    check(backend, "SOFT-3", arguments, record_property, expected={"output": first + 2 * second})


@rule("SOFT-3")
@SETTINGS
@given(data=st.data())
def test_the_output_lies_among_the_values(data: st.DataObject, backend: Backend) -> None:
    """A mean with weights that are positive and sum to 1 is not outside of what it is a mean of."""
    problem = data.draw(problems(backend, (*SHAPES, *GROUPED)))
    dtype = str(problem.value.dtype)
    output = observed(backend, problem.arguments)["output"].astype(np.float64)
    allowed = budgets_of(backend, "attention", problem.arguments, dtype)["output"]
    groups = output.shape[-3] // problem.value.shape[-3] if output.ndim > 2 else 1
    value = np.repeat(problem.value.astype(np.float64), groups, axis=-3) if groups > 1 else problem.value
    low, high = (extreme(value.astype(np.float64), axis=-2, keepdims=True) for extreme in (np.min, np.max))
    if not ((low - allowed <= output) & (output <= high + allowed)).all():
        raise Failure("SOFT-3", f"output, {dtype}: got numbers outside the range of the values")


@rule("SOFT-4")
@pytest.mark.parametrize("hidden", [("weights",), ("lse",), ("lse", "weights")], ids=" and ".join)
@SETTINGS
@given(data=st.data())
def test_the_output_is_the_same_without_what_is_not_asked_for(
    hidden: tuple[str, ...], data: st.DataObject, backend: Backend, record_property: Record
) -> None:
    """Whoever does not ask for the weights or the lse takes another path in many a kernel."""
    problem = data.draw(problems(backend))
    require(backend, *(f"return_{name}" for name in hidden))
    options: dict[str, Any] = {"mask": problem.mask(), "is_causal": True, "scale": 0.25}
    taken = {name: thing for name, thing in options.items() if backend.has("attention", name)}
    mute = without(backend, *(f"return_{name}" for name in hidden))
    check(mute, "SOFT-4", problem.arguments | taken, record_property)


@rule("SOFT-4")
@SETTINGS
@given(data=st.data())
def test_returned_weights_are_those_that_were_used(data: st.DataObject, backend: Backend) -> None:
    """The weights applied to the values give the output, what is dropped among them."""
    problem = data.draw(problems(backend))
    require(backend, "return_weights")
    arguments = problem.arguments | {"is_causal": True}
    options = dropout(problem)
    arguments |= options if takes(backend, options) else {}
    outputs = observed(backend, arguments)
    dtype = str(problem.query.dtype)
    applied = outputs["weights"].astype(np.float64) @ problem.value.astype(np.float64)
    budgets = budgets_of(backend, "attention", arguments, dtype)
    allowed = budgets["output"] + budgets["weights"] @ np.abs(problem.value.astype(np.float64))
    comparison = compare("output", outputs["output"], applied, allowed, dtype)
    if comparison.problem:
        raise Failure("SOFT-4", f"weights @ value against output: {comparison.problem}")
