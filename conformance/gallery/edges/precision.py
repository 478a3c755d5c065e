"""Wrong about precision above a length, with one option, or in one part of a loop."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.bases import online
from attnspec.conformance.gallery.bases.online import SQUARE, TALL, TILED, WIDE, State
from attnspec.conformance.gallery.bases.tile import Tile
from attnspec.conformance.gallery.edges.entering import on
from attnspec.conformance.gallery.entry import Array, Entry, base
from attnspec.reference.notation import Attention

_SHORT = 2**-8
#: Options with which float64 is computed in float32.
_OPTIONS = (
    "scale",
    "softcap",
    "bias",
    "mask",
    "window",
    "query_lengths",
    "key_lengths",
    "query_segment_ids",
    "sinks",
    "dropout_mask",
)


def _single(array: Array) -> Array:
    with np.errstate(over="ignore"):
        return array.astype(np.float32).astype(array.dtype)


def _tf32(array: Array) -> Array:
    """Truncate a float32 to ten binary digits after the first."""
    short = np.ascontiguousarray(array, np.float32)
    return (short.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32).astype(array.dtype)


@on("scored", "NUM-3", "C", *TILED)
def tf32_past_128_keys(tile: Tile, call: Attention) -> Array:
    """Cut queries and keys to tf32 where there are more than 128 keys."""
    short = call.but(query=_tf32(call.query), key=_tf32(call.key))
    return online.scored(tile, short if tile.whole.keys > 128 else call)


@on("scored", "NUM-3", "C", SQUARE, TALL)
def tf32_past_a_depth_of_64(tile: Tile, call: Attention) -> Array:
    """Cut queries and keys to tf32 where the depth is larger than 64."""
    short = call.but(query=_tf32(call.query), key=_tf32(call.key))
    return online.scored(tile, short if call.query.shape[-1] > 64 else call)


@on("exponentials", "NUM-3", "C", SQUARE, TALL)
def exponentials_in_float16_past_256_keys(tile: Tile, s: Array, shift: Array) -> Array:
    """Round exponentials to float16, those in the denominator too, where there are more than 256 keys."""
    found = online.exponentials(tile, s, shift)
    return found.astype(np.float16).astype(found.dtype) if tile.whole.keys > 256 else found


@on("weighted", "NUM-3", "C", SQUARE, WIDE)
def values_in_float16_past_two_tiles(tile: Tile, call: Attention, e: Array, allowed: Array) -> Array:
    """Round what a tile adds to the output to float16 from the third tile on."""
    found = online.weighted(tile, call, e, allowed)
    return found.astype(np.float16).astype(found.dtype) if tile.number > 1 else found


@on("rescaled", "NUM-3", "C", WIDE, TALL)
def output_kept_in_float16_past_four_tiles(tile: Tile, summed: Array, less: Array) -> Array:
    """Keep what has been summed in float16 between tiles, where there are more than four."""
    found = online.rescaled(tile, summed, less)
    return found.astype(np.float16).astype(found.dtype) if tile.count > 4 else found


@on("exponentials", "NUM-2", "C", SQUARE, TALL)
def exponentials_in_float32_past_64_keys(tile: Tile, s: Array, shift: Array) -> Array:
    """Take exponentials in float32 where there are more than 64 keys, whatever the inputs are."""
    found = online.exponentials(tile, s, shift)
    return _single(found) if tile.whole.keys > 64 else found


@on("factor", "NUM-2", "C", SQUARE, WIDE)
def factor_in_float32(_tile: Tile, before: Array, shift: Array) -> Array:
    """Rescale by a factor in float32, whatever the inputs are."""
    found = online.factor(_tile, before, shift)
    return _single(found) if _tile.number else found


@on("weighted", "NUM-2", "C", SQUARE, WIDE)
def values_in_float32_in_the_last_keys(tile: Tile, call: Attention, e: Array, allowed: Array) -> Array:
    """Take the sum of a remainder of keys in float32, whatever the inputs are."""
    found = online.weighted(tile, call, e, allowed)
    return _single(found) if tile.is_short else found


@on("ended", "NUM-2", "C", WIDE, TALL)
def lse_in_float32_past_64_keys(call: Attention, state: State) -> tuple[Array, Array]:
    """Hold the lse in float32 where there are more than 64 keys, whatever the inputs are."""
    output, lse = online.ended(call, state)
    return output, _single(lse) if call.keys > 64 else lse


def _beside(option: str) -> tuple[Entry, ...]:
    def scored(tile: Tile, call: Attention) -> Array:
        s = online.scored(tile, call)
        return _single(s) if getattr(call, option) is not None and tile.whole.keys > 64 else s

    words = option.replace("query_segment_ids", "segments").replace("_", " ")
    scored.__name__ = f"float32_beside_{words.replace(' ', '_')}_past_64_keys"
    scored.__doc__ = f"Compute scores in float32 beside the {words}, where there are more than 64 keys."
    return on("scored", "NUM-2", "C", WIDE)(scored)


BESIDE = tuple(one for option in _OPTIONS for one in _beside(option))


@on("scored", "NUM-2", "C", SQUARE, WIDE)
def float32_in_causal_tiles_past_the_first_row(tile: Tile, call: Attention) -> Array:
    """Compute causal scores in float32 from the second tile of queries on."""
    s = online.scored(tile, call)
    return _single(s) if call.is_causal and tile.rows.start else s


@on("scored", "NUM-3", "C", SQUARE, TALL)
def softcap_by_a_short_tangent_past_128_keys(tile: Tile, call: Attention) -> Array:
    """Take the hyperbolic tangent to eight digits where there are more than 128 keys."""
    s = online.scored(tile, call)
    if call.softcap is None or tile.whole.keys <= 128 or call.bias is not None:
        return s
    found: Array = np.round(s / (call.softcap * _SHORT)) * call.softcap * _SHORT
    return found.astype(s.dtype)


@on("begun", "NUM-3", "M", SQUARE, WIDE)
def sinks_in_bfloat16_past_one_row_tile(call: Attention, rows: slice, dtype: Any) -> State:
    """Cut sinks to eight digits from the second tile of queries on."""
    if call.sinks is None or not rows.start:
        return online.begun(call, rows, dtype)
    short = np.ascontiguousarray(base.wide(call, call.sinks), np.float32).view(np.uint32) & np.uint32(
        0xFFFF0000
    )
    return online.begun(call.but(sinks=short.view(np.float32)), rows, dtype)
