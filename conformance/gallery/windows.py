"""Wrong about offsets, windows, lengths and segments."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import altered, base, wrong
from attnspec.reference.notation import Attention, of_batch


@wrong("position", "MASK-7", "A")
def offset_of_the_first_batch_entry(call: Attention) -> Any:
    """Let all batch entries have the offset of the first."""
    return call.i + np.asarray(call.query_offset).ravel()[:1].sum()


@wrong("position", "MASK-7", "A")
def offset_subtracted(call: Attention) -> Any:
    """Move the queries the other way."""
    return call.i - of_batch(call.query_offset)


@wrong("position", "MASK-7", "A")
def negative_offset_taken_for_none(call: Attention) -> Any:
    """Let no query stand before the first key."""
    return call.i + np.maximum(of_batch(call.query_offset), 0)


@wrong("position", "MASK-7", "A", "flashinfer-ai/flashinfer#4382")
def offset_for_the_first_query_alone(call: Attention) -> Any:
    """Count the further queries of a step from 0 again."""
    return np.where(call.i == 0, of_batch(call.query_offset), call.i)


@wrong("by_window", "MASK-8", "E")
def window_without_the_offset(call: Attention) -> Any:
    """Move the causal diagonal by the offset and forget the window."""
    return base.by_window(call.but(query_offset=0))


@wrong("by_key_lengths", "MASK-9", "A")
def offset_added_to_the_key_lengths(call: Attention) -> Any:
    """Take key lengths for those of the new keys, after as many as the offset says."""
    moved = altered(call, key_lengths=lambda n: np.asarray(n) + np.asarray(call.query_offset))
    return base.by_key_lengths(moved)


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


@wrong("by_window", "MASK-8", "E")
def window_of_two_equal_sides(call: Attention) -> Any:
    """Take the left bound for both sides."""
    return base.by_window(altered(call, window=lambda window: (window[0], window[0])))


@wrong("by_window", "MASK-8", "E")
def window_implies_causal(call: Attention) -> Any:
    """Let no key after the query into a window."""
    return base.by_window(altered(call, window=lambda window: (window[0], 0)))


@wrong("by_window", "MASK-8", "E")
def bound_of_zero_taken_for_none(call: Attention) -> Any:
    """Ask whether a bound is given by asking whether it is true."""
    return base.by_window(altered(call, window=lambda window: (window[0] or None, window[1] or None)))


@wrong("by_window", "MASK-8", "E", "jax-ml/jax#32357")
def window_dropped_without_another_mask(call: Attention) -> Any:
    """Return early where neither mask nor causality is given."""
    early = call.mask is None and not call.is_causal
    return True if early else base.by_window(call)


@wrong("by_window", "MASK-8", "A")
def window_bottom_right(call: Attention) -> Any:
    """Align the last query with the last key for windows, though no offset says so."""
    none = np.all(np.asarray(call.query_offset) == 0)
    return base.by_window(call.but(query_offset=call.keys - call.queries) if none else call)


@wrong("by_key_lengths", "MASK-9", "G")
def key_at_the_length_allowed(call: Attention) -> Any:
    """Compare keys with their length by less or equal."""
    return base.by_key_lengths(altered(call, key_lengths=lambda n: np.asarray(n) + 1))


@wrong("by_key_lengths", "MASK-9", "H")
def key_length_of_the_first_batch_entry(call: Attention) -> Any:
    """Let all batch entries have the length of the first."""
    return base.by_key_lengths(altered(call, key_lengths=lambda n: np.asarray(n).ravel()[:1].sum()))


@wrong("by_key_lengths", "MASK-9", "B")
def key_length_of_zero_taken_for_none(call: Attention) -> Any:
    """Take a length of 0 for no length."""
    return base.by_key_lengths(call) | (of_batch(0 if call.key_lengths is None else call.key_lengths) == 0)


@wrong("by_key_lengths", "MASK-9", "A")
def keys_counted_from_the_right(call: Attention) -> Any:
    """Take padding to stand on the left."""
    return True if call.key_lengths is None else call.j >= call.keys - of_batch(call.key_lengths)


@wrong("by_key_lengths", "MASK-9", "G")
def key_lengths_by_pages_of_four(call: Attention) -> Any:
    """Round lengths up to whole pages of four keys."""
    return base.by_key_lengths(altered(call, key_lengths=lambda n: -(-np.asarray(n) // 4) * 4))


@wrong("by_query_lengths", "MASK-10", "B", "jax-ml/jax#23349")
def query_lengths_dropped(_call: Attention) -> Any:
    """Compute padding like any query."""
    return True


@wrong("by_query_lengths", "MASK-10", "G")
def query_at_the_length_computed(call: Attention) -> Any:
    """Compare queries with their length by less or equal."""
    return base.by_query_lengths(altered(call, query_lengths=lambda n: np.asarray(n) + 1))


@wrong("by_query_lengths", "MASK-10", "H")
def query_length_of_the_last_batch_entry(call: Attention) -> Any:
    """Let all batch entries have the length of the last."""
    return base.by_query_lengths(altered(call, query_lengths=lambda n: np.asarray(n).ravel()[-1:].sum()))


@wrong("by_segments", "MASK-11", "R")
def segment_zero_is_padding(call: Attention) -> Any:
    """Let the id 0 attend to nothing."""
    ids = call.key_segment_ids
    return base.by_segments(call) & (True if ids is None else ids[..., None, None, :] != 0)


@wrong("by_segments", "MASK-11", "R")
def segment_of_minus_one_for_all(call: Attention) -> Any:
    """Let all queries attend to keys of the id -1."""
    ids = call.key_segment_ids
    return base.by_segments(call) | (False if ids is None else ids[..., None, None, :] == -1)


@wrong("by_segments", "MASK-11", "N")
def segments_in_a_byte(call: Attention) -> Any:
    """Keep the last eight bits of an id."""
    low = {f"{axis}_segment_ids": lambda ids: ids.astype(np.int8) for axis in ("query", "key")}
    return base.by_segments(altered(call, **low))


@wrong("by_segments", "MASK-11", "R")
def segments_taken_to_be_sorted(call: Attention) -> Any:
    """Let a segment attend to those of smaller ids too."""
    if call.query_segment_ids is None or call.key_segment_ids is None:
        return True
    query, key = call.query_segment_ids, call.key_segment_ids
    return (query[..., :, None] >= key[..., None, :])[..., None, :, :]


@wrong("by_key_lengths", "MASK-9", "G")
def key_length_of_whole_tiles(call: Attention) -> Any:
    """Round a length up to a whole tile of 4 where there is no mask."""
    if call.mask is not None:
        return base.by_key_lengths(call)
    return base.by_key_lengths(altered(call, key_lengths=lambda n: -(-np.asarray(n) // 4) * 4))


@wrong("by_window", "MASK-6", "E")
def window_from_the_end_beside_lengths(call: Attention) -> Any:
    """Let the last query stand at the last key that a length leaves, and count the window from there."""
    if call.key_lengths is None or np.any(call.query_offset):
        return base.by_window(call)
    return base.by_window(call.but(query_offset=np.asarray(call.key_lengths) - call.queries))
