"""Options at the edges of tiles of 32 queries and 32 keys, which show the entries of the gallery there."""

from collections.abc import Callable, Mapping
from math import prod

import numpy as np

from attnspec.conformance.suite.options import (
    FORMS,
    OF_SCORES,
    OPTIONS,
    Array,
    Maker,
    Options,
    draw_bias,
    dropout,
    full_dropout,
    segments,
    sinks,
)
from attnspec.conformance.suite.problem import Problem


def blocks(problem: Problem, size: int = 32) -> Array:
    """Draw a mask in blocks that are full, empty, or anything, with the last key for every row."""
    *outer, queries, keys = problem.shape
    counts = (-(-queries // size), -(-keys // size))
    kind = problem.random.integers(0, 3, (*outer, *counts))
    kind = np.repeat(np.repeat(kind, size, axis=-2), size, axis=-1)[..., :queries, :keys]
    mask: Array = np.where(kind == 2, problem.random.random(problem.shape) < 0.5, kind == 0)
    mask[..., -1:] = True
    return mask


def _half(problem: Problem) -> Array:
    return problem.random.random(problem.shape) < 0.5


def _full_first_rows(problem: Problem) -> Options:
    mask = _half(problem)
    mask[..., ::32, :] = True
    return {"mask": mask}


def _empty_first_rows(problem: Problem) -> Options:
    mask = _half(problem)
    mask[..., ::32, 1:] = False
    return {"mask": mask}


def _first_row_of_the_bias(problem: Problem) -> Options:
    bias = _bias(problem)["bias"]
    bias[..., ::32, 1:] = -np.inf
    return {"bias": bias}


def _full_corners(problem: Problem) -> Options:
    mask = _half(problem)
    edges = np.arange(max(problem.shape[-2:]))
    edges = edges[(edges % 32 == 0) | (edges % 32 == 31)]
    rows, keys = (edges[edges < size] for size in problem.shape[-2:])
    mask[..., rows[:, None], keys] = True
    return {"mask": mask}


def _without_the_middle(problem: Problem) -> Array:
    allowed = np.ones(problem.shape[-1], bool)
    allowed[8 : (problem.shape[-1] - 1) // 2 * 2 - 8] = False
    return allowed


def _bias(problem: Problem) -> Options:
    return {"bias": draw_bias(problem, amplitude=1.0)}


def _bias_in_blocks(problem: Problem) -> Options:
    return {"bias": np.where(blocks(problem), draw_bias(problem, amplitude=1.0), -np.inf)}


def _rising(problem: Problem) -> Options:
    """Make scores that rise from key to key, in each row at another key."""
    queries, keys = problem.shape[-2:]
    slope = np.where(np.arange(queries)[:, None] % 2, 20.0, -20.0)
    return {"bias": slope * np.linspace(0, 1, keys)}


def _lengths(name: str, axis: int, multiple: int = 1) -> Maker:
    """Make lengths that rise from entry to entry, from a third of the axis to the whole of it."""

    def lengths(problem: Problem) -> Options:
        most = problem.shape[axis]
        if not problem.batch:
            return {name: max(most * 2 // 3 // multiple * multiple, 1)}
        rising = np.linspace(most // 3, most, prod(problem.batch)).astype(np.int64)
        return {name: np.maximum(rising // multiple * multiple, 1).reshape(problem.batch)}

    return lengths


def _no_queries(problem: Problem) -> Options:
    return {"query_lengths": np.arange(prod(problem.batch)).reshape(problem.batch) % 2}


def _offsets(problem: Problem, *, least: int, most: int) -> Array | int:
    rising = np.linspace(least, most, prod(problem.batch)).astype(np.int64)
    return rising.reshape(problem.batch) if problem.batch else most


def _causal_offsets(problem: Problem) -> Options:
    queries, keys = problem.shape[-2:]
    return {"is_causal": True, "query_offset": _offsets(problem, least=-8, most=max(keys - queries, 8))}


def _window(left: int | None, right: int | None) -> Maker:
    return lambda _: {"window": (left, right), "query_offset": 0}


def _window_at_the_end(problem: Problem) -> Options:
    queries, keys = problem.shape[-2:]
    return {"window": (40, 8), "query_offset": _offsets(problem, least=0, most=keys - queries)}


def _segments(problem: Problem, ids: Callable[[int], Array]) -> Options:
    names = ("query_segment_ids", "key_segment_ids")
    return {name: ids(size) for name, size in zip(names, problem.shape[-2:], strict=True)}


def _packed_segments(problem: Problem) -> Options:
    """Make four segments. The last has the id of the first."""
    return _segments(
        problem, lambda size: np.broadcast_to(np.arange(size) * 4 // size % 3, (*problem.batch, size)).copy()
    )


def _distant_segments(problem: Problem) -> Options:
    return _segments(problem, lambda size: problem.random.integers(0, 3, (*problem.batch, size)) * 65536)


def _dropout(problem: Problem) -> Options:
    return full_dropout(problem, dropout_rate=0.25)


def strided(array: Array) -> Array:
    """Return a view of the same numbers with other numbers between them."""
    apart = np.repeat(array, 2, axis=-1)
    apart[..., 1::2] = np.flip(array, -1)
    view: Array = apart[..., ::2]
    return view


def _with_strides(make: Maker, *names: str) -> Maker:
    def options(problem: Problem) -> Options:
        made = make(problem)
        return made | {name: strided(made[name]) for name in names}

    return options


def _backward(name: str, axis: int) -> Maker:
    """Store an array in reverse along an axis, and return a view in the right order."""
    return lambda problem: {name: np.flip(np.flip(problem.arguments[name], axis).copy(), axis)}


def _exchange(name: str, one: int, other: int) -> Maker:
    """Store an array with two axes exchanged, and return a view with the axes in place."""

    def options(problem: Problem) -> Options:
        array = problem.arguments[name]
        return {name: np.swapaxes(np.ascontiguousarray(np.swapaxes(array, one, other)), one, other)}

    return options


#: The options of a call, by name.
AT_EDGES: Mapping[str, Maker] = {
    "plain": FORMS["nothing"].draw,
    "scale": lambda _: {"scale": 0.7},
    "negative scale": OF_SCORES["scale"].draw,
    "large negative scale": lambda _: {"scale": -2000.0},
    "softcap": lambda _: {"softcap": 0.5},
    "softcap and bias": lambda p: {"softcap": 0.5} | _bias(p),
    "bias": _bias,
    "bias in blocks": _bias_in_blocks,
    "bias without the middle": lambda p: {"bias": np.where(_without_the_middle(p), 0.25, -np.inf)},
    "bias that rises": _rising,
    "bias far below": lambda p: {"bias": np.full(p.shape[-1], -2000.0)},
    "bias that falls far": lambda p: {"bias": np.linspace(0, -2000, p.shape[-1])},
    "bias whose first rows are empty": _first_row_of_the_bias,
    "mask": OPTIONS["mask"].draw,
    "mask in blocks": lambda p: {"mask": blocks(p)},
    "mask whose first rows are full": _full_first_rows,
    "mask whose first rows are empty": _empty_first_rows,
    "mask whose corners are full": _full_corners,
    "mask without the middle": lambda p: {"mask": _without_the_middle(p)},
    "mask without the beginning": lambda p: {"mask": np.arange(p.shape[-1]) >= p.shape[-1] - 4},
    "mask without the end": lambda p: {"mask": np.arange(p.shape[-1]) < 4},
    "mask with empty rows": lambda p: {"mask": p.random.random((p.shape[-2], 1)) < 0.5},
    "causal": lambda _: {"is_causal": True, "query_offset": 0},
    "causal with offsets": _causal_offsets,
    "window to the left": _window(100, 0),
    "window to the right": _window(0, 100),
    "wide window": _window(400, 0),
    "narrow window": _window(3, 2),
    "window at the end": _window_at_the_end,
    "window of two": _window(1, 0),
    "query lengths of none": _no_queries,
    "query lengths": _lengths("query_lengths", -2),
    "key lengths": _lengths("key_lengths", -1),
    "key lengths of whole tiles": _lengths("key_lengths", -1, 32),
    "segments": segments,
    "packed segments": _packed_segments,
    "distant segments": _distant_segments,
    "sinks": sinks,
    "sinks of many digits": lambda p: {"sinks": p.random.normal(size=p.shape[-3])},
    "dropout": dropout,
    "full dropout": _dropout,
    "strided offsets": _with_strides(_causal_offsets, "query_offset"),
    "strided query lengths": _with_strides(_lengths("query_lengths", -2), "query_lengths"),
    "strided key lengths": _with_strides(_lengths("key_lengths", -1), "key_lengths"),
    "strided segments of queries": _with_strides(segments, "query_segment_ids"),
    "strided segments of keys": _with_strides(segments, "key_segment_ids"),
    "strided sinks": _with_strides(sinks, "sinks"),
    "strided bias": _with_strides(_bias, "bias"),
    "strided mask": _with_strides(OPTIONS["mask"].draw, "mask"),
    "strided dropout": _with_strides(_dropout, "dropout_mask"),
    "keys backward by features": _backward("key", -1),
    "keys backward by positions": _backward("key", -2),
    "keys backward by heads": _backward("key", -3),
    "values backward by features": _backward("value", -1),
    "values backward by positions": _backward("value", -2),
    "keys with heads after positions": _exchange("key", -3, -2),
    "values with positions last": _exchange("value", -2, -1),
    "one value for all keys": lambda p: {"value": np.broadcast_to(p.value[..., :1, :], p.value.shape)},
}
