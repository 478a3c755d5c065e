"""Wrong about positions: offsets, causal alignment, windows and their bounds, and short integers."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import alter, base, rows, wrong
from attnspec.reference.notation import Attention, align_batch

ENTRIES = rows(
    ("offset_of_the_first_batch_entry", "position", "MASK-7", "A",
     lambda call: call.i + np.asarray(call.query_offset).ravel()[:1].sum(),
     "Let all batch entries have the offset of the first."),
    ("offset_subtracted", "position", "MASK-7", "A", lambda call: call.i - align_batch(call.query_offset),
     "Move the queries the other way."),
    ("negative_offset_taken_for_none", "position", "MASK-7", "A",
     lambda call: call.i + np.maximum(align_batch(call.query_offset), 0),
     "Let no query stand before the first key."),
    ("offset_for_the_first_query_alone", "position", "MASK-7", "A",
     lambda call: np.where(call.i == 0, align_batch(call.query_offset), call.i),
     "Count the further queries of a step from 0 again.", "flashinfer-ai/flashinfer#4382"),
    ("window_without_the_offset", "by_window", "MASK-8", "E",
     lambda call: base.by_window(call.but(query_offset=0)),
     "Move the causal diagonal by the offset and forget the window."),
    ("window_of_two_equal_sides", "by_window", "MASK-8", "E",
     lambda call: base.by_window(alter(call, window=lambda window: (window[0], window[0]))),
     "Take the left bound for both sides."),
    ("window_implies_causal", "by_window", "MASK-8", "E",
     lambda call: base.by_window(alter(call, window=lambda window: (window[0], 0))),
     "Let no key after the query into a window."),
    ("bound_of_zero_taken_for_none", "by_window", "MASK-8", "E",
     lambda call: base.by_window(alter(call, window=lambda window: (window[0] or None, window[1] or None))),
     "Ask whether a bound is given by asking whether it is true."),
    ("key_at_the_length_allowed", "by_key_lengths", "MASK-9", "G",
     lambda call: base.by_key_lengths(alter(call, key_lengths=lambda n: np.asarray(n) + 1)),
     "Compare keys with their length by less or equal."),
    ("key_length_of_the_first_batch_entry", "by_key_lengths", "MASK-9", "H",
     lambda call: base.by_key_lengths(alter(call, key_lengths=lambda n: np.asarray(n).ravel()[:1].sum())),
     "Let all batch entries have the length of the first."),
    ("keys_counted_from_the_right", "by_key_lengths", "MASK-9", "A",
     lambda call: True if call.key_lengths is None else call.j >= call.keys - align_batch(call.key_lengths),
     "Take padding to stand on the left."),
    ("key_lengths_by_pages_of_four", "by_key_lengths", "MASK-9", "G",
     lambda call: base.by_key_lengths(alter(call, key_lengths=lambda n: -(-np.asarray(n) // 4) * 4)),
     "Round lengths up to whole pages of four keys."),
    ("query_lengths_dropped", "by_query_lengths", "MASK-10", "B", lambda _call: True,
     "Compute padding like any query.", "jax-ml/jax#23349"),
    ("query_at_the_length_computed", "by_query_lengths", "MASK-10", "G",
     lambda call: base.by_query_lengths(alter(call, query_lengths=lambda n: np.asarray(n) + 1)),
     "Compare queries with their length by less or equal."),
    ("offset_in_thirty_two_bits", "position", "MASK-7", "N",
     lambda call: _short(base.position(call), np.int32),
     "Hold positions in 32 bits, which an offset may leave."),
    ("key_length_in_a_byte", "by_key_lengths", "MASK-9", "N",
     lambda call: base.by_key_lengths(alter(call, key_lengths=lambda n: _short(n, np.uint8))),
     "Take a length modulo 256."),
    ("query_length_in_a_byte", "by_query_lengths", "MASK-10", "N",
     lambda call: base.by_query_lengths(alter(call, query_lengths=lambda n: _short(n, np.uint8))),
     "Take the length of the queries modulo 256."),
    ("right_bound_dropped_where_the_left_is_open", "by_window", "MASK-8", "E",
     lambda call: True if _sides(call)[0] is None else base.by_window(call),
     "Ask for the left bound first, and pass over the right one where there is none."),
    ("left_bound_dropped_where_the_right_is_open", "by_window", "MASK-8", "E",
     lambda call: True if _sides(call)[1] is None else base.by_window(call),
     "Ask for the right bound first, and pass over the left one where there is none."),
    ("right_bound_without_effect", "by_window", "MASK-8", "E",
     lambda call: base.by_window(call.but(window=(_sides(call)[0], None))),
     "Use only the left bound of a window."),
    ("left_bound_without_effect", "by_window", "MASK-8", "E",
     lambda call: base.by_window(call.but(window=(None, _sides(call)[1]))),
     "Use only the right bound of a window."),
    ("sides_of_the_window_exchanged", "by_window", "MASK-8", "E",
     lambda call: base.by_window(alter(call, window=lambda pair: (pair[1], pair[0]))),
     "Take the first bound for the right one."),
    ("window_of_the_right_bound_on_both_sides", "by_window", "MASK-8", "E",
     lambda call: base.by_window(alter(call, window=lambda pair: (pair[1], pair[1]))),
     "Take the right bound for both sides."),
    ("open_side_taken_for_zero", "by_window", "MASK-8", "E",
     lambda call: base.by_window(alter(call, window=lambda pair: (pair[0] or 0, pair[1] or 0))),
     "Take None for no keys on that side."),
    ("open_left_side_taken_for_zero", "by_window", "MASK-8", "E",
     lambda call: base.by_window(alter(call, window=lambda pair: (pair[0] or 0, pair[1]))),
     "Take None on the left for no keys before the query."),
    ("left_bound_of_zero_taken_for_none", "by_window", "MASK-8", "E",
     lambda call: base.by_window(alter(call, window=lambda pair: (pair[0] or None, pair[1]))),
     "Ask whether the left bound is given by asking whether it is true."),
    ("right_bound_of_zero_taken_for_none", "by_window", "MASK-8", "E",
     lambda call: base.by_window(alter(call, window=lambda pair: (pair[0], pair[1] or None))),
     "Ask whether the right bound is given by asking whether it is true."),
    ("window_dropped_unless_causal", "by_window", "MASK-8", "E",
     lambda call: base.by_window(call) if call.is_causal else True,
     "Apply a window only under a causal mask."),
    ("window_or_causal", "by_window", "MASK-8", "E",
     lambda call: base.by_window(call.but(window=(None, _sides(call)[1])) if call.is_causal else call),
     "Leave the left bound out under a causal mask."),
    ("window_by_the_offset_subtracted", "by_window", "MASK-8", "A",
     lambda call: base.by_window(call.but(query_offset=-np.asarray(call.query_offset))),
     "Move windows by the offset the other way."),
    ("negative_offset_clipped_for_windows", "by_window", "MASK-7", "A",
     lambda call: base.by_window(call.but(query_offset=np.maximum(np.asarray(call.query_offset), 0))),
     "Take a negative offset for 0, as far as windows are concerned."),
    ("negative_offset_clipped_under_a_causal_mask", "by_causality", "MASK-7", "A",
     lambda call: base.by_causality(call.but(query_offset=np.maximum(np.asarray(call.query_offset), 0))),
     "Take a negative offset for 0, as far as the causal mask is concerned."),
    ("offset_without_effect", "position", "MASK-7", "A", lambda call: call.i,
     "Accept an offset and forget it."),
    ("offset_without_effect_on_causality", "by_causality", "MASK-7", "A",
     lambda call: base.by_causality(call.but(query_offset=0)),
     "Move windows by the offset and forget the causal diagonal."),
    ("offset_for_all_entries_alone", "position", "MASK-7", "A",
     lambda call: call.i + (align_batch(call.query_offset) if isinstance(call.query_offset, int) else 0),
     "Take one offset for all batch entries, and none where each has its own."),
    ("offset_for_each_entry_alone", "position", "MASK-7", "A",
     lambda call: call.i + (0 if isinstance(call.query_offset, int) else align_batch(call.query_offset)),
     "Take an offset for each batch entry, and none where there is one for all."),
    ("size_of_a_negative_offset", "position", "MASK-7", "A",
     lambda call: call.i + np.abs(align_batch(call.query_offset)),
     "Lose the sign of an offset."),
    ("causal_bottom_right_besides_the_offset", "by_causality", "MASK-3", "A",
     lambda call: call.j <= base.position(call) + call.keys - call.queries if call.is_causal else True,
     "Align the last query with the last key, and move the diagonal by the offset too."),
    ("causal_one_too_far", "by_causality", "MASK-3", "A",
     lambda call: call.j <= base.position(call) + 1 if call.is_causal else True,
     "Allow the key after the query's own."),
    ("key_positions_without_effect", "key_position", "MASK-14", "A", lambda call: call.j,
     "Accept positions of keys and compare their indices.", "huggingface/transformers#47708"),
    ("query_positions_without_effect", "position", "MASK-14", "A",
     lambda call: base.position(call.but(query_positions=None)),
     "Accept positions of queries and compare their indices."),
    ("key_positions_for_causality_alone", "by_window", "MASK-14", "E",
     lambda call: base.by_window(call.but(key_positions=None)),
     "Let the window count slots of a ring buffer."),
    ("key_positions_for_windows_alone", "by_causality", "MASK-14", "A",
     lambda call: base.by_causality(call.but(key_positions=None)),
     "Let causality count slots of a ring buffer."),
    ("query_positions_for_causality_alone", "by_window", "MASK-14", "E",
     lambda call: base.by_window(call.but(query_positions=None)),
     "Let the window count rows of a chunk."),
    ("key_positions_in_order", "key_position", "MASK-14", "A",
     lambda call: np.sort(base.key_position(call), axis=-1),
     "Take the keys for sorted by position."),
    ("key_positions_of_the_first_batch_entry", "key_position", "MASK-14", "H",
     lambda call: base.key_position(call) if call.key_positions is None
     else call.key_positions.reshape(-1, call.keys)[:1][None, None],
     "Read one row of positions for all batch entries."),
    ("query_positions_from_the_first", "position", "MASK-14", "A",
     lambda call: base.position(call) if call.query_positions is None
     else call.query_positions[..., None, :1, None] + call.i,
     "Take the queries for consecutive, from the position of the first.", "sgl-project/sglang#20278"),
    ("negative_key_positions_allowed", "by_key_positions", "MASK-15", "A", lambda _call: True,
     "Take a place without a key for a key before all queries.", "ollama/ollama#14912"),
    ("minus_one_alone_without_a_key", "by_key_positions", "MASK-15", "A",
     lambda call: True if call.key_positions is None else base.key_position(call) != -1,
     "Ask whether a position is -1, and take -7 for a position."),
    ("key_at_position_zero_taken_for_none", "by_key_positions", "MASK-15", "G",
     lambda call: True if call.key_positions is None else base.key_position(call) > 0,
     "Ask whether a position is true or positive."),
    ("window_dropped_without_another_mask", "by_window", "MASK-8", "E",
     lambda call: True if call.mask is None and (not call.is_causal) else base.by_window(call),
     "Return early where neither mask nor causality is given.", "jax-ml/jax#32357"),
    ("key_length_of_whole_tiles", "by_key_lengths", "MASK-9", "G",
     lambda call: base.by_key_lengths(call) if call.mask is not None
         else base.by_key_lengths(alter(call, key_lengths=lambda n: -(-np.asarray(n) // 4) * 4)),
     "Round a length up to a whole tile of 4 where there is no mask."),
    ("window_from_the_end_beside_lengths", "by_window", "MASK-6", "E",
     lambda call: base.by_window(call) if call.key_lengths is None or np.any(call.query_offset)
         else base.by_window(call.but(query_offset=np.asarray(call.key_lengths) - call.queries)),
     "Let the last query stand at the last key that a length leaves, and count the window from there."),
    ("causal_positions_in_a_byte", "by_causality", "MASK-3", "N",
     lambda call: True if not call.is_causal
         else _short(call.j, np.int8) <= _short(base.position(call), np.int8),
     "Compare positions in eight bits under a causal mask, so that the one after 127 is negative."),
    ("offset_added_to_the_key_lengths", "by_key_lengths", "MASK-9", "A",
     lambda call: base.by_key_lengths(alter(call,
         key_lengths=lambda n: np.asarray(n) + np.asarray(call.query_offset))),
     "Take key lengths for those of the new keys, after as many as the offset says."),
    ("key_length_of_zero_taken_for_none", "by_key_lengths", "MASK-9", "B",
     lambda call: base.by_key_lengths(call) | (align_batch(0 if call.key_lengths is None
         else call.key_lengths) == 0),
     "Take a length of 0 for no length."),
    ("query_length_of_the_last_batch_entry", "by_query_lengths", "MASK-10", "H",
     lambda call: base.by_query_lengths(alter(call,
         query_lengths=lambda n: np.asarray(n).ravel()[-1:].sum())),
     "Let all batch entries have the length of the last."),
    ("segment_zero_is_padding", "by_segments", "MASK-11", "R",
     lambda call: base.by_segments(call) & (True if call.key_segment_ids is None
         else call.key_segment_ids[..., None, None, :] != 0),
     "Let the id 0 attend to nothing."),
    ("segment_of_minus_one_for_all", "by_segments", "MASK-11", "R",
     lambda call: base.by_segments(call) | (False if call.key_segment_ids is None
         else call.key_segment_ids[..., None, None, :] == -1),
     "Let all queries attend to keys of the id -1."),
    ("segments_in_a_byte", "by_segments", "MASK-11", "N",
     lambda call: base.by_segments(alter(call,
         **{f"{axis}_segment_ids": lambda ids: ids.astype(np.int8) for axis in ("query", "key")})),
     "Keep the last eight bits of an id."),
    ("causal_bottom_right_where_keys_are_more", "by_causality", "MASK-3", "A",
     lambda call: call.j <= base.position(call) + (max(call.keys - call.queries, 0)
         if np.all(np.asarray(call.query_offset) == 0) else 0) if call.is_causal else True,
     "Align the last query with the last key, where there are more keys than queries and no offset."),
)  # fmt: skip


@wrong("by_window", "MASK-8", "E", "microsoft/onnxruntime#25927")
def window_without_its_left_bound(call: Attention) -> Any:
    """Take the left bound for a number of keys, the query's own among them."""
    open_ = call.window is None or call.window[0] is None
    return base.by_window(call) & (True if open_ else _after_left(call))


def _after_left(call: Attention) -> Any:
    left = call.window[0] if call.window else None
    return call.j > base.position(call) - (left or 0)


@wrong("by_window", "MASK-8", "E")
def window_without_its_right_bound(call: Attention) -> Any:
    """Leave the key at the right bound out, unless it is the query's base."""
    right = call.window[1] if call.window else None
    at = False if not right else call.j == base.position(call) + right
    return base.by_window(call) & ~np.asarray(at)


@wrong("by_window", "MASK-8", "A")
def window_bottom_right(call: Attention) -> Any:
    """Align the last query with the last key for windows, though no offset says so."""
    none = np.all(np.asarray(call.query_offset) == 0)
    return base.by_window(call.but(query_offset=call.keys - call.queries) if none else call)


@wrong("by_segments", "MASK-11", "R")
def segments_taken_to_be_sorted(call: Attention) -> Any:
    """Let a segment attend to those of smaller ids too."""
    if call.query_segment_ids is None or call.key_segment_ids is None:
        return True
    query, key = call.query_segment_ids, call.key_segment_ids
    return (query[..., :, None] >= key[..., None, :])[..., None, :, :]


def _short(numbers: Any, dtype: Any) -> Any:
    return np.asarray(numbers).astype(dtype).astype(np.int64)


@wrong("by_window", "MASK-8", "N")
def window_positions_in_a_byte(call: Attention) -> Any:
    """Count keys and queries modulo 256 within a window."""
    if call.window is None:
        return True
    left, right = call.window
    ahead = _short(call.j, np.uint8) - _short(base.position(call), np.uint8)
    after = True if left is None else ahead >= -left
    return after & (True if right is None else ahead <= right)


@wrong("by_segments", "MASK-11", "N")
def segments_in_half(call: Attention) -> Any:
    """Compare ids in half precision, which has no odd numbers past 2048."""
    with np.errstate(over="ignore"):
        half = {f"{axis}_segment_ids": lambda ids: ids.astype(np.float16) for axis in ("query", "key")}
        return base.by_segments(alter(call, **half))


def _sides(call: Attention) -> tuple[Any, Any]:
    left, right = call.window or (None, None)
    return left, right


@wrong("by_window", "MASK-8", "E")
def right_bound_one_too_far(call: Attention) -> Any:
    """Allow one more key on the right of a window."""
    return base.by_window(
        alter(call, window=lambda pair: (pair[0], None if pair[1] is None else pair[1] + 1))
    )


@wrong("by_window", "MASK-8", "E")
def left_bound_one_too_far(call: Attention) -> Any:
    """Allow one more key on the left of a window."""
    return base.by_window(
        alter(call, window=lambda pair: (None if pair[0] is None else pair[0] + 1, pair[1]))
    )


@wrong("by_window", "MASK-8", "E")
def right_bound_one_too_near(call: Attention) -> Any:
    """Compare with the right bound by `<`, so that a bound of 0 disallows the query's own key."""
    right = _sides(call)[1]
    return base.by_window(call) & (True if right is None else call.j < base.position(call) + right)


@wrong("by_window", "MASK-8", "E")
def window_of_the_larger_bound(call: Attention) -> Any:
    """Compare the distance of key and query with the larger bound."""
    left, right = _sides(call)
    most = None if left is None or right is None else max(left, right)
    return base.by_window(call.but(window=(most, most)))


@wrong("position", "MASK-7", "A")
def offset_one_too_far(call: Attention) -> Any:
    """Let queries after a cache see one key more."""
    offset = np.asarray(align_batch(call.query_offset))
    return call.i + offset + (offset > 0)


@wrong("position", "MASK-7", "A")
def offset_one_too_near(call: Attention) -> Any:
    """Take an offset for the position of the last key that the cache holds."""
    offset = np.asarray(align_batch(call.query_offset))
    return call.i + offset - (offset > 0)


@wrong("position", "MASK-9", "A")
def last_query_at_the_key_length(call: Attention) -> Any:
    """Let the last query stand at the last key that a length leaves, where the offset is 0."""
    offset = np.asarray(align_batch(call.query_offset))
    ends = 0 if call.key_lengths is None else align_batch(call.key_lengths) - call.queries
    return call.i + np.where(offset == 0, ends, offset)


@wrong("position", "MASK-9", "A")
def offset_replaced_by_the_key_length(call: Attention) -> Any:
    """Let the last query stand at the last key that a length leaves, whatever the offset."""
    lengths = call.key_lengths
    return base.position(call) if lengths is None else call.i + align_batch(lengths) - call.queries
