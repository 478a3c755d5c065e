"""The options of attention, each with a function that draws a value that matters in a problem."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.conformance.suite.problem import Problem

Options = dict[str, Any]


@dataclass(frozen=True)
class Option:
    """One option of a call.

    Attributes
    ----------
    rule : str
        Its rule.
    draw : callable
        Draws its arguments, by canonical name.
    needs : callable
        Draws other arguments without which it has no effect.
    """

    rule: str
    draw: Callable[[Problem], Options]
    needs: Callable[[Problem], Options] = lambda _: {}


def biased(problem: Problem, *, amplitude: float = 2.0) -> NDArray[Any]:
    """Draw a bias of the scores' shape with some minus infinity, but not for the first key."""
    bias = problem.array(*problem.shape, amplitude=amplitude)
    return np.where(problem.mask(), bias, -np.inf).astype(bias.dtype)


def window(problem: Problem) -> Options:
    """Draw a window with bounds near 0 and near the number of keys."""
    keys = problem.shape[-1]
    bounds = (None, 0, 1, 2, keys, keys + 1)
    return {"window": (problem.choice(*bounds), problem.choice(*bounds))}


def narrow_window(problem: Problem) -> Options:
    """Draw a window that is narrower than the keys."""
    return {"window": problem.choice((1, 0), (0, 1), (1, 1), (2, 0), (1, None), (None, 0))}


def offset(problem: Problem) -> Options:
    """Draw a query offset, which may be negative."""
    queries, keys = problem.shape[-2:]
    return {"query_offset": problem.integers(min(-1, keys - queries), max(2, keys - queries))}


def segments(problem: Problem) -> Options:
    """Draw segment ids that are neither sorted nor contiguous and include 0 and negative numbers."""
    ids = np.array([-1, 0, 7, 2**31 - 1], dtype=problem.choice(np.int32, np.int64))
    queries, keys = problem.shape[-2:]
    return {
        "query_segment_ids": problem.random.choice(ids[:3], (*problem.batch, queries)),
        "key_segment_ids": problem.random.choice(ids, (*problem.batch, keys)),
    }


def sinks(problem: Problem) -> Options:
    """Draw a sink for each query head, large enough to matter."""
    heads = problem.shape[-3] if len(problem.shape) > 2 else 1
    return {"sinks": problem.array(heads, amplitude=2.0)}


def dropout(problem: Problem) -> Options:
    """Draw the kept weights, and a rate that is independent of their number."""
    kept = problem.random.random(problem.shape) < 0.7
    return {"dropout_mask": problem.broadcastable(kept), "dropout_rate": problem.choice(0.25, 0.3, 0.5)}


def _lengths(name: str, axis: int) -> Callable[[Problem], Options]:
    return lambda problem: {name: problem.integers(1, problem.shape[axis] - 1)}


def _mask(problem: Problem) -> Options:
    return {"mask": problem.mask()}


#: The options by their names in the suite. Two options together have the rule MASK-4 if both mask.
OPTIONS: Mapping[str, Option] = MappingProxyType(
    {
        "scale": Option("SCORE-3", lambda problem: {"scale": problem.choice(0.0, 1.5, -1.0)}),
        "softcap": Option("SCORE-5", lambda problem: {"softcap": problem.choice(0.25, 0.5)}),
        "bias": Option("SCORE-4", lambda problem: {"bias": biased(problem)}),
        "mask": Option("MASK-1", _mask),
        "is_causal": Option("MASK-3", lambda _: {"is_causal": True}),
        "query_offset": Option("MASK-7", offset, lambda _: {"is_causal": True}),
        "window": Option("MASK-8", narrow_window),
        "query_lengths": Option("MASK-10", _lengths("query_lengths", -2)),
        "key_lengths": Option("MASK-9", _lengths("key_lengths", -1)),
        "segments": Option("MASK-11", segments),
        "sinks": Option("SOFT-5", sinks),
        "dropout": Option("DROP-1", dropout),
        "dropout_rate": Option("DROP-2", lambda _: {"dropout_rate": 0.5}, dropout),
    }
)


def drawn(problem: Problem, name: str) -> tuple[Options, Options]:
    """Draw an option of a problem: the other arguments that it needs, and its own arguments.

    Examples
    --------
    >>> from attnspec.conformance.suite.options import drawn
    >>> from attnspec.conformance.suite.problem import SHAPES, problem_of
    >>> needs, own = drawn(problem_of(SHAPES[1], "float32", 1), "query_offset")
    >>> needs, list(own)
    ({'is_causal': True}, ['query_offset'])
    """
    option = OPTIONS[name]
    return option.needs(problem), option.draw(problem)
