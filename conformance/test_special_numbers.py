"""The chapter `numerics`: NaN and infinity where they are attended to."""

from typing import Any

import numpy as np
import pytest

from attnspec.backends import Backend
from attnspec.conformance.extent import tried
from attnspec.conformance.suite.options import sinks
from attnspec.conformance.suite.problem import GROUPED, MASKED, SHAPES, problem_of
from attnspec.conformance.suite import Record, check, rule

_WIDE = SHAPES[4]  # two batch entries of three heads, five queries, seven keys
_PLACES = {"first": 0, "middle": 2, "last": -1}


@rule("NUM-11")
@pytest.mark.parametrize("place", _PLACES)
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["query", "key"])
def test_a_number_that_is_none(
    name: str, number: float, place: str, backend: Backend, record_property: Record
) -> None:
    """In one feature of one query, or of one key: its scores are NaN or of either infinity."""
    for dtype in tried(backend.dtypes):
        problem = problem_of(_WIDE, dtype, 111)
        array = problem.arguments[name].copy()
        array[1, 2, _PLACES[place], 1] = number
        check(backend, "NUM-11", problem.arguments | {name: array}, record_property)


@rule("NUM-11", "HEAD-1")
def test_a_shared_key_that_is_none(backend: Backend, record_property: Record) -> None:
    """It reaches the query heads that share it, and no other."""
    for dtype in tried(backend.dtypes):
        problem = problem_of(GROUPED[0], dtype, 112)
        key = problem.key.copy()
        key[0, 1, 2, 0] = np.nan
        check(backend, "NUM-11", problem.arguments | {"key": key}, record_property)


@rule("NUM-11")
@pytest.mark.parametrize("place", _PLACES)
@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_bias_that_is_none(number: float, place: str, backend: Backend, record_property: Record) -> None:
    """In one place of the bias: one row is NaN."""
    for dtype in tried(backend.dtypes):
        problem = problem_of(_WIDE, dtype, 113)
        bias = problem.array(*problem.shape)
        bias[0, 1, 2, _PLACES[place]] = number
        check(backend, "NUM-11", problem.arguments | {"bias": bias}, record_property)


@rule("NUM-11")
@pytest.mark.parametrize("option", ["mask", "sinks", "softcap"])
def test_a_query_that_is_none_beside_an_option(
    option: str, backend: Backend, record_property: Record
) -> None:
    """NaN passes through a softcap, is not outweighed by a sink, and no mask makes a number of it."""
    for dtype in tried(backend.dtypes):
        problem = problem_of(_WIDE, dtype, 114)
        query = problem.query.copy()
        query[1, 0, 3] = np.nan
        options: dict[str, dict[str, Any]] = {
            "mask": {"mask": problem.mask()},
            "sinks": sinks(problem),
            "softcap": {"softcap": 2.0},
        }
        check(backend, "NUM-11", problem.arguments | {"query": query} | options[option], record_property)


@rule("MASK-6", "NUM-11")
@pytest.mark.parametrize("source", ["mask", "query_lengths", "is_causal"])
def test_a_query_that_is_none_and_may_attend_to_nothing(
    source: str, backend: Backend, record_property: Record
) -> None:
    """It has no score: as padding, its row is 0 like any other with no allowed key."""
    for dtype in tried(backend.dtypes):
        problem = problem_of(_WIDE, dtype, 115)
        query, mask = problem.query.copy(), problem.mask()
        row = 0 if source == "is_causal" else 4
        query[..., row, :] = np.nan
        mask[..., row, :] = False
        options: dict[str, dict[str, Any]] = {
            "mask": {"mask": mask},
            "query_lengths": {"query_lengths": 4},
            "is_causal": {"is_causal": True, "query_offset": -1},
        }
        check(backend, "MASK-6", problem.arguments | {"query": query} | options[source], record_property)


@rule("NUM-12")
@pytest.mark.parametrize("place", _PLACES)
def test_nan_in_a_value(place: str, backend: Backend, record_property: Record) -> None:
    """One element of one value: one column of the rows of one head."""
    for dtype in tried(backend.dtypes):
        problem = problem_of(_WIDE, dtype, 121)
        value = problem.value.copy()
        value[1, 0, _PLACES[place], 2] = np.nan
        check(backend, "NUM-12", problem.arguments | {"value": value}, record_property)


@rule("NUM-12")
def test_nan_in_a_value_of_no_weight_to_speak_of(backend: Backend, record_property: Record) -> None:
    """However small the weight: here it underflows."""
    for dtype in tried(backend.dtypes):
        problem = problem_of(_WIDE, dtype, 122)
        query, key, value = (array.copy() for array in problem.arguments.values())
        query[..., 0], key[..., 0], key[..., 3, 0] = 64, 0, -64  # some 2000 below the others
        value[..., 3, 1] = np.nan
        check(backend, "NUM-12", {"query": query, "key": key, "value": value}, record_property)


@rule("NUM-13")
@pytest.mark.parametrize("signs", ["plus", "minus", "both"])
def test_infinity_in_a_value(signs: str, backend: Backend, record_property: Record) -> None:
    """One infinity is itself, whatever the rest; two of both signs are NaN."""
    for dtype in tried(backend.dtypes):
        problem = problem_of(_WIDE, dtype, 131, 0.125)
        value = problem.value.copy()
        value[0, 1, 2, 1] = -np.inf if signs == "minus" else np.inf
        if signs == "both":
            value[0, 1, 5, 1] = -np.inf
            value[0, 2, 0, 0] = np.inf
        check(backend, "NUM-13", problem.arguments | {"value": value}, record_property)


@rule("NUM-14")
def test_a_score_of_minus_infinity(backend: Backend, record_property: Record) -> None:
    """From an infinite key that all queries point away from: its weight is 0, the others share the rest."""
    for dtype in tried(backend.dtypes):
        problem = problem_of(_WIDE, dtype, 141)
        query, key = problem.query.copy(), problem.key.copy()
        query[..., 0] = np.abs(query[..., 0]) + 1
        key[..., 4, 0] = -np.inf
        check(backend, "NUM-14", problem.arguments | {"query": query, "key": key}, record_property)


@rule("NUM-11", "NUM-12")
def test_a_row_that_is_none_under_a_causal_mask(backend: Backend, record_property: Record) -> None:
    """The first key is attended to by all; the last query by nobody else: no row before it is touched."""
    for dtype in tried(backend.dtypes):
        problem = problem_of(MASKED[1], dtype, 116)
        query = problem.query.copy()
        query[..., -1, 0] = np.nan
        check(backend, "NUM-11", problem.arguments | {"query": query, "is_causal": True}, record_property)
