"""Wrong about the positions of queries among the keys: offsets, and the alignment of causal masks."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import base, wrong
from attnspec.reference.notation import Attention, of_batch


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
