"""The chapter `masking`: queries with nothing to attend to, and what stands where nobody looks."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from attnspec.backends import Backend
from attnspec.conformance.extent import tried
from attnspec.conformance.judge.deviations import fail
from attnspec.conformance.judge.failure import Failure
from attnspec.conformance.strategies import MASKED, SHAPES, Problem, problem_of
from attnspec.conformance.suite import Record, check, exact, observed, require, rule
from attnspec.reference.budget.formats import FORMATS

#: Two batch entries of three heads, five queries, seven keys; and the other way round.
_WIDE, _TALL = SHAPES[4], MASKED[2]
#: Which rows are left without a key. A rule may hold for the first row and fail for one in the middle.
_ROWS = {"first": slice(0, 1), "middle": slice(2, 3), "last": slice(-1, None), "all": slice(None)}


def _mask(problem: Problem, rows: slice) -> dict[str, Any]:
    mask = problem.mask()
    mask[..., rows, :] = False
    return {"mask": mask}


def _bias(problem: Problem, rows: slice) -> dict[str, Any]:
    bias = problem.array(*problem.shape)
    bias[..., rows, :] = -np.inf
    return {"bias": bias}


def _segments(problem: Problem, rows: slice) -> dict[str, Any]:
    queries = np.zeros((*problem.batch, problem.shape[-2]), dtype=np.int64)
    queries[..., rows] = 5
    return {
        "query_segment_ids": queries,
        "key_segment_ids": np.zeros((*problem.batch, problem.shape[-1]), int),
    }


def _mask_and_causal(problem: Problem, rows: slice) -> dict[str, Any]:
    """Row i may attend to keys up to i by the one, from i + 1 on by the other."""
    mask = problem.mask()
    for row in range(problem.shape[-2])[rows]:
        mask[..., row, : row + 1] = False
    return {"mask": mask, "is_causal": True}


_ANYWHERE = {
    "mask": _mask,
    "bias": _bias,
    "segments": _segments,
    "mask and causal": _mask_and_causal,
}
#: Routes that leave rows empty where they can: the shape, and the arguments.
_SOMEWHERE: Mapping[str, tuple[Any, dict[str, Any]]] = MappingProxyType(
    {
        "first, by a negative offset": (_WIDE, {"is_causal": True, "query_offset": -2}),
        "first of one entry, by its offset": (_WIDE, {"is_causal": True, "query_offset": np.array([-3, 1])}),
        "first, by bottom-right": (_TALL, {"is_causal": True, "query_offset": -2}),
        "last, by a window past the keys": (_TALL, {"window": (1, None)}),
        "first, by a window before the keys": (_WIDE, {"window": (None, 0), "query_offset": -1}),
        "all, by no keys of one entry": (_WIDE, {"key_lengths": np.array([0, 4])}),
        "all, by no keys": (_TALL, {"key_lengths": 0}),
        "last, by query lengths": (_WIDE, {"query_lengths": np.array([4, 2])}),
        "all, by no queries": (_TALL, {"query_lengths": 0}),
        "last, by a window and a length": (_WIDE, {"window": (1, 0), "key_lengths": 3}),
    }
)


@rule("MASK-6", "SOFT-7")
@pytest.mark.parametrize("place", _ROWS)
@pytest.mark.parametrize("route", _ANYWHERE)
def test_a_row_with_nothing_to_attend_to(
    route: str, place: str, backend: Backend, record_property: Record
) -> None:
    """Rows that a source which may take any key leaves empty, or the declared variant of them."""
    for dtype in tried(backend.dtypes):
        problem = problem_of(_WIDE, dtype, 66)
        arguments = problem.arguments | _ANYWHERE[route](problem, _ROWS[place])
        check(backend, "MASK-2" if route == "bias" else "MASK-6", arguments, record_property)


@rule("MASK-6", "SOFT-7")
@pytest.mark.parametrize("route", _SOMEWHERE)
def test_rows_at_the_ends_with_nothing_to_attend_to(
    route: str, backend: Backend, record_property: Record
) -> None:
    """Rows that are left empty by an alignment, a window or a length."""
    shape, options = _SOMEWHERE[route]
    for dtype in tried(backend.dtypes):
        check(backend, "MASK-6", problem_of(shape, dtype, 67).arguments | options, record_property)


@rule("MASK-6", "SOFT-7")
def test_no_keys_at_all(backend: Backend, record_property: Record) -> None:
    """With S = 0 every row is empty, and there is nothing to take a mean of."""
    for dtype in tried(backend.dtypes):
        arguments = {
            "query": np.ones((2, 3, 4), dtype),
            "key": np.ones((2, 0, 4), dtype),
            "value": np.ones((2, 0, 4), dtype),
        }
        check(backend, "MASK-6", arguments, record_property)


@rule("SOFT-7", variants=("finite",))
@pytest.mark.parametrize("place", _ROWS)
def test_the_lse_of_a_row_with_nothing_to_attend_to(
    place: str, backend: Backend, record_property: Record
) -> None:
    """Minus infinity, or what is declared."""
    require(backend, "return_lse", "mask")
    for dtype in tried(backend.dtypes):
        problem = problem_of(_WIDE, dtype, 69)
        check(backend, "SOFT-7", problem.arguments | _mask(problem, _ROWS[place]), record_property)


@rule("SOFT-7", "SOFT-5", "MASK-6")
@pytest.mark.parametrize("place", _ROWS)
def test_an_empty_row_with_a_sink(place: str, backend: Backend, record_property: Record) -> None:
    """Its output is 0 all the same, its lse the sink."""
    for dtype in tried(backend.dtypes):
        problem = problem_of(_WIDE, dtype, 68)
        sinks = problem.array(problem.shape[-3], amplitude=2.0)
        arguments = problem.arguments | _mask(problem, _ROWS[place]) | {"sinks": sinks}
        check(backend, "SOFT-7", arguments, record_property)


def _garbage(problem: Problem, gone: NDArray[np.bool_], key: Any, value: Any) -> dict[str, Any]:
    """Put something into the keys and values that nobody may attend to."""
    given = {name: array.copy() for name, array in problem.arguments.items()}
    given["key"][..., gone, :] = key
    given["value"][..., gone, :] = value
    return given


def _routes(problem: Problem) -> dict[str, tuple[NDArray[np.bool_], dict[str, Any]]]:
    """Find for each source keys that it disallows for every query, and its arguments."""
    queries, keys = problem.shape[-2:]
    position = np.arange(keys)
    mask = np.tile([True, False], keys)[:keys]
    return {
        "mask": (~mask, {"mask": mask}),
        "bias": (~mask, {"bias": np.where(mask, 0.5, -np.inf).astype(problem.query.dtype)}),
        "is_causal": (position >= queries, {"is_causal": True}),
        "window": (position < 2, {"window": (0, None), "query_offset": 2}),
        "key_lengths": (position >= 4, {"key_lengths": 4}),
        "segments": (
            ~mask,
            {
                "query_segment_ids": np.ones((*problem.batch, queries), np.int64),
                "key_segment_ids": np.broadcast_to(mask, (*problem.batch, keys)).astype(np.int64),
            },
        ),
    }


_SOURCES = ("mask", "bias", "is_causal", "window", "key_lengths", "segments")


@rule("MASK-12")
@pytest.mark.parametrize("size", ["large", "largest"])
@pytest.mark.parametrize("source", _SOURCES)
def test_finite_garbage_leaves_no_trace(source: str, size: str, backend: Backend) -> None:
    """The same call twice, with other numbers where nobody may attend to: the weights have the same bits."""
    for dtype in tried(backend.dtypes):
        problem = problem_of(_WIDE, dtype, 12)
        gone, options = _routes(problem)[source]
        most = 30000 if size == "large" else FORMATS[dtype].largest
        calls = [
            _garbage(problem, gone, key, value) | options
            for key, value in ((0, 0), (most, -most), (-most, most))
        ]
        first, *others = [observed(backend, arguments)["weights"] for arguments in calls]
        for arguments, other in zip(calls[1:], others, strict=True):
            if other.tobytes() != first.tobytes():
                place = np.unravel_index(int((other != first).argmax()), first.shape)
                finding = (
                    f"weights{list(map(int, place))}, {dtype}: got {other[place]} with {most} in disallowed "
                    f"keys and values, expected {first[place]} to the last bit, as with 0 there"
                )
                fail(backend, Failure("MASK-12", finding), arguments, dtype)


@rule("MASK-12")
def test_later_keys_leave_no_trace_in_earlier_rows(backend: Backend) -> None:
    """A key that is disallowed for some queries only, by the causal mask."""
    require(backend, "is_causal")
    for dtype in tried(backend.dtypes):
        problem = problem_of(MASKED[1], dtype, 13)
        last = np.arange(problem.shape[-1]) == problem.shape[-1] - 1
        calls = [_garbage(problem, last, x, -x) | {"is_causal": True} for x in (0, 30000)]
        first, other = (observed(backend, arguments)["weights"][..., :-1, :] for arguments in calls)
        if first.tobytes() != other.tobytes():
            raise Failure("MASK-12", f"weights, {dtype}: got other bits in rows before the key that changed")


@rule("MASK-13")
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("source", _SOURCES)
def test_poison_leaves_no_trace(
    source: str, poison: float, backend: Backend, record_property: Record
) -> None:
    """NaN and infinity in keys and values that nobody may attend to, against 0 there."""
    for dtype in tried(backend.dtypes):
        problem = problem_of(_WIDE, dtype, 14)
        gone, options = _routes(problem)[source]
        expected = exact(_garbage(problem, gone, 0, 0) | options)
        arguments = _garbage(problem, gone, poison, poison) | options
        check(backend, "MASK-13", arguments, record_property, expected=expected)


@rule("MASK-13")
def test_a_poisoned_key_leaves_no_trace_in_earlier_rows(backend: Backend, record_property: Record) -> None:
    """The last key is NaN: under the causal mask only the last row may know."""
    for dtype in tried(backend.dtypes):
        problem = problem_of(MASKED[1], dtype, 15)
        last = np.arange(problem.shape[-1]) == problem.shape[-1] - 1
        arguments = _garbage(problem, last, np.nan, np.nan) | {"is_causal": True}
        check(backend, "MASK-13", arguments, record_property)
