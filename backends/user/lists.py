"""Lists of blocks as a function takes them: in place of a mask, or one for each query and head."""

from collections.abc import Container, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from attnspec import Operation
from attnspec.backends.errors import Unsupported
from attnspec.backends.library.library import device_of

#: The axes of lists by the value of the key `lists`: whether they are of key heads, and after positions.
LISTS: Mapping[str, tuple[bool, bool]] = MappingProxyType(
    {"Hq, L": (False, False), "L, Hq": (False, True), "Hkv, L": (True, False), "L, Hkv": (True, True)}
)
#: The two arguments of lists.
LISTED = ("block_counts", "block_indices")
(_COUNTS, _INDICES), _MASK = LISTED, "block_mask"
#: The arrays of blocks, and how many axes each has after that of heads.
BLOCKS: Mapping[str, int] = MappingProxyType({_MASK: 2, _COUNTS: 1, _INDICES: 2})


def has_square_blocks(names: Mapping[str, str]) -> bool:
    """Whether one parameter is the size of blocks of queries and of keys."""
    return names.get("query_block", "") == names.get("key_block")


def masks_in_lists(form: Operation, taken: Container[str]) -> tuple[str, ...]:
    """Name the mask of blocks if a function takes lists, which express it where blocks lie in one row."""
    whole = {"query", "key"} <= {*form.arrays} and "packed" not in form.layers
    return (_MASK,) if whole and all(name in taken for name in LISTED) else ()


def with_own_lists(call: dict[str, Any], kind: str, taken: Container[str], xp: Any) -> dict[str, Any]:
    """Write blocks of queries as blocks of one query, and a mask that the function does not take as lists.

    The list of a block of queries is that of each query in it, so every size of a block can be passed.
    Without a kind, blocks of queries stay as they are.
    """
    if not kind and (_MASK in taken or call.get(_MASK) is None):
        return call
    of_key_heads, after = LISTS.get(kind, (False, False))
    query, block = call["query"], call["query_block"]
    if min(query.ndim, call["key"].ndim) < 3:
        raise Unsupported("the function takes a list for each query and head, got no axis of heads")
    if any(type(size) is not int or size < 1 for size in (block, call["key_block"])):
        raise Unsupported("the function takes lists of whole blocks, got a size that is no integer from 1")
    heads, queries = query.shape[-3:-1]
    group = heads // max(call["key"].shape[-3], 1) if of_key_heads else 1
    arrays = {name: _to_numpy(call[name]) for name in BLOCKS if call.get(name) is not None}
    if _MASK in arrays and _MASK not in taken:
        columns = -(-call["key"].shape[-2] // call["key_block"])
        arrays = _lists_of(arrays, columns)
    rows = np.arange(queries) // block if kind else np.arange(-(-queries // block))
    own = {}
    for name, array in arrays.items():
        inner = BLOCKS[name]
        shape = (*query.shape[:-2], -(-queries // block), *array.shape[array.ndim - inner + 1 :])
        whole = np.take(_broadcast(name, array, shape), rows, axis=-inner)
        first = np.take(whole, np.arange(0, heads, max(group, 1)), axis=-inner - 1)
        if not np.array_equal(np.repeat(first, max(group, 1), axis=-inner - 1), whole):
            raise Unsupported(f"the function takes {name} of key heads, got some that differ in a group")
        own[name] = first.swapaxes(-inner, -inner - 1) if after else first
    there = device_of(query)
    lists = {name: xp.asarray(np.ascontiguousarray(x), **there) for name, x in own.items()}
    rest = {name: x for name, x in call.items() if name not in BLOCKS and name != "query_block"}
    return rest | lists | ({"query_block": 1 if kind else block} if "query_block" in taken else {})


def lists_of_key_heads(call: Mapping[str, Any], group: int) -> dict[str, Any]:
    """Give the query heads that share a key head the blocks of the first of them."""
    fitted = {}
    for name in (name for name in BLOCKS if call.get(name) is not None and group > 1):
        array, heads = call[name], -BLOCKS[name] - 1
        if array.ndim >= -heads and array.shape[heads] > 1:
            first = np.take(array, np.arange(0, array.shape[heads], group), axis=heads)
            fitted[name] = np.repeat(first, group, axis=heads)
    return {**call, **fitted}


def differ_in_a_group(call: Mapping[str, Any], group: int) -> bool:
    """Whether query heads that share a key head have other blocks."""
    fitted = lists_of_key_heads(call, group)
    return any(not np.array_equal(fitted[name], call[name]) for name in BLOCKS if call.get(name) is not None)


def _to_numpy(array: Any) -> Any:
    return array if isinstance(array, np.ndarray) else np.asarray(array.tolist(), dtype=_kind(array))


def _kind(array: Any) -> str:
    return str(array.dtype).rpartition(".")[2]


def _broadcast(name: str, array: Any, shape: tuple[int, ...]) -> Any:
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        raise Unsupported(f"the function takes lists of every head, got {name} of {array.shape}") from None


def _lists_of(arrays: Mapping[str, Any], columns: int) -> dict[str, Any]:
    """Write a mask of blocks, and the lists that it narrows, as lists."""
    active = np.atleast_1d(arrays[_MASK])
    if active.dtype != bool or active.shape[-1] not in (1, columns):
        raise Unsupported("the function takes lists of blocks, got a mask that cannot be written as these")
    active = np.broadcast_to(active, (*active.shape[:-1], columns))
    if _INDICES in arrays:
        indices, places = arrays[_INDICES], np.arange(arrays[_INDICES].shape[-1])
        used = np.where(places < arrays[_COUNTS][..., None], indices, -1)
        active = active & (used[..., None] == np.arange(columns)).any(axis=-2)
    order = np.argsort(~active, axis=-1, kind="stable").astype(np.int32)
    return {_COUNTS: active.sum(axis=-1).astype(np.int32), _INDICES: order}
