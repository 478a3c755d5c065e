"""The chapter `softmax`: a row in tiles, whose maximum moves, whose scores are low, whose index is large."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.problem import Problem, Shape
from attnspec.conformance.suite.words import in_two_dtypes
from attnspec.dtypes import DTYPES, FORMATS

chapter = Chapter("softmax")

#: More keys than two tiles of 128, with one query and with a few.
_LONG = (Shape((2, 1), 1, 330, 4, 4), Shape((1, 2), 5, 330, 4, 4))
#: What a score has in common with those of its tile of 16, by the key and the number of keys.
_LEVELS: Mapping[str, Callable[[NDArray[np.int64]], NDArray[np.floating[Any]]]] = {
    "rises in each tile": lambda j: j // 16 / 4,
    "falls in each tile": lambda j: -(j // 16) / 4,
    "rises in the last tile alone": lambda j: 3.0 * (j >= 320),
    "falls after the first tile": lambda j: 3.0 * (j < 16),
    "peaks in the middle": lambda j: 3.0 * (j // 16 == 10),
    "rises and falls in turn": lambda j: j // 16 % 2 * 3.0,
}


def with_levels(problem: Problem, level: NDArray[np.floating[Any]]) -> Problem:
    """Add a number to the scores of each key, through one feature that all queries share.

    The number is added if the scale is the default. Another scale multiplies it by its share of the default.
    """
    query, key = problem.query.copy(), problem.key.copy()
    query[..., 0] = 1
    key[..., 0] = level * np.sqrt(query.shape[-1])
    return replace(problem, query=query, key=key)


@chapter.group("SOFT-1", "SOFT-2", each=tuple(_LEVELS))
def maximum_over_tiles(draw: Draw, pattern: str) -> Iterator[Yielded]:
    """The largest score so far rises in each tile, falls, or comes in the first or the last one alone."""
    for problem in in_two_dtypes(draw, _LONG):
        yield _call(with_levels(problem, _LEVELS[pattern](np.arange(problem.shape[-1]))))


@chapter.group("SOFT-2", "SOFT-1", each=("keys", "causal keys"), step=1)
def rows_that_rise_by_much_and_by_little(draw: Draw, mask: str) -> Iterator[Yielded]:
    """In one tile the largest score rises by much in some rows, by little or not at all in others."""
    for problem in in_two_dtypes(draw, (Shape((1, 1), 40, 140, 4, 4),)):
        rises = np.searchsorted((40, 70, 130), np.arange(problem.shape[-1]), side="right")
        steep = with_levels(problem, 40.0 * rises)
        steep.query[..., 0] = np.resize([1, 1 / 32, 0], problem.shape[-2])
        own = {"is_causal": True, "query_offset": 100} if mask == "causal keys" else {}
        yield Call(steep.arguments | own, outputs=("output", "lse"))


@chapter.group("SOFT-2", "MASK-3", each=tuple(product((10240, 40960, 131072), ("first tile", "every tile"))))
def scores_far_below_zero_beside_causal(draw: Draw, which: tuple[int, str]) -> Iterator[Yielded]:
    """Causal rows whose allowed keys all have scores far below zero, in the first tile or everywhere."""
    below, place = which
    for problem in in_two_dtypes(draw, (Shape((1, 2), 70, 139, 4, 4),)):
        query, key = problem.query.copy(), problem.key.copy()
        keys = problem.shape[-1]
        low = np.arange(keys) < (64 if place == "first tile" else keys)
        # A power of two for the queries, so that short dtypes hold the numbers.
        query[..., 0] = 256
        key[..., 0] = np.where(low, -below / 256 * np.sqrt(query.shape[-1]), 0)
        arguments = problem.arguments | {"query": query, "key": key, "is_causal": True}
        yield Call(arguments, ("SOFT-2", "MASK-3"), outputs=("output", "lse"))


@chapter.group("SOFT-3", each=("one query", "a few queries"))
def largest_number_among_the_values(draw: Draw, size: str) -> Iterator[Yielded]:
    """One value of each column is the largest number of the dtype, in another tile for each column."""
    shape = _LONG[size != "one query"]._replace(keys=139)
    for dtype in ("float32", "float16", "bfloat16"):
        (problem,) = in_two_dtypes(draw, (shape,), (dtype,))
        places = np.array([0, 63, 64, 138])
        # Its score is not the largest of its row, so that no rounding of its weight exceeds 1.
        level = np.where(np.isin(np.arange(problem.shape[-1]), places), -2.0, 0.0)
        value = problem.value.copy()
        for column in range(value.shape[-1]):
            sign = 1 - 2 * (column % 2)
            value[..., places[column % 4], column] = sign * FORMATS[dtype].largest
        yield _call(replace(with_levels(problem, level), value=value))


@chapter.group("NUM-3", "SOFT-3", each=("first", "last"))
def result_near_the_largest_number(draw: Draw, place: str) -> Iterator[Yielded]:
    """One key has all the weight, and its values are 127/128 of the largest number of the dtype."""
    for dtype in DTYPES:
        (problem,) = in_two_dtypes(draw, (_LONG[1]._replace(keys=139),), (dtype,))
        keys = np.arange(problem.shape[-1])
        top = keys == (0 if place == "first" else keys[-1])
        value = problem.value.copy()
        signs = 1 - 2 * (np.arange(value.shape[-1]) % 2)
        value[..., top, :] = signs * (FORMATS[dtype].largest / 128 * 127)
        yield _call(replace(with_levels(problem, np.where(top, 200.0, 0.0)), value=value))


#: What has more than 65536 elements: the shape, and the option.
_INDICES: Mapping[str, tuple[Shape, str]] = {
    "keys": (Shape((1, 1), 1, 1030, 64, 64), ""),
    "heads of keys": (Shape((1, 17), 1, 70, 64, 64), ""),
    "batch entries of keys": (Shape((17, 1), 1, 70, 64, 64), ""),
    "queries": (Shape((1, 1), 1030, 5, 64, 64), ""),
    "scores": (Shape((1, 1), 257, 257, 4, 4), ""),
    "mask": (Shape((1, 5), 65, 205, 4, 4), "mask"),
    "bias": (Shape((1, 5), 65, 205, 4, 4), "bias"),
}


@chapter.group("SOFT-3", "MASK-1", "SCORE-4", each=tuple(_INDICES))
def index_past_16_bits(draw: Draw, name: str) -> Iterator[Yielded]:
    """An array has more elements than an unsigned integer of 16 bits counts."""
    shape, option = _INDICES[name]
    for problem in in_two_dtypes(draw, (shape,)):
        options: dict[str, Any] = {
            "": {},
            "mask": {"mask": problem.mask()},
            "bias": {"bias": problem.array(*problem.shape, amplitude=0.5)},
        }[option]
        rule = {"": "SOFT-3", "mask": "MASK-1", "bias": "SCORE-4"}[option]
        yield Call(problem.arguments | options, (rule,), outputs=("output", "lse"))


def _call(problem: Problem) -> Call:
    return Call(problem.arguments, outputs=("output", "lse"))
