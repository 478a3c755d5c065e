"""Wrong about integers: they are stored in fewer bits than they need."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import altered, base, wrong
from attnspec.reference.notation import Attention


def _short(numbers: Any, dtype: Any) -> Any:
    return np.asarray(numbers).astype(dtype).astype(np.int64)


@wrong("by_causality", "MASK-3", "N")
def causal_positions_in_a_byte(call: Attention) -> Any:
    """Compare positions in eight bits under a causal mask, so that the one after 127 is negative."""
    if not call.is_causal:
        return True
    return _short(call.j, np.int8) <= _short(base.position(call), np.int8)


@wrong("by_window", "MASK-8", "N")
def window_positions_in_a_byte(call: Attention) -> Any:
    """Count keys and queries modulo 256 within a window."""
    if call.window is None:
        return True
    left, right = call.window
    ahead = _short(call.j, np.uint8) - _short(base.position(call), np.uint8)
    after = True if left is None else ahead >= -left
    return after & (True if right is None else ahead <= right)


@wrong("position", "MASK-7", "N")
def offset_in_thirty_two_bits(call: Attention) -> Any:
    """Hold positions in 32 bits, which an offset may leave."""
    return _short(base.position(call), np.int32)


@wrong("by_key_lengths", "MASK-9", "N")
def key_length_in_a_byte(call: Attention) -> Any:
    """Take a length modulo 256."""
    return base.by_key_lengths(altered(call, key_lengths=lambda n: _short(n, np.uint8)))


@wrong("by_query_lengths", "MASK-10", "N")
def query_length_in_a_byte(call: Attention) -> Any:
    """Take the length of the queries modulo 256."""
    return base.by_query_lengths(altered(call, query_lengths=lambda n: _short(n, np.uint8)))


@wrong("by_segments", "MASK-11", "N")
def segments_in_half(call: Attention) -> Any:
    """Compare ids in half precision, which has no odd numbers past 2048."""
    with np.errstate(over="ignore"):
        half = {f"{axis}_segment_ids": lambda ids: ids.astype(np.float16) for axis in ("query", "key")}
        return base.by_segments(altered(call, **half))
