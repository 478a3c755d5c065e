"""The keys that a row may attend to as an interval, for options that allow only intervals."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Whole = NDArray[np.int64]


def intervals(options: Mapping[str, Any], queries: int, keys: int, entry: int) -> tuple[Whole, Whole]:
    """Return the first allowed key of each row, and the first one after the allowed keys.

    Examples
    --------
    >>> from attnspec.reference.codebook.intervals import intervals
    >>> low, high = intervals({"is_causal": True, "window": (1, None)}, 3, 3, 0)
    >>> low.tolist(), high.tolist()
    ([0, 0, 1], [1, 2, 3])
    """
    row = np.arange(queries)
    place = row + (_of(options.get("query_offset"), entry) or 0)
    low, high = np.zeros(queries, dtype=np.int64), np.full(queries, keys)
    if options.get("is_causal"):
        high = np.minimum(high, place + 1)
    left, right = options.get("window") or (None, None)
    if left is not None:
        low = np.maximum(low, place - left)
    if right is not None:
        high = np.minimum(high, place + right + 1)
    length = _of(options.get("key_lengths"), entry)
    if length is not None:
        high = np.minimum(high, length)
    size = options.get("segments")
    if size is not None:
        # A query has the segment of the key at the same distance from the end.
        first = (row + keys - queries) // size * size
        low, high = np.maximum(low, first), np.minimum(high, first + size)
    length = _of(options.get("query_lengths"), entry)
    if length is not None:
        high = np.where(row < length, high, 0)
    high = np.clip(high, 0, keys)
    return np.minimum(np.maximum(low, 0), high), high


def intervals_of_keys(options: Mapping[str, Any], queries: int, keys: int, entry: int) -> tuple[Whole, Whole]:
    """Return the first query that may attend to each key, and the first one after these queries.

    Examples
    --------
    >>> from attnspec.reference.codebook.intervals import intervals_of_keys
    >>> low, high = intervals_of_keys({"is_causal": True, "window": (1, None)}, 3, 3, 0)
    >>> low.tolist(), high.tolist()
    ([0, 1, 2], [2, 3, 3])
    """
    key = np.arange(keys)
    at = key - (_of(options.get("query_offset"), entry) or 0)  # the query at the place of the key
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
    length = _of(options.get("query_lengths"), entry)
    if length is not None:
        high = np.minimum(high, length)
    length = _of(options.get("key_lengths"), entry)
    if length is not None:
        high = np.where(key < length, high, 0)
    high = np.clip(high, 0, queries)
    return np.minimum(np.maximum(low, 0), high), high


def _of(number: Any, entry: int) -> int | None:
    """Return the number of one batch entry."""
    if number is None:
        return None
    return int(number[entry]) if isinstance(number, tuple) else int(number)
