"""The keys that a row may attend to as an interval, for options that allow only intervals."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.conformance.sizes.codebook.exponentials import Numbers
from attnspec.conformance.sizes.codebook.sums import TILE

Whole = NDArray[np.int64]


def intervals(options: Mapping[str, Any], queries: int, keys: int, entry: int) -> tuple[Whole, Whole]:
    """Return the first allowed key of each row, and the first one after the allowed keys."""
    row = np.arange(queries)
    place = row + (_number_of_entry(options.get("query_offset"), entry) or 0)
    low, high = np.zeros(queries, dtype=np.int64), np.full(queries, keys)
    if options.get("is_causal"):
        high = np.minimum(high, place + 1)
    left, right = options.get("window") or (None, None)
    if left is not None:
        low = np.maximum(low, place - left)
    if right is not None:
        high = np.minimum(high, place + right + 1)
    length = _number_of_entry(options.get("key_lengths"), entry)
    if length is not None:
        high = np.minimum(high, length)
    size = options.get("segments")
    if size is not None:
        # A query has the segment of the key at the same distance from the end.
        first = (row + keys - queries) // size * size
        low, high = np.maximum(low, first), np.minimum(high, first + size)
    length = _number_of_entry(options.get("query_lengths"), entry)
    if length is not None:
        high = np.where(row < length, high, 0)
    high = np.clip(high, 0, keys)
    return np.minimum(np.maximum(low, 0), high), high


def intervals_of_keys(options: Mapping[str, Any], queries: int, keys: int, entry: int) -> tuple[Whole, Whole]:
    """Return the first query that may attend to each key, and the first one after these queries."""
    key = np.arange(keys)
    at = key - (
        _number_of_entry(options.get("query_offset"), entry) or 0
    )  # the query at the place of the key
    low, high = np.zeros(keys, dtype=np.int64), np.full(keys, queries)
    if options.get("is_causal"):
        low = np.maximum(low, at)
    left, right = options.get("window") or (None, None)
    if left is not None:
        high = np.minimum(high, at + left + 1)
    if right is not None:
        low = np.maximum(low, at - right)
    size = options.get("segments")
    if size is not None:
        first = key // size * size - (keys - queries)
        low, high = np.maximum(low, first), np.minimum(high, first + size)
    length = _number_of_entry(options.get("query_lengths"), entry)
    if length is not None:
        high = np.minimum(high, length)
    length = _number_of_entry(options.get("key_lengths"), entry)
    if length is not None:
        high = np.where(key < length, high, 0)
    high = np.clip(high, 0, queries)
    return np.minimum(np.maximum(low, 0), high), high


def _number_of_entry(number: Any, entry: int) -> int | None:
    """Return the number of one batch entry."""
    if number is None:
        return None
    return int(number[entry]) if isinstance(number, tuple) else int(number)


#: The sums of squares are rounded.
_SLACK = 2.0**-20


@dataclass(frozen=True)
class Sources:
    """What is summed over, in the order of the interval."""

    words: NDArray[np.uint8]  # (n,)
    count: int  # W, the number of words
    vectors: Numbers  # (n, X)
    #: (n, K): not negative. The first one is that of the sum of dot products.
    weights: Numbers
    dotted: Numbers  # (n, Y): not negative
    columns: Numbers  # (n, Z)


@dataclass(frozen=True)
class Targets:
    """What has sums."""

    vectors: Numbers  # (m, X)
    sizes: Numbers  # (m, Y): not negative
    mixed: Numbers  # (m, W): what multiplies the columns of a source of a word
    low: Whole  # (m,): the interval of each begins here
    high: Whole  # (m,): and ends before this

    def part(self, rows: Whole) -> "Targets":
        """Return some of the targets."""
        return Targets(
            self.vectors[rows], self.sizes[rows], self.mixed[rows], self.low[rows], self.high[rows]
        )


@dataclass
class ByWord:
    """The sums of some targets."""

    #: (m, W): for each word, the sum over its sources of the first weight times the dot product of the
    #: vectors.
    products: Numbers
    #: (K, m, W): at least the sum of each weight times the absolute value of the dot product.
    absolute: Numbers
    dotted: Numbers  # (m, W): the sum of the dot products of `sizes` and `dotted`
    counts: Numbers  # (m, W): how many sources there are
    columns: Numbers  # (m, Z): the sum over all sources of the columns times `mixed`

    def add(self, other: "ByWord") -> None:
        """Add the sums over other sources."""
        self.products += other.products
        self.absolute += other.absolute
        self.dotted += other.dotted
        self.counts += other.counts
        self.columns += other.columns


def by_word(sources: Sources, targets: Targets) -> Iterator[tuple[Whole, ByWord]]:
    """Sum over the interval of each target. Yield some targets at a time, and their sums.

    Whole tiles are added one by one, from the middle of the interval outwards. In a tile that an interval
    cuts, each pair is computed.
    """
    whole = _running(sources)
    for rows in _groups(targets.low, targets.high):
        part = targets.part(rows)
        first, last = int(part.low[0]) // TILE, int(part.high[0]) // TILE
        if first == last:
            yield rows, _inside(sources, part, part.low, part.high)
            continue
        found = _inside(sources, part, np.zeros_like(part.high) + last * TILE, part.high)
        if (part.low > first * TILE).any():
            first += 1
            found.add(_inside(sources, part, part.low, np.zeros_like(part.low) + first * TILE))
        if first < last:
            found.add(_whole_sums(whole(first, last), part))
        yield rows, found


def _groups(low: Whole, high: Whole) -> Iterator[Whole]:
    """Group the targets whose bounds lie in the same tiles, so that the whole tiles of many groups grow."""
    first, last = low // TILE, high // TILE
    order = np.lexsort((last, -first))
    changes = (np.diff(first[order]) != 0) | (np.diff(last[order]) != 0)
    for group in np.split(order, np.flatnonzero(changes) + 1):
        for start in range(0, len(group), TILE):
            yield group[start : start + TILE]


@dataclass(frozen=True)
class _Tiles:
    """The sums of some whole tiles, for each word."""

    vectors: Numbers  # (W, X)
    squares: Numbers  # (K, W, X, X)
    weights: Numbers  # (K, W)
    dotted: Numbers  # (W, Y)
    counts: Numbers  # (W,)
    columns: Numbers  # (W, Z)

    def __add__(self, other: "_Tiles") -> "_Tiles":
        names = self.__dataclass_fields__
        return _Tiles(*(getattr(self, name) + getattr(other, name) for name in names))


def _running(sources: Sources) -> Callable[[int, int], _Tiles]:
    """Return a function that sums whole tiles, which adds to the last sum where that was a part of it."""
    known: list[tuple[int, int, _Tiles]] = []

    def between(first: int, last: int) -> _Tiles:
        start, end, found = known.pop() if known else (first, first, None)
        if found is None or not first <= start < end <= last:
            start, end, found = first, first + 1, _tile(sources, first)
        for tile in (*range(start - 1, first - 1, -1), *range(end, last)):
            found = found + _tile(sources, tile)
        known.append((first, last, found))
        return found

    return between


def _tile(sources: Sources, tile: int) -> _Tiles:
    part = slice(tile * TILE, (tile + 1) * TILE)
    words, vectors, weights = sources.words[part], sources.vectors[part], sources.weights[part]
    one_hot = _one_hot(words, sources.count).T  # (W, T)
    squares = np.zeros((weights.shape[1], sources.count, vectors.shape[1], vectors.shape[1]))
    for word in range(sources.count):
        own = words == word
        for k in range(weights.shape[1]):
            np.matmul((weights[own, k, None] * vectors[own]).T, vectors[own], out=squares[k, word])
    return _Tiles(
        one_hot @ (weights[:, :1] * vectors),
        squares,
        (one_hot @ weights).T,
        one_hot @ sources.dotted[part],
        one_hot.sum(axis=-1),
        one_hot @ sources.columns[part],
    )


def _whole_sums(tiles: _Tiles, part: Targets) -> ByWord:
    """Multiply the sums of whole tiles by the vectors of targets.

    By Cauchy and Schwarz, the square of a weighted sum of absolute values is at most the sum of the weights
    times the weighted sum of the squares.
    """
    x = part.vectors
    kinds, words, width, _ = tiles.squares.shape
    turned = x @ tiles.squares.transpose(2, 0, 1, 3).reshape(width, -1)  # (m, K W X)
    squares = (turned.reshape(len(x), kinds, words, width) * x[:, None, None]).sum(axis=-1)
    squares = np.maximum(squares, 0).transpose(1, 0, 2) * (1 + _SLACK)
    return ByWord(
        x @ tiles.vectors.T,
        np.sqrt(squares * tiles.weights[:, None]),
        part.sizes @ tiles.dotted.T,
        np.broadcast_to(tiles.counts, (len(x), words)).copy(),
        part.mixed @ tiles.columns,
    )


def _inside(sources: Sources, part: Targets, low: Whole, high: Whole) -> ByWord:
    """Sum over sources in one tile, pair by pair."""
    least, most = int(low.min()), int(max(high.max(), low.min()))
    own, j = slice(least, most), np.arange(least, most)
    inside = ((low[:, None] <= j) & (j < high[:, None])).astype(np.float64)  # (m, T)
    words, weights = sources.words[own], sources.weights[own]
    one_hot = _one_hot(words, sources.count)  # (T, W)
    products = (part.vectors @ sources.vectors[own].T) * inside
    absolute = np.abs(products)
    return ByWord(
        (products * weights[:, 0]) @ one_hot,
        np.stack([(absolute * weight) @ one_hot for weight in weights.T]),
        ((part.sizes @ sources.dotted[own].T) * inside) @ one_hot,
        inside @ one_hot,
        (part.mixed[:, words] * inside) @ sources.columns[own],
    )


def _one_hot(words: NDArray[np.uint8], count: int) -> Numbers:
    """Return 1 where a source has a word, ``(T, W)``."""
    found: Numbers = (words[:, None] == np.arange(count, dtype=np.uint8)).astype(np.float64)
    return found
