"""Sums over the allowed keys of rows: the sums of values by words, up to any key."""

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

    def __sub__(self, other: "Sums") -> "Sums":
        return Sums(
            self.first - other.first,
            self.rest - other.rest,
            self.size - other.size,
            self.square - other.square,
        )


def up_to(
    keys: Keys,
    weights: Split,
    rows: NDArray[np.uint8],
    stop: NDArray[np.int64],
    tile: int,
    *,
    precise: bool = False,
) -> Sums:
    """Sum over the first keys of some rows, whose numbers of keys lie in one tile.

    Parameters
    ----------
    keys : Keys
    weights : Split of (Q, C)
    rows : (m,)
        The words of the queries.
    stop : (m,)
        The number of keys of each row, from ``tile * TILE`` on.
    tile : int
    precise : bool, optional
        Whether sizes and squares are summed in float64. If they are the difference of two such sums,
        the rounding errors of float32 could be larger than the difference.
    """
    start, depth = tile * TILE, keys.value.shape[-1]
    most = int(stop.max())
    before = keys.before[tile]
    base = np.concatenate([weights.first @ before[:, :depth], weights.rest @ before[:, :depth]], axis=-1)
    base_size = weights.whole @ before[:, depth:]
    found, sizes = base[rows], base_size[rows]
    if most > start:
        part = slice(start, most)
        words, units = keys.words[part], keys.units(part)
        inside = np.arange(start, most) < stop[:, None]  # (m, T)
        for split, columns in ((weights.first, slice(0, depth)), (weights.rest, slice(depth, 2 * depth))):
            found[:, columns] += (split[:, words][rows] * inside) @ units
        whole, size = weights.whole[:, words], sizes_of(units)
        if not precise:
            whole, size = whole.astype(np.float32), size.astype(np.float32)
        sizes += (whole[rows] * inside) @ size
    return Sums(found[:, :depth], found[:, depth:], sizes[:, :depth], sizes[:, depth:])
