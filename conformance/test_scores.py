"""The chapter `scores`: dot products, scale, bias; seen in the weights where they are not returned."""

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from attnspec import Case
from attnspec.backends import Backend
from attnspec.conformance.strategies import SETTINGS, problems
from attnspec.conformance.suite import Record, check, check_golden, golden, rule
from attnspec.reference import allowed_keys


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
    problem = data.draw(problems(backend, (((), 4, 4, 4, 4), ((2,), 6, 6, 6, 6))))
    keys = problem.key.shape[-2]
    order = problem.random.permutation(keys)
    # Query i points at key order[i]; were queries and keys exchanged, it would be the inverse permutation.
    key = np.broadcast_to(np.eye(keys, dtype=problem.key.dtype), problem.key.shape)
    arguments = {
        "query": np.array(key[..., order, :]),
        "key": np.array(key),
        "value": problem.value,
        "scale": 64.0,
    }
    check(backend, "SCORE-1", arguments, record_property)


@rule("SCORE-3", "SCORE-4", "MASK-4")
@settings(SETTINGS, max_examples=60)
@given(data=st.data())
def test_options_together(data: st.DataObject, backend: Backend, record_property: Record) -> None:
    """Scale, bias, mask and causal in every combination, mask and bias of every shape that broadcasts.

    Rows may be left without a key by two sources together. The numbers of the bias
    are not exact in a shorter dtype, and some of them are large.
    """
    problem = data.draw(problems(backend))
    options: dict[str, Any] = {}
    scale = data.draw(st.sampled_from((None, 0.0, 0.3, -0.5, 2)))
    if scale is not None:
        options["scale"] = scale
    if data.draw(st.booleans()):
        bias = problem.random.normal(size=problem.shape) * data.draw(st.sampled_from((1.0, 300.0)))
        bias[problem.random.random(problem.shape) < 0.2] = -np.inf
        options["bias"] = problem.broadcastable(bias.astype(problem.query.dtype))
    if data.draw(st.booleans()):
        options["mask"] = problem.broadcastable(problem.random.random(problem.shape) < 0.7)
    if data.draw(st.booleans()):
        options["is_causal"] = True
    for name in [name for name in options if not backend.has("attention", name)]:
        del options[name]
    if any(rule_id in backend.dialect for rule_id in ("MASK-2", "MASK-6")):
        # What a declared variant makes of an empty row is tested with the rule; here there shall be none.
        empty = ~allowed_keys(problem.shape, **{n: x for n, x in options.items() if n != "scale"}).any(
            axis=-1
        )
        assume(not empty.any())
    check(backend, "MASK-4", problem.arguments | options, record_property)
