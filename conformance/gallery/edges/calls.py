"""Calls past the sizes of the ordinary run, each with one kind of option."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import Array
from attnspec.conformance.suite.options import dropout, segments, sinks
from attnspec.conformance.suite.problem import Problem, Shape, problem_of

Options = dict[str, Any]


@dataclass(frozen=True)
class Sized:
    """A call: its sizes, and its options by a name in `MAKERS`."""

    shape: Shape
    options: str = "plain"

    @property
    def arguments(self) -> Options:
        """The arguments in float64, with all outputs requested.

        Examples
        --------
        >>> from attnspec.conformance.gallery.edges.calls import Sized
        >>> from attnspec.conformance.suite.problem import Shape
        >>> Sized(Shape((), 2, 300, 4, 4), "causal").arguments["query_offset"]
        0
        """
        problem = problem_of(self.shape, "float64", 1)
        # The wanted options may change queries and keys too.
        found = problem.arguments | MAKERS[self.options](problem)
        return found | {"return_lse": True, "return_weights": True}


def blocks(problem: Problem, size: int = 32) -> Array:
    """Draw a mask in blocks that are full, empty, or anything, with the last key for every row.

    Examples
    --------
    >>> from attnspec.conformance.gallery.edges.calls import blocks
    >>> from attnspec.conformance.suite.problem import Shape, problem_of
    >>> bool(blocks(problem_of(Shape((), 64, 64, 1, 1), "float64", 1))[:, -1].all())
    True
    """
    *outer, queries, keys = problem.shape
    counts = (-(-queries // size), -(-keys // size))
    kind = problem.random.integers(0, 3, (*outer, *counts))
    kind = np.repeat(np.repeat(kind, size, axis=-2), size, axis=-1)[..., :queries, :keys]
    mask: Array = np.where(kind == 2, problem.random.random(problem.shape) < 0.5, kind == 0)
    mask[..., -1:] = True
    return mask


def _full_first_rows(problem: Problem) -> Options:
    mask = problem.random.random(problem.shape) < 0.5
    mask[..., ::32, :] = True
    return {"mask": mask}


def _empty_first_rows(problem: Problem) -> Options:
    mask = problem.random.random(problem.shape) < 0.5
    mask[..., ::32, 1:] = False
    return {"mask": mask}


def _first_row_of_the_bias(problem: Problem) -> Options:
    bias = problem.array(*problem.shape)
    bias[..., ::32, 1:] = -np.inf
    return {"bias": bias}


def _full_corners(problem: Problem) -> Options:
    mask = problem.random.random(problem.shape) < 0.5
    edges = np.arange(max(problem.shape[-2:]))
    edges = edges[(edges % 32 == 0) | (edges % 32 == 31)]
    rows, keys = (edges[edges < size] for size in problem.shape[-2:])
    mask[..., rows[:, None], keys] = True
    return {"mask": mask}


def _empty_middle(problem: Problem) -> Options:
    allowed = np.ones(problem.shape[-1], bool)
    allowed[8 : (problem.shape[-1] - 1) // 2 * 2 - 8] = False
    return {"mask": allowed}


def _bias_without_the_middle(problem: Problem) -> Options:
    return {"bias": np.where(_empty_middle(problem)["mask"], 0.25, -np.inf)}


def _empty_beginning(problem: Problem) -> Options:
    return {"mask": np.arange(problem.shape[-1]) >= problem.shape[-1] - 4}


def _empty_end(problem: Problem) -> Options:
    return {"mask": np.arange(problem.shape[-1]) < 4}


def _empty_rows(problem: Problem) -> Options:
    return {"mask": problem.random.random((problem.shape[-2], 1)) < 0.5}


def _bias_in_blocks(problem: Problem) -> Options:
    return {"bias": np.where(blocks(problem), problem.array(*problem.shape), -np.inf)}


def _rising(problem: Problem) -> Options:
    """Make scores that rise from key to key, in each row at another key."""
    queries, keys = problem.shape[-2:]
    slope = np.where(np.arange(queries)[:, None] % 2, 20.0, -20.0)
    return {"bias": slope * np.linspace(0, 1, keys)}


def _far_below(problem: Problem) -> Options:
    return {"bias": np.full(problem.shape[-1], -2000.0)}


def _falling_far(problem: Problem) -> Options:
    return {"bias": np.linspace(0, -2000, problem.shape[-1])}


def _lengths(name: str, axis: int, multiple: int = 1) -> Callable[[Problem], Options]:
    def lengths(problem: Problem) -> Options:
        most = problem.shape[axis]
        if not problem.batch:
            return {name: max(most * 2 // 3 // multiple * multiple, 1)}
        count = int(np.prod(problem.batch))
        drawn = np.linspace(most // 3, most, count).astype(np.int64) // multiple * multiple
        return {name: np.maximum(drawn, 1).reshape(problem.batch)}

    return lengths


def _no_queries(problem: Problem) -> Options:
    return {"query_lengths": np.arange(int(np.prod(problem.batch))).reshape(problem.batch) % 2}


def _offsets(problem: Problem, *, least: int, most: int) -> Array | int:
    count = int(np.prod(problem.batch))
    found = np.linspace(least, most, count).astype(np.int64).reshape(problem.batch)
    return found if problem.batch else most


def _packed(problem: Problem) -> Options:
    """Make four segments. The last has the id of the first."""
    queries, keys = problem.shape[-2:]
    ids = (np.arange(size) * 4 // size % 3 for size in (queries, keys))
    names = ("query_segment_ids", "key_segment_ids")
    sizes = ((*problem.batch, queries), (*problem.batch, keys))
    return {
        name: np.broadcast_to(one, size).copy() for name, one, size in zip(names, ids, sizes, strict=True)
    }


def _many_segments(problem: Problem) -> Options:
    queries, keys = problem.shape[-2:]
    return {
        "query_segment_ids": problem.random.integers(0, 3, (*problem.batch, queries)) * 65536,
        "key_segment_ids": problem.random.integers(0, 3, (*problem.batch, keys)) * 65536,
    }


def _full_dropout(problem: Problem) -> Options:
    return {"dropout_mask": problem.random.random(problem.shape) < 0.7, "dropout_rate": 0.25}


def _causal_offsets(problem: Problem) -> Options:
    queries, keys = problem.shape[-2:]
    return {"is_causal": True, "query_offset": _offsets(problem, least=-8, most=max(keys - queries, 8))}


def _window(left: int | None, right: int | None) -> Callable[[Problem], Options]:
    return lambda _: {"window": (left, right), "query_offset": 0}


def _window_at_the_end(problem: Problem) -> Options:
    queries, keys = problem.shape[-2:]
    return {"window": (40, 8), "query_offset": _offsets(problem, least=0, most=keys - queries)}


def strided(array: Array) -> Array:
    """Return a view of the same numbers with other numbers between them.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.conformance.gallery.edges.calls import strided
    >>> found = strided(np.array([1, 2, 3]))
    >>> found.tolist(), found.strides[0] // found.itemsize
    ([1, 2, 3], 2)
    """
    apart = np.repeat(array, 2, axis=-1)
    apart[..., 1::2] = np.flip(array, -1)
    found: Array = apart[..., ::2]
    return found


def _strided(make: Callable[[Problem], Options], *names: str) -> Callable[[Problem], Options]:
    def options(problem: Problem) -> Options:
        found = make(problem)
        return found | {name: strided(found[name]) for name in names}

    return options


def _backward(name: str, axis: int) -> Callable[[Problem], Options]:
    """Store an array in reverse along an axis, and return a view in the right order."""

    def options(problem: Problem) -> Options:
        return {name: np.flip(np.flip(problem.arguments[name], axis).copy(), axis)}

    return options


def _exchanged(name: str, one: int, other: int) -> Callable[[Problem], Options]:
    """Store an array with two axes exchanged, and return a view with the axes in place."""

    def options(problem: Problem) -> Options:
        array = problem.arguments[name]
        return {name: np.swapaxes(np.ascontiguousarray(np.swapaxes(array, one, other)), one, other)}

    return options


def _one_value(problem: Problem) -> Options:
    return {"value": np.broadcast_to(problem.value[..., :1, :], problem.value.shape)}


#: The options of a call, by name.
MAKERS: Mapping[str, Callable[[Problem], Options]] = MappingProxyType(
    {
        "plain": lambda _: {},
        "scale": lambda _: {"scale": 0.7},
        "negative scale": lambda _: {"scale": -0.75},
        "large negative scale": lambda _: {"scale": -2000.0},
        "softcap": lambda _: {"softcap": 0.5},
        "softcap and bias": lambda problem: {"softcap": 0.5, "bias": problem.array(*problem.shape)},
        "bias": lambda problem: {"bias": problem.array(*problem.shape)},
        "bias in blocks": _bias_in_blocks,
        "bias without the middle": _bias_without_the_middle,
        "bias that rises": _rising,
        "bias far below": _far_below,
        "bias that falls far": _falling_far,
        "bias whose first rows are empty": _first_row_of_the_bias,
        "mask": lambda problem: {"mask": problem.mask()},
        "mask in blocks": lambda problem: {"mask": blocks(problem)},
        "mask whose first rows are full": _full_first_rows,
        "mask whose first rows are empty": _empty_first_rows,
        "mask whose corners are full": _full_corners,
        "mask without the middle": _empty_middle,
        "mask without the beginning": _empty_beginning,
        "mask without the end": _empty_end,
        "mask with empty rows": _empty_rows,
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
        "packed segments": _packed,
        "distant segments": _many_segments,
        "sinks": sinks,
        "sinks of many digits": lambda problem: {"sinks": problem.random.normal(size=problem.shape[-3])},
        "dropout": dropout,
        "full dropout": _full_dropout,
        "strided offsets": _strided(_causal_offsets, "query_offset"),
        "strided query lengths": _strided(_lengths("query_lengths", -2), "query_lengths"),
        "strided key lengths": _strided(_lengths("key_lengths", -1), "key_lengths"),
        "strided segments of queries": _strided(segments, "query_segment_ids"),
        "strided segments of keys": _strided(segments, "key_segment_ids"),
        "strided sinks": _strided(sinks, "sinks"),
        "strided bias": _strided(lambda problem: {"bias": problem.array(*problem.shape)}, "bias"),
        "strided mask": _strided(lambda problem: {"mask": problem.mask()}, "mask"),
        "strided dropout": _strided(_full_dropout, "dropout_mask"),
        "keys backward by features": _backward("key", -1),
        "keys backward by positions": _backward("key", -2),
        "keys backward by heads": _backward("key", -3),
        "values backward by features": _backward("value", -1),
        "values backward by positions": _backward("value", -2),
        "keys with heads after positions": _exchanged("key", -3, -2),
        "values with positions last": _exchanged("value", -2, -1),
        "one value for all keys": _one_value,
    }
)
