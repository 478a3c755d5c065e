"""The chapter `gradients`: pairs that contribute nothing, and gradients that NaN may not reach."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from attnspec import Case
from attnspec.backends import Backend
from attnspec.conformance.judge.budget import budgets_of
from attnspec.conformance.judge.call import call
from attnspec.conformance.judge.comparison import compare
from attnspec.conformance.judge.expected import declared, expected
from attnspec.conformance.relations.relation import Found
from attnspec.conformance.suite.gradients import cotangents
from attnspec.conformance.suite.group import Calls, Chapter, Draw, Yielded
from attnspec.conformance.suite.options import segments
from attnspec.conformance.suite.problem import GROUPED, MASKED, SHAPES, Problem
from attnspec.conformance.verdict import Difference

chapter = Chapter("gradients")

_VJP = "attention_vjp"
_WIDE = SHAPES[4]  # two batch entries of three heads, five queries, seven keys
#: Ways to leave the second query of every head without a key.
_EMPTYING = ("mask", "bias", "is_causal", "window", "query_lengths", "key_lengths", "segments")


@chapter.group("GRAD-9", operation=_VJP, each=("mask", "bias", "key_lengths", "is_causal"))
def keys_that_nobody_attends_to(draw: Draw, source: str) -> Iterator[Yielded]:
    """A key that no query may attend to has a gradient of 0, whatever finite numbers it holds."""
    for problem in draw.problems(MASKED[:3]):
        keys = problem.shape[-1]
        gone = np.arange(keys) >= keys - 1
        key, value = problem.key.copy(), problem.value.copy()
        if source != "is_causal":
            key[..., gone, :] *= 1000  # at most some 4000: float16 ends at 65504
            value[..., gone, :] = -10000
        options: dict[str, dict[str, Any]] = {
            "mask": {"mask": ~gone},
            "bias": {"bias": np.where(gone, -np.inf, 0).astype(key.dtype)},
            "key_lengths": {"key_lengths": keys - 1},
            "is_causal": {"is_causal": True, "query_offset": -1},
        }
        yield problem.arguments | {"key": key, "value": value} | cotangents(problem) | options[source]


@chapter.group("GRAD-10", "MASK-6", operation=_VJP, each=_EMPTYING)
def query_that_attends_to_nothing(draw: Draw, source: str) -> Iterator[Yielded]:
    """A query that may attend to nothing has a gradient of 0, and the other gradients are not NaN."""
    for number, problem in enumerate(draw.problems((_WIDE, *MASKED[1:3]))):
        yield problem.arguments | _emptied(problem, source) | cotangents(problem, lse=number % 4 == 1)


def _emptied(problem: Problem, source: str) -> dict[str, Any]:
    """Give the options that leave at least one query without a key."""
    queries, keys = problem.shape[-2:]
    empty = np.arange(queries)[:, None] == 1
    entries = np.arange(np.prod(problem.batch, dtype=int)).reshape(problem.batch)
    options: dict[str, dict[str, Any]] = {
        "mask": {"mask": problem.mask() & ~empty},
        "bias": {"bias": np.where(empty, -np.inf, problem.array(queries, keys)).astype(problem.query.dtype)},
        "is_causal": {"is_causal": True, "query_offset": -2},
        "window": {"window": (0, 0), "query_offset": -1},
        "query_lengths": {"query_lengths": queries - 1},
        "key_lengths": {"key_lengths": np.where(entries == 0, 0, keys)},
        "segments": segments(problem),
    }
    if source == "segments":
        options[source]["query_segment_ids"][..., 1] = 3  # which no key has
    return options[source]


@chapter.group("GRAD-11", "MASK-2", operation=_VJP, each=("bias", "mask", "is_causal"))
def bias_where_the_pair_is_disallowed(draw: Draw, source: str) -> Iterator[Yielded]:
    """The gradient of the bias is 0 where the bias or another argument disallows the pair."""
    for problem in draw.problems(MASKED):
        bias, mask = problem.array(*problem.shape), problem.mask()
        options: dict[str, dict[str, Any]] = {
            "bias": {"bias": np.where(mask, bias, -np.inf).astype(bias.dtype)},
            "mask": {"bias": bias, "mask": mask},
            "is_causal": {"bias": bias, "is_causal": True},
        }
        yield problem.arguments | cotangents(problem) | options[source]


@chapter.group("GRAD-12", operation=_VJP, each=("mask", "key_lengths", "query_lengths"))
def nan_that_nobody_attends_to(draw: Draw, source: str) -> Iterator[Yielded]:
    """NaN in padding changes no gradient."""
    for problem in draw.problems((_WIDE, *MASKED[1:3])):
        queries, keys = problem.shape[-2:]
        options: dict[str, dict[str, Any]] = {
            "mask": {"mask": np.arange(keys) < keys - 1},
            "key_lengths": {"key_lengths": keys - 1},
            "query_lengths": {"query_lengths": queries - 1},
        }
        clean = problem.arguments | cotangents(problem) | options[source]
        names = ("query",) if source == "query_lengths" else ("key", "value")
        spoiled = {name: clean[name].copy() for name in names}
        for array in spoiled.values():
            array[..., -1, :] = np.nan
        yield Calls((clean, clean | spoiled), _unchanged)


def _unchanged(backend: Backend, calls: tuple[Case, ...]) -> Found:
    clean, spoiled = calls
    got = call(backend, spoiled.operation, spoiled.arguments)
    budgets = budgets_of(backend, clean)
    values, _ = declared(backend, clean, budgets, got)
    return _first(got, values, budgets, clean.dtype)


@chapter.group("GRAD-12", operation=_VJP, each=("query", "key", "value", "d_output"))
def nan_across_a_disallowed_pair(draw: Draw, name: str) -> Iterator[Yielded]:
    """NaN in a query or key does not change the gradients across a disallowed pair."""
    for problem in draw.problems((_WIDE, MASKED[2])):
        queries, keys = problem.shape[-2:]
        # The first query attends to the first two keys alone, and no other query to the first key.
        mask = (np.arange(queries)[:, None] == 0) ^ (np.arange(keys) > 0)
        mask[:, 1] = True
        clean = problem.arguments | cotangents(problem) | {"mask": mask}
        yield Calls((clean, clean | {name: _spoiled(clean[name])}), _beyond_the_pairs)


def _beyond_the_pairs(backend: Backend, calls: tuple[Case, ...]) -> Found:
    """Compare the gradients that depend neither on the first query nor on the keys that it attends to."""
    return _except(backend, calls, {"d_query": slice(0, 1), "d_key": slice(0, 2), "d_value": slice(0, 2)})


@chapter.group("GRAD-18", operation=_VJP, each=("query", "key", "value", "d_output"))
def nan_in_one_head(draw: Draw, name: str) -> Iterator[Yielded]:
    """NaN in one head reaches no other head or batch entry, and from a query no other query."""
    for problem in draw.problems((_WIDE, *MASKED[1:3], GROUPED[0])):
        clean = problem.arguments | cotangents(problem)
        yield Calls((clean, clean | {name: _spoiled(clean[name])}), _beyond_the_head)


def _beyond_the_head(backend: Backend, calls: tuple[Case, ...]) -> Found:
    """Compare the gradients that do not depend on the first head of the first batch entry."""
    of_key = np.isnan(calls[1].arguments["key"]).any() or np.isnan(calls[1].arguments["value"]).any()
    every = slice(None)
    return _except(
        backend, calls, {"d_query": every if of_key else slice(0, 1), "d_key": every, "d_value": every}
    )


def _spoiled(array: Any) -> Any:
    """Put NaN into the first row of the first head of the first batch entry."""
    spoiled = array.copy()
    spoiled[0, 0, 0, 0] = np.nan
    return spoiled


def _except(backend: Backend, calls: tuple[Case, ...], depends: Mapping[str, slice]) -> Found:
    """Compare the gradients of a call with NaN with those of the clean call, except some rows of a head."""
    clean, spoiled = calls
    got = call(backend, spoiled.operation, spoiled.arguments)
    budgets = budgets_of(backend, clean)
    values, _ = declared(backend, clean, budgets, got)
    heads = clean.arguments["query"].shape[-3] // clean.arguments["key"].shape[-3]
    for name, rows in depends.items():
        if got[name].shape == values[name].shape:
            first = slice(0, heads if name == "d_query" and rows == slice(None) else 1)
            place = (0, first, rows)
            got[name] = got[name].copy()
            got[name][place] = values[name][place].astype(got[name].dtype)
            budgets[name][place] = np.inf
    return _first(got, values, budgets, clean.dtype)


def _first(
    got: Mapping[str, Any], values: Mapping[str, Any], budgets: Mapping[str, Any], dtype: str
) -> Found:
    for name, array in got.items():
        found = compare(name, array, values[name], budgets[name], dtype)
        if isinstance(found, Difference):
            return found
    return None


@chapter.group("GRAD-17", operation=_VJP)
def no_silent_zero(draw: Draw) -> Iterator[Yielded]:
    """A gradient that is not computed raises an error instead of being 0 everywhere."""
    for problem in draw.problems(MASKED):
        yield Calls((problem.arguments | cotangents(problem),), _not_zero)
        for name, array in (
            ("bias", problem.array(*problem.shape)),
            ("sinks", problem.array(*problem.shape[-3:-2]) if len(problem.shape) > 2 else problem.array(1)),
        ):
            yield Calls((problem.arguments | {name: array} | cotangents(problem),), _not_zero)


def _not_zero(backend: Backend, calls: tuple[Case, ...]) -> Found:
    (case,) = calls
    values = expected(case)
    for name, got in call(backend, case.operation, case.arguments).items():
        if got.size and not got.any() and values[name].any():
            return f"{name}: expected a gradient or an error, got 0 everywhere"
    return None
