"""Wrong about what belongs to pairs, to all shards, to heads and to rows of ranks."""

from collections.abc import Callable
from typing import Any

import numpy as np

from attnspec.conformance.gallery.bases.over_ranks import (
    Steps,
    changed,
    collected,
    folded,
    is_own,
    over_ranks,
    with_sink,
)
from attnspec.conformance.gallery.bases.ranks import GATHER, RING, TREE, Mesh, Pair, Rank, merged, sunk
from attnspec.conformance.gallery.entry import Array, base, rows
from attnspec.reference.call import Mask
from attnspec.reference.notation import Attention


def _pair(name: str, move: Callable[[Array, Rank, Array], Array]) -> Steps:
    """Replace the elements of an array of pairs in a block."""

    def block(call: Attention, rank: Rank, columns: Array) -> Any:
        whole, cut = getattr(call, name), RING.block(call, rank, columns)
        if whole is None or not cut.shape[-1] or not cut.shape[-2]:
            return cut
        return cut.but(**{name: move(whole, rank, columns)})

    return {"block": block}


def _local_rows(whole: Array, rank: Rank, columns: Array) -> Array:
    return whole[..., rank.heads, : len(rank.rows), :][..., columns]


def _local_columns(whole: Array, rank: Rank, columns: Array) -> Array:
    return whole[..., rank.heads, :, :][..., rank.rows, : len(columns)]


def _local_pairs(whole: Array, rank: Rank, columns: Array) -> Array:
    return whole[..., rank.heads, : len(rank.rows), : len(columns)]


def _first_heads(whole: Array, rank: Rank, columns: Array) -> Array:
    return whole[..., : rank.heads.stop - rank.heads.start, :, :][..., rank.rows, :][..., columns]


def _segments(change: Callable[[Attention, Rank, Array], dict[str, Any]]) -> Steps:
    return changed(
        lambda call, rank, columns: (
            call.but(**change(call, rank, columns))
            if call.query_segment_ids is not None and call.queries and call.keys
            else call
        )
    )


PAIRS = over_ranks(
    ("mask_dropped_over_ranks", RING, "SHARD-6", "R", "Attend without the mask.",
     changed(lambda call, _rank, _columns: call.but(mask=None)), "huggingface/accelerate#4177"),
    ("mask_of_local_columns", RING, "SHARD-6", "R", "Read the columns of the mask from 0 in each shard.",
     _pair("mask", _local_columns)),
    ("mask_of_local_rows", GATHER, "SHARD-6", "R", "Read the rows of the mask from 0 on each rank.",
     _pair("mask", _local_rows)),
    ("mask_in_the_own_shard_alone", RING, "SHARD-6", "R",
     "Apply the mask in the first step of the ring only.",
     changed(lambda call, rank, columns: call if is_own(rank, columns) else call.but(mask=None)),
     "pytorch/pytorch#141429"),
    ("bias_of_local_columns", RING, "SHARD-6", "H", "Read the columns of the bias from 0 in each shard.",
     _pair("bias", _local_columns)),
    ("bias_of_local_rows", TREE, "SHARD-6", "H", "Read the rows of the bias from 0 on each rank.",
     _pair("bias", _local_rows)),
    ("bias_in_the_own_shard_alone", RING, "SHARD-6", "H", "Add the bias in the first step of the ring only.",
     changed(lambda call, rank, columns: call if is_own(rank, columns) else call.but(bias=None))),
    ("dropout_repeated_across_ranks", RING, "SHARD-6", "J",
     "Drop the same weights on every rank and in every step.",
     _pair("dropout_mask", _local_pairs), "NVIDIA/Megatron-LM#1256"),
    ("dropout_of_local_rows", TREE, "SHARD-6", "J", "Read the rows of the dropout mask from 0 on each rank.",
     _pair("dropout_mask", _local_rows)),
    ("dropout_in_the_own_shard_alone", RING, "SHARD-6", "J",
     "Drop weights in the first step of the ring only.",
     changed(lambda call, rank, columns: call if is_own(rank, columns) else call.but(
         dropout_mask=None, dropout_rate=0.0))),
    ("dropout_before_the_denominator", RING, "SHARD-6", "J",
     "Leave dropped weights out of the lse of a shard.",
     {"partial": lambda call, rank, allowed: (RING.partial(call, rank, allowed)[0], RING.partial(
         call, rank, allowed if call.dropout_mask is None else allowed & call.dropout_mask)[1])}),
    ("documents_dropped_over_ranks", RING, "SHARD-6", "V", "Attend to the documents before the own one.",
     _segments(lambda _call, _rank, _columns: {"query_segment_ids": None, "key_segment_ids": None}),
     "huggingface/trl#6843"),
    ("documents_count_in_each_shard", RING, "SHARD-6", "V", "Number the documents anew in each shard.",
     _segments(lambda call, _rank, _columns: {
         "query_segment_ids": call.query_segment_ids - call.query_segment_ids[..., :1],
         "key_segment_ids": call.key_segment_ids - call.key_segment_ids[..., :1]}),
     "hiyouga/LLaMA-Factory#10787"),
    ("documents_end_with_their_shard", RING, "SHARD-6", "V", "Let no document reach into another shard.",
     changed(lambda call, rank, columns: call if call.query_segment_ids is None or is_own(rank, columns)
         else call.but(mask=np.zeros(call.shape, bool)))),
    ("lengths_count_in_each_shard", RING, "SHARD-6", "A", "Apply the length of the keys in each shard.",
     _pair("mask", lambda whole, rank, columns: _local_columns(whole, rank, columns)
         & whole[rank.place][..., columns])),
)  # fmt: skip


def _lse_of(choose: Callable[[Pair, list[Pair]], Array]) -> Steps:
    return folded(lambda whole, parts: (whole[0], choose(whole, parts)))


def _without_a_maximum(_rank: Rank, one: Pair, other: Pair) -> Pair:
    """Merge by exponentials that are not shifted."""
    (a, x), (b, y) = one, other
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        own_share, its = np.exp(x), np.exp(y)
        total = own_share + its
        some = np.where(total == 0, 1, total)
        output = (a * own_share + b * its) / some
        return output.astype(a.dtype), np.where(total == 0, -np.inf, np.log(some)).astype(x.dtype)


def _in_base_2(_rank: Rank, one: Pair, other: Pair) -> Pair:
    scaled = [(output, (lse * np.log(2)).astype(lse.dtype)) for output, lse in (one, other)]
    output, lse = merged(_rank, *scaled)
    return output, (lse / np.log(2)).astype(lse.dtype)


def _sunk_in_base_2(call: Attention, rank: Rank, whole: Pair) -> Pair:
    output, lse = sunk(call, rank, whole)
    return output, (lse / np.log(2)).astype(lse.dtype)


def _rounded_lse(dtype: str) -> Steps:
    def partial(call: Attention, rank: Rank, allowed: Mask) -> Pair:
        output, lse = RING.partial(call, rank, allowed)
        return output, lse.astype(dtype).astype(lse.dtype)

    return {"partial": partial}


def _of_the_next(mesh: Mesh, results: list[tuple[Rank, Array]]) -> list[tuple[Rank, Array]]:
    """Give each rank the rows of the next one, if these are as many."""
    moved = [array for _, array in results]
    moved = moved[1:] + moved[:1]
    pairs = zip(results, moved, strict=True)
    del mesh
    return [(rank, other if other.shape == array.shape else array) for (rank, array), other in pairs]


def _as_the_own(mesh: Mesh, results: list[tuple[Rank, Array]]) -> list[tuple[Rank, Array]]:
    del mesh
    first = results[0][1] if results else None
    return [(rank, first if first is not None and first.shape == x.shape else x) for rank, x in results]


OF_THE_WHOLE = over_ranks(
    ("lse_of_the_last_step", RING, "SHARD-7", "I", "Return the lse of the last step of the ring.",
     _lse_of(lambda _whole, parts: parts[-1][1])),
    ("lse_of_the_own_shard", RING, "SHARD-7", "I", "Return the lse of the own shard.",
     _lse_of(lambda _whole, parts: parts[0][1])),
    ("lse_of_the_largest_shard", TREE, "SHARD-7", "I", "Return the largest lse of all shards.",
     _lse_of(lambda _whole, parts: np.maximum.reduce([lse for _, lse in parts]))),
    ("lse_in_base_2_over_ranks", GATHER, "SHARD-7", "I", "Return the lse in base 2.",
     {"sunk": _sunk_in_base_2}),
    ("partial_lses_taken_for_base_2", RING, "SHARD-7", "I", "Merge natural lses by powers of 2.",
     {"merged": _in_base_2}),
    ("keys_on_each_rank_gathered_again", RING, "SHARD-7", "I", "Gather all keys twice.",
     {"visits": lambda mesh, rank: [*GATHER.visits(mesh, rank)] * 2}, "vllm-project/vllm-omni#1233"),
    ("maximum_of_the_own_shard", RING, "SHARD-7", "C", "Return the maximum of the own shard.",
     {"largest": lambda parts: parts[0]}),
    ("maximum_of_the_last_step", RING, "SHARD-7", "C", "Return the maximum of the last step of the ring.",
     {"largest": lambda parts: parts[-1]}),
    ("maximum_not_below_0", TREE, "SHARD-7", "C", "Begin the maximum over ranks at 0.",
     {"largest": lambda parts: np.maximum(RING.largest(parts), 0)}),
    ("weights_of_each_shard_add_up_to_1", RING, "SHARD-7", "I", "Return weights by the lse of their shard.",
     {"weights": lambda call, rank, allowed, _lse: RING.weights(
         call, rank, allowed, RING.partial(call, rank, allowed)[1])}),
    ("weights_not_dropped_over_ranks", RING, "SHARD-6", "J", "Return the weights before dropout.",
     {"weights": lambda call, rank, allowed, lse: RING.weights(
         call.but(dropout_mask=None, dropout_rate=0.0), rank, allowed, lse)}),
)  # fmt: skip

MERGES = over_ranks(
    ("lse_sent_in_half_precision", RING, "SHARD-9", "C",
     "Round the lse of each shard to float16.", _rounded_lse("float16")),
    ("lse_sent_in_bfloat16", TREE, "SHARD-9", "C",
     "Round the lse of each shard to bfloat16.", _rounded_lse("bfloat16")),
    ("merged_without_a_maximum", RING, "SHARD-9", "C",
     "Merge by exponentials of the lses that are not shifted.",
     {"merged": _without_a_maximum}),
    ("merged_in_half_precision", RING, "SHARD-9", "C", "Round outputs and lses to float16 after each merge.",
     {"merged": lambda rank, one, other: tuple(
         x.astype("float16").astype(x.dtype) for x in merged(rank, one, other))}),
)  # fmt: skip


def _mapped(which: Callable[[Mesh, int, int], int]) -> Steps:
    """Give each query head the key head that a function names, by its number in the whole and in its part."""

    def block(call: Attention, rank: Rank, columns: Array) -> Any:
        cut = RING.block(call, rank, columns)
        heads = np.arange(rank.heads.start, rank.heads.stop)
        read = np.clip([which(rank.mesh, h, h - rank.heads.start) for h in heads], 0, call.key.shape[-3] - 1)
        key, value = (x[..., read, :, :][..., columns, :] for x in (call.key, call.value))
        return cut.but(key=key, value=value)

    return {"block": block}


def _heads_reversed(mesh: Mesh, results: list[tuple[Rank, Array]]) -> list[tuple[Rank, Array]]:
    """Put the heads of a rank in reverse order."""
    del mesh
    return [(rank, x[..., ::-1, :, :]) for rank, x in results]


def _even_heads(mesh: Mesh, results: list[tuple[Rank, Array]]) -> list[tuple[Rank, Array]]:
    """Leave out the heads that do not divide evenly."""
    even = mesh.heads[-1] // max(len(mesh.heads) - 1, 1)
    return [(rank, np.where(np.arange(x.shape[-3])[:, None, None] < even, x, 0)) for rank, x in results]


def _parts(mesh: Mesh, h: int, local: int) -> int:
    """Return the key head by the number of a head in its part, if there are several parts."""
    return h // mesh.group if len(mesh.heads) <= 2 else local // mesh.group


HEADS = over_ranks(
    ("key_heads_count_in_each_part", RING, "SHARD-8", "D",
     "Count query heads for their key head from 0 on each rank.",
     _mapped(_parts)),
    ("key_heads_filled_up", RING, "SHARD-8", "D",
     "Fill up the key heads to an even number, which changes the ratio.",
     _mapped(lambda mesh, h, _local: h // mesh.group if len(mesh.heads) <= 2 else h // max(
         -(-mesh.heads[-1] // (mesh.heads[-1] // mesh.group + 1)), 1)), "vllm-project/vllm-omni#5716"),
    ("key_heads_tiled_over_ranks", TREE, "SHARD-8", "D", "Assign key heads in turn.",
     _mapped(lambda mesh, h, _local: h % max(mesh.heads[-1] // mesh.group, 1))),
    ("first_key_head_of_a_part", RING, "SHARD-8", "D",
     "Let all heads of a rank read the key head of its first.",
     _mapped(lambda mesh, h, local: (h - local) // mesh.group)),
    ("heads_back_in_another_order", RING, "SHARD-8", "H", "Put the heads of a rank back in reverse order.",
     collected(_heads_reversed)),
    ("heads_that_do_not_divide_dropped", RING, "SHARD-8", "D",
     "Compute as many heads on each rank as divide evenly.",
     collected(_even_heads), "deepspeedai/DeepSpeed#8291"),
    ("bias_of_the_first_heads", RING, "SHARD-8", "H", "Read the heads of the bias from 0 on each rank.",
     _pair("bias", _first_heads)),
    ("mask_of_the_first_heads", RING, "SHARD-8", "R", "Read the heads of the mask from 0 on each rank.",
     _pair("mask", _first_heads)),
    ("sinks_of_the_first_heads", RING, "SHARD-8", "M", "Read the sinks from 0 on each rank.",
     {"sunk": lambda call, rank, whole: with_sink(
         call, rank, whole, lambda x: np.roll(x, rank.heads.start))}),
)  # fmt: skip

ROWS = over_ranks(
    ("order_lost_in_the_gather", RING, "SHARD-13", "H",
     "Return the rows of the next rank, if these are as many.",
     collected(_of_the_next)),
    ("rows_of_rank_0_on_every_rank", RING, "SHARD-13", "H", "Return the rows of rank 0 on every rank.",
     collected(_as_the_own)),
    ("last_rank_returns_nothing", TREE, "SHARD-13", "O", "Return zeros on the last rank that has a row.",
     collected(lambda _mesh, results: [*results[:-1], *((rank, 0 * x) for rank, x in results[-1:])]
         if len(results) > 1 else results)),
)  # fmt: skip

CHECKS = rows(
    ("boundaries_of_shards_not_checked", "check_shards", "SHARD-11", "U",
     lambda _call, _operation, given: given, "Take boundaries of shards as they are."),
    ("boundaries_of_shards_sorted", "check_shards", "SHARD-11", "U",
     lambda call, operation, given: base.check_shards(call, operation, given | {
         name: np.sort(given[name]) for name in ("query_shards", "key_shards")
         if np.ndim(given.get(name, 0)) == 1}), "Sort boundaries of shards that decrease."),
    ("rows_past_the_last_shard_ignored", "check_shards", "SHARD-11", "U",
     lambda call, operation, given: base.check_shards(call, operation, given | {
         name: np.append(given[name][:-1], given[of].shape[-2]) for name, of in
         (("query_shards", "query"), ("key_shards", "key")) if np.ndim(given.get(name, 0)) == 1
         and given[name].dtype.kind in "iu" and given[name][-1] < given[of].shape[-2]}),
     "Let the last shard have all rows that are left."),
    ("part_of_two_groups_accepted", "check_shards", "SHARD-12", "U",
     lambda call, operation, given: base.check_shards(call, operation, given | {"head_shards": None})
         | {"head_shards": given["head_shards"]}, "Take any boundaries of heads."),
)  # fmt: skip
