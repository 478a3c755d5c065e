"""Wrong about the gradients of queries, keys and heads that are spread over ranks."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from attnspec.conformance.gallery.bases.over_ranks import changed, is_own, over_ranks
from attnspec.conformance.gallery.bases.ranks import GATHER, RING, TREE, Mesh, Rank
from attnspec.conformance.gallery.entry import Array
from attnspec.conformance.gallery.sharding import local_places
from attnspec.reference.gradients import Gradients

_backward = partial(over_ranks, step="sharded_backward")


def _back(change: Callable[[Rank, Array, Array, Array], None]) -> dict[str, Callable[..., Any]]:
    return {"given_back": change}


def _own_alone(rank: Rank, whole: Array, columns: Array, part: Array) -> None:
    if is_own(rank, columns):
        RING.given_back(rank, whole, columns, part)


def _others_alone(rank: Rank, whole: Array, columns: Array, part: Array) -> None:
    if not is_own(rank, columns) or rank.mesh.shards == 1:
        RING.given_back(rank, whole, columns, part)


def _twice(rank: Rank, whole: Array, columns: Array, part: Array) -> None:
    times = 2 if is_own(rank, columns) and rank.mesh.shards > 1 else 1
    RING.given_back(rank, whole, columns, times * part)


def _overwritten(rank: Rank, whole: Array, columns: Array, part: Array) -> None:
    whole[..., rank.key_heads, :, :][..., columns, :] = part


def _mean(rank: Rank, whole: Array, columns: Array, part: Array) -> None:
    RING.given_back(rank, whole, columns, part / max(rank.mesh.shards, 1))


def _moved(rank: Rank, whole: Array, columns: Array, part: Array) -> None:
    """Leave the gradient with the next shard, if this has as many keys."""
    mesh = rank.mesh
    shard = int(np.searchsorted(mesh.keys, columns[0], side="right")) - 1 if len(columns) else 0
    other = mesh.columns((shard + 1) % mesh.shards)
    RING.given_back(rank, whole, other if len(other) == len(columns) else columns, part)


def _last_rank(rank: Rank, whole: Array, columns: Array, part: Array) -> None:
    if rank.shard == rank.mesh.shards - 1:
        RING.given_back(rank, whole, columns, part)


def _one_copy(rank: Rank, whole: Array, columns: Array, part: Array) -> None:
    """Keep what the first of the parts that share a key head contributes."""
    if rank.heads.start % rank.mesh.group == 0:
        RING.given_back(rank, whole, columns, part)


def _mean_of_copies(rank: Rank, whole: Array, columns: Array, part: Array) -> None:
    mesh, first = rank.mesh, rank.heads.start // rank.mesh.group * rank.mesh.group
    copies = len({start for start in mesh.heads[:-1] if first <= start < first + mesh.group})
    RING.given_back(rank, whole, columns, part / max(copies, 1))


KEYS = _backward(
    ("gradients_of_own_keys_alone", RING, "SHARD-10", "W",
     "Give keys the contributions of the queries of their own rank.", _back(_own_alone)),
    ("gradients_of_own_queries_lost", RING, "SHARD-10", "W",
     "Overwrite what the first step gives to the own keys.", _back(_others_alone)),
    ("gradients_of_own_keys_twice", RING, "SHARD-10", "W",
     "Add what the own queries contribute to the own keys before the ring, and in it.", _back(_twice)),
    ("gradients_of_the_last_rank_alone", RING, "SHARD-10", "W",
     "Give keys what the last rank contributes.", _back(_last_rank), "fla-org/flash-linear-attention#1115"),
    ("gradients_of_keys_overwritten", TREE, "SHARD-10", "W",
     "Write the gradients of keys anew on each rank.", _back(_overwritten)),
    ("gradients_averaged_over_ranks", RING, "SHARD-10", "W",
     "Take the mean of what ranks contribute.", _back(_mean)),
    ("gradients_left_on_the_next_rank", RING, "SHARD-10", "W",
     "Send the gradients of keys one step too few.", _back(_moved)),
    ("gradients_of_one_copy_of_a_key_head", RING, "SHARD-10", "D",
     "Keep what one of the ranks that hold a key head contributes.", _back(_one_copy)),
    ("mean_of_the_copies_of_a_key_head", RING, "SHARD-10", "D",
     "Take the mean over the ranks that hold a key head.", _back(_mean_of_copies)),
)  # fmt: skip


def _without_cotangent(call: Gradients, rank: Rank, columns: Array) -> Gradients:
    return call if is_own(rank, columns) else call.but(d_lse=np.zeros_like(call.d_lse))


def _local_bias(mesh: Mesh, whole: Array, rank: Rank, columns: Array, part: Array) -> None:
    place = np.arange(len(columns))
    del mesh
    whole[..., rank.heads, :, :][..., rank.rows[:, None], place] += part


def _own_bias(mesh: Mesh, whole: Array, rank: Rank, columns: Array, part: Array) -> None:
    if is_own(rank, columns):
        RING.of_bias(mesh, whole, rank, columns, part)


def _overwritten_sinks(whole: Array, rank: Rank, part: Array) -> None:
    whole[rank.heads] = part


def _sinks_of_each_step(whole: Array, rank: Rank, part: Array) -> None:
    RING.of_sinks(whole, rank, rank.mesh.shards * part)


def _sinks_of_part(whole: Array, rank: Rank, part: Array) -> None:
    if not rank.shard:
        RING.of_sinks(whole, rank, part)


QUERIES = _backward(
    ("gradient_of_queries_of_the_last_step", RING, "SHARD-10", "W",
     "Write the gradient of queries anew in each step.",
     {"of_queries": lambda parts: parts[-1]}),
    ("gradient_of_queries_of_the_own_shard", RING, "SHARD-10", "W",
     "Give queries the gradient of the own shard.",
     {"of_queries": lambda parts: parts[0]}),
    ("gradient_of_queries_averaged", TREE, "SHARD-10", "W",
     "Take the mean of the steps for the gradient of queries.",
     {"of_queries": lambda parts: RING.of_queries(parts) / len(parts)}),
    ("weights_by_the_lse_of_the_last_step", RING, "SHARD-10", "I",
     "Compute weights by the lse of the last step.",
     {"statistics": lambda _rank, lse, parts: np.where(parts[-1] == -np.inf, lse, parts[-1])}),
    ("weights_by_the_lse_of_the_own_shard", RING, "SHARD-10", "I",
     "Compute weights by the lse of the own shard.",
     {"statistics": lambda _rank, lse, parts: np.where(parts[0] == -np.inf, lse, parts[0])}),
    ("weights_by_the_lse_in_base_2", GATHER, "SHARD-10", "I", "Compute weights by an lse in base 2.",
     {"statistics": lambda _rank, lse, _parts: lse / np.asarray(np.log(2), lse.dtype)}),
    ("mean_of_the_own_shard_subtracted", RING, "SHARD-10", "W", "Subtract the mean over the own shard.",
     {"deltas": lambda terms: terms[0]}),
    ("mean_of_the_last_step_subtracted", RING, "SHARD-10", "W", "Subtract the mean over the last step.",
     {"deltas": lambda terms: terms[-1]}),
    ("no_mean_subtracted_over_ranks", TREE, "SHARD-10", "W", "Subtract no mean of the cotangents of weights.",
     {"deltas": lambda terms: 0 * terms[0]}),
    ("cotangent_of_the_lse_in_one_step", RING, "SHARD-10", "I",
     "Use the cotangent of the lse in the first step only.",
     changed(_without_cotangent)),
    ("causal_only_forward_over_ranks", RING, "SHARD-10", "A",
     "Mask nothing of other shards in the backward pass.",
     changed(lambda call, rank, columns: call if is_own(rank, columns) else call.but(is_causal=False))),
    ("local_positions_in_the_backward_pass", RING, "SHARD-10", "A",
     "Count from 0 in each shard in the backward pass.",
     changed(lambda call, _rank, columns: local_places(call, columns))),
    ("window_only_forward_over_ranks", RING, "SHARD-10", "E", "Compute the gradients without the window.",
     changed(lambda call, _rank, _columns: call.but(window=None))),
    ("dropout_only_forward_over_ranks", RING, "SHARD-10", "J", "Compute the gradients without dropout.",
     changed(lambda call, _rank, _columns: call.but(dropout_mask=None, dropout_rate=0.0))),
    ("softcap_only_forward_over_ranks", RING, "SHARD-10", "F", "Compute the gradients without the softcap.",
     changed(lambda call, _rank, _columns: call.but(softcap=None))),
    ("documents_only_forward_over_ranks", RING, "SHARD-10", "V", "Compute the gradients across documents.",
     changed(lambda call, _rank, _columns: call.but(query_segment_ids=None, key_segment_ids=None))),
)  # fmt: skip

OTHERS = _backward(
    ("gradient_of_a_bias_by_local_columns", RING, "SHARD-10", "H",
     "Add the gradient of a bias to the first columns.",
     {"of_bias": _local_bias}),
    ("gradient_of_a_bias_of_the_own_shard", RING, "SHARD-10", "W",
     "Give a bias the gradient of the own shard.",
     {"of_bias": _own_bias}),
    ("gradient_of_sinks_on_each_step", RING, "SHARD-10", "M",
     "Add the gradient of a sink once for each shard.",
     {"of_sinks": _sinks_of_each_step}),
    ("gradient_of_sinks_of_the_last_rank", RING, "SHARD-10", "M",
     "Write the gradient of the sinks anew on each rank.",
     {"of_sinks": _overwritten_sinks}),
    ("gradient_of_sinks_of_the_first_rank", TREE, "SHARD-10", "M",
     "Keep the gradient of the sinks of the first rank.",
     {"of_sinks": _sinks_of_part}),
    ("gradient_of_sinks_is_0_over_ranks", RING, "SHARD-10", "M", "Return 0 for the gradient of the sinks.",
     {"of_sinks": lambda _whole, _rank, _part: None}, "NVIDIA/TransformerEngine#3551"),
    ("gradient_of_the_scale_averaged", RING, "SHARD-10", "K",
     "Take the mean over steps for the gradient of the scale.",
     {"of_scale": lambda parts: RING.of_scale(parts) / max(len(parts) - 1, 1)}),
    ("gradient_of_the_scale_of_the_last_step", RING, "SHARD-10", "K",
     "Return the gradient of the scale of one step.",
     {"of_scale": lambda parts: np.asarray(parts[-1])}),
)  # fmt: skip
