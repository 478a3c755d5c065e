"""The chapter `errors`: every option in every size class, because a kernel chooses its path by size (ERR-3).

Many kernels have one path for a single query, one for many queries and one for grouped heads, and
implement each option in each of them. `tools.coverage` lists the size classes
and tells which of them an option never meets.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations, product
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.case import Misuse
from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.options import Options, segments, sinks
from attnspec.conformance.suite.problem import Problem, Shape
from attnspec.conformance.suite.words import in_two_dtypes

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
_AXES: Mapping[int, tuple[tuple[int, ...], tuple[int, ...]]] = MappingProxyType(
    {1: ((5,), (2,)), 2: ((2, 3), (1, 2)), 3: ((2, 1, 3), (1, 2, 1))}
)
#: Long in both axes, and a single query with many keys.
_LARGE = (Shape((2, 1), 67, 131, 4, 4), Shape((2, 2), 1, 139, 4, 3))


def _scale(problem: Problem) -> float:
    """Return about one and a half times the default, a number that every dtype holds."""
    return float(np.ceil(96 / np.sqrt(problem.query.shape[-1])) / 64)


def _offset(problem: Problem, size: tuple[int, ...] = ()) -> NDArray[np.int64]:
    """Draw offsets that leave the last keys to no query."""
    queries, keys = problem.shape[-2:]
    low = max(1, (keys - queries) // 2)
    return problem.random.integers(low, max(low + 1, keys - queries), size)


def _key_lengths(problem: Problem, size: tuple[int, ...] = ()) -> NDArray[np.int64]:
    keys = problem.shape[-1]
    return problem.random.integers(keys // 2, keys, size)


def _query_lengths(problem: Problem, size: tuple[int, ...] = ()) -> NDArray[np.int64]:
    """Draw lengths. The length of a single query is 0 for every second entry."""
    queries = problem.shape[-2]
    if queries > 1:
        return problem.random.integers(queries // 2, queries, size)
    return (np.arange(int(np.prod(size))) % 2).reshape(size)


def _masked(problem: Problem, *shape: int) -> NDArray[np.bool_]:
    """Draw a mask of some shape with at least one allowed place."""
    mask = problem.random.random(shape) < 0.6
    mask.flat[-1] = True
    return mask


def _added(problem: Problem, *shape: int) -> NDArray[Any]:
    return problem.array(*shape, amplitude=0.5)


def _hidden(problem: Problem) -> NDArray[Any]:
    return np.where(problem.mask(), _added(problem, *problem.shape), -np.inf).astype(problem.query.dtype)


def _window(problem: Problem) -> tuple[int, int]:
    keys = problem.shape[-1]
    return int(problem.random.integers(keys // 4, keys // 2)), int(
        problem.random.integers(keys // 4, keys // 2)
    )


def _late_window(problem: Problem) -> Options:
    """Draw a window of the last queries that leaves out the first keys and the last one."""
    queries, keys = problem.shape[-2:]
    left = int(problem.random.integers(keys // 3, keys // 2))
    return {"window": (left, 0), "query_offset": max(0, keys - queries - 1)}


def _dropped(problem: Problem) -> Options:
    return {"dropout_mask": problem.random.random(problem.shape) < 0.7}


#: The forms of each option: its rule, and its arguments.
FORMS: Mapping[str, tuple[str, Callable[[Problem], Options]]] = MappingProxyType(
    {
        "nothing": ("SOFT-3", lambda _: {}),
        "scale": ("SCORE-3", lambda p: {"scale": _scale(p)}),
        "negative scale": ("SCORE-3", lambda p: {"scale": -_scale(p)}),
        "softcap": ("SCORE-5", lambda _: {"softcap": 0.25}),
        "bias": ("SCORE-4", lambda p: {"bias": _added(p, *p.shape)}),
        "bias of heads": ("SCORE-4", lambda p: {"bias": _added(p, p.shape[-3], 1, p.shape[-1])}),
        "bias of minus infinity": ("MASK-2", lambda p: {"bias": _hidden(p)}),
        "mask": ("MASK-1", lambda p: {"mask": _masked(p, *p.shape)}),
        "mask of heads": ("MASK-1", lambda p: {"mask": _masked(p, p.shape[-3], 1, p.shape[-1])}),
        "mask of batch entries": ("MASK-1", lambda p: {"mask": _masked(p, *p.batch, 1, *p.shape[-2:])}),
        "mask of queries": ("MASK-1", lambda p: {"mask": _masked(p, *p.shape[:-1], 1)}),
        "mask of keys": ("MASK-1", lambda p: {"mask": _masked(p, p.shape[-1])}),
        "is_causal": ("MASK-3", lambda _: {"is_causal": True}),
        "query_offset": ("MASK-7", lambda p: {"is_causal": True, "query_offset": int(_offset(p))}),
        "window": ("MASK-8", lambda p: {"window": _window(p)}),
        "window and offset": ("MASK-8", _late_window),
        "query_lengths": ("MASK-10", lambda p: {"query_lengths": int(_query_lengths(p))}),
        "key_lengths": ("MASK-9", lambda p: {"key_lengths": int(_key_lengths(p))}),
        "segments": ("MASK-11", segments),
        "sinks": ("SOFT-5", sinks),
        "dropout": ("DROP-1", _dropped),
        "dropout_rate": ("DROP-2", lambda p: _dropped(p) | {"dropout_rate": 0.25}),
    }
)
#: Integers of each batch entry: the rule, and the arguments.
PER_ENTRY: Mapping[str, tuple[str, Callable[[Problem], Options]]] = MappingProxyType(
    {
        "query_offset": ("MASK-7", lambda p: {"is_causal": True, "query_offset": _offset(p, p.batch)}),
        "query_lengths": ("MASK-10", lambda p: {"query_lengths": _query_lengths(p, p.batch)}),
        "key_lengths": ("MASK-9", lambda p: {"key_lengths": _key_lengths(p, p.batch)}),
    }
)


#: A mask of queries leaves all keys or none to each of them, and cites no rule on other options.
OF_QUERIES = ("MASK-1", "MASK-6")


def _called(problem: Problem, rule: str, options: Options) -> Call:
    """Make the call. Of grouped heads, it is about grouping too."""
    grouped = problem.query.shape[-3] != problem.key.shape[-3]
    rules = (rule, "HEAD-1") if grouped else (rule,)
    return Call(problem.arguments | options, rules, outputs=("output", "lse"))


@chapter.group("ERR-3", each=tuple(FORMS))
def option_of_every_size(draw: Draw, form: str) -> Iterator[Yielded]:
    """An option holds for one query and for many, past every tile, for deep, grouped and many heads."""
    rule, options = FORMS[form]
    for problem in in_two_dtypes(draw, SIZES, wide=True):
        made = _called(problem, rule, options(problem))
        yield replace(made, rules=OF_QUERIES) if form == "mask of queries" else made


@chapter.group("ERR-3", each=tuple(product(PER_ENTRY, _AXES)))
def integers_of_every_size(draw: Draw, which: tuple[str, int]) -> Iterator[Yielded]:
    """Integers of each batch entry hold for one, two and three batch axes in every size."""
    name, axes = which
    rule, options = PER_ENTRY[name]
    shapes = tuple(
        shape._replace(outer=(*_AXES[axes][shape.queries > 1], shape.outer[-1])) for shape in SIZES
    )
    for problem in in_two_dtypes(draw, shapes):
        yield _called(problem, rule, options(problem))


@chapter.group("ERR-14")
def bias_of_another_dtype_and_every_size(draw: Draw) -> Iterator[Yielded]:
    """A bias of another dtype than the query is refused or taken at its value in every size."""
    for index, problem in enumerate(in_two_dtypes(draw, SIZES)):
        fine = np.round(np.clip(problem.random.normal(size=problem.shape) / 2, -1.5, 1.5) * 1024) / 1024
        dtype = ("float64", "float32", "float16", "float32")[index % 4]
        made = _called(problem, "ERR-14", {"bias": fine.astype(dtype)})
        yield replace(made, rules=("ERR-14",), misuse=replace(Misuse("bias"), allowed=True))


def _rows_of_nothing(problem: Problem) -> NDArray[np.bool_]:
    """Draw a mask that leaves nothing to the last query of every second head."""
    mask = problem.mask()
    mask[..., ::2, -1, :] = False
    return mask


def _no_keys(problem: Problem) -> NDArray[np.int64]:
    """Draw key lengths that are 0 for the first batch entry and every second one after it."""
    entry = np.arange(int(np.prod(problem.batch)))
    return np.where(entry % 2, problem.shape[-1] // 2, 0).reshape(problem.batch)


#: Arguments that leave queries without a key.
_EMPTY: Mapping[str, Callable[[Problem], Options]] = MappingProxyType(
    {
        "mask": lambda p: {"mask": _rows_of_nothing(p)},
        "bias": lambda p: {
            "bias": np.where(_rows_of_nothing(p), _added(p, *p.shape), -np.inf).astype(p.query.dtype)
        },
        "key_lengths": lambda p: {"key_lengths": _no_keys(p)},
        "query_offset": lambda p: {"is_causal": True, "query_offset": -((p.shape[-2] + 1) // 2)},
    }
)


@chapter.group("MASK-6", "SOFT-7", each=tuple(_EMPTY))
def empty_rows_of_every_size(draw: Draw, source: str) -> Iterator[Yielded]:
    """A query with nothing to attend to gives zero in every size."""
    for problem in in_two_dtypes(draw, SIZES):
        made = _called(problem, "MASK-6", _EMPTY[source](problem))
        yield replace(made, rules=("MASK-6", "SOFT-7"))


@chapter.group("SHAPE-4", each=("all keys", "is_causal"))
def weights_of_every_size(draw: Draw, keys: str) -> Iterator[Yielded]:
    """The weights that are returned have one number for each query and key in every size."""
    for problem in in_two_dtypes(draw, SIZES):
        options: Options = {"is_causal": True} if keys == "is_causal" else {}
        yield Call(problem.arguments | options, outputs=("weights",))


#: The options that mask.
_MASKS = (
    "mask",
    "bias of minus infinity",
    "is_causal",
    "query_offset",
    "window",
    "query_lengths",
    "key_lengths",
    "segments",
)


@chapter.group(
    "MASK-4", each=tuple(pair for pair in combinations(_MASKS, 2) if pair != ("is_causal", "query_offset"))
)
def large_masks_in_pairs(draw: Draw, pair: tuple[str, str]) -> Iterator[Yielded]:
    """Each of two options takes keys away past tiles of 64 and 128."""
    # The length of one query and its causal mask leave nothing for the other option to take away.
    alone = {"query_lengths", "is_causal"} & {*pair}
    for problem in in_two_dtypes(draw, _LARGE[:1] if alone else _LARGE):
        options: Options = {}
        for name in pair:
            options |= (
                {"key_lengths": _far_apart(problem)} if name == "key_lengths" else FORMS[name][1](problem)
            )
        made = _called(problem, "MASK-4", options)
        yield replace(made, rules=(*made.rules, "ERR-3"))


def _far_apart(problem: Problem) -> NDArray[np.int64]:
    """Take key lengths, one of them short and one long, so that either option ends a row first."""
    keys = problem.shape[-1]
    return np.resize([keys // 4, keys - 3], problem.batch)
