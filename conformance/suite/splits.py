"""The chapter `errors`: more than three tiles or splits of 128 keys, and whole tiles of queries (ERR-3)."""

from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from types import MappingProxyType
from typing import Any

import numpy as np

from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.options import OF_SCORES, OVER_TILES, Options
from attnspec.conformance.suite.problem import Problem, Shape
from attnspec.conformance.suite.tiles import levelled
from attnspec.conformance.suite.words import in_two_dtypes

chapter = Chapter("errors")

#: One query or two on four tiles of 128 keys, with many heads to a key head and with wide values.
_SHAPES = (
    Shape((1, 2), 1, 400, 4, 4),
    Shape((1, 2), 2, 400, 4, 4),
    Shape((1, 18), 1, 400, 4, 4, groups=9),
    Shape((1, 10), 1, 400, 4, 4, groups=5),
    Shape((1, 2), 1, 400, 8, 72),
)


@chapter.group("ERR-3", each=tuple(OVER_TILES))
def option_over_four_tiles(draw: Draw, name: str) -> Iterator[Yielded]:
    """An option holds in each of four tiles of 128 keys, for one query and for two, with shared heads."""
    option = OVER_TILES[name]
    for problem in in_two_dtypes(draw, _SHAPES, wide=True):
        yield _called(problem, option.draw(problem), option.rule)


@chapter.group("ERR-3", each=tuple(combinations(OF_SCORES, 2)))
def large_options_of_scores_in_pairs(draw: Draw, pair: tuple[str, str]) -> Iterator[Yielded]:
    """Two options of scores keep their order past tiles of 64 and 128."""
    for problem in in_two_dtypes(draw, (Shape((1, 2), 2, 139, 4, 4),), wide=True):
        options: Options = {}
        for name in pair:
            options |= OF_SCORES[name].draw(problem)
        rule = OF_SCORES["softcap" if "softcap" in pair else pair[1]].rule
        yield Call(problem.arguments | options, (rule, "ERR-3"))  # with the weights


#: What is added to the scores of a tile of 64, by the key, and the scale.
_STEEP: Mapping[str, tuple[Callable[[Any], Any], float]] = MappingProxyType(
    {
        "rises by twelve in each tile": (lambda j: 12.0 * (j // 64), 0.5),
        "falls by twelve in each tile": (lambda j: -12.0 * (j // 64), 0.5),
        "far below zero": (lambda j: -2048.0 + 0 * j, 0.5),
        "far above zero": (lambda j: 2048.0 + 0 * j, 0.5),
        "falls by a negative scale": (lambda j: 128.0 * (j // 64), -0.5),
        "rises by a negative scale": (lambda j: -128.0 * (j // 64), -0.5),
    }
)


@chapter.group("SOFT-2", "SCORE-3", each=tuple(_STEEP))
def steep_scores_over_tiles(draw: Draw, pattern: str) -> Iterator[Yielded]:
    """The scores of a tile lie far from those of the tile before, or all of them far from zero."""
    level, scale = _STEEP[pattern]
    for problem in in_two_dtypes(draw, (_SHAPES[0], Shape((1, 2), 5, 139, 4, 4)), ("float32", "float64")):
        found = levelled(problem, level(np.arange(problem.shape[-1])))
        yield _called(found, {"scale": scale}, "SOFT-2")


@chapter.group("SHAPE-5", "SOFT-3", each=(64, 128, 192, 256))
def whole_tiles_of_queries(draw: Draw, queries: int) -> Iterator[Yielded]:
    """The number of queries is a multiple of a tile, or one more."""
    for count in (queries, queries + 1):
        for problem in in_two_dtypes(draw, (Shape((1, 2), count, 20, 4, 4),), wide=True):
            yield _called(problem, {}, "SHAPE-5")


def _called(problem: Problem, options: Options, rule: str) -> Call:
    return Call(problem.arguments | options, (rule, "ERR-3"), outputs=("output", "lse"))
