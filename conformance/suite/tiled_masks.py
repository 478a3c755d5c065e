"""The chapter `masking`: tiles without an allowed key, rows that differ in a tile, ends at edges of tiles."""

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.options import Options
from attnspec.conformance.suite.problem import Problem, Shape
from attnspec.conformance.suite.words import in_two_dtypes

chapter = Chapter("masking")

#: One query and more than a tile of 64, past three tiles of 64 keys.
_SPANNED = (Shape((2, 1), 1, 200, 4, 4), Shape((1, 1), 66, 200, 4, 4))
#: The keys that nobody may attend to, as tiles of 64.
_SPANS: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        "first": (0, 64),
        "middle": (64, 128),
        "last": (128, 200),
        "first two": (0, 128),
        "all but the first": (64, 200),
        "all but the last": (0, 192),
    }
)
#: The last position that is allowed, and its neighbours, at the edges of tiles of 64 and 128.
_EDGES = (63, 64, 65, 127, 128, 129)


def _window(problem: Problem, span: tuple[int, int]) -> Options:
    """Leave out a span at one end for every query."""
    queries, keys = problem.shape[-2:]
    start, stop = span
    if start:
        return {"window": (None, 0), "query_offset": start - queries}
    return {"window": (0, None), "query_offset": min(stop, keys - queries)}


def _bias(problem: Problem, gone: NDArray[np.bool_]) -> Options:
    bias = np.where(gone, -np.inf, problem.array(*problem.shape, amplitude=0.5))
    return {"bias": bias.astype(problem.query.dtype)}


def _segments(problem: Problem, gone: NDArray[np.bool_]) -> Options:
    queries, keys = problem.shape[-2:]
    ids = np.broadcast_to(gone.astype(np.int64), (*problem.batch, keys)).copy()
    return {"query_segment_ids": np.zeros((*problem.batch, queries), np.int64), "key_segment_ids": ids}


#: The rule of each source that may leave out any tile, and its arguments.
_ANY_TILE: Mapping[str, tuple[str, Callable[[Problem, NDArray[np.bool_]], Options]]] = MappingProxyType(
    {
        "mask": ("MASK-1", lambda p, gone: {"mask": np.broadcast_to(~gone, p.shape).copy()}),
        "mask of keys": ("MASK-1", lambda _, gone: {"mask": ~gone}),
        "bias": ("MASK-2", _bias),
        "segments": ("MASK-11", _segments),
    }
)
#: The same, of sources that leave out tiles at one end.
_END_TILES: Mapping[str, tuple[str, Callable[[Problem, tuple[int, int]], Options]]] = MappingProxyType(
    {
        "window": ("MASK-8", _window),
        "key_lengths": ("MASK-9", lambda _, span: {"key_lengths": span[0]}),
        "query_offset": (
            "MASK-7",
            lambda p, span: {"is_causal": True, "query_offset": span[0] - p.shape[-2]},
        ),
    }
)


@chapter.group("MASK-5", each=tuple(product(_ANY_TILE, _SPANS)))
def tile_without_an_allowed_key(draw: Draw, which: tuple[str, str]) -> Iterator[Yielded]:
    """Whole tiles of keys are disallowed for every query: the first, the middle or the last ones."""
    source, place = which
    rule, options = _ANY_TILE[source]
    for problem in in_two_dtypes(draw, _SPANNED):
        start, stop = _SPANS[place]
        position = np.arange(problem.shape[-1])
        gone = (position >= start) & (position < stop)
        yield _called(problem, options(problem, gone), (rule, "MASK-5"))


@chapter.group("MASK-5", each=tuple(_END_TILES))
def tiles_at_one_end_without_an_allowed_key(draw: Draw, source: str) -> Iterator[Yielded]:
    """A window, a length or an offset leaves out whole tiles at one end."""
    rule, options = _END_TILES[source]
    for start, stop in _SPANS.values():
        for problem in in_two_dtypes(draw, _SPANNED):
            at_end = stop == 200 or (source == "window" and start == 0)
            if at_end:
                yield _called(problem, options(problem, (start, stop)), (rule, "MASK-5"))


#: The rows that disallow a tile of keys, by their number among the rows, and the tile.
_ROWS: Mapping[str, Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.bool_]]] = MappingProxyType(
    {
        "first row of a tile": lambda i, j: (i % 16 == 0) & (j < 128),
        "other rows of a tile": lambda i, j: (i % 16 != 0) & (j < 64),
        "last row of a tile": lambda i, j: (i % 16 == 15) & (j >= 64) & (j < 128),
        "rows in turn": lambda i, j: j // 64 % 2 == i % 2,
        "last row of all": lambda i, j: (i == i.max()) & (j >= 64),
    }
)


@chapter.group("MASK-5", each=tuple(product(("mask", "bias"), _ROWS)))
def rows_of_a_tile_differ(draw: Draw, which: tuple[str, str]) -> Iterator[Yielded]:
    """Some rows disallow a whole tile of keys that other rows of the same tile of queries allow."""
    source, rows = which
    rule, options = _ANY_TILE[source]
    for problem in in_two_dtypes(draw, (Shape((1, 2), 70, 139, 4, 4),)):
        queries, keys = problem.shape[-2:]
        gone = _ROWS[rows](np.arange(queries)[:, None], np.arange(keys))
        yield _called(problem, options(problem, gone), (rule, "MASK-5"))


#: The rule of each integer with an end, its shape for one number, and the arguments of an end.
_ENDS: Mapping[str, tuple[str, Shape, Callable[[Any], Options]]] = MappingProxyType(
    {
        "key_lengths": ("MASK-9", Shape((1, 2), 2, 133, 4, 4), lambda n: {"key_lengths": n}),
        "query_lengths": ("MASK-10", Shape((1, 2), 131, 20, 4, 4), lambda n: {"query_lengths": n}),
        "query_offset": (
            "MASK-7",
            Shape((1, 2), 2, 133, 4, 4),
            lambda n: {"is_causal": True, "query_offset": n - 1},
        ),
        "window, left": (
            "MASK-8",
            Shape((1, 2), 2, 133, 4, 4),
            lambda n: {"window": (130 - n, None), "query_offset": 130},
        ),
        "window, right": ("MASK-8", Shape((1, 2), 2, 133, 4, 4), lambda n: {"window": (None, n - 1)}),
    }
)


@chapter.group("MASK-5", each=tuple(_ENDS))
def end_at_the_edge_of_a_tile(draw: Draw, name: str) -> Iterator[Yielded]:
    """The allowed part begins or ends at the edge of a tile of 64 or 128, one before it or one after it."""
    rule, shape, options = _ENDS[name]
    for end in _EDGES:
        for problem in in_two_dtypes(draw, (shape,)):
            yield _called(problem, options(end), (rule,))


@chapter.group("MASK-5", each=("key_lengths", "query_lengths", "query_offset"))
def ends_at_the_edges_of_tiles(draw: Draw, name: str) -> Iterator[Yielded]:
    """Each batch entry ends at another place around the edges of tiles of 64 and 128."""
    rule, shape, options = _ENDS[name]
    for problem in in_two_dtypes(draw, (shape._replace(outer=(len(_EDGES), 1)),)):
        yield _called(problem, options(np.resize(_EDGES, problem.batch)), (rule,))


def _called(problem: Problem, options: Options, rules: tuple[str, ...]) -> Call:
    return Call(problem.arguments | options, rules, outputs=("output", "lse"))
