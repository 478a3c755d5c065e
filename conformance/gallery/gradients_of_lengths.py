"""Wrong in the backward pass of long calls: past the first tiles of a kernel's second path."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import Array, base, wrong
from attnspec.reference.call import Mask
from attnspec.reference.gradients import Gradients


@wrong("d_key", "GRAD-19", "G")
def last_queries_lost_in_d_key_past_256(call: Gradients, u: Array, allowed: Mask) -> Any:
    """Leave the queries after the last whole tile of 128 out of the sum for the keys, past 256 of both."""
    long = call.queries > 256 and call.keys > 256
    whole = call.queries - call.queries % 128 if long else call.queries
    return base.d_key(call, np.where(call.i < whole, u, 0), allowed)


@wrong("delta", "GRAD-19", "G")
def delta_of_the_second_tile_read_in_steps_of_two(call: Gradients, p: Array, r: Array, allowed: Mask) -> Any:
    """Read the mean of every second row for the rows from 256 to 511, where there are more than 512 keys."""
    found = base.delta(call, p, r, allowed)
    rows = np.arange(call.queries)
    second = (rows >= 256) & (rows < 512) & (call.keys > 512)
    read = np.where(second, np.minimum(256 + 2 * (rows - 256), call.queries - 1), rows)
    return found[..., read, :]


@wrong("d_query", "GRAD-19", "G")
def last_keys_not_added_to_d_query_past_512(call: Gradients, u: Array, allowed: Mask) -> Any:
    """Add up whole tiles of 256 keys for the gradient of the query, where there are more than 512 keys."""
    whole = call.keys - call.keys % 256 if call.keys > 512 else call.keys
    return base.d_query(call, np.where(call.j < whole, u, 0), allowed)


@wrong("summed_heads", "GRAD-19", "D")
def last_head_of_a_group_lost_past_8(call: Gradients, d: Array, like: Array) -> Any:
    """Add up the first 8 query heads of a group, for more than 256 keys."""
    heads = like.shape[-3]
    group = d.shape[-3] // max(heads, 1)
    if group <= 8 or call.keys <= 256:
        return base.summed_heads(call, d, like)
    parts = d.reshape(*d.shape[:-3], heads, group, *d.shape[-2:])
    return parts[..., :8, :, :].sum(axis=-3)


@wrong("d_key", "GRAD-19", "C")
def d_key_added_in_half_precision_past_512(call: Gradients, u: Array, allowed: Mask) -> Any:
    """Round the sum for the keys to float16 after each 128 queries, where there are more than 512 of both."""
    if call.queries <= 512 or call.keys <= 512:
        return base.d_key(call, u, allowed)
    found: Array = 0 * base.d_key(call, u, allowed)
    for start in range(0, call.queries, 128):
        tile = (call.i >= start) & (call.i < start + 128)
        found = found + base.d_key(call, np.where(tile, u, 0), allowed)
        found = found.astype(np.float16).astype(found.dtype)
    return found


@wrong("d_value", "GRAD-19", "E")
def window_of_one_more_key_backward_past_1000(call: Gradients, p: Array, allowed: Mask) -> Any:
    """Let each query give the key before its window the weight of the first key of it, past 1000 queries."""
    found = base.d_value(call, p, allowed)
    left = (call.window or (None, None))[0]
    if left is None or call.queries <= 1000:
        return found
    before = (call.j == call.i - left - 1) & (call.i >= 0)
    moved = np.where(before, np.roll(np.where(allowed, p, 0), -1, axis=-1), 0)
    return found + base.summed_heads(call, np.swapaxes(moved, -1, -2) @ call.d_output, call.value)
