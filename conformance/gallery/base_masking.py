"""The steps that say which keys a query may attend to."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.base import Array, Call, Mask

#: Each must allow (MASK-4).
SOURCES = (
    "by_mask",
    "by_bias",
    "by_causality",
    "by_window",
    "by_key_lengths",
    "by_query_lengths",
    "by_segments",
)


def allowed(call: Call) -> Mask:
    """Whether every source allows, ``(*B, Hq, L, S)`` (MASK-4)."""
    found: Mask = np.ones(call.shape, dtype=bool)
    for source in SOURCES:
        found = found & getattr(call.own, source)(call)
    return found


def everything() -> Mask:
    """Allow what there is, ``()``."""
    return np.ones((), dtype=bool)


def by_mask(call: Call) -> Mask:
    """Attend where the mask is True (MASK-1)."""
    return everything() if call.mask is None else call.mask


def by_bias(call: Call) -> Mask:
    """Minus infinity disallows (MASK-2)."""
    return everything() if call.bias is None else call.bias.astype(np.float64) != -np.inf


def by_causality(call: Call) -> Mask:
    """Not after the query (MASK-3)."""
    return call.j <= call.own.position(call) if call.is_causal else everything()


def position(call: Call) -> Array:
    """Where each query stands among the keys, ``(*B, 1, L, 1)`` (MASK-7)."""
    return call.i + of_batch(call.query_offset)


def of_batch(numbers: Any) -> Array:
    """One number for all or one for each batch entry, against the scores, ``(*B, 1, 1, 1)``."""
    array = np.asarray(numbers)
    return array.reshape((*array.shape, 1, 1, 1))


def by_window(call: Call) -> Mask:
    """From so far left of the query to so far right of it, both included (MASK-8)."""
    if call.window is None:
        return everything()
    left, right = call.window
    p = call.own.position(call)
    after = everything() if left is None else call.j >= p - left
    return after & (everything() if right is None else call.j <= p + right)


def by_key_lengths(call: Call) -> Mask:
    """Keys below the length (MASK-9)."""
    return everything() if call.key_lengths is None else call.j < of_batch(call.key_lengths)


def by_query_lengths(call: Call) -> Mask:
    """Allow queries below the length (MASK-10)."""
    return everything() if call.query_lengths is None else call.i < of_batch(call.query_lengths)


def by_segments(call: Call) -> Mask:
    """Equal ids (MASK-11)."""
    if call.query_segment_ids is None or call.key_segment_ids is None:
        return everything()
    equal: Mask = call.query_segment_ids[..., :, None] == call.key_segment_ids[..., None, :]  # (*B, L, S)
    return equal[..., None, :, :]
