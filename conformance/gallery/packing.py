"""Wrong about sequences that lie in one row."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import Array, base, rows, wrong
from attnspec.reference.call import Arguments, Call
from attnspec.reference.gradients_of_forms import PackedGradients
from attnspec.reference.packing import Packed

_STARTS = ("query_starts", "key_starts")

ENTRIES = rows(
    ("rows_past_the_end_in_the_last_sequence", "sequence_of_row", "PACK-3", "V",
     lambda call, starts, rows: np.minimum(base.sequence_of_row(call, starts, rows), max(len(starts) - 2, 0)),
     "Count rows past the last boundary to the last sequence.", "Dao-AILab/flash-attention#1661"),
    ("sink_in_rows_past_the_end", "sequence_results", "PACK-3", "M",
     lambda call, output, lse: (base.sequence_results(call, output, lse)[0], lse),
     "Give rows of no sequence the lse of their sink."),
    ("causal_from_the_beginning_of_the_row", "place_in_sequence", "PACK-5", "A",
     lambda _call, _starts, rows: np.arange(rows),
     "Count positions from the beginning of the row, for queries and keys."),
    ("window_not_moved_by_the_offset", "by_window", "PACK-5", "E",
     lambda call: base.by_window(call.but(offsets=0) if isinstance(call, Packed) else call),
     "Apply the offsets of sequences to causality, and not to the window."),
    ("cotangents_past_the_end_counted", "without_the_rest", "PACK-7", "W", base.within_sequences,
     "Count the cotangents of the lse in rows of no sequence.", "NVIDIA/TransformerEngine#2186"),
    ("offset_of_the_first_sequence", "offset_of_row", "PACK-5", "H",
     lambda call, sequences: np.full(sequences.shape, np.asarray(call.offsets).ravel()[:1].sum(), np.int64),
     "Move all sequences by the offset of the first."),
    ("boundaries_sorted", "check_declared", "PACK-6", "U",
     lambda call, operation, given: base.check_declared(call, operation, given | {
         name: np.sort(given[name]) for name in _STARTS if np.ndim(given.get(name, 0)) == 1}),
     "Sort boundaries that decrease."),
)  # fmt: skip


@wrong("same_sequence", "PACK-1", "V", "pytorch/pytorch#177378")
def sequences_attend_to_each_other(call: Packed) -> Any:
    """Take the row for one sequence, from the first boundary to the last."""
    rows, keys = np.arange(call.queries)[:, None], np.arange(call.keys)
    return (rows < call.query_starts[-1]) & (keys < call.key_starts[-1])


@wrong("same_sequence", "PACK-1", "V")
def boundary_of_keys_included(call: Packed) -> Any:
    """Let a sequence read the first key of the next, because the end of its keys is included."""
    own = base.sequence_of_row(call, call.query_starts, call.queries)
    last = np.append(call.key_starts[1:], -1)[own][:, None]
    return base.same_sequence(call) | (np.arange(call.keys) == last) & (last < call.key_starts[-1])


@wrong("within_sequences", "PACK-1", "V")
def keys_by_the_boundaries_of_queries(call: Packed) -> Any:
    """Cut keys and values where the queries are cut, where that fits."""
    fits = call.query_starts[-1] <= call.keys
    return base.within_sequences(call.but(key_starts=call.query_starts) if fits else call)


@wrong("same_sequence", "PACK-1", "G")
def as_many_keys_as_the_first_sequence(call: Packed) -> Any:
    """Read no more keys of any sequence than the first has."""
    starts = call.key_starts
    most = starts[1] - starts[0] if len(starts) > 1 else 0
    return base.same_sequence(call) & (base.place_in_sequence(call, starts, call.keys) < most)


@wrong("same_sequence", "PACK-1", "G")
def part_of_a_tile_after_64_keys_dropped(call: Packed) -> Any:
    """Drop the keys of a sequence after its last whole tile of 64."""
    starts = call.key_starts
    lengths = np.append(np.diff(starts), 0)[base.sequence_of_row(call, starts, call.keys)]
    whole = np.where(lengths > 64, lengths // 64 * 64, lengths)
    return base.same_sequence(call) & (base.place_in_sequence(call, starts, call.keys) < whole)


@wrong("same_sequence", "PACK-1", "G")
def next_sequence_in_the_tile(call: Packed) -> Any:
    """Read whole tiles of 16 keys from the 17th key on, and so the beginning of the next sequence."""
    own = base.sequence_of_row(call, call.query_starts, call.queries)
    starts = call.key_starts
    lengths = np.append(np.diff(starts), 0)[own]
    ends = starts[own] + np.where(lengths > 16, -(-lengths // 16) * 16, lengths)
    inside = np.minimum(ends, starts[-1])[:, None]
    return base.same_sequence(call) | (np.arange(call.keys) >= starts[own][:, None]) & (
        np.arange(call.keys) < inside
    )


@wrong("within_sequences", "PACK-2", "O")
def sequences_without_queries_passed_over(call: Packed) -> Any:
    """Pass over sequences without queries, but not over their keys."""
    kept = np.flatnonzero(np.diff(call.query_starts)) + 1
    starts = np.concatenate([call.query_starts[:1], call.query_starts[kept]])
    starts = np.pad(starts, (0, len(call.query_starts) - len(starts)), mode="edge")
    return base.within_sequences(call.but(query_starts=starts))


@wrong("sequence_results", "PACK-2", "B", "Dao-AILab/flash-attention#2568")
def rows_of_a_sequence_without_keys_are_nan(call: Packed, output: Array, lse: Array) -> Any:
    """Divide 0 by 0 in a sequence that has queries and no keys."""
    output, lse = base.sequence_results(call, output, lse)
    own = base.sequence_of_row(call, call.query_starts, call.queries)
    none = (np.append(np.diff(call.key_starts), 1) == 0)[own]
    return np.where(none[:, None], np.nan, output), lse


@wrong("sequence_results", "PACK-2", "I")
def lse_of_a_sequence_without_keys_is_zero(call: Packed, output: Array, lse: Array) -> Any:
    """Leave 0 in the lse of rows whose sequence has no keys."""
    output, lse = base.sequence_results(call, output, lse)
    own = base.sequence_of_row(call, call.query_starts, call.queries)
    none = (np.append(np.diff(call.key_starts), 1) == 0)[own]
    return output, np.where(none, 0, lse)


@wrong("sequence_results", "PACK-3", "V", "Dao-AILab/flash-attention#1228")
def rows_past_the_end_not_written(call: Packed, output: Array, lse: Array) -> Any:
    """Leave in rows of no sequence what was in memory before."""
    output, lse = base.sequence_results(call, output, lse)
    past = np.arange(call.queries) >= call.query_starts[-1]
    return np.where(past[:, None], np.nan, output), lse


@wrong("sequence_results", "PACK-4", "G", "sgl-project/sglang#15757")
def nan_of_the_row_in_every_sequence(call: Packed, output: Array, lse: Array) -> Any:
    """Multiply values of other sequences by weights of 0."""
    output, lse = base.sequence_results(call, output, lse)
    others = (0 * call.value).sum(axis=-2, keepdims=True)
    heads = np.repeat(others, output.shape[-3] // max(others.shape[-3], 1), axis=-3)
    return output + heads, lse


@wrong("clear_rows", "PACK-4", "G")
def infinity_past_the_end_in_every_sequence(call: Packed, rows: Array, starts: Array) -> Any:
    """Multiply what lies past the last boundary by 0, and add it to the first row."""
    past = np.arange(rows.shape[-2]) >= starts[-1]
    leak = np.where(past[:, None], 0 * rows, 0).sum(axis=-2, keepdims=True)
    return base.clear_rows(call, rows, starts) + leak.astype(rows.dtype)


@wrong("offset_of_row", "PACK-5", "A", "Dao-AILab/flash-attention#1778")
def each_sequence_aligned_at_its_end(call: Packed, sequences: Array) -> Any:
    """Align the last query of each sequence with its last key, whatever the offset."""
    ahead = np.diff(call.key_starts) - np.diff(call.query_starts)
    return np.append(ahead, 0)[sequences]


@wrong("offset_of_row", "PACK-5", "A")
def sequences_aligned_by_the_longest(call: Packed, sequences: Array) -> Any:
    """Move all sequences by the longest number of keys less the longest number of queries."""
    longest = [int(np.diff(starts).max(initial=0)) for starts in (call.key_starts, call.query_starts)]
    return np.full(sequences.shape, longest[0] - longest[1], np.int64)


@wrong("check_declared", "PACK-6", "U")
def boundaries_clamped_to_the_row(call: Call, operation: str, given: Arguments) -> Any:
    """Take a boundary past the row for its end."""
    arrays = dict(zip(_STARTS, ("query", "key"), strict=True))
    taken = {
        name: np.minimum(given[name], given[array].shape[-2])
        for name, array in arrays.items()
        if array in given and getattr(given.get(name), "dtype", np.dtype(float)).kind in "iu"
    }
    return base.check_declared(call, operation, given | taken)


@wrong("check_declared", "PACK-6", "U")
def first_boundary_not_read(call: Call, operation: str, given: Arguments) -> Any:
    """Begin the first sequence at row 0, whatever the first boundary."""
    begun = {name: np.array(given[name]) for name in _STARTS if np.ndim(given.get(name, 0))}
    for starts in begun.values():
        starts[..., :1] = 0
    return base.check_declared(call, operation, given | begun)


@wrong("d_sinks", "PACK-7", "W")
def sink_collects_from_one_sequence(call: Any, lse: Array, delta: Array) -> Any:
    """Give a sink the gradient from the first sequence alone."""
    if not isinstance(call, PackedGradients) or len(call.query_starts) < 2:
        return base.d_sinks(call, lse, delta)
    end = int(call.query_starts[1])
    first = call.but(d_lse=call.d_lse[..., :end, :])
    return base.d_sinks(first, lse[..., :end], delta[..., :end, :])


@wrong("d_key", "PACK-7", "W", "pytorch/pytorch#176793")
def nan_of_a_cotangent_past_the_end(call: Any, u: Array, allowed: Array) -> Any:
    """Multiply cotangents of rows of no sequence by 0, so that NaN among them reaches every key."""
    result = base.d_key(call, u, allowed)
    return result + 0 * call.d_output.sum() if isinstance(call, PackedGradients) else result


@wrong("d_value", "PACK-7", "W")
def values_collect_in_float16(call: Call, p: Array, allowed: Array) -> Any:
    """Round the gradient of the values to half precision before it is returned, in packed calls."""
    result = base.d_value(call, p, allowed)
    return result.astype(np.float16).astype(result.dtype) if isinstance(call, PackedGradients) else result
