"""Allowed pairs for the exact oracle, computed pair by pair with integers.

This does not use `attnspec.reference.masking`, because the oracle judges the reference and
must not depend on it.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def allowed_pairs(
    arguments: Mapping[str, Any],
    shape: tuple[int, ...],
    index: tuple[int, ...],
    variant: str | None = None,
    *,
    biased: bool = True,
) -> NDArray[np.bool_]:
    """Return for each query and key of one head whether the query may attend to the key.

    Examples
    --------
    >>> from attnspec.reference.exact.masking import allowed_pairs
    >>> allowed_pairs({"is_causal": True}, (1, 2), ()).tolist()
    [[True, False]]
    >>> allowed_pairs({"is_causal": True}, (1, 2), (), "bottom-right").tolist()
    [[True, True]]
    """
    queries, keys = shape[-2:]
    mask = _of_head(arguments.get("mask"), shape, index)
    bias = _of_head(arguments.get("bias"), shape, index) if biased else None
    ask = _Question(arguments, index[:-1], queries, keys, variant)
    allowed = np.zeros((queries, keys), dtype=bool)
    for i in range(queries):
        for j in range(keys):
            allowed[i, j] = (
                ask.positions_allow(i, j)
                and (mask is None or mask[i][j])
                and (bias is None or bias[i][j] != -np.inf)
            )
    return allowed


def past_the_length(
    arguments: Mapping[str, Any], shape: tuple[int, ...], index: tuple[int, ...]
) -> list[bool]:
    """Return for each query of one head whether it is past the length of its batch entry (MASK-10).

    Examples
    --------
    >>> from attnspec.reference.exact.masking import past_the_length
    >>> past_the_length({"query_lengths": 1}, (2, 3), ())
    [False, True]
    """
    length = _of_entry(arguments.get("query_lengths", shape[-2]), index[:-1])
    return [i >= length for i in range(shape[-2])]


class _Question:
    """The masking of one batch entry by positions."""

    def __init__(
        self,
        arguments: Mapping[str, Any],
        batch: tuple[int, ...],
        queries: int,
        keys: int,
        variant: str | None,
    ) -> None:
        self.offset = _of_entry(arguments.get("query_offset", 0), batch)
        self.is_causal = bool(arguments.get("is_causal", False))
        self.diagonal = self.offset
        # A given offset of 0 cannot be distinguished from the default.
        alone = np.ndim(arguments.get("query_offset", 0)) == 0
        if variant == "bottom-right" and alone and self.offset == 0:
            self.diagonal = keys - queries
        self.window = arguments.get("window") or (None, None)
        self.exclusive = variant == "exclusive-left"
        self.query_length = _of_entry(arguments.get("query_lengths", queries), batch)
        self.key_length = _of_entry(arguments.get("key_lengths", keys), batch)
        own, other = arguments.get("query_segment_ids"), arguments.get("key_segment_ids")
        self.segments = None if own is None else (np.asarray(own)[batch], np.asarray(other)[batch])

    def positions_allow(self, i: int, j: int) -> bool:
        if i >= self.query_length or j >= self.key_length:
            return False
        if self.is_causal and j > i + self.diagonal:
            return False
        left, right = self.window
        ahead = j - (i + self.offset)
        if left is not None and (ahead <= -left if self.exclusive else ahead < -left):
            return False
        if right is not None and ahead > right:
            return False
        return self.segments is None or bool(self.segments[0][i] == self.segments[1][j])


def _of_entry(given: Any, batch: tuple[int, ...]) -> int:
    array = np.asarray(given)
    return int(array) if array.ndim == 0 else int(array[batch])


def _of_head(array: Any, shape: tuple[int, ...], index: tuple[int, ...]) -> list[list[Any]] | None:
    if array is None:
        return None
    rows: list[list[Any]] = np.broadcast_to(np.asarray(array), shape)[index].tolist()
    return rows
