"""The chapter `masking`: integers of every dtype, and masks and rows past the edges of tiles."""

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.options import Options, draw_bias, hidden, segment_of_keys
from attnspec.conformance.suite.problem import Problem, Shape
from attnspec.conformance.suite.words import in_two_dtypes
from attnspec.dtypes import FORMATS

chapter = Chapter("masking")

#: More keys, and more queries, than a byte can count.
_KEYS, _QUERIES = Shape((), 4, 300, 2, 3), Shape((), 300, 5, 2, 3)
#: Shape, rule, options.
_FAR: Mapping[str, tuple[Shape, str, dict[str, Any]]] = {
    "causal, late keys": (_KEYS, "MASK-7", {"is_causal": True, "query_offset": 290}),
    "causal, early keys": (_KEYS, "MASK-7", {"is_causal": True, "query_offset": 126}),
    "causal, late queries": (_QUERIES, "MASK-3", {"is_causal": True, "query_offset": -296}),
    "causal, all queries": (_QUERIES, "MASK-3", {"is_causal": True}),
    "window, late keys": (_KEYS, "MASK-8", {"window": (2, 1), "query_offset": 294}),
    "window, wide": (_KEYS, "MASK-8", {"window": (257, None), "query_offset": 296}),
    "length, late keys": (_KEYS, "MASK-9", {"key_lengths": 258}),
    "length, late queries": (_QUERIES, "MASK-10", {"query_lengths": 258}),
}
#: Offsets that do not fit into 16, 32 and 53 bits.
_OFFSETS = (2**15 + 1, 2**16, 2**31, 2**32 + 1, 2**53 + 1)
#: Pairs of ids that become equal in a shorter integer or a floating-point number.
_IDS = ((0, 256), (256, 257), (2048, 2049), (0, 2**16), (2**24, 2**24 + 1), (-(2**31), 2**31 - 1))
_LONG_IDS = ((0, 2**32), (2**31 - 1, -(2**31) - 1), (2**53, 2**53 + 1))
_FLOAT32 = ("float32",)


@chapter.group("MASK-3", "MASK-7", "MASK-8", "MASK-9", "MASK-10", each=tuple(_FAR))
def positions_past_a_byte(draw: Draw, name: str) -> Iterator[Yielded]:
    """The 127th position, the 255th and later ones are told apart, as keys and as queries."""
    shape, rule, options = _FAR[name]
    for problem in draw.in_each_dtype(shape, dtypes=_FLOAT32):
        yield Call(problem.arguments | options, (rule,))


@chapter.group("MASK-7", each=_OFFSETS)
def offsets_far_away(draw: Draw, offset: int) -> Iterator[Yielded]:
    """An offset far beyond the keys allows all of them or none, for all batch entries or for one."""
    (problem,) = draw.in_each_dtype(Shape((), 3, 5, 2, 3), dtypes=_FLOAT32)
    (batch,) = draw.in_each_dtype(Shape((2, 1), 3, 4, 2, 3), dtypes=_FLOAT32)
    for far in (offset, -offset):
        yield problem.arguments | {"is_causal": True, "query_offset": far}
        yield problem.arguments | {"window": (offset, offset), "query_offset": far}
        yield problem.arguments | {"window": (1, 1), "query_offset": far}
        yield batch.arguments | {"is_causal": True, "query_offset": np.array([far, 1])}


@chapter.group("MASK-11", each=(*_IDS, *_LONG_IDS))
def ids_are_told_apart(draw: Draw, pair: tuple[int, int]) -> Iterator[Yielded]:
    """Two ids that are not equal are told apart, in the shortest dtype that holds both."""
    ids = np.array(pair, np.int64 if pair in _LONG_IDS else np.int32)
    for problem in draw.in_each_dtype(Shape((), 4, 6, 2, 3), dtypes=_FLOAT32):
        yield problem.arguments | {
            "query_segment_ids": ids[np.resize([0, 1, 1, 0], problem.shape[0])],
            "key_segment_ids": ids[np.resize([1, 0, 0, 1, 0, 1], problem.shape[1])],
        }


#: One query and more than a tile of 64, past three tiles of 64 keys.
_SPANNED = (Shape((2, 1), 1, 200, 4, 4), Shape((1, 1), 66, 200, 4, 4))
#: The keys that nobody may attend to, as tiles of 64.
_SPANS: Mapping[str, tuple[int, int]] = {
    "first": (0, 64),
    "middle": (64, 128),
    "last": (128, 200),
    "first two": (0, 128),
    "all but the first": (64, 200),
    "all but the last": (0, 192),
}
#: The last position that is allowed, and its neighbours, at the edges of tiles of 64 and 128.
_EDGES = (63, 64, 65, 127, 128, 129)


def _window(problem: Problem, span: tuple[int, int]) -> Options:
    """Leave out a span at one end for every query."""
    queries, keys = problem.shape[-2:]
    start, stop = span
    if start:
        return {"window": (None, 0), "query_offset": start - queries}
    return {"window": (0, None), "query_offset": min(stop, keys - queries)}


#: The rule of each source that may leave out any tile, and its arguments.
_ANY_TILE: Mapping[str, tuple[str, Callable[[Problem, NDArray[np.bool_]], Options]]] = {
    "mask": ("MASK-1", lambda p, seen: {"mask": np.broadcast_to(seen, p.shape).copy()}),
    "mask of keys": ("MASK-1", lambda _, seen: {"mask": seen}),
    "bias": ("MASK-2", lambda p, seen: {"bias": hidden(p, seen, draw_bias(p))}),
    "segments": ("MASK-11", segment_of_keys),
}
#: The same, of sources that leave out tiles at one end.
_END_TILES: Mapping[str, tuple[str, Callable[[Problem, tuple[int, int]], Options]]] = {
    "window": ("MASK-8", _window),
    "key_lengths": ("MASK-9", lambda _, span: {"key_lengths": span[0]}),
    "query_offset": (
        "MASK-7",
        lambda p, span: {"is_causal": True, "query_offset": span[0] - p.shape[-2]},
    ),
}


@chapter.group("MASK-5", each=tuple(product(_ANY_TILE, _SPANS)))
def tile_without_an_allowed_key(draw: Draw, which: tuple[str, str]) -> Iterator[Yielded]:
    """Whole tiles of keys are disallowed for every query: the first, the middle or the last ones."""
    source, place = which
    rule, options = _ANY_TILE[source]
    for problem in in_two_dtypes(draw, _SPANNED):
        start, stop = _SPANS[place]
        position = np.arange(problem.shape[-1])
        seen = (position < start) | (position >= stop)
        yield _call(problem, options(problem, seen), (rule, "MASK-5"))


@chapter.group("MASK-5", each=tuple(_END_TILES))
def tiles_at_one_end_without_an_allowed_key(draw: Draw, source: str) -> Iterator[Yielded]:
    """A window, a length or an offset leaves out whole tiles at one end."""
    rule, options = _END_TILES[source]
    for start, stop in _SPANS.values():
        for problem in in_two_dtypes(draw, _SPANNED):
            at_end = stop == 200 or (source == "window" and start == 0)
            if at_end:
                yield _call(problem, options(problem, (start, stop)), (rule, "MASK-5"))


#: The rows that disallow a tile of keys, by their number among the rows, and the tile.
_ROWS: Mapping[str, Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.bool_]]] = {
    "first row of a tile": lambda i, j: (i % 16 == 0) & (j < 128),
    "other rows of a tile": lambda i, j: (i % 16 != 0) & (j < 64),
    "last row of a tile": lambda i, j: (i % 16 == 15) & (j >= 64) & (j < 128),
    "rows in turn": lambda i, j: j // 64 % 2 == i % 2,
    "last row of all": lambda i, j: (i == i.max()) & (j >= 64),
}


@chapter.group("MASK-5", each=tuple(product(("mask", "bias"), _ROWS)))
def rows_of_a_tile_differ(draw: Draw, which: tuple[str, str]) -> Iterator[Yielded]:
    """Some rows disallow a whole tile of keys that other rows of the same tile of queries allow."""
    source, rows = which
    rule, options = _ANY_TILE[source]
    for problem in in_two_dtypes(draw, (Shape((1, 2), 70, 139, 4, 4),)):
        queries, keys = problem.shape[-2:]
        gone = _ROWS[rows](np.arange(queries)[:, None], np.arange(keys))
        yield _call(problem, options(problem, ~gone), (rule, "MASK-5"))


#: The rule of each integer with an end, its shape for one number, and the arguments of an end.
_ENDS: Mapping[str, tuple[str, Shape, Callable[[Any], Options]]] = {
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


@chapter.group("MASK-5", each=tuple(_ENDS))
def end_at_the_edge_of_a_tile(draw: Draw, name: str) -> Iterator[Yielded]:
    """The allowed part begins or ends at the edge of a tile of 64 or 128, one before it or one after it."""
    rule, shape, options = _ENDS[name]
    for end in _EDGES:
        for problem in in_two_dtypes(draw, (shape,)):
            yield _call(problem, options(end), (rule,))


#: Windows whose edge crosses two tiles of keys in one tile of queries, where the other side reaches far.
_CROSSING: Mapping[str, tuple[int | None, int | None]] = {
    "left, open right": (10, None),
    "left, to the query": (70, 0),
    "right, open left": (None, 10),
    "right, from the query": (0, 70),
}


@chapter.group("MASK-8", each=tuple(_CROSSING), step=1)
def window_whose_edge_crosses_tiles(draw: Draw, name: str) -> Iterator[Yielded]:
    """One side of a window crosses tiles of keys, and the other side begins or ends in a later tile."""
    for problem in in_two_dtypes(draw, (Shape((1, 1), 140, 140, 4, 4),)):
        yield _call(problem, {"window": _CROSSING[name]}, ("MASK-8",))


@chapter.group("MASK-7", each=(30, -30), step=1)
def diagonal_that_crosses_tiles(draw: Draw, offset: int) -> Iterator[Yielded]:
    """The keys that causality allows to a tile of queries end inside two tiles of keys."""
    for problem in in_two_dtypes(draw, (Shape((1, 1), 140, 140 + offset, 4, 4),)):
        yield _call(problem, {"is_causal": True, "query_offset": offset}, ("MASK-7", "MASK-3"))


@chapter.group("MASK-5", each=("key_lengths", "query_lengths", "query_offset"))
def ends_at_the_edges_of_tiles(draw: Draw, name: str) -> Iterator[Yielded]:
    """Each batch entry ends at another place around the edges of tiles of 64 and 128."""
    rule, shape, options = _ENDS[name]
    for problem in in_two_dtypes(draw, (shape._replace(outer=(len(_EDGES), 1)),)):
        yield _call(problem, options(np.resize(_EDGES, problem.batch)), (rule,))


@chapter.group("MASK-9", "MASK-1", each=("longest first", "shortest first", "mask", "bias"), step=1)
def entries_that_end_before_others(draw: Draw, which: str) -> Iterator[Yielded]:
    """Each entry has its own last tile of keys, not that of the longest entry or of the first."""
    lengths = np.array([140, 33, 20] if which == "longest first" else [20, 140, 33])
    for problem in in_two_dtypes(draw, (Shape((3, 1), 1, 140, 4, 4),)):
        seen = np.arange(140) < lengths[:, None, None, None]
        bias = np.where(seen, 0, -np.inf).astype(problem.query.dtype)
        own: Options = {"mask": {"mask": seen}, "bias": {"bias": bias}}.get(which, {"key_lengths": lengths})
        rule = {"mask": "MASK-1", "bias": "MASK-2"}.get(which, "MASK-9")
        yield _call(problem, own, (rule,))


def _call(problem: Problem, options: Options, rules: tuple[str, ...]) -> Call:
    return Call(problem.arguments | options, rules, outputs=("output", "lse"))


#: Numbers of keys that fill one vector of a processor or two, and one more: some libraries branch there.
WIDTHS = (8, 16, 17, 33)
#: Two batch entries of three heads, five queries, seven keys.
_BROADCAST = Shape((2, 3), 5, 7, 4, 4)


@chapter.group("MASK-6", "SOFT-7", each=tuple(product(("mask", "bias", "key_lengths"), WIDTHS)))
def empty_row_of_every_width(draw: Draw, which: tuple[str, int]) -> Iterator[Yielded]:
    """Rows with nothing to attend to among others, with as many keys as a vector unit holds, and more."""
    route, keys = which
    rules = ("MASK-2", "MASK-6", "SOFT-7") if route == "bias" else ("MASK-6", "SOFT-7")
    for problem in draw.in_each_dtype(Shape((2, 2), 5, keys, 8, 8)):
        mask = problem.mask()
        mask[:, :, 0] = mask[1, 1, 3] = False
        draw_bias = np.where(mask, problem.array(*problem.shape), -np.inf).astype(problem.query.dtype)
        options: dict[str, dict[str, Any]] = {
            "mask": {"mask": mask},
            "bias": {"bias": draw_bias},
            "key_lengths": {"key_lengths": np.array([0, problem.shape[-1] - 1])},
        }
        yield Call(problem.arguments | options[route], rules)


#: What a mask holds that broadcasts along the other axes of the scores.
_AXES = (
    "one row",
    "one row of each entry",
    "one row of each head",
    "one column",
    "one number of each head",
)


def _part(mask: Any, axes: str) -> Any:
    """Take a part of an array of (B, Hq, L, S) that broadcasts to it."""
    return {
        "one row": mask[0, 0, -1:],
        "one row of each entry": mask[:, :1, -1:],
        "one row of each head": mask[:1, :, -1:],
        "one column": mask[0, 0, :, -1:],
        "one number of each head": mask[:1, :, -1:, -1:],
    }[axes]


@chapter.group("MASK-4", "MASK-1", each=tuple(product(_AXES, ("is_causal", "window", "key_lengths"))))
def broadcast_mask_beside(draw: Draw, which: tuple[str, str]) -> Iterator[Yielded]:
    """A mask that broadcasts holds for every query, beside a source that differs from row to row."""
    axes, source = which
    for problem in draw.in_each_dtype(_BROADCAST):
        keys = problem.shape[-1]
        options: dict[str, dict[str, Any]] = {
            "is_causal": {"is_causal": True},
            "window": {"window": (1, 1)},
            "key_lengths": {"key_lengths": problem.random.integers(2, keys, problem.batch)},
        }
        mask = np.ascontiguousarray(_part(problem.random.random(problem.shape) < 0.6, axes))
        yield problem.arguments | {"mask": mask} | options[source]


@chapter.group("MASK-4", "SCORE-4", each=("one row", "one row of each head", "one column"))
def broadcast_bias_beside_causal(draw: Draw, axes: str) -> Iterator[Yielded]:
    """A bias that broadcasts, with minus infinity in some places, beside a causal mask."""
    for problem in draw.in_each_dtype(_BROADCAST):
        mask = problem.random.random(problem.shape) < 0.7
        bias = np.where(mask, problem.array(*problem.shape), -np.inf).astype(problem.query.dtype)
        arguments = problem.arguments | {"bias": np.ascontiguousarray(_part(bias, axes)), "is_causal": True}
        yield Call(arguments, ("MASK-4", "SCORE-4", "MASK-2"))


@chapter.group("MASK-5", "MASK-2", each=("all keys", "all keys that a mask allows", "some keys"))
def rows_of_the_lowest_bias(draw: Draw, which: str) -> Iterator[Yielded]:
    """The lowest finite number in the bias disallows nothing, also in the whole row."""
    for problem in draw.in_each_dtype(_BROADCAST, 0.5):
        lowest = -FORMATS[str(problem.query.dtype)].largest
        bias, mask = np.zeros(problem.shape), problem.mask()
        if which == "some keys":
            bias[..., ::2, 1:] = lowest
        else:
            bias[..., ::2, :] = lowest
        options: dict[str, Any] = {"bias": bias.astype(problem.query.dtype)}
        if which == "all keys that a mask allows":
            options["mask"] = mask
        yield problem.arguments | options
