"""Sums over the allowed keys of rows: the sums of values by words, up to any key."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.reference.codebook.exponentials import Numbers, Split

#: The number of keys between two stored sums.
TILE = 128


@dataclass(frozen=True)
class Keys:
    """The keys of one head, and sums of their values up to each tile.

    Attributes
    ----------
    words : (S,)
    value : (S, Dv)
        Multiples of 1/64.
    before : (tiles + 1, C, 3 Dv)
        For each word, the sums of the values, of their absolute values and of their squares over all
        keys before a tile, in units of 1/64.
    counts : (S + 1, C)
        For each word, how many of the first keys have it.
    """

    words: NDArray[np.uint8]
    value: NDArray[np.float32]
    before: Numbers
    counts: NDArray[np.int32]

    def units(self, part: slice) -> Numbers:
        """Return some of the values in units of 1/64."""
        found: Numbers = self.value[part].astype(np.float64) * 64
        return found


def keys_of(words: NDArray[np.uint8], value: NDArray[np.float32], count: int) -> Keys:
    """Sum the values of one head by words.

    Parameters
    ----------
    words : (S,)
    value : (S, Dv)
        Multiples of 1/64.
    count : int
        C, the number of words.
    """
    one = words[:, None] == np.arange(count, dtype=np.uint8)  # (S, C)
    counts = np.zeros((len(words) + 1, count), dtype=np.int32)
    np.cumsum(one, axis=0, out=counts[1:])
    tiles = -(-len(words) // TILE)
    keys = Keys(words, value, np.zeros((tiles + 1, count, 3 * value.shape[-1])), counts)
    for tile in range(tiles):
        part = slice(tile * TILE, (tile + 1) * TILE)
        units = keys.units(part)
        # Sums of integers below 2^53 are exact.
        each = one[part].T.astype(np.float64) @ np.concatenate([units, sizes_of(units)], axis=-1)
        np.add(keys.before[tile], each, out=keys.before[tile + 1])
    return keys


def sizes_of(units: NDArray[Any]) -> NDArray[Any]:
    """Return the absolute values and the squares, ``(S, 2 Dv)``."""
    return np.concatenate([np.abs(units), units * units], axis=-1)


@dataclass(frozen=True)
class Sums:
    """Weighted sums over the allowed keys of some rows, not divided by the denominator.

    Attributes
    ----------
    first, rest : (m, Dv)
        The numerators in units of 1/64, in two parts as in `Split`.
    size, square : (m, Dv)
        The sums of absolute values and of squares.
    """

    first: Numbers
    rest: Numbers
    size: Numbers
    square: Numbers

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(
            self.first + other.first,
            self.rest + other.rest,
            self.size + other.size,
            self.square + other.square,
        )


def together(parts: Sequence[Sums]) -> Sums:
    """Return the sums of the rows of all parts, one after the other."""
    if len(parts) == 1:
        return parts[0]
    names = ("first", "rest", "size", "square")
    return Sums(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def between(
    keys: Keys, weights: Split, rows: NDArray[np.uint8], low: NDArray[np.int64], high: NDArray[np.int64]
) -> Sums:
    """Sum over the keys of some rows from `low` to before `high`.

    Nothing is subtracted but integers, so values that are all 0 have a sum that is exactly 0.

    Parameters
    ----------
    keys : Keys
    weights : Split of (Q, C)
    rows : (m,)
        The words of the queries.
    low, high : (m,)
        Those of all rows are in one tile each.
    """
    first, last = int(low[0]) // TILE, int(high[0]) // TILE
    if first == last:
        return _inside(keys, weights, rows, low, high)
    found = _inside(keys, weights, rows, np.zeros_like(high) + last * TILE, high)
    start = first
    if (low > first * TILE).any():
        start = first + 1
        found = found + _inside(keys, weights, rows, low, np.zeros_like(low) + start * TILE)
    depth, whole = keys.value.shape[-1], keys.before[last] - keys.before[start]
    values, sizes = whole[:, :depth], weights.whole @ whole[:, depth:]
    parts = (weights.first @ values, weights.rest @ values, sizes[:, :depth], sizes[:, depth:])
    return found + Sums(*(part[rows] for part in parts))


def _inside(
    keys: Keys, weights: Split, rows: NDArray[np.uint8], low: NDArray[np.int64], high: NDArray[np.int64]
) -> Sums:
    """Sum over keys in one tile."""
    least, most = int(low.min()), int(high.max())
    part, depth, j = slice(least, most), keys.value.shape[-1], np.arange(least, most)
    words, units = keys.words[part], keys.units(part)
    inside = (low[:, None] <= j) & (j < high[:, None])  # (m, T)
    whole = weights.first[:, words][rows] * inside
    first = whole @ units
    rest = np.zeros_like(first)
    if weights.rest.any():
        rest = (weights.rest[:, words][rows] * inside) @ units
    # A float32 is precise enough for a budget, without the rests.
    sizes = (whole.astype(np.float32) @ sizes_of(units).astype(np.float32)).astype(np.float64)
    return Sums(first, rest, sizes[:, :depth], sizes[:, depth:])
