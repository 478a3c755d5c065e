"""Wrong about the keys that a query may attend to: mask, bias, causality, lengths, segments, combinations."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import Array, altered, base, first, wrong
from attnspec.reference.call import Mask
from attnspec.reference.notation import Attention, of_batch


@wrong("by_mask", "MASK-1", "R", "NVIDIA/TransformerEngine#818")
def inverted_polarity(call: Attention) -> Any:
    """Take True for ignore."""
    return True if call.mask is None else ~call.mask


@wrong("by_mask", "MASK-1", "R", "lucidrains/flamingo-pytorch#10")
def mask_discarded(_call: Attention) -> Any:
    """Fill the scores where the mask says so, and throw the result away."""
    return True


@wrong("scored", "MASK-1", "R", "tinygrad/tinygrad#2425")
def mask_added_as_one(call: Attention) -> Any:
    """Add the mask to the scores, 1 for True, and disallow where it is False."""
    s = base.scored(call)
    return s if call.mask is None else s + call.mask * (call.j + 1).astype(s.dtype)


@wrong("by_mask", "MASK-1", "H")
def mask_of_the_first_head(call: Attention) -> Any:
    """Let all heads have the mask of the first."""
    return base.by_mask(altered(call, mask=lambda mask: first(mask, -3)))


@wrong("by_mask", "MASK-1", "H")
def mask_of_the_first_batch_entry(call: Attention) -> Any:
    """Let all batch entries have the mask of the first."""
    return base.by_mask(altered(call, mask=lambda mask: first(mask, -4)))


@wrong("by_mask", "MASK-1", "H")
def mask_of_the_first_query(call: Attention) -> Any:
    """Take a mask to be one of keys, the same for all queries."""
    return base.by_mask(altered(call, mask=lambda mask: first(mask, -2)))


@wrong("by_mask", "MASK-1", "H")
def square_mask_transposed(call: Attention) -> Any:
    """Read a mask by columns, where there are as many queries as keys."""
    square = call.queries == call.keys
    turned = altered(call, mask=lambda mask: np.swapaxes(mask, -1, -2) if mask.ndim > 1 else mask)
    return base.by_mask(turned if square else call)


@wrong("by_bias", "MASK-13", "B")
def bias_merely_added(_call: Attention) -> Any:
    """Add minus infinity like any number, so that NaN is left where it disallows."""
    return True


@wrong("by_bias", "MASK-2", "C", "flashinfer-ai/flashinfer#4401")
def low_bias_disallows(call: Attention) -> Any:
    """Take a bias below -10000 for minus infinity."""
    return True if call.bias is None else call.bias.astype(np.float64) > -10000


@wrong("biased", "MASK-2", "C")
def bias_bounded_below(call: Attention, x: Array) -> Any:
    """Let no bias be below -10000."""
    return base.biased(altered(call, bias=lambda bias: np.maximum(bias.astype(x.dtype), -10000)), x)


@wrong("by_causality", "MASK-3", "A", "microsoft/onnxruntime#29020")
def causal_bottom_right(call: Attention) -> Any:
    """Align the last query with the last key though no offset says so."""
    ends = call.keys - call.queries if np.all(np.asarray(call.query_offset) == 0) else 0
    return call.j <= base.position(call) + ends if call.is_causal else True


@wrong("by_causality", "MASK-3", "A")
def causal_without_the_diagonal(call: Attention) -> Any:
    """Disallow the key at the query's own position."""
    return call.j < base.position(call) if call.is_causal else True


@wrong("by_causality", "MASK-3", "A")
def causal_reversed(call: Attention) -> Any:
    """Allow what comes after the query."""
    return call.j >= base.position(call) if call.is_causal else True


@wrong("by_causality", "MASK-3", "A", "huggingface/transformers#30437")
def causal_dropped_for_one_query(call: Attention) -> Any:
    """Take a single query for the last one, which may attend to all keys."""
    return True if call.queries == 1 else base.by_causality(call)


@wrong("by_causality", "MASK-3", "A", "pytorch/pytorch#195910")
def causal_once_for_four_queries_in_half(call: Attention) -> Any:
    """Find the diagonal in half precision once for four queries."""
    if call.storage.itemsize > 2 or not call.is_causal:
        return base.by_causality(call)
    return call.j <= base.position(call) - call.i + call.i // 4 * 4 + 3


@wrong("by_causality", "MASK-3", "G")
def causal_by_tiles_past_the_first(call: Attention) -> Any:
    """Allow the whole tile of 16 keys on the diagonal, but for the first."""
    start = np.where(call.j < 16, call.j, call.j // 16 * 16)
    return start <= base.position(call) if call.is_causal else True


@wrong("by_causality", "MASK-3", "G")
def causal_forgotten_past_a_tile_of_queries(call: Attention) -> Any:
    """Mask only the first tile of 16 queries."""
    return base.by_causality(call) | (call.i >= 16)


@wrong("allowed", "MASK-4", "A", "keras-team/keras#23038")
def causal_dropped_beside_dropout(call: Attention) -> Any:
    """Forget the causal mask on the path for dropout."""
    return base.allowed(call.but(is_causal=False) if call.dropout_mask is not None else call)


@wrong("allowed", "MASK-4", "R")
def mask_replaces_causal(call: Attention) -> Any:
    """Ignore the causal flag if a mask is given."""
    return base.allowed(call if call.mask is None else call.but(is_causal=False))


@wrong("allowed", "MASK-4", "R")
def causal_replaces_mask(call: Attention) -> Any:
    """Pass over a mask where attention is causal."""
    return base.allowed(call.but(mask=None) if call.is_causal else call)


@wrong("allowed", "MASK-4", "E")
def window_replaces_causal(call: Attention) -> Any:
    """Take the right bound of a window for all that is said of keys after the query."""
    return base.allowed(call if call.window is None else call.but(is_causal=False))


@wrong("allowed", "MASK-4", "R")
def key_lengths_dropped_beside_a_mask(call: Attention) -> Any:
    """Ignore the key lengths if a mask is given, as if it contained them."""
    return base.allowed(call if call.mask is None else call.but(key_lengths=None))


@wrong("allowed", "MASK-4", "R")
def segments_dropped_beside_a_bias(call: Attention) -> Any:
    """Make an additive mask of the segments where there is no other."""
    return base.allowed(call if call.bias is None else call.but(key_segment_ids=None))


@wrong("allowed", "MASK-4", "R")
def mask_or_bias(call: Attention) -> Any:
    """Allow what mask or bias allows, where both are given."""
    if call.mask is None or call.bias is None:
        return base.allowed(call)
    return base.allowed(call.but(mask=None)) | base.allowed(call.but(bias=None))


@wrong("attend", "MASK-5", "C", "microsoft/onnxruntime#14363")
def filled_with_minus_ten_thousand(call: Attention) -> Any:
    """Give disallowed keys the score -10000 and go on."""
    allowed = base.allowed(call)
    s = np.where(allowed, base.scored(call), np.float32(-10000))
    p, lse = base.softmax_of(call, s, np.ones_like(allowed))
    return base.weighted(call, base.dropped(call, p), allowed), lse, base.dropped(call, p)


@wrong("exponentials", "MASK-5", "C")
def disallowed_keys_in_the_denominator(_call: Attention, s: Array, _allowed: Mask, top: Array) -> Any:
    """Take the softmax over all keys that a row has, and mask after it."""
    return np.exp(s - top)


@wrong("exponentials", "MASK-5", "C")
def filled_with_the_smallest_number(_call: Attention, s: Array, allowed: Mask, top: Array) -> Any:
    """Fill with the smallest positive number, taken for the lowest."""
    return np.exp(np.where(allowed, s, np.finfo(s.dtype).tiny) - top)


@wrong("exponentials", "MASK-5", "G")
def disallowed_keys_of_the_last_tile(_call: Attention, s: Array, allowed: Mask, top: Array) -> Any:
    """Mask only whole tiles of 16 keys, and allow the remainder."""
    whole = np.arange(s.shape[-1]) < s.shape[-1] // 16 * 16
    seen = np.where(whole | (s.shape[-1] <= 16), allowed, allowed.any(axis=-1, keepdims=True))
    return np.where(seen, np.exp(s - top), 0)


@wrong("allowed", "NUM-3", "G")
def last_key_of_an_odd_last_row(call: Attention) -> Any:
    """Lose the last key of the last query, where there is an odd number of them past eight."""
    seen = np.broadcast_to(base.allowed(call), call.shape).copy()
    if call.queries > 8 and call.queries % 2 and call.keys > 1:
        seen[..., -1, -1] = False
    return seen


@wrong("by_key_lengths", "MASK-9", "G")
def key_before_the_length_disallowed(call: Attention) -> Any:
    """Leave out the last key that a length allows."""
    return base.by_key_lengths(altered(call, key_lengths=lambda n: np.asarray(n) - 1))


@wrong("by_key_lengths", "MASK-9", "B")
def key_length_of_one_at_least(call: Attention) -> Any:
    """Let a length of 0 leave one key."""
    return base.by_key_lengths(altered(call, key_lengths=lambda n: np.maximum(np.asarray(n), 1)))


@wrong("by_key_lengths", "MASK-9", "H")
def key_length_for_all_entries_alone(call: Attention) -> Any:
    """Take one length for all batch entries, and none where each has its own."""
    return base.by_key_lengths(call) if isinstance(call.key_lengths, int) else True


@wrong("by_key_lengths", "MASK-9", "A")
def offset_taken_from_the_key_lengths(call: Attention) -> Any:
    """Take key lengths for positions after as many as the offset says."""
    return base.by_key_lengths(
        altered(call, key_lengths=lambda n: np.asarray(n) - np.asarray(call.query_offset))
    )


@wrong("by_query_lengths", "MASK-10", "R")
def query_lengths_cut_the_keys_too(call: Attention) -> Any:
    """Take the lengths of queries for those of keys too."""
    seen = base.by_query_lengths(call)
    return seen if call.query_lengths is None else seen & (call.j < of_batch(call.query_lengths))


@wrong("by_query_lengths", "MASK-10", "R")
def query_lengths_cut_the_keys_alone(call: Attention) -> Any:
    """Take the lengths of queries for those of keys."""
    return True if call.query_lengths is None else call.j < of_batch(call.query_lengths)


@wrong("by_query_lengths", "MASK-10", "G")
def last_query_before_the_length_dropped(call: Attention) -> Any:
    """Leave out the last query that a length allows."""
    return base.by_query_lengths(altered(call, query_lengths=lambda n: np.asarray(n) - 1))


@wrong("attend", "SOFT-7", "B")
def lse_of_padded_queries_kept(call: Attention) -> Any:
    """Write zeros for queries past their length, and their lse as if they were queries."""
    output, _, p = base.attend(call)
    return output, base.attend(call.but(query_lengths=None))[1], p


@wrong("attend", "MASK-10", "B")
def weights_of_padded_queries_kept(call: Attention) -> Any:
    """Write zeros for queries past their length, and their weights as if they were queries."""
    output, lse, _ = base.attend(call)
    return output, lse, base.attend(call.but(query_lengths=None))[2]


@wrong("attend", "MASK-10", "B")
def output_of_padded_queries_kept(call: Attention) -> Any:
    """Mark queries past their length only in the lse."""
    _, lse, p = base.attend(call)
    return base.attend(call.but(query_lengths=None))[0], lse, p


@wrong("attend", "SOFT-7", "M")
def sink_of_padded_queries_dropped(call: Attention) -> Any:
    """Give queries past their length the lse minus infinity, though there is a sink."""
    output, lse, p = base.attend(call)
    past = np.broadcast_to(~np.asarray(base.by_query_lengths(call))[..., 0], lse.shape)
    return output, lse if call.query_lengths is None else np.where(past, -np.inf, lse).astype(lse.dtype), p


@wrong("by_segments", "MASK-11", "R")
def keys_of_negative_segments_are_padding(call: Attention) -> Any:
    """Let nobody attend to keys of a negative id."""
    ids = call.key_segment_ids
    return base.by_segments(call) & (True if ids is None else ids[..., None, None, :] >= 0)


@wrong("by_segments", "MASK-11", "R")
def keys_of_negative_segments_for_all(call: Attention) -> Any:
    """Let every query attend to keys of a negative id."""
    ids = call.key_segment_ids
    return base.by_segments(call) | (False if ids is None else ids[..., None, None, :] < 0)


@wrong("by_segments", "MASK-11", "R")
def segments_of_earlier_keys_too(call: Attention) -> Any:
    """Let a query attend to keys whose id is not above its own."""
    if call.query_segment_ids is None or call.key_segment_ids is None:
        return True
    return (call.key_segment_ids[..., None, :] >= call.query_segment_ids[..., :, None])[..., None, :, :]


@wrong("by_segments", "MASK-11", "H")
def segments_of_the_queries_for_keys(call: Attention) -> Any:
    """Read the segments of the keys from those of the queries, again from the first where they end."""
    ids = call.query_segment_ids
    if ids is None or not ids.shape[-1]:
        return base.by_segments(call)
    return base.by_segments(call.but(key_segment_ids=np.take(ids, call.j % ids.shape[-1], axis=-1)))


@wrong("by_segments", "MASK-11", "R")
def segments_inverted(call: Attention) -> Any:
    """Let queries attend to all segments but their own."""
    return ~np.asarray(base.by_segments(call)) if call.query_segment_ids is not None else True


@wrong("allowed", "MASK-4", "R")
def mask_or_causal(call: Attention) -> Any:
    """Allow what mask or causal mask allows, where both are given."""
    if call.mask is None or not call.is_causal:
        return base.allowed(call)
    return base.allowed(call.but(mask=None)) | base.allowed(call.but(is_causal=False))


@wrong("allowed", "MASK-4", "R")
def mask_or_window(call: Attention) -> Any:
    """Allow what mask or window allows, where both are given."""
    if call.mask is None or call.window is None:
        return base.allowed(call)
    return base.allowed(call.but(mask=None)) | base.allowed(call.but(window=None))


@wrong("attend", "MASK-1", "R")
def scores_multiplied_by_the_mask(call: Attention) -> Any:
    """Multiply the scores by the mask, so that disallowed keys have the score 0."""
    if call.mask is None:
        return base.attend(call)
    s, allowed = base.scored(call) * call.mask, base.allowed(call.but(mask=None))
    p, lse = base.softmax_of(call, s, allowed)
    p = base.dropped(call, p)
    return base.weighted(call, p, allowed), lse, p


@wrong("by_mask", "MASK-1", "H")
def mask_of_the_last_query(call: Attention) -> Any:
    """Let all queries have the mask of the last."""
    return base.by_mask(altered(call, mask=lambda mask: mask[..., -1:, :] if mask.ndim > 1 else mask))


@wrong("by_mask", "MASK-1", "H")
def mask_of_keys_along_the_queries(call: Attention) -> Any:
    """Align a mask of one axis with the queries, where it fits there."""
    turned = altered(call, mask=lambda mask: mask[:, None] if mask.shape == (call.queries,) else mask)
    return base.by_mask(turned)
