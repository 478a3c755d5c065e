"""The chapter `errors`: every option in every size class, as a kernel chooses its path by size (ERR-3).

Many kernels have one path for a single query, one for many queries and one for grouped heads, and
implement each option in each of them. `tools.coverage` lists the size classes and the options that no
case calls in them.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations, permutations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.case import Misuse
from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.options import (
    EMPTY_ROWS,
    FORMS,
    MASKS,
    NO_PAIRS,
    OF_SCORES,
    OVER_TILES,
    PER_ENTRY,
    Options,
)
from attnspec.conformance.suite.problem import Problem, Shape
from attnspec.conformance.suite.tiles import with_levels
from attnspec.conformance.suite.words import in_two_dtypes
from attnspec.dtypes import DTYPES

chapter = Chapter("errors")

#: The sizes that options are tested with. Together they have every size class. Products of the lengths
#: are small where there are many heads, because the oracles compute each weight.
SIZES = (
    Shape((5, 2), 1, 139, 4, 3),
    Shape((1, 17), 1, 384, 8, 8),
    Shape((2, 1, 2, 2), 1, 65, 72, 72),
    Shape((2, 2), 3, 139, 136, 136),
    Shape((1, 1), 133, 139, 12, 12),
    Shape((1, 2, 1), 64, 128, 8, 8),
    Shape((1, 3), 65, 70, 8, 8, groups=3),
    Shape((2, 5), 1, 129, 4, 4, groups=5),
    Shape((1, 16), 3, 131, 4, 4, groups=8),
    Shape((1, 16), 1, 130, 8, 8, groups=16),
)
#: Batch axes for integers of each entry, by their number: for a single query, and for several.
_AXES: Mapping[int, tuple[tuple[int, ...], tuple[int, ...]]] = {
    1: ((5,), (2,)),
    2: ((2, 3), (1, 2)),
    3: ((2, 1, 3), (1, 2, 1)),
}
#: Long in both axes, and a single query with many keys.
_LARGE = (Shape((2, 1), 67, 131, 4, 4), Shape((2, 2), 1, 139, 4, 3))


#: More keys than a vector holds, and than the 16 from which some kernels take another path.
_MIXED = Shape((1, 2), 3, 24, 8, 8)


#: A mask of queries leaves all keys or none to each of them, and cites no rule on other options.
OF_QUERIES = ("MASK-1", "MASK-6")


def _call(problem: Problem, rule: str, options: Options) -> Call:
    """Make the call. Of grouped heads, it is about grouping too."""
    grouped = problem.query.shape[-3] != problem.key.shape[-3]
    rules = (rule, "HEAD-1") if grouped else (rule,)
    return Call(problem.arguments | options, rules, outputs=("output", "lse"))


@chapter.group("ERR-3", each=tuple(FORMS))
def option_of_every_size(draw: Draw, form: str) -> Iterator[Yielded]:
    """An option holds for one query and for many, past every tile, for deep, grouped and many heads."""
    option = FORMS[form]
    for problem in in_two_dtypes(draw, SIZES, wide=True):
        call = _call(problem, option.rule, option.draw(problem))
        yield replace(call, rules=OF_QUERIES) if form == "mask of queries" else call


@chapter.group("ERR-3", each=tuple(product(PER_ENTRY, _AXES)))
def integers_of_every_size(draw: Draw, which: tuple[str, int]) -> Iterator[Yielded]:
    """Integers of each batch entry hold for one, two and three batch axes in every size."""
    name, axes = which
    option = PER_ENTRY[name]
    shapes = tuple(
        shape._replace(outer=(*_AXES[axes][shape.queries > 1], shape.outer[-1])) for shape in SIZES
    )
    for problem in in_two_dtypes(draw, shapes):
        yield _call(problem, option.rule, option.draw(problem))


@chapter.group("ERR-14")
def bias_of_another_dtype_and_every_size(draw: Draw) -> Iterator[Yielded]:
    """A bias of another dtype than the query is refused or taken at its value in every size."""
    for index, problem in enumerate(in_two_dtypes(draw, SIZES)):
        fine = np.round(np.clip(problem.random.normal(size=problem.shape) / 2, -1.5, 1.5) * 1024) / 1024
        dtype = ("float64", "float32", "float16", "float32")[index % 4]
        call = _call(problem, "ERR-14", {"bias": fine.astype(dtype)})
        yield replace(call, rules=("ERR-14",), misuse=replace(Misuse("bias"), allowed=True))


@chapter.group("ERR-1", "ERR-14", each=("query", "key", "value", "bias"))
def mixed_dtypes_and_many_keys(draw: Draw, name: str) -> Iterator[Yielded]:
    """One array of another dtype than the others is refused or taken at its value, in each pair."""
    rule = "ERR-14" if name == "bias" else "ERR-1"
    for dtype, other in permutations(DTYPES, 2):
        problem = draw.problem(_MIXED, "float64", 0, 0.5)
        arrays = {key: array.astype(dtype) for key, array in problem.arguments.items()}
        shape = problem.shape if name == "bias" else arrays[name].shape
        fine = np.round(problem.random.normal(size=shape) * 1024) / 1024
        arguments = arrays | {name: fine.astype(other)}
        yield Call(arguments, (rule,), misuse=replace(Misuse(name), allowed=True))


@chapter.group("MASK-6", "SOFT-7", each=tuple(EMPTY_ROWS))
def empty_rows_of_every_size(draw: Draw, source: str) -> Iterator[Yielded]:
    """A query with nothing to attend to gives zero in every size."""
    for problem in in_two_dtypes(draw, SIZES):
        arguments = problem.arguments | EMPTY_ROWS[source](problem)
        yield Call(arguments, ("MASK-6", "SOFT-7"), outputs=("output", "lse"))


@chapter.group("SHAPE-4", each=("all keys", "is_causal"))
def weights_of_every_size(draw: Draw, keys: str) -> Iterator[Yielded]:
    """The weights that are returned have one number for each query and key in every size."""
    for problem in in_two_dtypes(draw, SIZES):
        options: Options = {"is_causal": True} if keys == "is_causal" else {}
        yield Call(problem.arguments | options, outputs=("weights",))


_MASKS = tuple("bias of minus infinity" if name == "bias" else name for name in MASKS)


@chapter.group("MASK-4", each=tuple(pair for pair in combinations(_MASKS, 2) if pair not in NO_PAIRS))
def large_masks_in_pairs(draw: Draw, pair: tuple[str, str]) -> Iterator[Yielded]:
    """Each of two options takes keys away past tiles of 64 and 128."""
    # The length of one query and its causal mask leave nothing for the other option to take away.
    alone = {"query_lengths", "is_causal"} & {*pair}
    for problem in in_two_dtypes(draw, _LARGE[:1] if alone else _LARGE):
        options: Options = {}
        for name in pair:
            options |= (
                {"key_lengths": _far_apart(problem)} if name == "key_lengths" else FORMS[name].draw(problem)
            )
        call = _call(problem, "MASK-4", options)
        yield replace(call, rules=(*call.rules, "ERR-3"))


def _far_apart(problem: Problem) -> NDArray[np.int64]:
    """Take key lengths, one of them short and one long, so that either option ends a row first."""
    keys = problem.shape[-1]
    return np.resize([keys // 4, keys - 3], problem.batch)


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
        yield _call_over_tiles(problem, option.draw(problem), option.rule)


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
_STEEP: Mapping[str, tuple[Callable[[Any], Any], float]] = {
    "rises by twelve in each tile": (lambda j: 12.0 * (j // 64), 0.5),
    "falls by twelve in each tile": (lambda j: -12.0 * (j // 64), 0.5),
    "far below zero": (lambda j: -2048.0 + 0 * j, 0.5),
    "far above zero": (lambda j: 2048.0 + 0 * j, 0.5),
    "falls by a negative scale": (lambda j: 128.0 * (j // 64), -0.5),
    "rises by a negative scale": (lambda j: -128.0 * (j // 64), -0.5),
}


@chapter.group("SOFT-2", "SCORE-3", each=tuple(_STEEP))
def steep_scores_over_tiles(draw: Draw, pattern: str) -> Iterator[Yielded]:
    """The scores of a tile lie far from those of the tile before, or all of them far from zero."""
    level, scale = _STEEP[pattern]
    for problem in in_two_dtypes(draw, (_SHAPES[0], Shape((1, 2), 5, 139, 4, 4)), ("float32", "float64")):
        steep = with_levels(problem, level(np.arange(problem.shape[-1])))
        yield _call_over_tiles(steep, {"scale": scale}, "SOFT-2")


@chapter.group("SHAPE-5", "SOFT-3", each=(64, 128, 192, 256))
def whole_tiles_of_queries(draw: Draw, queries: int) -> Iterator[Yielded]:
    """The number of queries is a multiple of a tile, or one more."""
    for count in (queries, queries + 1):
        for problem in in_two_dtypes(draw, (Shape((1, 2), count, 20, 4, 4),), wide=True):
            yield _call_over_tiles(problem, {}, "SHAPE-5")


def _call_over_tiles(problem: Problem, options: Options, rule: str) -> Call:
    return Call(problem.arguments | options, (rule, "ERR-3"), outputs=("output", "lse"))


#: One more than a number that a kernel may count to. The other axes are short, so that this costs little.
_COUNTS = (
    Shape((1, 33), 2, 7, 4, 3),
    Shape((33, 2), 2, 7, 4, 3),
    Shape((1, 2), 2, 5, 257, 264),
    Shape((1, 1), 2, 5, 520, 72),
    Shape((1, 1), 40, 70, 136, 8),
)
#: Groups whose size is not a power of two, with enough rows that a division by multiplication shows.
_GROUPS = (
    Shape((1, 6), 133, 20, 4, 4, groups=3),
    Shape((1, 12), 133, 20, 4, 4, groups=6),
    Shape((1, 14), 133, 20, 4, 4, groups=7),
    Shape((1, 24), 65, 20, 4, 4, groups=12),
    Shape((1, 21), 2, 20, 4, 4, groups=3),
)


@chapter.group("ERR-3", each=tuple(FORMS))
def option_past_every_count(draw: Draw, form: str) -> Iterator[Yielded]:
    """An option holds for 33 heads, 33 batch entries, and more than 128, 256 and 512 features."""
    option = FORMS[form]
    rules = OF_QUERIES if form == "mask of queries" else (option.rule, "ERR-3")
    for problem in in_two_dtypes(draw, _COUNTS):
        yield Call(problem.arguments | option.draw(problem), rules, outputs=("output", "lse"))


@chapter.group("ERR-3", each=tuple(PER_ENTRY))
def integers_of_many_entries(draw: Draw, name: str) -> Iterator[Yielded]:
    """Integers of each batch entry hold for 33 entries, also if only the last one is large."""
    option = PER_ENTRY[name]
    for problem in in_two_dtypes(draw, (Shape((33, 1), 20, 40, 4, 3),)):
        own, most = option.draw(problem), 19 if name == "query_lengths" else 38
        last = np.arange(33) == 32
        for integers in (own, own | {name: np.where(last, most, 3)}):
            yield Call(problem.arguments | integers, (option.rule, "ERR-3"), outputs=("output", "lse"))


@chapter.group("HEAD-1", each=tuple(product(("all keys", "is_causal"), range(len(_GROUPS)))))
def groups_of_any_size(draw: Draw, which: tuple[str, int]) -> Iterator[Yielded]:
    """Groups of 3, 6, 7 and 12 query heads share a key head, with many queries."""
    keys, number = which
    for problem in in_two_dtypes(draw, _GROUPS[number : number + 1]):
        options = {"is_causal": True} if keys == "is_causal" else {}
        yield Call(problem.arguments | options, outputs=("output", "lse"))
