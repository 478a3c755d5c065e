"""The chapter `scores`: dot products, scale, softcap, bias; seen in the weights and the lse."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnspec import Case
from attnspec.backends import Backend
from attnspec.conformance.extent import tried
from attnspec.conformance.suite.options import biased
from attnspec.conformance.suite.problem import MASKED, SETTINGS, SHAPES, Shape, problem_of, problems
from attnspec.conformance.suite import Record, check, check_golden, golden, require, rule

_SQUARE = tuple(shape for shape in SHAPES if shape.queries == shape.keys > 1)


@golden("scores")
def test_golden(case: Case, dtype: str, backend: Backend, record_property: Record) -> None:
    """Golden vectors of the chapter."""
    check_golden(backend, case, dtype, record_property)


@rule("SCORE-1", "SCORE-2")
@SETTINGS
@given(data=st.data())
def test_the_default_scale(data: st.DataObject, backend: Backend, record_property: Record) -> None:
    """Without a scale, scores are dot products over the root of the depth of queries and keys."""
    check(backend, "SCORE-2", data.draw(problems(backend)).arguments, record_property)


@rule("SCORE-2")
@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape.depth != shape.value_depth])
def test_the_default_scale_knows_nothing_of_the_values(
    shape: Shape, backend: Backend, record_property: Record
) -> None:
    """With values of another depth, it is that of queries and keys all the same."""
    for dtype in tried(backend.dtypes):
        check(backend, "SCORE-2", problem_of(shape, dtype, 2, 4.0).arguments, record_property)


@rule("SCORE-1")
def test_no_feature_is_lost_past_a_tile(backend: Backend, record_property: Record) -> None:
    """Each query has one feature that is not zero: were it left out, its row would be flat."""
    features = np.array([0, 7, 8, 15, 16, 31, 32, 63, 64, 70])
    for dtype in tried(backend.dtypes):
        problem = problem_of(Shape((), len(features), 5, 71, 4), dtype, 3)
        query = 8 * np.eye(71)[features].astype(dtype)
        check(backend, "SCORE-1", problem.arguments | {"query": query}, record_property)


@rule("SCORE-3")
@pytest.mark.parametrize("scale", [1.0, 0.3, 0.0, -0.5])
@SETTINGS
@given(data=st.data())
def test_a_given_scale(scale: float, data: st.DataObject, backend: Backend, record_property: Record) -> None:
    """Zero and negative scales are numbers like any other."""
    check(backend, "SCORE-3", data.draw(problems(backend)).arguments | {"scale": scale}, record_property)


@rule("SCORE-4")
@pytest.mark.parametrize("axes", ["full", "keys", "queries", "head", "scalar"])
@SETTINGS
@given(data=st.data())
def test_bias_of_every_broadcast_shape(
    axes: str, data: st.DataObject, backend: Backend, record_property: Record
) -> None:
    """The bias is added to the scaled scores, its trailing axes aligned with theirs."""
    problem = data.draw(problems(backend))
    full = problem.shape
    shape = {
        "full": full,
        "keys": full[-1:],
        "queries": (full[-2], 1),
        "head": (*full[-3:-2], 1, 1),
        "scalar": (1, 1),
    }[axes]
    bias = problem.array(*shape, amplitude=3.0)
    check(backend, "SCORE-4", problem.arguments | {"bias": bias, "scale": 0.25}, record_property)


@rule("SCORE-1")
@SETTINGS
@given(data=st.data())
def test_queries_are_rows(data: st.DataObject, backend: Backend, record_property: Record) -> None:
    """One query equal to a key far from all others attends to that key alone."""
    problem = data.draw(problems(backend, _SQUARE))
    keys = problem.key.shape[-2]
    order = problem.random.permutation(keys)
    # Query i points at key order[i]; were queries and keys exchanged, it would be the inverse permutation.
    key = np.broadcast_to(np.eye(keys, dtype=problem.key.dtype), (*problem.key.shape[:-1], keys))
    arguments = {
        "query": np.array(key[..., order, :]),
        "key": np.array(key),
        "value": problem.array(*key.shape),
        "scale": 64.0,
    }
    check(backend, "SCORE-1", arguments, record_property)


@rule("SCORE-5", variants=("after-bias",))
@pytest.mark.parametrize("softcap", [0.5, 3.0, 50.0])
@SETTINGS
@given(data=st.data())
def test_softcap(softcap: float, data: st.DataObject, backend: Backend, record_property: Record) -> None:
    """Far below the scores, about as large, and far above."""
    problem = data.draw(problems(backend))
    check(backend, "SCORE-5", problem.arguments | {"softcap": softcap}, record_property)


@rule("SCORE-5", variants=("after-bias",))
@SETTINGS
@given(data=st.data())
def test_the_cap_is_on_the_scaled_score_alone(
    data: st.DataObject, backend: Backend, record_property: Record
) -> None:
    """After the scale, a negative one too, and before a bias that is far larger than the cap."""
    problem = data.draw(problems(backend, MASKED))
    options = {"softcap": 0.5, "scale": problem.choice(2.0, -0.5), "bias": biased(problem, amplitude=4.0)}
    check(backend, "SCORE-5", problem.arguments | options, record_property)


@rule("SCORE-5", "MASK-5")
@pytest.mark.parametrize("source", ["mask", "bias", "is_causal"])
@SETTINGS
@given(data=st.data())
def test_a_tiny_cap_brings_no_disallowed_key_back(
    source: str, data: st.DataObject, backend: Backend, record_property: Record
) -> None:
    """With scores of at most 1/64, minus infinity inside the cap would be a score like any other."""
    problem = data.draw(problems(backend, MASKED))
    options: dict[str, dict[str, Any]] = {
        "mask": {"mask": problem.mask()},
        "bias": {"bias": np.where(problem.mask(), 0, -np.inf).astype(problem.query.dtype)},
        "is_causal": {"is_causal": True},
    }
    check(backend, "SCORE-5", problem.arguments | {"softcap": 1 / 64} | options[source], record_property)


@rule("SCORE-1", "SCORE-2", "SCORE-3", "SCORE-4", "SCORE-5")
@SETTINGS
@given(data=st.data())
def test_scores_by_themselves(data: st.DataObject, backend: Backend, record_property: Record) -> None:
    """Where there is a function for them: with every option that it has, and without."""
    require(backend, operation="scores")
    problem = data.draw(problems(backend, MASKED))
    every = {"scale": 0.3, "softcap": 1.5, "bias": biased(problem)}
    options = {name: thing for name, thing in every.items() if problem.random.random() < 0.5}
    arguments = {"query": problem.query, "key": problem.key}
    check(backend, "SCORE-1", arguments | options, record_property, operation="scores")
