"""Sparse attention for the exact oracle, rewritten pair by pair as attention with a mask.

This does not use `attnspec.reference.sparsity`, because the oracle judges the reference.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from attnspec.reference.exact.attention import evaluate_attention
from attnspec.reference.exact.balls import Settled
from attnspec.reference.exact.gradients import evaluate_gradients

_OWN = ("query_block", "key_block", "block_mask", "block_counts", "block_indices", "key_indices")
_Allows = Callable[[tuple[int, ...], int, int], bool]


def evaluate_sparse(arguments: Mapping[str, Any], variant: str | None, dtype: str) -> dict[str, Settled]:
    """Compute output and lse of a call with blocks or lists."""
    found = evaluate_attention(_with_mask(arguments), variant, dtype)
    return {name: found[name] for name in ("output", "lse")}


def evaluate_sparse_gradients(
    arguments: Mapping[str, Any], variant: str | None, dtype: str
) -> dict[str, Settled]:
    """Compute the gradients of a call with blocks or lists."""
    return evaluate_gradients(_with_mask(arguments), variant, dtype)


def _with_mask(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the call of attention that the call stands for (SPARSE-1, SPARSE-6)."""
    query, key = np.asarray(arguments["query"]), np.asarray(arguments["key"])
    shape = (*query.shape[:-1], key.shape[-2])
    allows = _by_list(arguments, query, key) if "key_indices" in arguments else _by_blocks(arguments, shape)
    mask = np.array(np.broadcast_to(arguments.get("mask", True), shape))
    for *outer, i, j in np.ndindex(*shape):
        if not allows(tuple(outer), i, j):
            mask[(*outer, i, j)] = False
    return {name: thing for name, thing in arguments.items() if name not in _OWN} | {"mask": mask}


def _by_blocks(arguments: Mapping[str, Any], shape: tuple[int, ...]) -> _Allows:
    rows, columns = arguments["query_block"], arguments["key_block"]
    *outer, queries, keys = shape
    blocks = (*outer, (queries + rows - 1) // rows, (keys + columns - 1) // columns)
    mask = np.broadcast_to(arguments.get("block_mask", True), blocks)
    indices = arguments.get("block_indices")
    if indices is not None:
        counts = np.broadcast_to(arguments["block_counts"], blocks[:-1])
        indices = np.broadcast_to(indices, (*blocks[:-1], np.shape(indices)[-1]))

    def allows(place: tuple[int, ...], i: int, j: int) -> bool:
        row, column = i // rows, j // columns
        if not mask[(*place, row, column)]:
            return False
        return indices is None or column in indices[(*place, row)][: counts[(*place, row)]]

    return allows


def _by_list(arguments: Mapping[str, Any], query: Any, key: Any) -> _Allows:
    indices = np.asarray(arguments["key_indices"])
    indices = np.broadcast_to(indices, (*key.shape[:-2], query.shape[-2], indices.shape[-1]))
    group = query.shape[-3] // key.shape[-3] if query.ndim > 2 else 1

    def allows(place: tuple[int, ...], i: int, j: int) -> bool:
        head = (*place[:-1], place[-1] // group) if place else ()
        return bool((indices[(*head, i)] == j).any())

    return allows
