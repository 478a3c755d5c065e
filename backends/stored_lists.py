"""The inverse of lists and blocks: each query has a list of keys, or of blocks of keys, that masks allow."""

from collections.abc import Mapping
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec import OPERATIONS
from attnspec.backends.errors import Unsupported
from attnspec.backends.stored_rows import Rows
from attnspec.reference import allowed_keys

#: Masks that a list can stand for, and those of them that come together.
MASKS = tuple(name for name in OPERATIONS["attention"].names("masks") if name != "bias")
_OF_POSITIONS = ("is_causal", "window", "query_offset", "query_positions", "key_positions")
#: Lists have a multiple of this number of places. Blocks have this number of queries and of keys.
_PLACES, _BLOCK = 64, 128
#: The most entries of all lists, and the most pairs of queries and keys.
_MOST = 2**25


def with_lists(
    rows: Rows, given: Mapping[str, Any], taken: frozenset[str], *, latent: bool
) -> dict[str, Any]:
    """Add lists of keys, in any order and with some places that are no keys.

    They hold every key that the masks allow that the function does not take.
    """
    moved = [name for name in MASKS if name in given and name not in (*taken, "query_offset")]
    if {*moved}.intersection(_OF_POSITIONS) and "query_positions" not in given:
        moved += [name for name in _OF_POSITIONS if name in given and name not in moved]
    (heads, queries, _), (key_heads, keys, _) = given["query"].shape[-3:], given["key"].shape[-3:]
    width = keys + -keys % _PLACES + _PLACES
    if rows.count * key_heads * queries * width > _MOST:
        raise Unsupported("its lists of keys would be too large")
    own = 1 if latent else key_heads
    g, h, i = np.ogrid[: rows.count, :own, :queries]
    step = next(step for step in range(int(0.6 * width) | 1, 2 * width, 2) if gcd(step, width) == 1)
    first = (17 * g + 5 * h + 3 * i)[..., None]
    lists = (np.arange(width) * step + first) % width  # (G, Hkv, L, W)
    ends = rows.used["S"][:, None, None, None] if rows.packed else keys
    there = lists < ends
    if moved:
        pairs = _pairs(rows, given, moved)
        if pairs.shape[1] > 1 and (own, key_heads) != (heads, heads):
            raise Unsupported("heads with one list have several masks")
        pairs = np.broadcast_to(pairs, (rows.count, own, queries, keys))
        there &= np.take_along_axis(pairs, np.minimum(lists, keys - 1), axis=-1)
    if rows.packed and not rows.paged:  # entries count all rows
        lists = lists + (np.cumsum(rows.used["S"]) - rows.used["S"])[:, None, None, None]
    lists = np.where(there, lists, -1).reshape(*rows.batch, *lists.shape[1:])
    call = {name: x for name, x in given.items() if name not in moved}
    return call | {"key_indices": rows.backend.to_library(lists[..., 0, :, :] if latent else lists)}


def blocks_of_call(rows: Rows, given: Mapping[str, Any], taken: frozenset[str]) -> dict[str, Any]:
    """Return the blocks that hold an allowed pair: as a mask, or as lists in any order."""
    pairs = _pairs(rows, given, [name for name in (*MASKS, "bias") if name in given])
    active = _active(rows, pairs)  # (G or 1, Hq or 1, rows, columns)
    active = active[0] if rows.packed else active.reshape(*rows.batch, *active.shape[1:])
    put, sizes = rows.backend.to_library, {"query_block": _BLOCK, "key_block": _BLOCK}
    lists = {"block_counts", "block_indices"} <= taken
    if "block_mask" in taken and not (lists and sum(rows.sizes.values()) % 2):
        return sizes | {"block_mask": put(active)}
    if not lists:
        raise Unsupported("its function takes neither a mask nor lists of blocks")
    order = np.random.default_rng(0).permutation(active.shape[-1])
    indices = order[np.argsort(~active[..., order], axis=-1, kind="stable")]
    return sizes | {"block_counts": put(active.sum(axis=-1)), "block_indices": put(indices)}


def _active(rows: Rows, pairs: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Say which blocks hold an allowed pair, where sequences in one row share blocks."""
    queries, keys = (rows.used[letter] for letter in ("L", "S"))
    starts = [np.cumsum(used) - used if rows.packed else 0 * used for used in (queries, keys)]
    columns = rows.places if rows.paged else keys.sum() if rows.packed else rows.sizes["S"]
    size = queries.sum() if rows.packed else rows.sizes["L"]
    shape = (1 if rows.packed else rows.count, pairs.shape[1], -(-size // _BLOCK), -(-columns // _BLOCK))
    found = np.zeros(shape, bool)
    for g, (first, start) in enumerate(zip(*starts, strict=True)):
        own = pairs[g, :, : queries[g], : keys[g]] if rows.packed else pairs[g]
        h, i, j = np.nonzero(own)
        found[
            0 if rows.packed else g, h, (i + first) // _BLOCK, (j + (0 if rows.paged else start)) // _BLOCK
        ] = True
    return found


def _pairs(rows: Rows, given: Mapping[str, Any], names: list[str]) -> NDArray[np.bool_]:
    """Return the pairs that some masks allow, ``(G, Hq or 1, L, S)``."""
    heads = max(
        [given[name].shape[-3] for name in names if len(getattr(given[name], "shape", ())) > 2], default=1
    )
    shape = (*rows.batch, heads, rows.sizes["L"], rows.sizes["S"])
    if rows.count * heads * shape[-1] * shape[-2] > _MOST:
        raise Unsupported("its blocks of keys would need too many masks")
    to_numpy = rows.backend.to_numpy
    masks = {name: to_numpy(x) if hasattr(x := given[name], "shape") else x for name in names}
    return allowed_keys(shape, **masks).reshape(rows.count, *shape[-3:])
