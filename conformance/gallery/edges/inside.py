"""Wrong about masks inside a tile: a part of the tile decides for all of it, or positions are wrong."""

import numpy as np

from attnspec.conformance.gallery.bases import online, windowed
from attnspec.conformance.gallery.bases.online import SQUARE, TALL, TILED, WIDE
from attnspec.conformance.gallery.bases.tile import Tile
from attnspec.conformance.gallery.bases.windowed import WINDOWED, WINDOWED_SMALL
from attnspec.conformance.gallery.edges.entering import on
from attnspec.conformance.gallery.entry import Array, altered, base
from attnspec.reference.call import Mask
from attnspec.reference.notation import Attention


def _full(array: Array, call: Attention) -> Array:
    return np.broadcast_to(array, call.shape)


def _other_sources(call: Attention, *without: str) -> Mask:
    found: Mask = base.allowed(call.but(**dict.fromkeys(without)))
    return found


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


@on("seen", "MASK-9", "G", WIDE, TALL)
def lengths_in_the_last_tile_alone(tile: Tile, call: Attention) -> Mask:
    """Apply key lengths in the tile in which the longest ends, and in those after it."""
    if call.key_lengths is None or not np.size(call.key_lengths):
        return online.seen(tile, call)
    before = int(np.max(call.key_lengths)) > tile.keys.stop - tile.keys.start
    return _other_sources(call, "key_lengths") if before else online.seen(tile, call)


@on("seen", "MASK-9", "G", SQUARE, TALL)
def nothing_left_of_a_length_of_whole_tiles(tile: Tile, call: Attention) -> Mask:
    """Keep of the tile in which a length ends what is left over, which is nothing where it is a multiple."""
    if call.key_lengths is None:
        return online.seen(tile, call)
    lengths = np.asarray(call.key_lengths)[..., None, None, None]
    return online.seen(tile, call) & ((lengths != tile.sizes[1]) | (tile.keys.start == 0))


@on("part", "MASK-7", "A", SQUARE, WIDE)
def offset_in_the_first_row_tile_alone(tile: Tile) -> Attention:
    """Add the offset to the positions of the first tile of queries, and forget it in others."""
    return Tile(tile.whole.but(query_offset=0), tile.rows, tile.keys).call if tile.rows.start else tile.call


@on("part", "MASK-11", "R", WIDE, TALL)
def segments_of_the_first_row_tile(tile: Tile) -> Attention:
    """Read the ids of queries from the first tile of queries."""
    rows = tile.rows.stop - tile.rows.start
    return altered(tile.call, query_segment_ids=lambda _: tile.whole.query_segment_ids[..., :rows])


@on("part", "MASK-11", "R", SQUARE, TALL)
def segments_of_the_first_tile(tile: Tile) -> Attention:
    """Read the ids of keys from the first tile of keys."""
    keys = tile.keys.stop - tile.keys.start
    return altered(tile.call, key_segment_ids=lambda _: tile.whole.key_segment_ids[..., :keys])


@on("seen", "MASK-10", "G", SQUARE, TALL)
def query_lengths_in_the_first_row_tile_alone(tile: Tile, call: Attention) -> Mask:
    """Apply query lengths in the first tile of queries."""
    return _other_sources(call, "query_lengths") if tile.rows.start else online.seen(tile, call)


@on("part", "MASK-1", "R", SQUARE, WIDE)
def mask_rows_of_the_first_tile(tile: Tile) -> Attention:
    """Read the rows of the mask from the first tile of queries."""
    return Tile(altered(tile.whole, mask=lambda x: _moved(x, tile)), tile.rows, tile.keys).call


@on("part", "SCORE-4", "L", WIDE, TALL)
def bias_rows_of_the_first_tile(tile: Tile) -> Attention:
    """Read the rows of the bias from the first tile of queries."""
    return Tile(altered(tile.whole, bias=lambda x: _moved(x, tile)), tile.rows, tile.keys).call


@on("part", "DROP-1", "J", SQUARE, TALL)
def dropout_rows_of_the_first_tile(tile: Tile) -> Attention:
    """Read the rows of the dropout mask from the first tile of queries."""
    return Tile(altered(tile.whole, dropout_mask=lambda x: _moved(x, tile)), tile.rows, tile.keys).call


def _moved(array: Array, tile: Tile) -> Array:
    """Put the first rows in the place of those of the tile."""
    if array.ndim < 2 or array.shape[-2] == 1:
        return array
    found = array.copy()
    found[..., tile.rows, :] = array[..., : tile.rows.stop - tile.rows.start, :]
    return found
