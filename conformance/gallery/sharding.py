"""Wrong about the shards of queries and keys: positions, sizes, empty parts, sinks."""

from collections.abc import Callable

import numpy as np

from attnspec.conformance.gallery.bases.over_ranks import (
    Steps,
    changed,
    collected,
    folded,
    is_own,
    over_ranks,
    visited,
    with_sink,
)
from attnspec.conformance.gallery.bases.ranks import GATHER, RING, TREE, Mesh, Pair, Rank, merged, sunk
from attnspec.conformance.gallery.entry import Array, base
from attnspec.reference.call import Mask
from attnspec.reference.notation import Attention


def _average(_rank: Rank, one: Pair, other: Pair) -> Pair:
    output, lse = merged(_rank, one, other)
    some = [np.where(lse == -np.inf, 0.0, 1.0) for _, lse in (one, other)]
    count = np.maximum(some[0] + some[1], 1)
    return ((one[0] * some[0] + other[0] * some[1]) / count).astype(output.dtype), lse


WHOLE = over_ranks(
    ("ring_of_one_step_too_few", RING, "SHARD-1", "G", "Leave out the last step of the ring.",
     visited(lambda every, _mesh, _rank: every[:-1] or every)),
    ("own_shard_visited_twice", RING, "SHARD-1", "G",
     "Attend to the own shard before the first step, and in it.",
     visited(lambda every, _mesh, _rank: [*every, *every[:1]] if len(every) > 1 else every)),
    ("own_shard_alone", RING, "SHARD-1", "G", "Let each rank attend to its own keys only.",
     visited(lambda every, _mesh, _rank: every[:1])),
    ("shards_averaged", RING, "SHARD-1", "I",
     "Take the mean of the outputs of the shards.", {"merged": _average}),
    ("shards_added", TREE, "SHARD-1", "I", "Add up the outputs of the shards.",
     {"merged": lambda rank, one, other: (one[0] + other[0], merged(rank, one, other)[1])}),
    ("last_shard_kept", RING, "SHARD-1", "I", "Overwrite the output in each step.",
     folded(lambda whole, parts: (parts[-1][0], whole[1]))),
    ("values_a_step_behind", RING, "SHARD-1", "G", "Send the values of the next step before they are used.",
     changed(lambda call, _rank, _columns: call.but(value=np.roll(call.value, 1, axis=-2)))),
    ("softcap_in_the_own_shard_alone", RING, "SHARD-1", "F",
     "Apply the softcap in the first step of the ring only.",
     changed(lambda call, rank, columns: call if is_own(rank, columns) else call.but(softcap=None))),
    ("scale_in_the_own_shard_alone", RING, "SHARD-1", "K",
     "Use the default scale in all steps but the first.",
     changed(lambda call, rank, columns: call if is_own(rank, columns) else call.but(scale=None))),
    ("shares_of_the_first_shard", RING, "SHARD-1", "I",
     "Divide by the share of the first part after each merge.",
     {"merged": lambda rank, one, other: (
         one[0] + other[0] * np.exp(np.minimum(other[1] - np.where(one[1] == -np.inf, 0, one[1]), 80)),
         merged(rank, one, other)[1])}),
    ("rank_0_before_the_others", RING, "SHARD-1", "T", "Let rank 0 answer after its first step.",
     visited(lambda every, _mesh, rank: every[:1] if rank.shard == 0 else every)),
)  # fmt: skip


def local_places(call: Attention, columns: Array) -> Attention:
    """Count queries and keys from 0 in their shard. A key that is none stays so."""
    del columns
    places = np.where(call.key_positions < 0, -1, np.arange(call.keys))
    return call.but(query_positions=np.broadcast_to(np.arange(call.queries), call.query_positions.shape),
                    key_positions=places)  # fmt: skip


def _in_dtype(dtype: str) -> Steps:
    def narrow(call: Attention, _rank: Rank, _columns: Array) -> Attention:
        with np.errstate(over="ignore", invalid="ignore"):
            query, key = (
                x.astype(dtype).astype(np.int64) for x in (call.query_positions, call.key_positions)
            )
        return call.but(query_positions=query, key_positions=np.where(call.key_positions < 0, -1, abs(key)))

    return changed(narrow)


def _by_number(call: Attention, rank: Rank, columns: Array) -> Attention:
    """Mask later shards, and nothing in earlier ones."""
    if not call.is_causal or is_own(rank, columns) or not len(columns):
        return call
    later = columns[0] >= rank.mesh.keys[rank.shard + 1]
    return call.but(is_causal=False, mask=np.zeros(call.shape, bool) if later else call.mask)


def _needed_by_first(call: Attention, _rank: Rank) -> bool:
    """Skip a causal step whose first key comes after the first query."""
    if not (call.is_causal and call.keys and call.queries and call.key_positions.size):
        return True
    return bool(call.key_positions[..., 0].min() <= call.query_positions[..., 0].min())


def _counted_from_the_first(call: Attention, _rank: Rank, _columns: Array) -> Attention:
    first = call.query_positions[..., :1]
    return call.but(query_positions=first + np.arange(call.queries))


POSITIONS = over_ranks(
    ("positions_count_in_each_shard", RING, "SHARD-2", "A", "Count queries and keys from 0 in each shard.",
     changed(lambda call, _rank, columns: local_places(call, columns))),
    ("queries_count_in_each_shard", GATHER, "SHARD-2", "A",
     "Count queries from 0 on each rank, and keys in the whole.",
     {"block": lambda call, rank, columns: GATHER.block(call, rank, columns).but(
         query_positions=np.broadcast_to(np.arange(len(rank.rows)), (*call.batch, len(rank.rows))))}),
    ("keys_count_in_each_shard", RING, "SHARD-2", "A",
     "Count keys from 0 in each shard, and queries in the whole.",
     changed(lambda call, _rank, columns: call.but(key_positions=local_places(call, columns).key_positions))),
    ("window_by_local_positions", RING, "SHARD-2", "E",
     "Count positions for the window from 0 in each shard.",
     {"seen": lambda call, _rank: np.broadcast_to(base.allowed_pairs(call.but(window=None))
         & base.by_window(local_places(call, np.arange(0))), call.shape)}),
    ("window_dropped_over_ranks", RING, "SHARD-2", "E", "Attend without the window.",
     changed(lambda call, _rank, _columns: call.but(window=None)), "PrimeIntellect-ai/prime-rl#2828"),
    ("window_in_the_own_shard_alone", RING, "SHARD-2", "E",
     "Apply the window in the first step of the ring only.",
     changed(lambda call, rank, columns: call if is_own(rank, columns) else call.but(window=None))),
    ("window_ends_at_the_shard_before", RING, "SHARD-2", "E",
     "Attend to the own shard and to the one before it if there is a window.",
     changed(lambda call, rank, columns: call if call.window is None or is_own(rank, columns)
         or (len(columns) and columns[-1] + 1 == rank.mesh.keys[rank.shard]) else call.but(
             mask=np.zeros(call.shape, bool)))),
    ("window_moved_by_the_step", RING, "SHARD-2", "E",
     "Move the left bound of the window by the size of the shard.",
     changed(lambda call, rank, columns: call if call.window is None or call.window[0] is None
         or is_own(rank, columns) else call.but(window=(max(call.window[0] - call.keys, 0), call.window[1]))),
     "open-lm-engine/lm-engine#447"),
    ("causal_by_the_number_of_the_shard", RING, "SHARD-2", "A",
     "Leave out later shards, and mask nothing in earlier ones.", changed(_by_number)),
    ("needed_step_skipped", RING, "SHARD-2", "A", "Skip a step whose first key is after the first query.",
     {"needed": _needed_by_first}),
    ("causality_dropped_over_ranks", TREE, "SHARD-2", "A", "Attend to later keys of all shards but the own.",
     changed(lambda call, rank, columns: call if is_own(rank, columns) else call.but(is_causal=False)),
     "NVIDIA/TensorRT-LLM#13821"),
    ("positions_of_ranks_in_int32", RING, "SHARD-2", "N", "Hold positions in 32 bits.", _in_dtype("int32")),
    ("positions_of_ranks_in_float32", GATHER, "SHARD-2", "N",
     "Hold positions in float32.", _in_dtype("float32")),
    ("positions_follow_the_first_of_a_rank", RING, "SHARD-2", "A",
     "Let the queries of a rank follow the first of them without a gap.", changed(_counted_from_the_first)),
    ("filling_up_is_counted", RING, "SHARD-2", "G", "Count keys at position -1, which fill up a shard.",
     changed(lambda call, _rank, _columns: call.but(key_positions=np.abs(call.key_positions)))),
    ("offset_on_the_first_rank_alone", RING, "SHARD-2", "A",
     "Move the queries of the first rank by the offset only.",
     changed(lambda call, rank, _columns: call.but(query_positions=np.broadcast_to(
         rank.rows, call.query_positions.shape)) if rank.shard else call)),
    ("sliding_window_over_whole_shards", RING, "SHARD-2", "E",
     "Attend to all keys of a shard of which one is in the window.",
     {"seen": lambda call, _rank: np.broadcast_to(base.allowed_pairs(call.but(window=None)) & np.broadcast_to(
         base.by_window(call), call.shape).any(axis=-1, keepdims=True), call.shape)}),
)  # fmt: skip


def _truncated(size: Callable[[Mesh, int], int]) -> Steps:
    """Keep the first keys of every shard."""
    return {"visits": lambda mesh, rank: [x[: size(mesh, mesh.keys[-1])] for x in RING.visits(mesh, rank)]}


def _lse_of_no_keys(call: Attention, rank: Rank, allowed: Mask) -> Pair:
    output, lse = RING.partial(call, rank, allowed)
    return output, lse if call.keys else np.zeros_like(lse)


def _filled_up(call: Attention, _rank: Rank, allowed: Mask) -> Pair:
    """Add keys of 0 up to the size of the largest shard."""
    output, lse = RING.partial(call, _rank, allowed)
    most = max(np.diff(_rank.mesh.keys), default=0)
    more = np.where((call.keys < most) & (lse > -np.inf), np.log(max(most - call.keys, 1)), -np.inf)
    return merged(_rank, (output, lse), (np.zeros_like(output), more.astype(lse.dtype)))


def _rows_below(mesh: Mesh, results: list[tuple[Rank, Array]]) -> list[tuple[Rank, Array]]:
    """Keep as many rows of each rank as all of them have."""
    least = min(np.diff(mesh.queries), default=0)
    return [(rank, np.where(np.arange(x.shape[-2])[:, None] < least, x, 0)) for rank, x in results]


SIZES = over_ranks(
    ("uneven_tail_dropped", RING, "SHARD-3", "G", "Give every shard as many keys as divide evenly.",
     _truncated(lambda mesh, keys: keys // max(mesh.shards, 1)), "NVIDIA/TransformerEngine#1930"),
    ("shards_as_long_as_the_first", RING, "SHARD-3", "G", "Read as many keys of each shard as the first has.",
     _truncated(lambda mesh, _keys: mesh.keys[1] - mesh.keys[0])),
    ("tail_filled_up_with_zeros", RING, "SHARD-3", "G", "Fill up shards with keys of 0, and count them.",
     {"partial": _filled_up}),
    ("rows_of_the_tail_are_zero", RING, "SHARD-3", "G",
     "Compute as many rows on each rank as the shortest has.",
     collected(_rows_below), "NVIDIA/Megatron-LM#1669"),
    ("empty_shard_has_an_lse_of_0", TREE, "SHARD-3", "O", "Take 0 for the lse of a shard without keys.",
     {"partial": _lse_of_no_keys}),
    ("rank_without_keys_stays_out", RING, "SHARD-3", "O",
     "Let a rank without keys of its own return nothing.",
     visited(lambda every, _mesh, _rank: every if len(every[0]) else every[:1])),
    ("ring_ends_at_an_empty_shard", RING, "SHARD-3", "O", "End the ring at the first shard without keys.",
     visited(lambda every, _mesh, _rank: every[: ([*map(len, every), 0].index(0)) or 1])),
    ("one_key_of_each_shard_lost", RING, "SHARD-3", "G",
     "Leave out the last key of each shard that has several.",
     visited(lambda every, _mesh, _rank: [x[:-1] if len(x) > 2 else x for x in every])),
)  # fmt: skip


def _bare_merge(_rank: Rank, one: Pair, other: Pair) -> Pair:
    """Merge by the difference of the lses."""
    (a, x), (b, y) = one, other
    with np.errstate(invalid="ignore", over="ignore"):
        share = 1 / (1 + np.exp(y - x))
        return a * share + b * (1 - share), (x - np.log(share)).astype(x.dtype)


def _of_nothing(change: Callable[[Pair, Array, Attention, Mask], Pair]) -> Steps:
    """Change the partial result of rows without an allowed key."""

    def partial(call: Attention, rank: Rank, allowed: Mask) -> Pair:
        pair = RING.partial(call, rank, allowed)
        return change(pair, ~allowed.any(axis=-1, keepdims=True) & (call.keys > 0), call, allowed)

    return {"partial": partial}


def _mean_of_nothing(pair: Pair, none: Array, call: Attention, _allowed: Mask) -> Pair:
    if not call.keys:
        return pair
    mean = base.repeat_heads(call, call.value).mean(axis=-2, keepdims=True)
    least = np.finfo(np.float32).min / 4
    output = np.where(none, mean, pair[0]).astype(pair[0].dtype)
    return output, np.where(none, least, pair[1]).astype(pair[1].dtype)


NOTHING = over_ranks(
    ("two_empty_parts_are_nan", RING, "SHARD-4", "B",
     "Merge by the difference of two lses, which may be infinite.",
     {"merged": _bare_merge}),
    ("empty_part_is_a_mean", RING, "SHARD-4", "B",
     "Take the mean of a shard where a row may attend to none of it.",
     _of_nothing(_mean_of_nothing)),
    ("empty_part_has_an_lse_of_0", RING, "SHARD-4", "B",
     "Take 0 for the lse of a row without an allowed key.",
     _of_nothing(lambda pair, none, _call, _allowed: (
         pair[0], np.where(none, 0, pair[1]).astype(pair[1].dtype)))),
    ("empty_part_divided_by_0", TREE, "SHARD-4", "B",
     "Divide the output of an empty part by its sum, and weigh it by 0.",
     {**_of_nothing(lambda pair, none, _call, _allowed: (
         np.where(none, np.nan, pair[0]).astype(pair[0].dtype), pair[1]))}),
    ("ends_at_the_first_empty_part", RING, "SHARD-4", "B", "Keep an empty row once a part of it is empty.",
     {"merged": lambda rank, one, other: tuple(
         np.where(one[1] == -np.inf, x, y) for x, y in zip(one, merged(rank, one, other), strict=True))}),
    ("empty_part_empties_the_row", RING, "SHARD-4", "B", "Overwrite a row by a part that is empty.",
     {"merged": lambda rank, one, other: tuple(
         np.where(other[1] == -np.inf, x, y) for x, y in zip(other, merged(rank, one, other), strict=True))}),
    ("empty_row_of_all_ranks_is_nan", GATHER, "SHARD-4", "B",
     "Divide 0 by 0 where no shard has an allowed key.",
     folded(lambda whole, _parts: (
         np.where(whole[1] == -np.inf, np.nan, whole[0]).astype(whole[0].dtype), whole[1]))),
)  # fmt: skip


SINKS = over_ranks(
    ("sink_on_each_rank", RING, "SHARD-5", "M", "Add the sink once for each shard.",
     {"sunk": lambda call, rank, whole: with_sink(call, rank, whole, lambda x: x + np.log(
         np.asarray(rank.mesh.shards, x.dtype)))}),
    ("sinks_dropped_over_ranks", RING, "SHARD-5", "M", "Attend without the sinks.",
     {"sunk": lambda _call, _rank, whole: whole}, "PrimeIntellect-ai/prime-rl#3397"),
    ("sink_on_the_first_rank_alone", RING, "SHARD-5", "M", "Add the sink to the rows of the first rank only.",
     {"sunk": lambda call, rank, whole: whole if rank.shard else sunk(call, rank, whole)}),
    ("sink_divided_over_ranks", TREE, "SHARD-5", "M", "Divide the logit of the sink by the number of ranks.",
     {"sunk": lambda call, rank, whole: with_sink(
         call, rank, whole, lambda x: x / max(rank.mesh.shards, 1))}),
    ("sink_without_keys_forgotten", RING, "SHARD-5", "M", "Add no sink where no shard has an allowed key.",
     {"sunk": lambda call, rank, whole: tuple(
         np.where(whole[1] == -np.inf, x, y) for x, y in zip(whole, sunk(call, rank, whole), strict=True))}),
    ("sink_in_the_output_alone", RING, "SHARD-5", "M", "Return the lse of the keys, without the sink.",
     {"sunk": lambda call, rank, whole: (sunk(call, rank, whole)[0], whole[1])}),
    ("sink_has_the_value_of_the_output", GATHER, "SHARD-5", "M",
     "Merge the sink as a part with the output of the keys.",
     {"sunk": lambda call, rank, whole: (whole[0], sunk(call, rank, whole)[1])}),
)  # fmt: skip
