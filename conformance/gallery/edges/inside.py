"""Wrong inside a tile: its mask, its positions, or the state of the online softmax."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.bases import online
from attnspec.conformance.gallery.bases import online as windowed
from attnspec.conformance.gallery.bases.online import (
    SQUARE,
    TALL,
    TILED,
    WIDE,
    WINDOWED,
    WINDOWED_SMALL,
    Tile,
)
from attnspec.conformance.gallery.edges.entries import on, on_rows
from attnspec.conformance.gallery.entry import After, Array, alter, base
from attnspec.reference.call import Mask
from attnspec.reference.notation import Attention


def _full(array: Array, call: Attention) -> Array:
    return np.broadcast_to(array, call.shape)


def _other_sources(call: Attention, *without: str) -> Mask:
    result: Mask = base.allowed_pairs(call.but(**dict.fromkeys(without)))
    return result


ENTRIES = on_rows(
    ("lengths_in_the_last_tile_alone", "seen", "MASK-9", "G", (WIDE, TALL),
     lambda tile, call: online.seen(tile, call) if call.key_lengths is None or not np.size(call.key_lengths)
         else _other_sources(call, "key_lengths")
         if int(np.max(call.key_lengths)) > tile.keys.stop - tile.keys.start else online.seen(tile, call),
     "Apply key lengths in the tile in which the longest ends, and in those after it."),
    ("offset_in_the_first_row_tile_alone", "part", "MASK-7", "A", (SQUARE, WIDE),
     lambda tile: Tile(tile.whole.but(query_offset=0), tile.rows, tile.keys).call
         if tile.rows.start else tile.call,
     "Add the offset to the positions of the first tile of queries, and forget it in others."),
    ("query_lengths_in_the_first_row_tile_alone", "seen", "MASK-10", "G", (SQUARE, TALL),
     lambda tile, call: _other_sources(call, "query_lengths") if tile.rows.start else online.seen(tile, call),
     "Apply query lengths in the first tile of queries."),
    ("bias_rows_of_the_first_tile", "part", "SCORE-4", "L", (WIDE, TALL),
     lambda tile: Tile(alter(tile.whole, bias=lambda x: _move_rows(x, tile)), tile.rows, tile.keys).call,
     "Read the rows of the bias from the first tile of queries."),
    ("dropout_rows_of_the_first_tile", "part", "DROP-1", "J", (SQUARE, TALL),
     lambda tile: Tile(alter(tile.whole, dropout_mask=lambda x: _move_rows(x, tile)),
         tile.rows, tile.keys).call,
     "Read the rows of the dropout mask from the first tile of queries."),
    ("nan_where_the_first_tile_is_empty", "factor", "MASK-6", "B", (SQUARE, WIDE),
     After(lambda result, tile, before, _shift:
         np.where((before == -np.inf) & (tile.number > 0), np.nan, result).astype(result.dtype)),
     "Subtract minus infinity from minus infinity in a later tile, where those before it allow no key."),
    ("rescaled_where_the_first_row_rises", "factor", "NUM-3", "G", TILED,
     After(lambda result, tile, before, shift:
         np.where((before < shift)[..., :1, :] | (tile.number == 0), result, 1).astype(result.dtype)),
     "Rescale the rows of a tile where the maximum of its first row rises."),
    ("not_rescaled_in_the_last_tile", "factor", "NUM-3", "G", (WIDE, TALL),
     After(lambda result, tile, *_: np.ones_like(result) if tile.is_last and tile.count > 2 else result),
     "Leave out rescaling after the loop, in the last of three tiles or more."),
    ("not_rescaled_in_the_remainder", "factor", "NUM-3", "G", (SQUARE, WIDE),
     After(lambda result, tile, *_: np.ones_like(result) if tile.is_short else result),
     "Leave out rescaling where the last tile is a remainder."),
    ("values_not_rescaled_after_the_second_tile", "rescaled", "NUM-3", "G", (SQUARE, TALL),
     lambda tile, summed, less: summed if tile.number > 1 else online.rescaled(tile, summed, less),
     "Rescale only the sum from the third tile on."),
    ("exponentials_below_ten_cut_in_later_tiles", "exponentials", "SOFT-1", "C", (SQUARE, WIDE),
     After(lambda result, tile, s, shift: np.where((s - shift < -7) & (tile.number > 1), 0,
         result).astype(result.dtype)),
     "Take exponentials below -7 for 0 in tiles after the second."),
    ("sink_in_the_first_row_tile_alone", "begun", "SOFT-5", "M", (WIDE, TALL),
     lambda call, rows, dtype: online.begun(call.but(sinks=None) if rows.start else call, rows, dtype),
     "Begin with the sink in the first tile of queries, and with nothing in others."),
    ("lse_in_float16_past_256_keys", "ended", "SOFT-6", "I", (SQUARE, TALL),
     After(lambda output, lse, call, _state:
         (output, lse.astype(np.float16).astype(lse.dtype) if call.keys > 256 else lse)),
     "Hold the lse in half precision where there are more than 256 keys."),
    ("lse_to_base_two_past_256_queries", "ended", "SOFT-6", "I", (SQUARE, WIDE),
     After(lambda output, lse, call, _state: (output, lse / np.log(2) if call.queries > 256 else lse)),
     "Return the lse to base 2 where there are more than 256 queries."),
    ("lse_of_nothing_is_finite_past_one_tile", "ended", "SOFT-7", "B", (SQUARE, WIDE),
     After(lambda output, lse, call, _state:
         (output, np.where((lse == -np.inf) & (call.keys > 128), np.finfo(lse.dtype).min, lse))),
     "Return the lowest number for the lse of an empty row where there are more than 128 keys."),
)  # fmt: skip


@on("seen", "MASK-1", "G", WIDE, TALL)
def mask_is_full_by_its_first_row(tile: Tile, call: Attention) -> Mask:
    """Leave the mask out in a tile of several rows whose first row allows every key."""
    if call.mask is None or call.queries < 2:
        return online.seen(tile, call)
    full = _full(call.mask, call)[..., :1, :].all(axis=(-1, -2), keepdims=True)
    return _other_sources(call, "mask") & (full | call.mask)


@on("seen", "MASK-1", "G", *TILED)
def mask_is_empty_by_its_first_row(tile: Tile, call: Attention) -> Mask:
    """Pass over a tile after the first whose first row allows no key by the mask."""
    if call.mask is None or not tile.keys.start:
        return online.seen(tile, call)
    some = _full(call.mask, call)[..., :1, :].any(axis=(-1, -2), keepdims=True)
    return online.seen(tile, call) & some


@on("seen", "MASK-1", "G", SQUARE, TALL)
def mask_is_full_by_its_corners(tile: Tile, call: Attention) -> Mask:
    """Leave the mask out in a whole tile whose four corners are allowed."""
    if call.mask is None or call.shape[-2:] != tile.sizes:
        return online.seen(tile, call)
    corners = _full(call.mask, call)[..., :: call.queries - 1, :: call.keys - 1]
    return _other_sources(call, "mask") & (corners.all(axis=(-1, -2), keepdims=True) | call.mask)


@on("seen", "MASK-1", "G", SQUARE, WIDE)
def mask_of_the_first_head_in_full_tiles(tile: Tile, call: Attention) -> Mask:
    """Leave the mask out in a tile that the first head may see all of."""
    if call.mask is None or not _full(call.mask, call)[..., :1, :, :].size:
        return online.seen(tile, call)
    full = _full(call.mask, call)[..., :1, :, :].all(axis=(-1, -2, -3), keepdims=True) & (call.keys > 1)
    return _other_sources(call, "mask") & (full | call.mask) if tile.number else online.seen(tile, call)


@on("seen", "MASK-2", "G", SQUARE, WIDE)
def bias_is_empty_by_its_first_row(tile: Tile, call: Attention) -> Mask:
    """Pass over a tile after the first whose first row is minus infinity in the bias."""
    if call.bias is None or not tile.keys.start:
        return online.seen(tile, call)
    some = (_full(call.bias, call)[..., :1, :] != -np.inf).any(axis=(-1, -2), keepdims=True)
    return online.seen(tile, call) & some


def causal_on_the_diagonal_alone(tile: Tile, call: Attention) -> Mask:
    """Apply the causal mask in tiles on the diagonal by their numbers, and visit none after them."""
    if not call.is_causal or tile.rows.start == 0:
        return online.seen(tile, call)
    row, column = tile.rows.start // tile.sizes[0], tile.keys.start // tile.sizes[1]
    before = row > column
    return online.seen(tile, call.but(is_causal=False) if before else call)


DIAGONAL = on("seen", "MASK-3", "A", SQUARE, WIDE)(causal_on_the_diagonal_alone)


@on("seen", "MASK-3", "A", WINDOWED, WINDOWED_SMALL)
def causal_is_full_by_the_last_row(tile: Tile, call: Attention) -> Mask:
    """Take a tile for full by the position of its last query, where it is not the only one."""
    _, last = windowed.positions(tile.whole, tile.rows)
    full = tile.keys.stop - 1 <= last and tile.number
    return windowed.masked_at_edges(tile, call.but(is_causal=False) if full else call)


@on("seen", "MASK-8", "E", WINDOWED, WINDOWED_SMALL)
def window_is_full_by_the_first_row(tile: Tile, call: Attention) -> Mask:
    """Take a tile for full by the left bound of its first query."""
    first, _ = windowed.positions(tile.whole, tile.rows)
    left, right = call.window or (None, None)
    full = left is not None and tile.keys.start >= first - left and tile.keys.start > 0
    return windowed.masked_at_edges(tile, call.but(window=(None, right)) if full else call)


@on("seen", "MASK-9", "G", SQUARE, TALL)
def nothing_left_of_a_length_of_whole_tiles(tile: Tile, call: Attention) -> Mask:
    """Keep of the tile in which a length ends what is left over, which is nothing where it is a multiple."""
    if call.key_lengths is None:
        return online.seen(tile, call)
    lengths = np.asarray(call.key_lengths)[..., None, None, None]
    return online.seen(tile, call) & ((lengths != tile.sizes[1]) | (tile.keys.start == 0))


@on("part", "MASK-11", "R", WIDE, TALL)
def segments_of_the_first_row_tile(tile: Tile) -> Attention:
    """Read the ids of queries from the first tile of queries."""
    rows = tile.rows.stop - tile.rows.start
    return alter(tile.call, query_segment_ids=lambda _: tile.whole.query_segment_ids[..., :rows])


@on("part", "MASK-11", "R", SQUARE, TALL)
def segments_of_the_first_tile(tile: Tile) -> Attention:
    """Read the ids of keys from the first tile of keys."""
    keys = tile.keys.stop - tile.keys.start
    return alter(tile.call, key_segment_ids=lambda _: tile.whole.key_segment_ids[..., :keys])


@on("part", "MASK-1", "R", SQUARE, WIDE)
def mask_rows_of_the_first_tile(tile: Tile) -> Attention:
    """Read the rows of the mask from the first tile of queries."""
    return Tile(alter(tile.whole, mask=lambda x: _move_rows(x, tile)), tile.rows, tile.keys).call


def _move_rows(array: Array, tile: Tile) -> Array:
    """Put the first rows in the place of those of the tile."""
    if array.ndim < 2 or array.shape[-2] == 1:
        return array
    result = array.copy()
    result[..., tile.rows, :] = array[..., : tile.rows.stop - tile.rows.start, :]
    return result


@on("raised", "MASK-1", "G", *TILED)
def state_forgotten_after_an_empty_tile(_tile: Tile, top: Array, s: Array) -> Any:
    """Reset the running maximum in a tile without allowed keys, as before the first."""
    most = s.max(axis=-1, keepdims=True)
    return np.where(most == -np.inf, -np.inf, np.maximum(top, most)).astype(top.dtype)


@on("raised", "SOFT-2", "G", WIDE, TALL)
def maximum_of_the_latest_tile(tile: Tile, top: Array, s: Array) -> Array:
    """Shift by the maximum of the latest tile, which may be far below that of earlier ones."""
    most = s.max(axis=-1, keepdims=True)
    result: Array = np.where(most == -np.inf, top, most)
    return online.raised(tile, top, s) if tile.number == 0 else result


@on("raised", "SOFT-2", "C", SQUARE, TALL)
def maximum_begins_with_0_past_the_first_tile(tile: Tile, top: Array, s: Array) -> Any:
    """Take the maximum with 0 in tiles after the first, as of cleared registers."""
    result = online.raised(tile, top, s)
    return np.maximum(result, 0) if tile.number else result


@on("raised", "SOFT-2", "G", SQUARE, WIDE)
def padding_in_the_maximum(tile: Tile, top: Array, s: Array) -> Any:
    """Take the padding of the last tile, zeros, into the maximum."""
    result = online.raised(tile, top, s)
    return np.maximum(result, 0) if tile.is_short else result


@on("rescaled", "NUM-3", "G", SQUARE, WIDE)
def values_rescaled_by_the_row_before(tile: Tile, summed: Array, less: Array) -> Array:
    """Rescale the values of the last row of a whole tile by the factor of the row before it."""
    if tile.number and less.shape[-2] == tile.sizes[0]:
        less = np.concatenate([less[..., :-1, :], less[..., -2:-1, :]], axis=-2)
    return online.rescaled(tile, summed, less)


@on("factor", "NUM-3", "C", SQUARE, WIDE)
def no_rise_is_larger_than_ten(tile: Tile, before: Array, shift: Array) -> Array:
    """Bound the exponent of the factor by -10 from below, as a polynomial asks for."""
    result = online.factor(tile, before, shift)
    more = np.where(before == -np.inf, 0, np.maximum(result, np.exp(-10)))
    return more.astype(result.dtype) if tile.number else result


@on("raised", "SOFT-2", "K", *TILED)
def maximum_before_a_negative_scale(tile: Tile, top: Array, s: Array) -> Any:
    """Take the largest dot product and scale it, which with a negative scale is the smallest score."""
    call = tile.whole
    if call.scale is None or call.scale >= 0 or call.sinks is not None:
        return online.raised(tile, top, s)
    least = np.where(s == -np.inf, np.inf, s).min(axis=-1, keepdims=True)
    least = np.where(least == np.inf, top, least)
    return np.where(top == -np.inf, least, np.minimum(top, least)).astype(top.dtype)
