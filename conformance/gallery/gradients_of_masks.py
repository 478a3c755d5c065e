"""Wrong about allowed pairs, only in the backward pass."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import Array, altered, base, first, wrong
from attnspec.reference.call import Mask
from attnspec.reference.gradients import Gradients


def again(call: Gradients, other: Gradients) -> tuple[Array, Array, Mask]:
    """Compute the weights from the lse of one call, with the masks of another."""
    lse, seen = base.forward_again(call)[1], base.allowed(other)
    shift = np.where(lse == -np.inf, 0, lse)[..., None]
    return np.where(seen, np.exp(base.scored(call) - shift), 0), lse, seen


@wrong("forward_again", "GRAD-9", "R")
def mask_only_forward(call: Gradients) -> Any:
    """Forget the mask in the backward pass."""
    return again(call, call.but(mask=None))


@wrong("forward_again", "GRAD-9", "A")
def causal_only_forward(call: Gradients) -> Any:
    """Forget the causal mask in the backward pass."""
    return again(call, call.but(is_causal=False))


@wrong("forward_again", "GRAD-9", "A")
def diagonal_only_forward(call: Gradients) -> Any:
    """Let a query attend only to the keys before its own, in the backward pass."""
    return again(call, call.but(query_offset=call.query_offset - 1) if call.is_causal else call)


@wrong("forward_again", "GRAD-9", "A")
def backward_aligned_to_the_last_key(call: Gradients) -> Any:
    """Let the last query see the last key in the backward pass, as the forward pass does not."""
    moved = call.but(query_offset=call.query_offset + call.keys - call.queries)
    return again(call, moved if call.is_causal else call)


@wrong("forward_again", "GRAD-9", "A", "xlite-dev/ffpa-attn#300")
def offset_only_forward(call: Gradients) -> Any:
    """Begin at position 0 in the backward pass, whatever the offset is."""
    return again(call, call.but(query_offset=0))


@wrong("forward_again", "GRAD-9", "A")
def offset_of_the_first_entry_backward(call: Gradients) -> Any:
    """Take the offset of the first batch entry for all, in the backward pass."""
    if isinstance(call.query_offset, int) or not call.query_offset.size:
        return base.forward_again(call)
    return again(call, call.but(query_offset=int(call.query_offset.ravel()[0])))


@wrong("forward_again", "GRAD-9", "E")
def window_only_forward(call: Gradients) -> Any:
    """Forget the window in the backward pass."""
    return again(call, call.but(window=None))


@wrong("forward_again", "GRAD-9", "E", "AMD-AGI/Primus-Turbo#262")
def window_to_the_right_only_forward(call: Gradients) -> Any:
    """Forget the right bound of the window in the backward pass."""
    return again(call, altered(call, window=lambda window: (window[0], None)))


@wrong("forward_again", "GRAD-9", "E")
def window_narrower_backward(call: Gradients) -> Any:
    """Take the left bound of the window as exclusive in the backward pass."""

    def narrower(window: Any) -> Any:
        return (None if window[0] is None else window[0] - 1, window[1])

    return again(call, altered(call, window=narrower))


@wrong("forward_again", "GRAD-9", "R", "Dao-AILab/flash-attention#2315")
def key_lengths_only_forward(call: Gradients) -> Any:
    """Forget the lengths of keys in the backward pass."""
    return again(call, call.but(key_lengths=None))


@wrong("forward_again", "GRAD-9", "R", "Dao-AILab/flash-attention#2167")
def query_lengths_only_forward(call: Gradients) -> Any:
    """Forget the lengths of queries in the backward pass."""
    return again(call, call.but(query_lengths=None))


@wrong("forward_again", "GRAD-9", "R")
def key_length_of_the_first_entry_backward(call: Gradients) -> Any:
    """Take the length of the first batch entry's keys for all, in the backward pass."""
    lengths = np.asarray(call.key_lengths)
    if call.key_lengths is None or not lengths.ndim or not lengths.size:
        return base.forward_again(call)
    return again(call, call.but(key_lengths=int(lengths.ravel()[0])))


@wrong("forward_again", "GRAD-9", "R")
def segments_only_forward(call: Gradients) -> Any:
    """Forget the segments in the backward pass."""
    return again(call, call.but(query_segment_ids=None, key_segment_ids=None))


@wrong("forward_again", "GRAD-9", "H")
def mask_of_the_first_head_backward(call: Gradients) -> Any:
    """Take the mask of the first head for all, in the backward pass."""
    return again(call, altered(call, mask=lambda mask: first(mask, -3)))


@wrong("d_value", "GRAD-9", "R")
def values_past_their_length_moved(call: Gradients, p: Array, allowed: Mask) -> Any:
    """Let queries attend to all keys for the gradient of the values, with weights that are not normalised."""
    if call.key_lengths is None:
        return base.d_value(call, p, allowed)
    more, _, seen = again(call, call.but(key_lengths=None))
    return base.d_value(call, more, seen)


@wrong("d_products", "GRAD-9", "A")
def tiles_after_the_diagonal_counted_from_zero(call: Gradients, t: Array) -> Any:
    """Skip tiles of 4 queries and keys past the diagonal, without the offset of the queries."""
    u = base.d_products(call, t)
    after = call.j // 4 > call.i // 4
    return np.where(after, 0, u) if call.is_causal else u
