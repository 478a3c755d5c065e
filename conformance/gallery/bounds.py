"""Wrong about where a mask begins and ends: causal masks, windows, offsets, lengths."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import altered, base, wrong
from attnspec.reference.notation import Attention, of_batch


def _sides(call: Attention) -> tuple[Any, Any]:
    left, right = call.window or (None, None)
    return left, right


@wrong("by_window", "MASK-8", "E")
def right_bound_dropped_where_the_left_is_open(call: Attention) -> Any:
    """Ask for the left bound first, and pass over the right one where there is none."""
    return True if _sides(call)[0] is None else base.by_window(call)


@wrong("by_window", "MASK-8", "E")
def left_bound_dropped_where_the_right_is_open(call: Attention) -> Any:
    """Ask for the right bound first, and pass over the left one where there is none."""
    return True if _sides(call)[1] is None else base.by_window(call)


@wrong("by_window", "MASK-8", "E")
def right_bound_without_effect(call: Attention) -> Any:
    """Look at the left bound of a window alone."""
    return base.by_window(call.but(window=(_sides(call)[0], None)))


@wrong("by_window", "MASK-8", "E")
def left_bound_without_effect(call: Attention) -> Any:
    """Look at the right bound of a window alone."""
    return base.by_window(call.but(window=(None, _sides(call)[1])))


@wrong("by_window", "MASK-8", "E")
def right_bound_one_too_far(call: Attention) -> Any:
    """Allow one more key on the right of a window."""
    return base.by_window(
        altered(call, window=lambda pair: (pair[0], None if pair[1] is None else pair[1] + 1))
    )


@wrong("by_window", "MASK-8", "E")
def left_bound_one_too_far(call: Attention) -> Any:
    """Allow one more key on the left of a window."""
    return base.by_window(
        altered(call, window=lambda pair: (None if pair[0] is None else pair[0] + 1, pair[1]))
    )


@wrong("by_window", "MASK-8", "E")
def right_bound_one_too_near(call: Attention) -> Any:
    """Compare with the right bound by less, so that a bound of 0 leaves the query's own key out."""
    right = _sides(call)[1]
    return base.by_window(call) & (True if right is None else call.j < base.position(call) + right)


@wrong("by_window", "MASK-8", "E")
def sides_of_the_window_exchanged(call: Attention) -> Any:
    """Take the first bound for the right one."""
    return base.by_window(altered(call, window=lambda pair: (pair[1], pair[0])))


@wrong("by_window", "MASK-8", "E")
def window_of_the_right_bound_on_both_sides(call: Attention) -> Any:
    """Take the right bound for both sides."""
    return base.by_window(altered(call, window=lambda pair: (pair[1], pair[1])))


@wrong("by_window", "MASK-8", "E")
def open_side_taken_for_zero(call: Attention) -> Any:
    """Take None for no keys on that side."""
    return base.by_window(altered(call, window=lambda pair: (pair[0] or 0, pair[1] or 0)))


@wrong("by_window", "MASK-8", "E")
def open_left_side_taken_for_zero(call: Attention) -> Any:
    """Take None on the left for no keys before the query."""
    return base.by_window(altered(call, window=lambda pair: (pair[0] or 0, pair[1])))


@wrong("by_window", "MASK-8", "E")
def left_bound_of_zero_taken_for_none(call: Attention) -> Any:
    """Ask whether the left bound is given by asking whether it is true."""
    return base.by_window(altered(call, window=lambda pair: (pair[0] or None, pair[1])))


@wrong("by_window", "MASK-8", "E")
def right_bound_of_zero_taken_for_none(call: Attention) -> Any:
    """Ask whether the right bound is given by asking whether it is true."""
    return base.by_window(altered(call, window=lambda pair: (pair[0], pair[1] or None)))


@wrong("by_window", "MASK-8", "E")
def window_of_the_larger_bound(call: Attention) -> Any:
    """Compare the distance of key and query with the larger bound."""
    left, right = _sides(call)
    most = None if left is None or right is None else max(left, right)
    return base.by_window(call.but(window=(most, most)))


@wrong("by_window", "MASK-8", "E")
def window_dropped_unless_causal(call: Attention) -> Any:
    """Build windows inside of the causal mask, and nowhere else."""
    return base.by_window(call) if call.is_causal else True


@wrong("by_window", "MASK-8", "E")
def window_or_causal(call: Attention) -> Any:
    """Leave the left bound out under a causal mask."""
    return base.by_window(call.but(window=(None, _sides(call)[1])) if call.is_causal else call)


@wrong("by_window", "MASK-8", "A")
def window_by_the_offset_subtracted(call: Attention) -> Any:
    """Move windows by the offset the other way."""
    return base.by_window(call.but(query_offset=-np.asarray(call.query_offset)))


@wrong("by_window", "MASK-7", "A")
def negative_offset_clipped_for_windows(call: Attention) -> Any:
    """Take a negative offset for 0, as far as windows are concerned."""
    return base.by_window(call.but(query_offset=np.maximum(np.asarray(call.query_offset), 0)))


@wrong("by_causality", "MASK-7", "A")
def negative_offset_clipped_under_a_causal_mask(call: Attention) -> Any:
    """Take a negative offset for 0, as far as the causal mask is concerned."""
    return base.by_causality(call.but(query_offset=np.maximum(np.asarray(call.query_offset), 0)))


@wrong("position", "MASK-7", "A")
def offset_without_effect(call: Attention) -> Any:
    """Accept an offset and forget it."""
    return call.i


@wrong("by_causality", "MASK-7", "A")
def offset_without_effect_on_causality(call: Attention) -> Any:
    """Move windows by the offset and forget the causal diagonal."""
    return base.by_causality(call.but(query_offset=0))


@wrong("position", "MASK-7", "A")
def offset_for_all_entries_alone(call: Attention) -> Any:
    """Take one offset for all batch entries, and none where each has its own."""
    return call.i + (of_batch(call.query_offset) if isinstance(call.query_offset, int) else 0)


@wrong("position", "MASK-7", "A")
def offset_for_each_entry_alone(call: Attention) -> Any:
    """Take an offset for each batch entry, and none where there is one for all."""
    return call.i + (0 if isinstance(call.query_offset, int) else of_batch(call.query_offset))


@wrong("position", "MASK-7", "A")
def size_of_a_negative_offset(call: Attention) -> Any:
    """Lose the sign of an offset."""
    return call.i + np.abs(of_batch(call.query_offset))


@wrong("position", "MASK-7", "A")
def offset_one_too_far(call: Attention) -> Any:
    """Let queries after a cache see one key more."""
    offset = np.asarray(of_batch(call.query_offset))
    return call.i + offset + (offset > 0)


@wrong("position", "MASK-7", "A")
def offset_one_too_near(call: Attention) -> Any:
    """Take an offset for the position of the last key that the cache holds."""
    offset = np.asarray(of_batch(call.query_offset))
    return call.i + offset - (offset > 0)


@wrong("position", "MASK-9", "A")
def last_query_at_the_key_length(call: Attention) -> Any:
    """Let the last query stand at the last key that a length leaves, where the offset is 0."""
    offset = np.asarray(of_batch(call.query_offset))
    ends = 0 if call.key_lengths is None else of_batch(call.key_lengths) - call.queries
    return call.i + np.where(offset == 0, ends, offset)


@wrong("position", "MASK-9", "A")
def offset_replaced_by_the_key_length(call: Attention) -> Any:
    """Let the last query stand at the last key that a length leaves, whatever the offset."""
    lengths = call.key_lengths
    return base.position(call) if lengths is None else call.i + of_batch(lengths) - call.queries


@wrong("by_causality", "MASK-3", "A")
def causal_bottom_right_where_keys_are_more(call: Attention) -> Any:
    """Align the last query with the last key, where there are more keys than queries and no offset."""
    ends = max(call.keys - call.queries, 0) if np.all(np.asarray(call.query_offset) == 0) else 0
    return call.j <= base.position(call) + ends if call.is_causal else True


@wrong("by_causality", "MASK-3", "A")
def causal_bottom_right_besides_the_offset(call: Attention) -> Any:
    """Align the last query with the last key, and move the diagonal by the offset too."""
    return call.j <= base.position(call) + call.keys - call.queries if call.is_causal else True


@wrong("by_causality", "MASK-3", "A")
def causal_one_too_far(call: Attention) -> Any:
    """Allow the key after the query's own."""
    return call.j <= base.position(call) + 1 if call.is_causal else True
