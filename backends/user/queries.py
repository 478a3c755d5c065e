"""Functions of attention that take one query of each sequence, without an axis of positions or with one."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from attnspec import OPERATIONS
from attnspec.backends.errors import Unsupported
from attnspec.backends.user.convention import Convention
from attnspec.backends.user.slopes import integers_of

_OPERATION = OPERATIONS["attention"]
#: The axis of positions of a query, by layout.
_AXES = {"BHSD": -2, "BSHD": -3, "BS(HD)": -2, "SBHD": 0}
#: The same of the results, from the end.
_OF_RESULTS = {output.name: output.shape.index("L") - len(output.shape) for output in _OPERATION.results}


def call_each_query(
    function: Callable[[dict[str, Any]], Sequence[Any]],
    call: dict[str, Any],
    wanted: Sequence[str],
    convention: Convention,
    xp: Any,
) -> Sequence[Any]:
    """Call a function of one query once for each query, and stack the results.

    If the last query is at the last key, each one is passed the keys up to its own, as a decoder does.
    """
    queries = (1, *call["query"].shape)[-2]
    if queries == 1 or not convention.one_query:
        return function(call)
    placed = (
        call.get("is_causal") is True or call.get("window") is not None
    ) and "query_positions" not in call
    if not queries or "query_lengths" in call or "query_offset" in call:
        raise Unsupported("the function takes one query of each sequence")
    if placed and not ((convention.from_end or convention.at_length) and _is_closed(call, convention)):
        raise Unsupported(f"the function takes one query, which has no place among {queries}")
    entries = [_of_query(call, place, queries) for place in range(queries)]
    if placed:
        entries = [_up_to(entry, queries - place - 1) for place, entry in enumerate(entries)]
    results = [function(entry) for entry in entries]
    stacked = []
    for name, parts in zip(("output", *wanted), zip(*results, strict=True), strict=True):
        axis = _OF_RESULTS[name]
        stacked.append(xp.stack([part[_at(0, axis)] for part in parts], axis=axis))
    return stacked


def _is_closed(call: Mapping[str, Any], convention: Convention) -> bool:
    """Whether a query may attend to no key after its own."""
    window = call.get("window")
    number = window is not None and convention.window in ("left", "keys")
    return call.get("is_causal") is True or number or (isinstance(window, tuple) and window[1] == 0)


def _up_to(call: Mapping[str, Any], later: int) -> dict[str, Any]:
    """Leave out the last keys, by their length if the call has one."""
    lengths = call.get("key_lengths")
    if lengths is not None and np.all(np.asarray(integers_of(lengths)) >= later):
        return {**call, "key_lengths": lengths - later}
    keys = call["key"].shape[-2] - later
    if lengths is not None or keys < 0:
        raise Unsupported("the function takes one query, and a query before all keys has no place")
    entry = dict(call)
    for name, x in call.items():
        axis = _OPERATION.arguments[name].axis("S")
        if axis is not None and getattr(x, "ndim", 0) >= -axis and x.shape[axis] == keys + later:
            entry[name] = x[_at(slice(keys), axis)]
    return entry


def _of_query(call: Mapping[str, Any], place: int, queries: int) -> dict[str, Any]:
    """Take the arguments of one query. An axis of queries that broadcasts stays."""
    entry = dict(call)
    for name, x in call.items():
        axis = _OPERATION.arguments[name].axis("L")
        if axis is not None and getattr(x, "ndim", 0) >= -axis and x.shape[axis] == queries:
            entry[name] = x[_at(slice(place, place + 1), axis)]
    return entry


def _at(index: Any, axis: int) -> tuple[Any, ...]:
    """Return the index of an axis, from the end unless it is 0."""
    return (index,) if axis == 0 else (..., index, *[slice(None)] * (-axis - 1))


def without_axis(call: Mapping[str, Any], convention: Convention) -> dict[str, Any]:
    """Drop the axis of positions of a query in its layout, if the function takes none."""
    query, axis = call["query"], _AXES[convention.layout]
    if convention.one_query is not True or query.ndim < max(-axis, 1):
        return dict(call)
    return {**call, "query": query[_at(0, axis)]}


def with_axis(parts: dict[str, Any], convention: Convention) -> dict[str, Any]:
    """Add the axis of positions to the results of a function that takes none."""
    if convention.one_query is not True:
        return parts
    axes = _OF_RESULTS | {"output": _AXES[convention.output_layout or convention.layout]}
    return {name: x[_at(None, axes[name])] for name, x in parts.items() if name in axes}
