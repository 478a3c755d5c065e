"""Large problems of few different queries and keys, whose exact values take little time.

Queries and keys are drawn from a few vectors, so that there are few different scores. The values
are different for each key. A lost or doubled key changes a whole column of the output, because each
column has large values in some of the keys only.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from attnspec.conformance.suite.group import Draw
from attnspec.conformance.suite.problem import Problem, Shape
from attnspec.dtypes import SHORT

T = TypeVar("T", bound="Sizes")
#: The numbers of different queries and keys of a head.
_QUERIES, _KEYS = 3, 6
#: Of so many shapes, one is drawn in float64 too.
_THIRD = 3


def in_two_dtypes(
    draw: Draw, shapes: Sequence[Shape], dtypes: Sequence[str] = (), *, wide: bool = False
) -> Iterator[Problem]:
    """Draw a problem of each shape in float32 and in a short dtype, in turn, or in some other dtypes.

    The numbers are the same in each dtype. With `wide`, every third shape is drawn in float64 too.
    """
    for index, shape in enumerate(shapes):
        short = SHORT[(index + crc32(draw.group.encode())) % len(SHORT)]
        more = ("float64",) if wide and index % _THIRD == 0 else ()
        for dtype in dtypes or ("float32", short, *more):
            yield few_words(draw.problem(shape, dtype, index, 0.5))


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The sizes of a call of a form: of queries and of keys."""

    heads: tuple[int, int] = (4, 2)
    depths: tuple[int, int] = (4, 3)


def draw_in_turn(draw: Draw, *sizes: T, turn: int = 0) -> Iterator[tuple[np.random.Generator, str, T]]:
    """Draw for some sizes in two dtypes, and for each of several in float32 and another dtype by turns.

    With `turn` 1 the other dtype comes first, so that both turns have each of the sizes in both dtypes.
    """
    # Of the name of the group alone: the cases have the same names for each seed.
    other = ("float16", "float64", "bfloat16")[replace(draw, seed=None).number() % 3]
    for index, own in enumerate(sizes):
        (heads, shared), (depth, value_depth) = own.heads, own.depths
        shape = draw.fitted(Shape((heads,), 0, 0, depth, value_depth, heads // shared))
        fit = replace(own, heads=(heads, heads // shape.groups), depths=(shape.depth, shape.value_depth))
        for dtype in ("float32", other) if len(sizes) == 1 else (("float32", other)[(index + turn) % 2],):
            yield np.random.default_rng(draw.number(index)), dtype, fit


def few_words(problem: Problem) -> Problem:
    """Draw queries and keys from a few of those of a problem, and values that tell the keys apart.

    Every dtype holds the numbers, so that the exact values are the same in each of them.
    """
    query, key = (
        _choose(problem, array, count) for array, count in ((problem.query, _QUERIES), (problem.key, _KEYS))
    )
    return replace(problem, query=query, key=key, value=distinct_values(problem))


def _choose(problem: Problem, array: NDArray[Any], count: int) -> NDArray[Any]:
    words = problem.random.integers(0, min(count, array.shape[-2]), array.shape[-2])
    return np.ascontiguousarray(array[..., words, :])


def distinct_values(problem: Problem) -> NDArray[Any]:
    """Make values that are small but in one column, another one for each key."""
    keys, depth = problem.value.shape[-2:]
    small = np.clip(np.round(problem.value.astype(np.float64) * 8) / 64, -0.25, 0.25)
    place = np.arange(keys)
    small[..., place, place % depth] = 1 + (place // depth * 11 % 128) / 64  # below 3, in steps of 1/64
    signs = problem.random.choice([-1.0, 1.0], small.shape[:-1])
    return np.ascontiguousarray((small * signs[..., None]).astype(problem.value.dtype))
