"""The keys that a query may attend to, pair by pair, for the second oracle."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Sources:
    """The sources of masking of one head of one batch entry. None means not given."""

    mask: list[list[bool]] | None
    bias: list[list[float]] | None
    offset: int
    causal_offset: int | None
    left: int | None
    right: int | None
    query_length: int | None
    key_length: int | None
    query_ids: list[int] | None
    key_ids: list[int] | None

    def allow(self, i: int, j: int, *, biased: bool = True) -> bool:
        """Return whether query i may attend to key j, or whether all arguments but the bias allow it."""
        p = i + self.offset
        if self.mask is not None and not self.mask[i][j]:
            return False
        if biased and self.bias is not None and self.bias[i][j] == float("-inf"):
            return False
        if self.causal_offset is not None and j > i + self.causal_offset:
            return False
        if self.left is not None and j < p - self.left:
            return False
        if self.right is not None and j > p + self.right:
            return False
        if self.query_length is not None and i >= self.query_length:
            return False
        if self.key_length is not None and j >= self.key_length:
            return False
        if self.query_ids is None or self.key_ids is None:
            return True
        return self.query_ids[i] == self.key_ids[j]


def sources(
    arguments: Mapping[str, Any], dialect: Mapping[str, str], shape: tuple[int, ...], index: tuple[int, ...]
) -> Sources:
    """Select the sources of masking of one head."""
    queries, keys = shape[-2:]
    batch = shape[:-3]
    given = arguments.get("query_offset", 0)
    offset = of_entry(given, batch, index) or 0
    causal = offset
    # A given offset of 0 cannot be distinguished from the default of 0.
    absent = given is None or (isinstance(given, int | np.integer) and given == 0)
    if dialect.get("MASK-3") == "bottom-right" and absent:
        causal = keys - queries
    left, right = arguments.get("window") or (None, None)
    if left is not None and dialect.get("MASK-8") == "exclusive-left":
        left -= 1
    added = dialect.get("MASK-2") == "added"
    return Sources(
        mask=of_head(arguments.get("mask"), shape, index),
        bias=None if added else of_head(arguments.get("bias"), shape, index),
        offset=offset,
        causal_offset=causal if arguments.get("is_causal") else None,
        left=left,
        right=right,
        query_length=of_entry(arguments.get("query_lengths"), batch, index),
        key_length=of_entry(arguments.get("key_lengths"), batch, index),
        query_ids=_ids(arguments.get("query_segment_ids"), index),
        key_ids=_ids(arguments.get("key_segment_ids"), index),
    )


def of_head(array: Any, shape: tuple[int, ...], index: tuple[int, ...]) -> Any:
    """Return the part of a mask or bias for one head, as nested lists."""
    return None if array is None else np.broadcast_to(array, shape)[index].tolist()


def of_entry(number: Any, batch: tuple[int, ...], index: tuple[int, ...]) -> int | None:
    """Return the integer for the batch entry of an index."""
    return None if number is None else int(np.broadcast_to(number, batch)[index[: len(batch)]])


def _ids(array: Any, index: tuple[int, ...]) -> list[int] | None:
    return None if array is None else [int(x) for x in np.asarray(array)[index[:-1]]]
