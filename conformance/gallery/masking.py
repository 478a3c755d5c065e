"""Wrong about the keys that a query may attend to: mask, bias, causality, lengths, segments, combinations."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import After, Array, alter, base, first, rows, wrong
from attnspec.reference.call import Mask
from attnspec.reference.notation import Attention, align_batch


def _first_outside_an_axis_of_one(array: Array) -> Array:
    """Slice the first entry of each axis outside the innermost axis of 1."""
    outside = max((axis for axis, size in enumerate(array.shape) if size == 1), default=0)
    return array[(slice(0, 1),) * outside]


ENTRIES = rows(
    ("inverted_polarity", "by_mask", "MASK-1", "R", lambda call: True if call.mask is None else ~call.mask,
     "Take True for ignore.", "NVIDIA/TransformerEngine#818"),
    ("mask_discarded", "by_mask", "MASK-1", "R", lambda _call: True,
     "Fill the scores where the mask says so, and throw the result away.", "lucidrains/flamingo-pytorch#10"),
    ("mask_of_the_first_head", "by_mask", "MASK-1", "H",
     lambda call: base.by_mask(alter(call, mask=lambda mask: first(mask, -3))),
     "Let all heads have the mask of the first."),
    ("mask_of_the_first_batch_entry", "by_mask", "MASK-1", "H",
     lambda call: base.by_mask(alter(call, mask=lambda mask: first(mask, -4))),
     "Let all batch entries have the mask of the first."),
    ("mask_of_the_first_query", "by_mask", "MASK-1", "H",
     lambda call: base.by_mask(alter(call, mask=lambda mask: first(mask, -2))),
     "Take a mask to be one of keys, the same for all queries."),
    ("mask_strides_end_at_an_axis_of_one", "by_mask", "MASK-1", "H",
     lambda call: base.by_mask(alter(call, mask=_first_outside_an_axis_of_one)),
     "Take 0 for the strides of a mask outside an axis of 1, so that their first entry is read for all."),
    ("bias_strides_end_at_an_axis_of_one", "attend", "SCORE-4", "H",
     lambda call: base.attend(alter(call, bias=_first_outside_an_axis_of_one)),
     "Take 0 for the strides of a bias outside an axis of 1, so that their first entry is read for all."),
    ("bias_merely_added", "by_bias", "MASK-13", "B", lambda _call: True,
     "Add minus infinity like any number, so that NaN is left where it disallows."),
    ("low_bias_disallows", "by_bias", "MASK-2", "C",
     lambda call: True if call.bias is None else call.bias.astype(np.float64) > -10000,
     "Take a bias below -10000 for minus infinity.", "flashinfer-ai/flashinfer#4401"),
    ("causal_without_the_diagonal", "by_causality", "MASK-3", "A",
     lambda call: call.j < base.position(call) if call.is_causal else True,
     "Disallow the key at the query's own position."),
    ("first_key_never_attended", "allowed_pairs", "MASK-1", "A",
     lambda call: base.allowed_pairs(call) & (call.j > 0),
     "Begin at the second key."),
    ("causal_reversed", "by_causality", "MASK-3", "A",
     lambda call: call.j >= base.position(call) if call.is_causal else True,
     "Allow what comes after the query."),
    ("causal_dropped_for_one_query", "by_causality", "MASK-3", "A",
     lambda call: True if call.queries == 1 else base.by_causality(call),
     "Take a single query for the last one, which may attend to all keys.", "huggingface/transformers#30437"),
    ("causal_forgotten_past_a_tile_of_queries", "by_causality", "MASK-3", "G",
     lambda call: base.by_causality(call) | (call.i >= 16),
     "Mask only the first tile of 16 queries."),
    ("causal_dropped_beside_dropout", "allowed_pairs", "MASK-4", "A",
     lambda call: base.allowed_pairs(call.but(is_causal=False) if call.dropout_mask is not None else call),
     "Forget the causal mask on the path for dropout.", "keras-team/keras#23038"),
    ("mask_row_of_each_head_joined_in_place", "by_mask", "MASK-4", "R",
     lambda call: call.mask & (call.j <= 0) if call.is_causal and call.mask is not None
         and call.mask.ndim > 3 and call.mask.shape[-4::2] == (1, 1) else base.by_mask(call),
     "Join a causal mask with a mask of one row for each head in the place of the latter."),
    ("mask_replaces_causal", "allowed_pairs", "MASK-4", "R",
     lambda call: base.allowed_pairs(call if call.mask is None else call.but(is_causal=False)),
     "Ignore the causal flag if a mask is given."),
    ("causal_replaces_mask", "allowed_pairs", "MASK-4", "R",
     lambda call: base.allowed_pairs(call.but(mask=None) if call.is_causal else call),
     "Pass over a mask where attention is causal."),
    ("causal_replaces_key_lengths", "allowed_pairs", "MASK-4", "R",
     lambda call: base.allowed_pairs(call.but(key_lengths=None) if call.is_causal else call),
     "Pass over the lengths of keys where attention is causal."),
    ("key_lengths_replace_causal", "allowed_pairs", "MASK-4", "R",
     lambda call: base.allowed_pairs(call if call.key_lengths is None else call.but(is_causal=False)),
     "Ignore the causal flag if lengths of keys are given."),
    ("window_replaces_causal", "allowed_pairs", "MASK-4", "E",
     lambda call: base.allowed_pairs(call if call.window is None else call.but(is_causal=False)),
     "Take the right bound of a window for all that is said of keys after the query."),
    ("key_lengths_dropped_beside_a_mask", "allowed_pairs", "MASK-4", "R",
     lambda call: base.allowed_pairs(call if call.mask is None else call.but(key_lengths=None)),
     "Ignore the key lengths if a mask is given, as if it contained them."),
    ("segments_dropped_beside_a_bias", "allowed_pairs", "MASK-4", "R",
     lambda call: base.allowed_pairs(call if call.bias is None else call.but(key_segment_ids=None)),
     "Make an additive mask of the segments where there is no other."),
    ("disallowed_keys_in_the_denominator", "exponentials", "MASK-5", "C",
     lambda _call, s, _allowed, top: np.exp(s - top),
     "Take the softmax over all keys that a row has, and mask after it."),
    ("filled_with_the_smallest_number", "exponentials", "MASK-5", "C",
     lambda _call, s, allowed, top: np.exp(np.where(allowed, s, np.finfo(s.dtype).tiny) - top),
     "Fill with the smallest positive number, taken for the lowest."),
    ("key_before_the_length_disallowed", "by_key_lengths", "MASK-9", "G",
     lambda call: base.by_key_lengths(alter(call, key_lengths=lambda n: np.asarray(n) - 1)),
     "Leave out the last key that a length allows."),
    ("key_length_of_one_at_least", "by_key_lengths", "MASK-9", "B",
     lambda call: base.by_key_lengths(alter(call, key_lengths=lambda n: np.maximum(np.asarray(n), 1))),
     "Let a length of 0 leave one key."),
    ("key_length_for_all_entries_alone", "by_key_lengths", "MASK-9", "H",
     lambda call: base.by_key_lengths(call) if isinstance(call.key_lengths, int) else True,
     "Take one length for all batch entries, and none where each has its own."),
    ("query_lengths_cut_the_keys_alone", "by_query_lengths", "MASK-10", "R",
     lambda call: True if call.query_lengths is None else call.j < align_batch(call.query_lengths),
     "Take the lengths of queries for those of keys."),
    ("last_query_before_the_length_dropped", "by_query_lengths", "MASK-10", "G",
     lambda call: base.by_query_lengths(alter(call, query_lengths=lambda n: np.asarray(n) - 1)),
     "Leave out the last query that a length allows."),
    ("segments_inverted", "by_segments", "MASK-11", "R",
     lambda call: ~np.asarray(base.by_segments(call)) if call.query_segment_ids is not None else True,
     "Let queries attend to all segments but their own."),
    ("mask_of_the_last_query", "by_mask", "MASK-1", "H",
     lambda call: base.by_mask(alter(call, mask=lambda mask: mask[..., -1:, :] if mask.ndim > 1 else mask)),
     "Let all queries have the mask of the last."),
    ("bias_bounded_below", "add_bias", "MASK-2", "C",
     lambda call, x: base.add_bias(
         alter(call, bias=lambda bias: np.maximum(bias.astype(x.dtype), -10000)), x),
     "Let no bias be below -10000."),
    ("causal_once_for_four_queries_in_half", "by_causality", "MASK-3", "A",
     lambda call: base.by_causality(call) if call.storage.itemsize > 2 or not call.is_causal
         else call.j <= base.position(call) - call.i + call.i // 4 * 4 + 3,
     "Find the diagonal in half precision once for four queries.", "pytorch/pytorch#195910"),
    ("mask_or_bias", "allowed_pairs", "MASK-4", "R",
     lambda call: base.allowed_pairs(call) if call.mask is None or call.bias is None
         else base.allowed_pairs(call.but(mask=None)) | base.allowed_pairs(call.but(bias=None)),
     "Allow what mask or bias allows, where both are given."),
    ("segments_of_earlier_keys_too", "by_segments", "MASK-11", "R",
     lambda call: True if call.query_segment_ids is None or call.key_segment_ids is None
         else (call.key_segment_ids[..., None, :] >= call.query_segment_ids[..., :, None])[..., None, :, :],
     "Let a query attend to keys whose id is not above its own."),
    ("mask_or_causal", "allowed_pairs", "MASK-4", "R",
     lambda call: base.allowed_pairs(call) if call.mask is None or not call.is_causal
         else base.allowed_pairs(call.but(mask=None)) | base.allowed_pairs(call.but(is_causal=False)),
     "Allow what mask or causal mask allows, where both are given."),
    ("mask_or_window", "allowed_pairs", "MASK-4", "R",
     lambda call: base.allowed_pairs(call) if call.mask is None or call.window is None
         else base.allowed_pairs(call.but(mask=None)) | base.allowed_pairs(call.but(window=None)),
     "Allow what mask or window allows, where both are given."),
    ("offset_taken_from_the_key_lengths", "by_key_lengths", "MASK-9", "A",
     lambda call: base.by_key_lengths(alter(call,
         key_lengths=lambda n: np.asarray(n) - np.asarray(call.query_offset))),
     "Take key lengths for positions after as many as the offset says."),
    ("query_lengths_cut_the_keys_too", "by_query_lengths", "MASK-10", "R",
     After(lambda seen, call: seen if call.query_lengths is None
         else seen & (call.j < align_batch(call.query_lengths))),
     "Take the lengths of queries for those of keys too."),
    ("lse_of_padded_queries_kept", "attend", "SOFT-7", "B",
     After(lambda output, _, p, call: (output, base.attend(call.but(query_lengths=None))[1], p)),
     "Write zeros for queries past their length, and their lse as if they were queries."),
    ("weights_of_padded_queries_kept", "attend", "MASK-10", "B",
     After(lambda output, lse, _, call: (output, lse, base.attend(call.but(query_lengths=None))[2])),
     "Write zeros for queries past their length, and their weights as if they were queries."),
    ("output_of_padded_queries_kept", "attend", "MASK-10", "B",
     After(lambda _, lse, p, call: (base.attend(call.but(query_lengths=None))[0], lse, p)),
     "Mark queries past their length only in the lse."),
    ("keys_of_negative_segments_are_padding", "by_segments", "MASK-11", "R",
     lambda call: base.by_segments(call) & (True if call.key_segment_ids is None
         else call.key_segment_ids[..., None, None, :] >= 0),
     "Let nobody attend to keys of a negative id."),
    ("keys_of_negative_segments_for_all", "by_segments", "MASK-11", "R",
     lambda call: base.by_segments(call) | (False if call.key_segment_ids is None
         else call.key_segment_ids[..., None, None, :] < 0),
     "Let every query attend to keys of a negative id."),
)  # fmt: skip


@wrong("score", "MASK-1", "R", "tinygrad/tinygrad#2425")
def mask_added_as_one(call: Attention) -> Any:
    """Add the mask to the scores, 1 for True, and disallow where it is False."""
    s = base.score(call)
    return s if call.mask is None else s + call.mask * (call.j + 1).astype(s.dtype)


@wrong("by_mask", "MASK-1", "H")
def square_mask_transposed(call: Attention) -> Any:
    """Read a mask by columns, where there are as many queries as keys."""
    square = call.queries == call.keys
    turned = alter(call, mask=lambda mask: np.swapaxes(mask, -1, -2) if mask.ndim > 1 else mask)
    return base.by_mask(turned if square else call)


@wrong("by_causality", "MASK-3", "A", "microsoft/onnxruntime#29020")
def causal_bottom_right(call: Attention) -> Any:
    """Align the last query with the last key though no offset says so."""
    ends = call.keys - call.queries if np.all(np.asarray(call.query_offset) == 0) else 0
    return call.j <= base.position(call) + ends if call.is_causal else True


@wrong("by_causality", "MASK-3", "G")
def causal_by_tiles_past_the_first(call: Attention) -> Any:
    """Allow the whole tile of 16 keys on the diagonal, but for the first."""
    start = np.where(call.j < 16, call.j, call.j // 16 * 16)
    return start <= base.position(call) if call.is_causal else True


@wrong("attend", "MASK-5", "C", "microsoft/onnxruntime#14363")
def filled_with_minus_ten_thousand(call: Attention) -> Any:
    """Give disallowed keys the score -10000 and go on."""
    allowed = base.allowed_pairs(call)
    s = np.where(allowed, base.score(call), np.float32(-10000))
    p, lse = base.softmax_of(call, s, np.ones_like(allowed))
    return base.weighted_sum(call, base.drop(call, p), allowed), lse, base.drop(call, p)


@wrong("exponentials", "MASK-5", "G")
def disallowed_keys_of_the_last_tile(_call: Attention, s: Array, allowed: Mask, top: Array) -> Any:
    """Mask only whole tiles of 16 keys, and allow the remainder."""
    whole = np.arange(s.shape[-1]) < s.shape[-1] // 16 * 16
    seen = np.where(whole | (s.shape[-1] <= 16), allowed, allowed.any(axis=-1, keepdims=True))
    return np.where(seen, np.exp(s - top), 0)


@wrong("allowed_pairs", "NUM-3", "G")
def last_key_of_an_odd_last_row(call: Attention) -> Any:
    """Lose the last key of the last query, where there is an odd number of them past eight."""
    seen = np.broadcast_to(base.allowed_pairs(call), call.shape).copy()
    if call.queries > 8 and call.queries % 2 and call.keys > 1:
        seen[..., -1, -1] = False
    return seen


@wrong("attend", "SOFT-7", "M")
def sink_of_padded_queries_dropped(call: Attention) -> Any:
    """Give queries past their length the lse minus infinity, though there is a sink."""
    output, lse, p = base.attend(call)
    past = np.broadcast_to(~np.asarray(base.by_query_lengths(call))[..., 0], lse.shape)
    return output, lse if call.query_lengths is None else np.where(past, -np.inf, lse).astype(lse.dtype), p


@wrong("by_segments", "MASK-11", "H")
def segments_of_the_queries_for_keys(call: Attention) -> Any:
    """Read the segments of the keys from those of the queries, again from the first where they end."""
    ids = call.query_segment_ids
    if ids is None or not ids.shape[-1]:
        return base.by_segments(call)
    return base.by_segments(call.but(key_segment_ids=np.take(ids, call.j % ids.shape[-1], axis=-1)))


@wrong("attend", "MASK-1", "R")
def scores_multiplied_by_the_mask(call: Attention) -> Any:
    """Multiply the scores by the mask, so that disallowed keys have the score 0."""
    if call.mask is None:
        return base.attend(call)
    s, allowed = base.score(call) * call.mask, base.allowed_pairs(call.but(mask=None))
    p, lse = base.softmax_of(call, s, allowed)
    p = base.drop(call, p)
    return base.weighted_sum(call, p, allowed), lse, p


@wrong("by_mask", "MASK-1", "H")
def mask_of_keys_along_the_queries(call: Attention) -> Any:
    """Align a mask of one axis with the queries, where it fits there."""
    turned = alter(call, mask=lambda mask: mask[:, None] if mask.shape == (call.queries,) else mask)
    return base.by_mask(turned)
