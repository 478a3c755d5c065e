"""Wrong about the maximum of a row."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import base, wrong
from attnspec.reference.notation import Attention

#: The keys of a tile.
_TILE = 16


@wrong("maxima", "SOFT-8", "I")
def maximum_before_the_scale(call: Attention) -> Any:
    """Return the largest dot product."""
    return base.maxima(call.but(scale=1.0))


@wrong("maxima", "SOFT-8", "I", "sgl-project/sglang#40903")
def maximum_to_base_2(call: Attention) -> Any:
    """Return the maximum as an exponent of 2, as kernels keep it."""
    most = base.maxima(call)
    return (most * np.log2(np.e)).astype(most.dtype)


@wrong("maxima", "SOFT-8", "R")
def maximum_over_disallowed_keys(call: Attention) -> Any:
    """Take the maximum before the mask."""
    every = call.but(mask=None, is_causal=False, window=None, key_lengths=None, query_lengths=None)
    most, seen = base.maxima(every.but(query_segment_ids=None, key_segment_ids=None)), base.maxima(call)
    return np.where(seen == -np.inf, seen, most)


@wrong("maxima", "SOFT-8", "G")
def maximum_of_the_last_tile(call: Attention) -> Any:
    """Return the maximum of the last tile of keys, and not the running one."""
    last = (max(call.keys, 1) - 1) // _TILE * _TILE
    return base.maxima(call.but(mask=(True if call.mask is None else call.mask) & (call.j >= last)))


@wrong("maxima", "SOFT-8", "H")
def maximum_of_the_head(call: Attention) -> Any:
    """Give every row the maximum of its head."""
    most = base.maxima(call)
    whole = most.max(axis=-1, keepdims=True, initial=-np.inf)
    return np.where(most == -np.inf, most, whole)


@wrong("maxima", "SOFT-8", "F")
def maximum_before_the_softcap(call: Attention) -> Any:
    """Take the maximum before the softcap."""
    return base.maxima(call.but(softcap=None))


@wrong("maxima", "SOFT-8", "L")
def maximum_before_the_bias(call: Attention) -> Any:
    """Take the maximum of the products without the bias, over the keys that it allows."""
    if call.bias is None:
        return base.maxima(call)
    zero = np.where(call.bias == -np.inf, call.bias, 0).astype(call.bias.dtype)
    return base.maxima(call.but(bias=zero))


@wrong("maxima", "SOFT-8", "C")
def returned_maximum_of_zero_at_least(call: Attention) -> Any:
    """Begin the running maximum at 0."""
    most = base.maxima(call)
    return np.where(most == -np.inf, most, np.maximum(most, 0))


@wrong("maxima", "SOFT-8", "M")
def maximum_over_the_sink(call: Attention) -> Any:
    """Count the sink as a key."""
    most = base.maxima(call)
    if call.sinks is None:
        return most
    return np.where(most == -np.inf, most, np.maximum(most, call.sink[..., 0])).astype(most.dtype)


@wrong("maxima", "SOFT-9", "B")
def maximum_of_nothing_is_zero(call: Attention) -> Any:
    """Return 0, by which scores are shifted, for a row with nothing to attend to."""
    most = base.maxima(call)
    return np.where(most == -np.inf, 0, most).astype(most.dtype)


@wrong("maxima", "SOFT-9", "M")
def maximum_of_nothing_is_the_sink(call: Attention) -> Any:
    """Return the sink for a row with nothing to attend to."""
    most = base.maxima(call)
    if call.sinks is None:
        return most
    return np.where(most == -np.inf, call.sink[..., 0], most).astype(most.dtype)
