"""Wrong in decoding: one query has a path of its own, with splits, a tail, and grouped heads."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.bases import splitting
from attnspec.conformance.gallery.bases.splitting import DECODING, FEW, Splits
from attnspec.conformance.gallery.bases.tile import Tile, cut
from attnspec.conformance.gallery.edges.entering import on
from attnspec.conformance.gallery.entry import Array, Entry, altered, base
from attnspec.reference.call import Mask
from attnspec.reference.notation import Attention

_SMALL, _MIDDLE, _LARGE = DECODING


@on("key_splits", "SOFT-3", "G", _SMALL, _MIDDLE)
def tail_split_dropped(one: Splits, call: Attention) -> list[slice]:
    """Divide the keys by the size of a split, and leave what is left over."""
    found = splitting.key_splits(one, call)
    return found[:-1] if len(found) > 1 and call.keys % one.size else found


@on("key_splits", "SOFT-3", "G", _MIDDLE, _LARGE)
def splits_past_eight_dropped(one: Splits, call: Attention) -> list[slice]:
    """Merge the first eight splits, as many as the buffer has."""
    return splitting.key_splits(one, call)[:8]


@on("key_splits", "SOFT-3", "G", _SMALL, _LARGE)
def last_of_an_odd_number_of_splits_dropped(one: Splits, call: Attention) -> list[slice]:
    """Merge splits in pairs, and leave the last of an odd number greater than one."""
    found = splitting.key_splits(one, call)
    return found[:-1] if len(found) > 1 and len(found) % 2 else found


@on("key_splits", "SOFT-3", "G", *DECODING)
def last_split_of_whole_splits_dropped(one: Splits, call: Attention) -> list[slice]:
    """Leave out the last of several splits where the keys are a multiple of its size."""
    found = splitting.key_splits(one, call)
    return found[:-1] if len(found) > 1 and call.keys % one.size == 0 else found


def _of_the_first_in_each_group(array: Array, call: Attention) -> Array:
    """Repeat the plane of the first head of each group, where the array has an axis of heads."""
    group = call.query.shape[-3] // call.key.shape[-3]
    if array.ndim < 3 or array.shape[-3] == 1 or group == 1:
        return array
    return np.repeat(array[..., ::group, :, :], group, axis=-3)


def _grouped(option: str, rule: str, kind: str) -> tuple[Entry, ...]:
    def part(tile: Tile) -> Attention:
        return altered(tile.call, **{option: lambda array: _of_the_first_in_each_group(array, tile.whole)})

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
    default: Any = {"query_offset": 0, "is_causal": False, "dropout_rate": 0.0}.get(option)

    def always(tile: Tile) -> Attention:
        return cut(tile.whole.but(**{option: default}), tile.rows, tile.keys)

    def tail(tile: Tile) -> Attention:
        return cut(tile.whole.but(**{option: default}), tile.rows, tile.keys) if tile.is_last else tile.call

    always.__name__ = f"{option}_without_effect"
    always.__doc__ = f"Forget the {words} on the path for one query."
    tail.__name__ = f"{option}_without_effect_in_the_tail"
    tail.__doc__ = f"Forget the {words} in the last of several splits."
    return (
        *on("part", rule, kind, _LARGE)(always),
        *on("part", rule, kind, _LARGE)(tail),
    )


SCALE = _without("scale", "SCORE-3", "K")
SOFTCAP = _without("softcap", "SCORE-5", "F")
BIAS = _without("bias", "SCORE-4", "L")
MASK = _without("mask", "MASK-1", "R")
CAUSAL = _without("is_causal", "MASK-3", "A")
OFFSET = _without("query_offset", "MASK-7", "A")
WINDOW = _without("window", "MASK-8", "E")
QUERY_LENGTHS = _without("query_lengths", "MASK-10", "G")
KEY_LENGTHS = _without("key_lengths", "MASK-9", "G")
DROPOUT = _without("dropout_mask", "DROP-1", "J")


def _without_segments(tile: Tile) -> Attention:
    return tile.call.but(query_segment_ids=None, key_segment_ids=None) if tile.is_last else tile.call


@on("part", "MASK-11", "R", _MIDDLE, _LARGE)
def segments_without_effect_in_the_tail(tile: Tile) -> Attention:
    """Forget the segments in the last of several splits."""
    return _without_segments(tile)


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
def columns_past_64_of_later_splits_dropped(tile: Tile, call: Attention, p: Array, allowed: Mask) -> Array:
    """Write the first 64 columns of each split after the first."""
    found = splitting.weighted(tile, call, p, allowed)
    if tile.number:
        found[..., 64:] = 0
    return found
