"""Correct entries over ranks: a ring, an all-gather, a tree, heads by all-to-all, and other merges."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from attnspec.conformance.gallery.bases.ranks import (
    GATHER,
    RING,
    TREE,
    Mesh,
    Pair,
    Rank,
    Ranks,
    merged,
    sunk,
)
from attnspec.conformance.gallery.entry import Array, Entry, base
from attnspec.reference.budget.budget import Accuracy
from attnspec.reference.call import Mask
from attnspec.reference.notation import Attention


def _correct(name: str, sentence: str, ranks: Ranks, accuracy: Accuracy = "full") -> Entry:
    steps = {"attend_sharded": ranks.attend, "sharded_backward": ranks.differentiate}
    return Entry(name, sentence, steps, accuracy=accuracy)


def _needed(call: Attention, _rank: Rank) -> bool:
    """Whether some pair of a block is allowed."""
    return bool(np.any(base.allowed_pairs(call)))


def _other_way(mesh: Mesh, rank: Rank) -> list[Array]:
    return [mesh.columns((rank.shard + step) % mesh.shards) for step in range(1, mesh.shards + 1)]


def _halves(mesh: Mesh, rank: Rank) -> list[Array]:
    return [half for columns in RING.visits(mesh, rank) for half in np.array_split(columns, 2)]


def _over_heads(mesh: Mesh) -> Mesh:
    """Give each rank whole groups of heads with all rows and all keys."""
    heads = list(range(0, mesh.heads[-1] + 1, mesh.group))
    return Mesh([0, mesh.queries[-1]], [0, mesh.keys[-1]], heads, mesh.group)


def _base_2(call: Attention, rank: Rank, allowed: Mask) -> Pair:
    output, lse = RING.partial(call, rank, allowed)
    return output, (lse * np.log2(np.e)).astype(lse.dtype)


def _merged_in_base_2(_rank: Rank, one: Pair, other: Pair) -> Pair:
    """Merge by powers of 2."""
    (a, x), (b, y) = one, other
    top = np.maximum(x, y)
    shift = np.where(top == -np.inf, 0, top)
    with np.errstate(invalid="ignore"):
        left, right = np.exp2(x - shift), np.exp2(y - shift)
        total = left + right
        some = np.where(total == 0, 1, total)
        parts = ((a, left / some), (b, right / some))
        output = sum(np.where(np.isfinite(part), part * share, part) for part, share in parts)
        output = np.where(np.isnan(total), np.nan, output)
        lse = np.where(total == 0, -np.inf, shift + np.log2(some))
    return output.astype(a.dtype), np.where(top == np.inf, np.inf, lse).astype(x.dtype)


def _natural(call: Attention, rank: Rank, whole: Pair) -> Pair:
    output, lse = whole
    return sunk(call, rank, (output, (lse * np.log(2)).astype(lse.dtype)))


def _sink_first(call: Attention, rank: Rank, whole: Pair) -> Pair:
    """Merge the sink as the first part."""
    if call.sinks is None:
        return whole
    sink = np.broadcast_to(call.sink[rank.heads], whole[1].shape).astype(whole[1].dtype)
    return merged(rank, (np.zeros_like(whole[0]), sink), whole)


def _unnormalised(call: Attention, _rank: Rank, allowed: Mask) -> Pair:
    """Return the sums of a shard that are not divided yet: of values, and maximum and sum of exponentials."""
    s = np.where(allowed, base.score(call), -np.inf)
    top = s.max(axis=-1, keepdims=True, initial=-np.inf)
    with np.errstate(invalid="ignore"):
        e = np.exp(s - np.where(top == -np.inf, 0, top)).astype(call.query.dtype)
    total = e.sum(axis=-1, keepdims=True)
    return base.weighted_sum(call, base.drop(call, e), allowed), np.concatenate([top, total], axis=-1)


def _rescaled(_rank: Rank, one: Pair, other: Pair) -> Pair:
    """Rescale sums to the larger maximum, and add them."""
    top = np.maximum(one[1][..., :1], other[1][..., :1])
    shift = np.where(top == -np.inf, 0, top)
    outputs, totals = [], []
    with np.errstate(invalid="ignore"):
        for output, state in (one, other):
            less = np.exp(state[..., :1] - shift)
            outputs.append(np.where(np.isfinite(output), output * less, output))
            totals.append(state[..., 1:] * less)
    return outputs[0] + outputs[1], np.concatenate([top, totals[0] + totals[1]], axis=-1)


def _divided(call: Attention, rank: Rank, whole: Pair) -> Pair:
    """Add the sink to the sums, and divide."""
    if call.sinks is not None:
        sink = np.broadcast_to(call.sink[rank.heads], (*whole[0].shape[:-1], 1)).astype(whole[0].dtype)
        state = np.concatenate([sink, np.where(sink == -np.inf, 0, 1).astype(sink.dtype)], axis=-1)
        whole = _rescaled(rank, whole, (np.zeros_like(whole[0]), state))
    top, total = whole[1][..., :1], whole[1][..., 1:]
    some = np.where(total == 0, 1, total)
    lse = np.where(total == 0, -np.inf, np.where(top == -np.inf, 0, top) + np.log(some))
    output = np.where(np.isnan(total), np.nan, whole[0] / some)
    return output.astype(whole[0].dtype), np.where(top == np.inf, np.inf, lse).astype(whole[0].dtype)


def _stored(call: Attention, rank: Rank, allowed: Mask) -> Pair:
    """Round the output of a shard to the dtype of the result."""
    output, lse = RING.partial(call, rank, allowed)
    return output.astype(call.storage).astype(output.dtype), lse


def _in_groups_of_two(merge: Callable[[Pair, Pair], Pair], parts: Sequence[Pair]) -> Pair:
    """Merge within nodes of two ranks, and then the results of the nodes."""
    nodes = [RING.folded(merge, parts[at : at + 2]) for at in range(0, len(parts), 2)]
    return RING.folded(merge, nodes)


def _from_the_last(merge: Callable[[Pair, Pair], Pair], parts: Sequence[Pair]) -> Pair:
    return RING.folded(lambda one, other: merge(other, one), parts[::-1])


ENTRIES = (
    _correct("ring", "Send keys and values around a ring, and merge the partial result of each step.", RING),
    _correct("all_gather", "Gather all keys and values on each rank, and attend once.", GATHER),
    _correct("tree", "Compute the partial results of all shards, and merge neighbours in a tree.", TREE),
    _correct("ring_with_skipped_steps", "Skip the steps of a ring in which no pair is allowed.",
             replace(RING, needed=_needed)),
    _correct("ring_the_other_way", "Send keys and values the other way around, the own shard last.",
             replace(RING, visits=_other_way)),
    _correct("two_chunks_a_step", "Attend to the two halves of a shard one by one, as in a zigzag.",
             replace(RING, visits=_halves)),
    _correct("heads_by_all_to_all",
             "Exchange rows for heads, attend with whole groups of heads, and exchange them back.",
             replace(GATHER, meshed=_over_heads)),
    # Weights from an lse that was converted have its rounding, which NUM-2 does not allow them.
    replace(
        _correct("partials_in_base_2", "Hold the lse of partial results in base 2, and merge by powers of 2.",
                 replace(RING, partial=_base_2, merged=_merged_in_base_2, sunk=_natural)),
        lacks=("return_weights",)),
    _correct("partials_not_normalised", "Keep sums and maxima of shards, and divide after the last step.",
             replace(RING, partial=_unnormalised, merged=_rescaled, sunk=_divided)),
    _correct("partials_rounded", "Round the output of each shard to the dtype of the result.",
             replace(TREE, partial=_stored), "cast"),
    _correct("merged_in_nodes", "Merge within nodes of two ranks first, and then between the nodes.",
             replace(RING, folded=_in_groups_of_two)),
    _correct("merged_from_the_last", "Merge the steps of a ring from the last to the first.",
             replace(RING, folded=_from_the_last)),
    _correct("sink_merged_first", "Take the sink for the part before all others.",
             replace(TREE, sunk=_sink_first)),
)  # fmt: skip
