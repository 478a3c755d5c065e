"""Wrong about the softmax and the sum of the values."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import Array, base, wrong
from attnspec.reference.call import Mask
from attnspec.reference.notation import Attention


@wrong("total", "SOFT-1", "C")
def sum_over_the_whole_matrix(_call: Attention, e: Array, _top: Array) -> Any:
    """Divide by the sum over all queries and keys of a head."""
    return np.broadcast_to(e.sum(axis=(-2, -1), keepdims=True), (*e.shape[:-1], 1))


@wrong("softmax_of", "SOFT-1", "C")
def scores_over_their_sum(call: Attention, s: Array, allowed: Mask) -> Any:
    """Leave the exponential out."""
    kept = np.where(allowed, s, 0)
    return base.normalised(call, kept, kept.sum(axis=-1, keepdims=True)), base.softmax_of(call, s, allowed)[1]


@wrong("total", "SOFT-1", "H")
def sum_over_the_queries(_call: Attention, e: Array, _top: Array) -> Any:
    """Divide by the sum over the wrong axis, where there are as many queries as keys."""
    square = e.shape[-1] == e.shape[-2]
    return np.swapaxes(e.sum(axis=-2, keepdims=True), -1, -2) if square else e.sum(axis=-1, keepdims=True)


@wrong("exponentials", "SOFT-1", "I", "flashinfer-ai/flashinfer#787")
def powers_of_two(_call: Attention, s: Array, allowed: Mask, top: Array) -> Any:
    """Take powers of 2 and forget to multiply by log2(e)."""
    return np.where(allowed, np.exp2(s - top), 0)


@wrong("total", "SOFT-1", "M")
def one_more_in_the_denominator(call: Attention, e: Array, top: Array) -> Any:
    """Add 1 to every denominator, as if there were a sink of 0."""
    return base.total(call, e, top) + np.exp(-top)


@wrong("normalised", "SOFT-1", "B")
def denominator_of_one_at_least(_call: Attention, e: Array, total: Array) -> Any:
    """Keep the denominator from 0 by a constant that can be seen."""
    return e / (total + np.float32(1e-3))


@wrong("top", "SOFT-2", "C")
def no_shift(_call: Attention, s: Array, _allowed: Mask) -> Any:
    """Take the exponentials of the scores as they are."""
    return np.zeros_like(s[..., :1])


@wrong("scored", "SOFT-2", "C")
def scores_clipped(call: Attention) -> Any:
    """Keep scores between -80 and 80, so that no exponential overflows."""
    return np.clip(base.scored(call), -80, 80)


@wrong("top", "SOFT-2", "C")
def maximum_of_zero_at_least(call: Attention, s: Array, allowed: Mask) -> Any:
    """Begin the search for the largest score with 0."""
    return np.maximum(base.top(call, s, allowed), 0)


@wrong("top", "SOFT-2", "C")
def maximum_of_the_first_tile(call: Attention, s: Array, allowed: Mask) -> Any:
    """Keep the maximum of the first 4 keys when a later one is larger."""
    return base.top(call, s[..., :4], allowed[..., :4])


@wrong("total", "SOFT-2", "G")
def sums_not_rescaled_when_the_maximum_rises(_call: Attention, e: Array, _top: Array) -> Any:
    """Forget to rescale the denominator where the maximum rises in the second tile of 8 keys."""
    early = e[..., :8].max(axis=-1, keepdims=True, initial=0)
    rises = (early > 0) & (early < 1) & (e.shape[-1] > 8)
    return np.where(rises, e[..., :8].sum(axis=-1, keepdims=True) / early, 0) + np.where(
        rises, e[..., 8:].sum(axis=-1, keepdims=True), e.sum(axis=-1, keepdims=True)
    )


@wrong("top", "SOFT-2", "C")
def maximum_of_the_matrix(call: Attention, s: Array, allowed: Mask) -> Any:
    """Shift all rows of a head by one maximum, so that low rows underflow."""
    most = base.top(call, s, allowed)
    return np.broadcast_to(most.max(axis=-2, keepdims=True, initial=-np.inf), most.shape)


@wrong("exponentials", "SOFT-2", "C")
def far_keys_skipped(_call: Attention, s: Array, allowed: Mask, top: Array) -> Any:
    """Leave out keys whose scores are 8 below the largest."""
    return np.where(allowed & (s > top - 8), np.exp(s - top), 0)


@wrong("weighted", "SOFT-3", "G")
def values_one_late(call: Attention, p: Array, allowed: Mask) -> Any:
    """Give each key the value of the one before."""
    return base.weighted(call.but(value=np.roll(call.value, 1, axis=-2)), p, allowed)


@wrong("attend", "SOFT-3", "G", "pytorch/pytorch#191937")
def last_key_after_full_tiles_dropped(call: Attention) -> Any:
    """Leave out a remainder of a single key after tiles of 32."""
    if call.keys <= 1 or call.keys % 32 != 1:
        return base.attend(call)
    kept = base.allowed(call) & (call.j < call.keys - 1)
    p, lse = base.softmax_of(call, base.scored(call), kept)
    return base.weighted(call, base.dropped(call, p), kept), lse, base.dropped(call, p)


@wrong("allowed", "SOFT-3", "G")
def keys_past_sixty_four_dropped(call: Attention) -> Any:
    """Read the first two tiles of 32 keys."""
    return base.allowed(call) & (call.j < 64)


@wrong("weighted", "SOFT-3", "G")
def last_value_feature_dropped(call: Attention, p: Array, allowed: Mask) -> Any:
    """Write features in groups of four, and leave the others of a larger depth 0."""
    output = base.weighted(call, p, allowed)
    depth = output.shape[-1]
    return np.where(np.arange(depth) < (depth // 4 * 4 or depth), output, 0)


@wrong("weighted", "SOFT-3", "G")
def query_tiles_of_sixteen(call: Attention, p: Array, allowed: Mask) -> Any:
    """Leave the rows after the last whole tile of 16 queries as the buffer was."""
    output = base.weighted(call, p, allowed)
    return np.where(call.i < (call.queries // 16 * 16 or call.queries), output, 0)


@wrong("weighted", "SOFT-3", "N")
def value_index_in_a_byte(call: Attention, p: Array, allowed: Mask) -> Any:
    """Count the values in eight bits, so that the one after 255 is the first again."""
    return base.weighted(call.but(value=call.value[..., call.j % 256, :]), p, allowed)


@wrong("returned", "SOFT-4", "J")
def scores_returned_for_weights(call: Attention, output: Array, lse: Array, _weights: Array) -> Any:
    """Return the scores after masking."""
    s = np.where(base.allowed(call), base.scored(call), 0)
    return base.returned(call, output, lse, s)


@wrong("attend", "SOFT-4", "J")
def weights_before_dropout(call: Attention) -> Any:
    """Return the weights as they were before some were dropped."""
    output, lse, _ = base.attend(call)
    return output, lse, base.attend(call.but(dropout_mask=None))[2]


@wrong("attend", "SOFT-4", "R")
def weights_before_masking(call: Attention) -> Any:
    """Return the softmax over all keys."""
    output, lse, _ = base.attend(call)
    return output, lse, base.softmax_of(call, base.scored(call), np.ones(call.shape, dtype=bool))[0]


@wrong("checked", "SOFT-4", "A", "keras-team/keras#23040")
def causal_dropped_unless_weights_are_asked_for(call: Attention) -> Any:
    """Forget the causal mask on the path that returns no weights."""
    return base.checked(call if call.return_weights else call.but(is_causal=False))


@wrong("exponentials", "SOFT-1", "C")
def small_exponentials_flushed(call: Attention, s: Array, allowed: Mask, top: Array) -> Any:
    """Take an exponential of less than -12 for 0."""
    return np.where(s - top < -12, 0, base.exponentials(call, s, allowed, top))


@wrong("attend", "SOFT-4", "D")
def weights_of_the_first_head_of_a_group(call: Attention) -> Any:
    """Return the weights of one query head for all that share its key head."""
    output, lse, p = base.attend(call)
    group = call.query.shape[-3] // max(1, call.key.shape[-3])
    return output, lse, np.repeat(p[..., ::group, :, :], group, axis=-3) if group > 1 else p
