"""Wrong about the tiles that a loop visits: it ends too early, skips tiles, or errs in the remainder."""

from collections.abc import Callable
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
    Online,
    Tile,
    cut,
)
from attnspec.conformance.gallery.edges.entries import (
    WITHOUT_LAST_ALONE,
    WITHOUT_LAST_OF_ODD,
    for_options,
    on,
    on_rows,
    without,
)
from attnspec.conformance.gallery.entry import After, Array, Entry, alter, base
from attnspec.reference.call import Mask
from attnspec.reference.notation import Attention

Slices = list[slice]


def _until(result: Slices, is_last: Any) -> Slices:
    """Return the tiles before the one that ends the loop. The first tile never ends it."""
    for number, keys in enumerate(result):
        if number and is_last(keys):
            return result[:number]
    return result


def _until_nothing_is_left(loop: Online, call: Attention, rows: slice, allowed: Callable[..., Any]) -> Slices:
    """End the loop at a tile without a pair that an option allows."""
    tiles = online.key_tiles(loop, call, rows)
    return _until(tiles, lambda keys: not np.any(allowed(cut(call, rows, keys))))


ENTRIES = on_rows(
    ("ends_at_a_masked_tile", "key_tiles", "MASK-1", "G", TILED,
     lambda loop, call, rows: _until_nothing_is_left(loop, call, rows, base.by_mask),
     "End the loop at a tile of which the mask leaves nothing."),
    ("ends_at_a_tile_of_other_segments", "key_tiles", "MASK-11", "G", (WIDE, TALL),
     lambda loop, call, rows: _until_nothing_is_left(loop, call, rows, base.by_segments),
     "End the loop at a tile without a key of the queries' segments."),
    ("ends_at_a_tile_of_minus_infinity", "key_tiles", "MASK-2", "G", (SQUARE, TALL),
     lambda loop, call, rows: _until_nothing_is_left(loop, call, rows, base.by_bias),
     "End the loop at a tile whose bias is minus infinity."),
    ("last_key_alone_in_its_tile_dropped", "key_tiles", "SOFT-3", "G", (SQUARE, WIDE),
     WITHOUT_LAST_ALONE,
     "Count tiles up to the last key, which is left out where it begins a tile."),
    ("last_of_an_odd_number_of_tiles_dropped", "key_tiles", "SOFT-3", "G", (WIDE, TALL),
     WITHOUT_LAST_OF_ODD,
     "Take tiles of keys in pairs, and leave the last of an odd number greater than one."),
    ("tiles_after_fours_dropped", "key_tiles", "SOFT-3", "G", (SQUARE, WIDE),
     After(lambda tiles, *_: tiles[: len(tiles) // 4 * 4] if len(tiles) > 4 else tiles),
     "Take tiles of keys by fours where there are as many, and leave the others."),
    ("last_tile_of_whole_tiles_dropped", "key_tiles", "SOFT-3", "G", TILED,
     After(lambda tiles, loop, call, _rows: tiles[:-1]
         if len(tiles) > 1 and call.keys % loop.sizes[1] == 0 else tiles),
     "Take the last of several tiles for a remainder, of which nothing is left where keys are a multiple."),
    ("tiles_past_eight_dropped", "key_tiles", "SOFT-3", "N", (SQUARE, TALL),
     lambda loop, call, rows: online.key_tiles(loop, call, rows)[:8],
     "Keep the numbers of tiles in a table of eight."),
    ("last_row_alone_in_its_tile_dropped", "row_tiles", "SOFT-3", "G", (SQUARE, TALL),
     WITHOUT_LAST_ALONE,
     "Leave out the last query where it begins a tile."),
    ("last_of_an_odd_number_of_row_tiles_dropped", "row_tiles", "SOFT-3", "G", (SQUARE, WIDE),
     WITHOUT_LAST_OF_ODD,
     "Take tiles of queries in pairs, and leave the last of an odd number greater than one."),
    ("last_row_tile_of_whole_tiles_dropped", "row_tiles", "SOFT-3", "G", TILED,
     After(lambda tiles, loop, call: tiles[:-1]
         if len(tiles) > 1 and call.queries % loop.sizes[0] == 0 else tiles),
     "Leave out the last of several tiles of queries where their number is a multiple."),
    ("tiles_by_the_first_offset", "key_tiles", "MASK-7", "A", (WINDOWED, WINDOWED_SMALL),
     lambda loop, call, rows: windowed.visited(loop,
         alter(call, query_offset=lambda n: np.ravel(n)[:1]), rows),
     "Visit the tiles that the offset of the first batch entry leaves."),
    ("tiles_without_the_offset", "key_tiles", "MASK-7", "A", (WINDOWED, WINDOWED_SMALL),
     lambda loop, call, rows: windowed.visited(loop, call if call.keys <= loop.sizes[1]
         else call.but(query_offset=0), rows),
     "Visit the tiles that are left by the index of the queries, whatever the offset."),
    ("keys_of_the_last_tile_moved_back", "key_tiles", "SOFT-3", "G", (WIDE, TALL),
     After(lambda tiles, loop, call, _rows: [*tiles[:-1], slice(call.keys - loop.sizes[1], call.keys)]
         if call.keys > loop.sizes[1] else tiles),
     "Let the last tile of keys begin earlier, so that it is whole, and count some keys twice."),
)  # fmt: skip


@on("row_tiles", "MASK-10", "G", WIDE, TALL)
def row_tiles_past_a_length_passed_over(loop: Online, call: Attention) -> Slices:
    """Pass over a tile of queries whose last is past the longest query length, where there are several."""
    tiles = online.row_tiles(loop, call)
    if call.query_lengths is None or len(tiles) < 2:
        return tiles
    longest = np.max(call.query_lengths, initial=0)
    return [rows for rows in tiles if rows.stop <= longest or rows.start == 0]


@on("row_tiles", "MASK-10", "G", SQUARE, WIDE)
def row_tiles_by_the_first_query_length(loop: Online, call: Attention) -> Slices:
    """Visit as many tiles of queries as the first batch entry has."""
    tiles = online.row_tiles(loop, call)
    if call.query_lengths is None:
        return tiles
    return [rows for rows in tiles if rows.start < np.ravel(call.query_lengths)[:1].sum() or rows.start == 0]


@on("key_tiles", "MASK-9", "G", SQUARE, TALL)
def tiles_by_the_first_key_length(loop: Online, call: Attention, rows: slice) -> Slices:
    """Visit as many tiles of keys as the first batch entry has."""
    tiles = online.key_tiles(loop, call, rows)
    if call.key_lengths is None:
        return tiles
    return [keys for keys in tiles if keys.start < np.ravel(call.key_lengths)[:1].sum() or keys.start == 0]


@on("key_tiles", "MASK-11", "G", SQUARE, WIDE)
def tiles_by_their_first_and_last_segment(loop: Online, call: Attention, rows: slice) -> Slices:
    """Pass over tiles by the first and the last ids, as if they were sorted."""
    tiles = online.key_tiles(loop, call, rows)
    if call.query_segment_ids is None or not call.query_segment_ids.size:
        return tiles
    own = call.query_segment_ids[..., rows]

    def meets(keys: slice) -> Any:
        ids = call.key_segment_ids[..., keys]
        least, most = (np.minimum(own[..., 0], own[..., -1]), np.maximum(own[..., 0], own[..., -1]))
        return np.any(
            (np.maximum(ids[..., 0], ids[..., -1]) >= least) & (np.minimum(ids[..., 0], ids[..., -1]) <= most)
        )

    return [keys for keys in tiles if keys.start == 0 or meets(keys)]


@on("key_tiles", "MASK-8", "E", WINDOWED, WINDOWED_SMALL)
def window_ends_with_that_of_the_first_row(loop: Online, call: Attention, rows: slice) -> Slices:
    """End with the tile in which the window of the first query ends."""
    tiles = windowed.visited(loop, call, rows)
    right = (call.window or (None, None))[1]
    if right is None:
        return tiles
    first, _ = windowed.positions(call, rows)
    return [keys for keys in tiles if keys.start <= max(first + right, 0)]


@on("key_tiles", "MASK-8", "E", WINDOWED, WINDOWED_SMALL)
def window_begins_a_tile_late_at_a_multiple(loop: Online, call: Attention, rows: slice) -> Slices:
    """Begin a tile late where the window begins at the last key of a tile."""
    tiles = windowed.visited(loop, call, rows)
    left = (call.window or (None, None))[0]
    if left is None or not tiles:
        return tiles
    first, _ = windowed.positions(call, rows)
    begin = max(first - left, 0)
    return tiles[1:] if begin == tiles[0].stop - 1 and len(tiles) > 1 else tiles


@on("key_tiles", "MASK-8", "E", WINDOWED, WINDOWED_SMALL)
def window_of_five_tiles_at_most(loop: Online, call: Attention, rows: slice) -> Slices:
    """Visit the last five tiles of a window, as many as a ring of buffers has."""
    tiles = windowed.visited(loop, call, rows)
    return tiles if call.window is None else tiles[-5:]


def _has_short_rows(tile: Tile) -> bool:
    return bool(tile.rows.start > 0 and tile.rows.stop - tile.rows.start < tile.sizes[0])


@on("part", "SCORE-1", "G", SQUARE, WIDE)
def queries_of_the_last_rows_moved_back(tile: Tile) -> Attention:
    """Let the last tile of queries begin earlier, so that it is whole, and write its first rows."""
    if not _has_short_rows(tile):
        return tile.call
    begin, count = tile.whole.queries - tile.sizes[0], tile.rows.stop - tile.rows.start
    return tile.call.but(query=tile.whole.query[..., begin : begin + count, :])


@on("part", "SOFT-3", "G", SQUARE, TALL)
def values_of_the_last_tile_moved_back(tile: Tile) -> Attention:
    """Read the values of the last tile of keys from where a whole tile would begin."""
    if not tile.is_short:
        return tile.call
    begin, count = tile.keys.stop - tile.sizes[1], tile.keys.stop - tile.keys.start
    return tile.call.but(value=tile.whole.value[..., begin : begin + count, :])


@on("seen", "SOFT-3", "G", SQUARE, WIDE)
def keys_after_eights_of_the_last_tile_dropped(tile: Tile, call: Attention) -> Mask:
    """Load the keys of the last of several tiles by eights, and leave the others."""
    whole = call.keys // 8 * 8
    return online.seen(tile, call) & ((call.j < whole) | (not tile.is_short))


@on("exponentials", "SOFT-1", "G", WIDE, TALL)
def remainder_of_the_sum_by_pairs(tile: Tile, s: Array, shift: Array) -> Array:
    """Leave the last of an odd number of keys in a remainder out of the sum, but not its value."""
    result = online.exponentials(tile, s, shift)
    if tile.is_short and result.shape[-1] % 2:
        result[..., -1] = 0
    return result


def _without(option: str, rule: str, kind: str) -> tuple[Entry, ...]:
    words = option.replace("_", " ")

    def rows(tile: Tile) -> Attention:
        whole = without(tile.whole, option) if _has_short_rows(tile) else tile.whole
        return cut(whole, tile.rows, tile.keys)

    def keys(tile: Tile) -> Attention:
        whole = without(tile.whole, option) if tile.is_short else tile.whole
        return cut(whole, tile.rows, tile.keys)

    rows.__name__ = f"{option}_forgotten_in_the_last_rows"
    rows.__doc__ = f"Forget the {words} in the last tile of queries, where it is a remainder."
    keys.__name__ = f"{option}_forgotten_in_the_last_keys"
    keys.__doc__ = f"Forget the {words} in the last tile of keys, where it is a remainder."
    return (*on("part", rule, kind, WIDE)(rows), *on("part", rule, kind, SQUARE)(keys))


FORGOTTEN = for_options(
    _without,
    *(
        "scale",
        "softcap",
        "bias",
        "mask",
        "is_causal",
        "window",
        "dropout_mask",
        "dropout_rate",
        "key_lengths",
    ),
)


@on("scored", "SCORE-5", "F", SQUARE, WIDE)
def softcap_after_the_bias_in_the_last_keys(tile: Tile, call: Attention) -> Array:
    """Cap the sum of scores and bias in a remainder of keys."""
    if not tile.is_short:
        return online.scored(tile, call)
    result: Array = base.cap(call, base.add_bias(call, base.product(call) * base.factor(call)))
    return np.where(np.isneginf(result), -np.inf, result).astype(result.dtype)
