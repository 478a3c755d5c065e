"""The chapter `softmax`: what else is in the denominator, and its logarithm."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnspec.backends import Backend
from attnspec.conformance.suite.options import sinks, takes
from attnspec.conformance.suite.problem import GROUPED, MASKED, SETTINGS, problems
from attnspec.conformance.suite import Record, check, require, rule


@rule("SOFT-5")
@SETTINGS
@given(data=st.data())
def test_sinks(data: st.DataObject, backend: Backend, record_property: Record) -> None:
    """One for each query head, whatever heads of keys there are; neither scaled nor capped nor masked."""
    problem = data.draw(problems(backend, (*MASKED, *GROUPED)))
    every: tuple[dict[str, Any], ...] = ({}, {"scale": 0.125}, {"softcap": 0.5}, {"is_causal": True})
    options = problem.choice(*(them for them in every if takes(backend, them)))
    check(backend, "SOFT-5", problem.arguments | sinks(problem) | options, record_property)


@rule("SOFT-5")
@pytest.mark.parametrize("sink", [0.0, 3.0, -np.inf])
@SETTINGS
@given(data=st.data())
def test_a_sink_beside_equal_scores(
    sink: float, data: st.DataObject, backend: Backend, record_property: Record
) -> None:
    """With a query of zeros and values of one, the output is n / (n + exp(sink))."""
    problem = data.draw(problems(backend, MASKED))
    heads, keys = problem.shape[-3] if len(problem.shape) > 2 else 1, problem.shape[-1]
    arguments = {
        "query": np.zeros_like(problem.query),
        "key": problem.key,
        "value": np.ones_like(problem.value),
        "sinks": np.full(heads, sink, dtype=problem.query.dtype),
    }
    share = 1 / (keys + np.exp(sink))
    output_shape = (*problem.shape[:-1], problem.value.shape[-1])
    expected = {"output": np.full(output_shape, keys * share), "weights": np.full(problem.shape, share)}
    check(backend, "SOFT-5", arguments, record_property, expected=expected)


@rule("SOFT-5", "SOFT-2")
@pytest.mark.parametrize("sink", [1000.0, -1000.0])
@SETTINGS
@given(data=st.data())
def test_a_sink_far_from_all_scores(
    sink: float, data: st.DataObject, backend: Backend, record_property: Record
) -> None:
    """It takes everything without overflowing, or nothing."""
    problem = data.draw(problems(backend, MASKED))
    heads = problem.shape[-3] if len(problem.shape) > 2 else 1
    arguments = problem.arguments | {"sinks": np.full(heads, sink, dtype=problem.query.dtype)}
    check(backend, "SOFT-5", arguments, record_property)


@rule("SOFT-6", variants=("base-2",))
@SETTINGS
@given(data=st.data())
def test_the_lse(data: st.DataObject, backend: Backend, record_property: Record) -> None:
    """With what bears on it: scale, bias, mask, softcap."""
    require(backend, "return_lse")
    problem = data.draw(problems(backend, (*MASKED, *GROUPED)))
    every: tuple[dict[str, Any], ...] = (
        {},
        {"scale": 2.0},
        {"softcap": 1.5},
        {"mask": problem.mask()},
        {"bias": problem.array(*problem.shape, amplitude=3.0)},
    )
    options = problem.choice(*(them for them in every if takes(backend, them)))
    check(backend, "SOFT-6", problem.arguments | options, record_property)


@rule("SOFT-6")
@SETTINGS
@given(data=st.data())
def test_the_lse_of_equal_scores(data: st.DataObject, backend: Backend, record_property: Record) -> None:
    """The logarithm of n for n scores of 0; and the score, where the key is alone."""
    require(backend, "return_lse")
    if "SOFT-6" in backend.dialect:
        pytest.skip(f"{backend.name} declares another logarithm")
    problem = data.draw(problems(backend))
    alone = problem.key.shape[-2] == 1
    query = problem.query if alone else np.zeros_like(problem.query)
    score = query.astype(np.float64) @ np.swapaxes(problem.key.astype(np.float64), -1, -2)  # exact: one key
    lse = 0.5 * score[..., 0] if alone else np.full(problem.shape[:-1], np.log(problem.shape[-1]))
    arguments = problem.arguments | {"query": query, "scale": 0.5}
    check(backend, "SOFT-6", arguments, record_property, expected={"lse": lse})
