"""Calls a function that takes one batch entry, or one head, once for each of them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from attnspec import OPERATIONS
from attnspec.backends.errors import Unsupported
from attnspec.backends.user.axes import BY_ENTRY, OF_PAIRS

_OPERATION = OPERATIONS["attention"]


def for_each_entry(
    function: Callable[[dict[str, Any]], Sequence[Any]], call: dict[str, Any], axes: int, xp: Any
) -> Sequence[Any]:
    """Call a function once for each index of the axes that it lacks, and stack the results.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.backends.user.entries import for_each_entry
    >>> def first(call):
    ...     return [call["value"][0, 0]]
    >>> arrays = dict.fromkeys(("query", "key", "value"), np.arange(8.0).reshape(2, 2, 2))
    >>> for_each_entry(first, arrays, 2, np)[0].tolist()
    [0.0, 4.0]
    """
    query = call["query"]
    lost = query.ndim - axes
    lead = tuple(query.shape[: max(lost, 0)])
    if lost <= 0 or not _alike(call, axes):
        return function(call)  # it fits, or the function refuses arrays with so many axes
    if 0 in lead:
        raise Unsupported("the function is called once for each batch entry, got none")
    found = [function(_entry(call, index, lead, axes)) for index in np.ndindex(lead)]
    stacked = [xp.stack(list(parts)) for parts in zip(*found, strict=True)]
    return [array.reshape((*lead, *array.shape[1:])) for array in stacked]


def _alike(call: Mapping[str, Any], axes: int) -> bool:
    """Whether the arrays have the same entries, and each query head has a key head."""
    query, key, value = (tuple(call[array].shape) for array in _OPERATION.arrays)
    if not len(query) == len(key) == len(value):
        return False
    if axes > 2:
        return query[:-axes] == key[:-axes] == value[:-axes]
    heads, shared = query[-3], key[-3]
    return query[:-3] == key[:-3] and key[:-2] == value[:-2] and shared > 0 and heads % shared == 0


def _entry(
    call: Mapping[str, Any], index: tuple[int, ...], lead: tuple[int, ...], axes: int
) -> dict[str, Any]:
    """Take the arguments of one entry."""
    batch = index if axes > 2 else index[:-1]
    shared = index if axes > 2 else (*batch, index[-1] // (lead[-1] // call["key"].shape[-3]))
    found = dict(call)
    found["query"] = call["query"][index]
    for name in ("key", "value"):
        found[name] = call[name][shared]
    if axes == 2 and call.get("sinks") is not None:
        if tuple(call["sinks"].shape) != lead[-1:]:
            raise _unlike("sinks", f"an axis of {lead[-1]} heads", tuple(call["sinks"].shape))
        found["sinks"] = call["sinks"][index[-1]]
    for name in BY_ENTRY:
        if getattr(call.get(name), "shape", None) is not None and batch:
            if tuple(call[name].shape[: len(batch)]) != lead[: len(batch)]:
                raise _unlike(name, f"entries of {lead[: len(batch)]}", tuple(call[name].shape))
            found[name] = call[name][batch]
    for name in OF_PAIRS:
        if call.get(name) is not None:
            found[name] = _of_pairs(name, call[name], index, lead, axes)
    return found


def _of_pairs(name: str, array: Any, index: tuple[int, ...], lead: tuple[int, ...], axes: int) -> Any:
    """Take the pairs of one entry from an array that broadcasts."""
    outer = max(array.ndim - axes, 0)
    if outer > len(lead):
        raise _unlike(name, f"at most {len(lead) + axes} axes", array.ndim)
    own = []
    first = len(lead) - outer
    for size, at, whole in zip(array.shape[:outer], index[first:], lead[first:], strict=True):
        if size not in (1, whole):
            raise _unlike(name, f"axes of 1 or {whole} entries", size)
        own.append(at if size > 1 else 0)
    return array[tuple(own)]


def _unlike(name: str, expected: str, got: Any) -> Unsupported:
    return Unsupported(f"the function is called once for each entry: {name}: expected {expected}, got {got}")
