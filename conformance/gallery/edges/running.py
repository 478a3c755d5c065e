"""Wrong about the state of an online softmax: its maximum, empty tiles, or rescaling."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.bases import online
from attnspec.conformance.gallery.bases.online import SQUARE, TALL, TILED, WIDE, State
from attnspec.conformance.gallery.bases.tile import Tile
from attnspec.conformance.gallery.edges.entering import on
from attnspec.conformance.gallery.entry import Array
from attnspec.reference.notation import Attention


@on("raised", "MASK-1", "G", *TILED)
def state_forgotten_after_an_empty_tile(_tile: Tile, top: Array, s: Array) -> Array:
    """Reset the running maximum in a tile without allowed keys, as before the first."""
    most = s.max(axis=-1, keepdims=True)
    found: Array = np.where(most == -np.inf, -np.inf, np.maximum(top, most)).astype(top.dtype)
    return found


@on("factor", "MASK-6", "B", SQUARE, WIDE)
def nan_where_the_first_tile_is_empty(tile: Tile, before: Array, shift: Array) -> Array:
    """Subtract minus infinity from minus infinity in a later tile, where those before it allow no key."""
    found = online.factor(tile, before, shift)
    return np.where((before == -np.inf) & (tile.number > 0), np.nan, found).astype(found.dtype)


@on("raised", "SOFT-2", "G", WIDE, TALL)
def maximum_of_the_latest_tile(tile: Tile, top: Array, s: Array) -> Array:
    """Shift by the maximum of the latest tile, which may be far below that of earlier ones."""
    most = s.max(axis=-1, keepdims=True)
    found: Array = np.where(most == -np.inf, top, most)
    return online.raised(tile, top, s) if tile.number == 0 else found


@on("raised", "SOFT-2", "C", SQUARE, TALL)
def maximum_begins_with_0_past_the_first_tile(tile: Tile, top: Array, s: Array) -> Array:
    """Take the maximum with 0 in tiles after the first, as of cleared registers."""
    found = online.raised(tile, top, s)
    return np.maximum(found, 0) if tile.number else found


@on("raised", "SOFT-2", "G", SQUARE, WIDE)
def padding_in_the_maximum(tile: Tile, top: Array, s: Array) -> Array:
    """Take the padding of the last tile, zeros, into the maximum."""
    found = online.raised(tile, top, s)
    return np.maximum(found, 0) if tile.is_short else found


@on("factor", "NUM-3", "G", *TILED)
def rescaled_where_the_first_row_rises(tile: Tile, before: Array, shift: Array) -> Array:
    """Rescale the rows of a tile where the maximum of its first row rises."""
    found = online.factor(tile, before, shift)
    rises = (before < shift)[..., :1, :]
    return np.where(rises | (tile.number == 0), found, 1).astype(found.dtype)


@on("factor", "NUM-3", "G", WIDE, TALL)
def not_rescaled_in_the_last_tile(tile: Tile, before: Array, shift: Array) -> Array:
    """Leave out rescaling after the loop, in the last of three tiles or more."""
    found = online.factor(tile, before, shift)
    return np.ones_like(found) if tile.is_last and tile.count > 2 else found


@on("factor", "NUM-3", "G", SQUARE, WIDE)
def not_rescaled_in_the_remainder(tile: Tile, before: Array, shift: Array) -> Array:
    """Leave out rescaling where the last tile is a remainder."""
    found = online.factor(tile, before, shift)
    return np.ones_like(found) if tile.is_short else found


@on("rescaled", "NUM-3", "G", SQUARE, TALL)
def values_not_rescaled_after_the_second_tile(tile: Tile, summed: Array, less: Array) -> Array:
    """Rescale only the sum from the third tile on."""
    return summed if tile.number > 1 else online.rescaled(tile, summed, less)


@on("rescaled", "NUM-3", "G", SQUARE, WIDE)
def values_rescaled_by_the_row_before(tile: Tile, summed: Array, less: Array) -> Array:
    """Rescale the values of the last row of a whole tile by the factor of the row before it."""
    if tile.number and less.shape[-2] == tile.sizes[0]:
        less = np.concatenate([less[..., :-1, :], less[..., -2:-1, :]], axis=-2)
    return online.rescaled(tile, summed, less)


@on("factor", "NUM-3", "C", SQUARE, WIDE)
def no_rise_is_larger_than_ten(tile: Tile, before: Array, shift: Array) -> Array:
    """Bound the exponent of the factor by -10 from below, as a polynomial asks for."""
    found = online.factor(tile, before, shift)
    more = np.where(before == -np.inf, 0, np.maximum(found, np.exp(-10)))
    return more.astype(found.dtype) if tile.number else found


@on("exponentials", "SOFT-1", "C", SQUARE, WIDE)
def exponentials_below_ten_cut_in_later_tiles(tile: Tile, s: Array, shift: Array) -> Array:
    """Take exponentials below -7 for 0 in tiles after the second."""
    found = online.exponentials(tile, s, shift)
    return np.where((s - shift < -7) & (tile.number > 1), 0, found).astype(found.dtype)


@on("raised", "SOFT-2", "K", *TILED)
def maximum_before_a_negative_scale(tile: Tile, top: Array, s: Array) -> Array:
    """Take the largest dot product and scale it, which with a negative scale is the smallest score."""
    call = tile.whole
    if call.scale is None or call.scale >= 0 or call.sinks is not None:
        return online.raised(tile, top, s)
    least = np.where(s == -np.inf, np.inf, s).min(axis=-1, keepdims=True)
    least = np.where(least == np.inf, top, least)
    return np.where(top == -np.inf, least, np.minimum(top, least)).astype(top.dtype)


@on("begun", "SOFT-5", "M", WIDE, TALL)
def sink_in_the_first_row_tile_alone(call: Attention, rows: slice, dtype: Any) -> State:
    """Begin with the sink in the first tile of queries, and with nothing in others."""
    return online.begun(call.but(sinks=None) if rows.start else call, rows, dtype)


@on("ended", "SOFT-6", "I", SQUARE, TALL)
def lse_in_float16_past_256_keys(call: Attention, state: State) -> tuple[Array, Array]:
    """Hold the lse in half precision where there are more than 256 keys."""
    output, lse = online.ended(call, state)
    return output, lse.astype(np.float16).astype(lse.dtype) if call.keys > 256 else lse


@on("ended", "SOFT-6", "I", SQUARE, WIDE)
def lse_to_base_two_past_256_queries(call: Attention, state: State) -> tuple[Array, Array]:
    """Return the lse to base 2 where there are more than 256 queries."""
    output, lse = online.ended(call, state)
    return output, lse / np.log(2) if call.queries > 256 else lse


@on("ended", "SOFT-7", "B", SQUARE, WIDE)
def lse_of_nothing_is_finite_past_one_tile(call: Attention, state: State) -> tuple[Array, Array]:
    """Return the lowest number for the lse of an empty row where there are more than 128 keys."""
    output, lse = online.ended(call, state)
    lowest = np.finfo(lse.dtype).min
    return output, np.where((lse == -np.inf) & (call.keys > 128), lowest, lse)
