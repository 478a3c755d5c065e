"""Wrong about masks: lengths, segments, and the combination of sources."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import altered, base, wrong
from attnspec.reference.notation import Attention, of_batch


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
