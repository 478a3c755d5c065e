"""Wrong in decoding: one query has a path of its own, with splits, a tail, grouped heads, and merging."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.bases import splitting
from attnspec.conformance.gallery.bases.online import Tile, cut
from attnspec.conformance.gallery.bases.splitting import DECODING, FEW
from attnspec.conformance.gallery.edges.entries import WITHOUT_LAST_OF_ODD, for_options, on, on_rows, without
from attnspec.conformance.gallery.entry import After, Array, Entry, alter, base
from attnspec.reference.call import Mask
from attnspec.reference.notation import Attention

Lists = tuple[list[Array], list[Array]]
Merged = tuple[Array, Array]

_SMALL, _MIDDLE, _LARGE = DECODING


ENTRIES = on_rows(
    ("tail_split_dropped", "key_splits", "SOFT-3", "G", (_SMALL, _MIDDLE),
     After(lambda splits, loop, call: splits[:-1] if len(splits) > 1 and call.keys % loop.size else splits),
     "Divide the keys by the size of a split, and leave what is left over."),
    ("splits_past_eight_dropped", "key_splits", "SOFT-3", "G", (_MIDDLE, _LARGE),
     lambda loop, call: splitting.key_splits(loop, call)[:8],
     "Merge the first eight splits, as many as the buffer has."),
    ("last_of_an_odd_number_of_splits_dropped", "key_splits", "SOFT-3", "G", (_SMALL, _LARGE),
     WITHOUT_LAST_OF_ODD,
     "Merge splits in pairs, and leave the last of an odd number greater than one."),
    ("last_split_of_whole_splits_dropped", "key_splits", "SOFT-3", "G", DECODING,
     After(lambda splits, loop, call: splits[:-1]
         if len(splits) > 1 and call.keys % loop.size == 0 else splits),
     "Leave out the last of several splits where the keys are a multiple of its size."),
    ("segments_without_effect_in_the_tail", "part", "MASK-11", "R", (_MIDDLE, _LARGE),
     lambda tile: without(tile.call, "segments") if tile.is_last else tile.call,
     "Forget the segments in the last of several splits."),
    ("lse_of_the_last_split", "merged", "SOFT-6", "I", (_SMALL, _LARGE),
     lambda call, outputs, lses: (splitting.merged(call, outputs, lses)[0],
         lses[-1 if call.sinks is None else -2]),
     "Return the lse of the last split."),
    ("largest_lse_for_that_of_all", "merged", "SOFT-6", "I", DECODING,
     lambda call, outputs, lses: (splitting.merged(call, outputs, lses)[0], lses.max(axis=0)),
     "Return the largest lse of the splits for that of all keys."),
    ("empty_split_is_nan", "finished", "MASK-6", "B", (_SMALL, _MIDDLE),
     After(lambda p, lse, tile, _s: (np.where((lse == -np.inf) & (tile.count > 1), np.nan, p).astype(p.dtype),
         lse)),
     "Divide 0 by 0 in a split without allowed keys, where there are several."),
)  # fmt: skip


def _of_the_first_in_each_group(array: Array, call: Attention) -> Array:
    """Repeat the plane of the first head of each group, where the array has an axis of heads."""
    group = call.query.shape[-3] // call.key.shape[-3]
    if array.ndim < 3 or array.shape[-3] == 1 or group == 1:
        return array
    return np.repeat(array[..., ::group, :, :], group, axis=-3)


def _grouped(option: str, rule: str, kind: str) -> tuple[Entry, ...]:
    def part(tile: Tile) -> Attention:
        return alter(tile.call, **{option: lambda array: _of_the_first_in_each_group(array, tile.whole)})

    part.__name__ = f"{option}_of_the_first_head_of_a_group"
    part.__doc__ = f"Read the {option.replace('_', ' ')} of the first head of a group for all of its heads."
    return on("part", rule, kind, _MIDDLE, FEW)(part)


GROUPED_MASKS = _grouped("mask", "MASK-1", "D")
GROUPED_BIASES = _grouped("bias", "SCORE-4", "D")
GROUPED_DROPOUT = _grouped("dropout_mask", "DROP-1", "D")


@on("part", "HEAD-1", "D", _MIDDLE, _LARGE)
def ninth_query_of_a_group_and_later_read_the_next(tile: Tile) -> Attention:
    """Take at most eight heads to a key head, and let the others read the next key head."""
    call = tile.call
    group, shared = call.query.shape[-3] // call.key.shape[-3], call.key.shape[-3]
    heads = np.arange(group * shared)
    read = np.minimum(heads // group + (heads % group >= 8), shared - 1)
    return call if group <= 8 else call.but(key=call.key[..., read, :, :], value=call.value[..., read, :, :])


def _without(option: str, rule: str, kind: str) -> tuple[Entry, ...]:
    words = option.replace("_", " ")

    def always(tile: Tile) -> Attention:
        return cut(without(tile.whole, option), tile.rows, tile.keys)

    def tail(tile: Tile) -> Attention:
        return cut(without(tile.whole, option), tile.rows, tile.keys) if tile.is_last else tile.call

    always.__name__ = f"{option}_without_effect"
    always.__doc__ = f"Forget the {words} on the path for one query."
    tail.__name__ = f"{option}_without_effect_in_the_tail"
    tail.__doc__ = f"Forget the {words} in the last of several splits."
    return (*on("part", rule, kind, _LARGE)(always), *on("part", rule, kind, _LARGE)(tail))


FORGOTTEN = for_options(
    _without,
    *("scale", "softcap", "bias", "mask", "is_causal", "query_offset", "window"),
    *("query_lengths", "key_lengths", "dropout_mask"),
)


@on("seen", "MASK-9", "G", _SMALL, _LARGE)
def split_past_the_length_taken_whole(tile: Tile, call: Attention) -> Mask:
    """Take all keys of a split that begins after the key length, where less than none is left of it."""
    if call.key_lengths is None:
        return splitting.seen(tile, call)
    left = np.asarray(call.key_lengths)
    return splitting.seen(tile, call.but(key_lengths=np.where(left < 0, call.keys, left)))


@on("seen", "MASK-8", "E", _SMALL, _MIDDLE)
def window_begins_with_a_whole_split(tile: Tile, call: Attention) -> Mask:
    """Take the whole split in which the window begins, where there are several."""
    left, right = call.window or (None, None)
    if left is None or tile.count == 1:
        return splitting.seen(tile, call)
    wider = call.j // tile.sizes[1] * tile.sizes[1] + tile.sizes[1] - 1 >= base.position(call) - left
    return splitting.seen(tile, call.but(window=(None, right))) & wider


@on("weighted", "SOFT-3", "P", *DECODING)
def columns_past_64_of_later_splits_dropped(tile: Tile, call: Attention, p: Array, allowed: Mask) -> Any:
    """Write the first 64 columns of each split after the first."""
    result = splitting.weighted(tile, call, p, allowed)
    if tile.number:
        result[..., 64:] = 0
    return result


@on("sunk", "SOFT-5", "M", *DECODING, FEW)
def sink_in_every_split(call: Attention, outputs: list[Array], lses: list[Array]) -> Lists:
    """Count the sink once for each split."""
    if call.sinks is None:
        return outputs, lses
    for _ in range(len(outputs)):
        outputs, lses = splitting.sunk(call, outputs, lses)
    return outputs, lses


@on("sunk", "SOFT-5", "M", _SMALL, _MIDDLE)
def sink_where_there_is_one_split(call: Attention, outputs: list[Array], lses: list[Array]) -> Lists:
    """Forget the sink where several splits are merged."""
    return splitting.sunk(call if len(outputs) == 1 else call.but(sinks=None), outputs, lses)


@on("sunk", "SOFT-5", "M", _MIDDLE, _LARGE)
def sinks_of_key_heads(call: Attention, outputs: list[Array], lses: list[Array]) -> Lists:
    """Read the sink of the number of the key head for all heads of its group, past one split."""
    if call.sinks is None or len(outputs) == 1:
        return splitting.sunk(call, outputs, lses)
    group = call.query.shape[-3] // call.key.shape[-3]
    heads = np.arange(call.query.shape[-3]) // group
    return splitting.sunk(call.but(sinks=call.sinks[heads]), outputs, lses)


@on("merged", "SOFT-2", "C", _MIDDLE, _LARGE)
def merged_without_a_shift(call: Attention, outputs: Array, lses: Array) -> Merged:
    """Merge several splits by the exponentials of their lse as it is."""
    if len(lses) == 1:
        return splitting.merged(call, outputs, lses)
    shares = np.exp(lses)
    total = shares.sum(axis=0)
    output = (outputs * shares).sum(axis=0) / np.where(total == 0, 1, total)
    return output.astype(outputs.dtype), np.log(total).astype(lses.dtype)


@on("merged", "NUM-3", "I", _SMALL, _LARGE)
def merged_by_the_shares_of_one_head(call: Attention, outputs: Array, lses: Array) -> Merged:
    """Merge all heads by the lse of the first."""
    first = np.broadcast_to(lses[..., :1, :, :], lses.shape)
    output, lse = splitting.merged(call, outputs, lses)
    return splitting.merged(call, outputs, first)[0] if len(lses) > 1 else output, lse


@on("merged", "HEAD-1", "D", _SMALL, _MIDDLE)
def merged_by_the_shares_of_sixteen_heads(call: Attention, outputs: Array, lses: Array) -> Merged:
    """Keep the lse of splits for sixteen heads, and read them over and over."""
    output, lse = splitting.merged(call, outputs, lses)
    heads = np.arange(lses.shape[-3]) % 16
    return splitting.merged(call, outputs, lses[..., heads, :, :])[0] if len(lses) > 1 else output, lse


@on("merged", "NUM-3", "C", *DECODING)
def outputs_of_splits_in_storage(call: Attention, outputs: Array, lses: Array) -> Merged:
    """Hold the outputs of several splits in half precision."""
    short = outputs if len(lses) == 1 else outputs.astype(np.float16).astype(outputs.dtype)
    return splitting.merged(call, short, lses)


@on("merged", "NUM-2", "C", _SMALL, _LARGE)
def splits_merged_in_float32(call: Attention, outputs: Array, lses: Array) -> Merged:
    """Merge several splits in float32 whatever the inputs are."""
    if len(lses) == 1:
        return splitting.merged(call, outputs, lses)
    output, lse = splitting.merged(call, outputs.astype(np.float32), lses.astype(np.float32))
    return output.astype(outputs.dtype), lse.astype(lses.dtype)


@on("finished", "MASK-1", "B", _MIDDLE, _LARGE)
def empty_split_counts_as_one_key(tile: Tile, s: Array) -> Merged:
    """Give a split without allowed keys an lse of 0, where there are several."""
    p, lse = splitting.finished(tile, s)
    return p, np.where((lse == -np.inf) & (tile.count > 1), 0, lse).astype(lse.dtype)


@on("finished", "SOFT-6", "G", *DECODING)
def tail_divided_by_a_whole_split(tile: Tile, s: Array) -> Merged:
    """Count the padding of the tail, with scores of 0, in its sum."""
    p, lse = splitting.finished(tile, s)
    more = tile.sizes[1] - s.shape[-1] if tile.is_short else 0
    padded = np.logaddexp(lse, np.log(more)).astype(lse.dtype) if more else lse
    less = np.exp(lse - np.where(padded == -np.inf, 0, padded))
    return (p * less).astype(p.dtype), padded


@on("finished", "SOFT-2", "G", _SMALL, _MIDDLE)
def maximum_of_a_split_from_0(tile: Tile, s: Array) -> Merged:
    """Begin the search for the largest score of a split with 0, where there are several."""
    if tile.count == 1:
        return splitting.finished(tile, s)
    top = np.maximum(s.max(axis=-1, keepdims=True), 0)
    e = np.exp(s - top)
    total = e.sum(axis=-1, keepdims=True)
    some = np.where(total == 0, 1, total)
    return e / some, np.where(total == 0, -np.inf, top + np.log(some)).astype(s.dtype)
