"""Sums over the allowed keys of rows: the sums of values by words, up to any key."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.conformance.sizes.codebook.exponentials import Numbers, Split

#: The number of keys between two stored sums.
TILE = 128
#: If an interval has so many whole tiles, sizes are summed over all keys of the two tiles that it cuts.
#: These sums, which only budgets use, are then too large by a 32nd or so.
_MANY = 64


@dataclass(frozen=True)
class Keys:
    """The keys of one head, and sums of their values up to each tile."""

    words: NDArray[np.uint8]  # (S,)
    value: NDArray[np.float32]  # (S, Dv): multiples of 1/64
    #: (tiles + 1, C, 3 Dv): for each word, the sums of the values, of their absolute values and of their
    #: squares over all keys before a tile, in units of 1/64.
    before: Numbers
    counts: NDArray[np.int32]  # (S + 1, C): for each word, how many of the first keys have it

    def units(self, part: slice) -> Numbers:
        """Return some of the values in units of 1/64."""
        return np.multiply(self.value[part], 64, dtype=np.float64)


def keys_of(words: NDArray[np.uint8], value: NDArray[np.float32], count: int) -> Keys:
    """Sum the values of one head by words."""
    one_hot = words[:, None] == np.arange(count, dtype=np.uint8)  # (S, C)
    counts = np.zeros((len(words) + 1, count), dtype=np.int32)
    np.cumsum(one_hot, axis=0, out=counts[1:])
    tiles, depth = -(-len(words) // TILE), value.shape[-1]
    keys = Keys(words, value, np.zeros((tiles + 1, count, 3 * depth)), counts)
    for tile in range(tiles):
        part = slice(tile * TILE, (tile + 1) * TILE)
        units = keys.units(part)
        # Sums of integers below 2^53 are exact.
        each = one_hot[part].T.astype(np.float64) @ np.concatenate([units, sizes_of(units)], axis=-1)
        np.add(keys.before[tile], each, out=keys.before[tile + 1])
    return keys


def sizes_of(units: NDArray[Any]) -> NDArray[Any]:
    """Return the absolute values and the squares, ``(S, 2 Dv)``."""
    return np.concatenate([np.abs(units), units * units], axis=-1)


@dataclass(frozen=True)
class Sums:
    """Weighted sums over the allowed keys of some rows, not divided by the denominator."""

    #: (m, Dv): the numerators in units of 1/64, in two parts as in `Split`. Without rests of the weights,
    #: `rest` has the shape ``(m, 0)``.
    first: Numbers
    rest: Numbers  # (m, Dv)
    sizes: Numbers  # (m, 2 Dv): the sums of absolute values and of squares, or slightly more

    def of(self, rows: slice) -> "Sums":
        """Return views of those of some rows."""
        return Sums(self.first[rows], self.rest[rows], self.sizes[rows])


@dataclass(frozen=True)
class Rows:
    """Rows that have an interval of keys each."""

    words: NDArray[np.uint8]  # (m,): the words of the queries
    low: NDArray[np.int64]  # (m,): the first key
    high: NDArray[np.int64]  # (m,): the keys end before this one

    def of(self, part: slice | NDArray[np.int64]) -> "Rows":
        """Return some of them."""
        return Rows(self.words[part], self.low[part], self.high[part])


def over(keys: Keys, weights: Split, rows: Rows, parts: Iterable[slice]) -> Sums:
    """Sum over the keys of some rows.

    Nothing is subtracted but integers, so values that are all 0 have a sum that is exactly 0.
    """
    depth = keys.value.shape[-1]
    shapes = (depth, depth if weights.rest.any() else 0, 2 * depth)
    found = Sums(*(np.zeros((len(rows.words), width)) for width in shapes))
    for part in parts:
        _add(found.of(part), keys, weights, rows.of(part))
    return found


def _add(found: Sums, keys: Keys, weights: Split, rows: Rows) -> None:
    """Write the sums of one group of rows."""
    low, high = rows.low, rows.high
    first, last = int(low[0]) // TILE, int(high[0]) // TILE
    if first == last:
        _add_inside(found, keys, weights, rows)
        return
    starts_inside = bool((low > first * TILE).any())
    start = first + starts_inside
    depth, whole = keys.value.shape[-1], keys.before[last] - keys.before[start]
    of_sizes, many = whole[:, depth:], last - start >= _MANY
    if many:
        end = min(last + 1, len(keys.before) - 1)
        of_sizes = keys.before[end, :, depth:] - keys.before[first, :, depth:]
    np.take(weights.first @ whole[:, :depth], rows.words, axis=0, out=found.first)
    np.take(weights.whole @ of_sizes, rows.words, axis=0, out=found.sizes)
    if found.rest.size:
        np.take(weights.rest @ whole[:, :depth], rows.words, axis=0, out=found.rest)
    if starts_inside:
        ends = replace(rows, high=np.full_like(low, start * TILE))
        _add_inside(found, keys, weights, ends, sizes=not many)
    starts = replace(rows, low=np.full_like(high, last * TILE))
    _add_inside(found, keys, weights, starts, sizes=not many)


def _add_inside(found: Sums, keys: Keys, weights: Split, rows: Rows, *, sizes: bool = True) -> None:
    """Add the sums over keys in one tile."""
    low, high = rows.low, rows.high
    least, most = int(low.min()), int(high.max())
    part, j = slice(least, most), np.arange(least, most)
    words, units = keys.words[part], keys.units(part)
    inside = (low[:, None] <= j) & (j < high[:, None])  # (m, T)
    whole = weights.first[:, words][rows.words] * inside
    np.add(found.first, whole @ units, out=found.first)
    if found.rest.size:
        rest = weights.rest[:, words][rows.words] * inside
        np.add(found.rest, rest @ units, out=found.rest)
        whole += rest
    if sizes:
        # A float32 is precise enough for a budget if the largest weight of a row is 1.
        top = whole.max(axis=-1, keepdims=True, initial=0)
        whole /= np.where(top == 0, 1, top)
        each = whole.astype(np.float32) @ sizes_of(units).astype(np.float32)
        np.add(found.sizes, top * each, out=found.sizes)


_SPLITTER = 2.0**27 + 1


def quotient(first: Numbers, rest: Numbers, by: Numbers, by_rest: Numbers) -> Numbers:
    """Return ``(first + rest) / (by + by_rest)``, with an error of slightly more than half a unit at most."""
    whole, low = _sum(first, rest)
    divisor, divisor_low = _sum(by, by_rest)
    found: Numbers = whole / divisor
    product, product_low = _product(found, divisor)
    left = (whole - product) - product_low + low - found * divisor_low
    return found + left / divisor


def _sum(x: Numbers, y: Numbers) -> tuple[Numbers, Numbers]:
    """Return the rounded sum and its rounding error (Knuth)."""
    total = x + y
    other = total - x
    return total, (x - (total - other)) + (y - other)


def _product(x: Numbers, y: Numbers) -> tuple[Numbers, Numbers]:
    """Return the rounded product and its rounding error (Dekker)."""
    product = x * y
    (high, low), (other, other_low) = _halves(x), _halves(y)
    return product, ((high * other - product) + high * other_low + low * other) + low * other_low


def _halves(x: Numbers) -> tuple[Numbers, Numbers]:
    large = _SPLITTER * x
    high = large - (large - x)
    return high, x - high
