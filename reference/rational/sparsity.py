"""Sparse attention of the second oracle: the pairs that blocks and lists name, as the mask of attention."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.reference.rational.attention import attention
from attnspec.reference.rational.gradients import attention_vjp

Arguments = Mapping[str, Any]
Arrays = dict[str, NDArray[np.float64]]
Dialect = Mapping[str, str]
Index = tuple[int, ...]


def block_sparse_attention(arguments: Arguments, dialect: Dialect) -> Arrays:
    """Compute output and lse of a call with blocks."""
    return _results(attention(_masked(arguments, _pairs_of_blocks(arguments)), dialect))


def block_sparse_attention_vjp(arguments: Arguments, dialect: Dialect) -> Arrays:
    """Compute the gradients of a call with blocks."""
    return attention_vjp(_masked(arguments, _pairs_of_blocks(arguments)), dialect)


def listed_attention(arguments: Arguments, dialect: Dialect) -> Arrays:
    """Compute output and lse of a call with lists of keys."""
    return _results(attention(_masked(arguments, _pairs_of_lists(arguments)), dialect))


def listed_attention_vjp(arguments: Arguments, dialect: Dialect) -> Arrays:
    """Compute the gradients of a call with lists of keys."""
    return attention_vjp(_masked(arguments, _pairs_of_lists(arguments)), dialect)


def _results(found: Arrays) -> Arrays:
    return {"output": found["output"], "lse": found["lse"]}


def _masked(arguments: Arguments, pairs: Iterator[Index]) -> dict[str, Any]:
    """Replace the arguments of a sparse call by a mask that is True for some pairs only."""
    shape = _shape(arguments)
    named = np.zeros(shape, dtype=bool)
    for pair in pairs:
        named[pair] = True
    given = arguments.get("mask")
    kept = {
        name: x for name, x in arguments.items() if not name.startswith("block_") and name != "key_indices"
    }
    for name in ("query_block", "key_block"):
        kept.pop(name, None)
    return kept | {"mask": named if given is None else named & np.asarray(given)}


def _shape(arguments: Arguments) -> Index:
    return (*np.shape(arguments["query"])[:-1], np.shape(arguments["key"])[-2])


def _pairs_of_blocks(arguments: Arguments) -> Iterator[Index]:
    """Yield the place of each pair whose block is allowed by the mask of blocks and by the lists."""
    *outer, queries, keys = _shape(arguments)
    height, width = arguments["query_block"], arguments["key_block"]
    upper, left = range(0, queries, height), range(0, keys, width)
    blocks = (*outer, len(upper), len(left))
    shown = np.ones(blocks, dtype=bool)
    if arguments.get("block_mask") is not None:
        shown &= np.asarray(arguments["block_mask"])
    if arguments.get("block_indices") is not None:
        indices = np.asarray(arguments["block_indices"])
        indices = np.broadcast_to(indices, (*blocks[:-1], indices.shape[-1]))
        counts = np.broadcast_to(arguments["block_counts"], blocks[:-1])
        for place in itertools.product(*map(range, blocks[:-1])):
            listed = {int(index) for index in indices[place].tolist()[: int(counts[place])]}
            shown[place] &= np.array([block in listed for block in range(len(left))], dtype=bool)
    for *heads, row, column in zip(*(axis.tolist() for axis in np.nonzero(shown)), strict=True):
        for i in range(upper[row], min(upper[row] + height, queries)):
            for j in range(left[column], min(left[column] + width, keys)):
                yield (*heads, i, j)


def _pairs_of_lists(arguments: Arguments) -> Iterator[Index]:
    """Yield the place of each query and key that is listed for it, for each query head of the list's head."""
    *outer, queries, _ = _shape(arguments)
    key_outer = np.shape(arguments["key"])[:-2]
    indices = np.asarray(arguments["key_indices"])
    indices = np.broadcast_to(indices, (*key_outer, queries, indices.shape[-1]))
    for (*place, i, _), j in np.ndenumerate(indices):
        if j < 0:
            continue
        if not place:
            yield (i, int(j))
            continue
        group = outer[-1] // key_outer[-1]
        for head in range(place[-1] * group, (place[-1] + 1) * group):
            yield (*place[:-1], head, i, int(j))
