"""Wrong in the remainder after whole tiles: its rows, its keys, or its options."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.bases import online
from attnspec.conformance.gallery.bases.online import SQUARE, TALL, WIDE, Online
from attnspec.conformance.gallery.bases.tile import Tile, cut
from attnspec.conformance.gallery.edges.entering import on
from attnspec.conformance.gallery.entry import Array, Entry, base
from attnspec.reference.call import Mask
from attnspec.reference.notation import Attention


def _has_short_rows(tile: Tile) -> bool:
    return bool(tile.rows.start > 0 and tile.rows.stop - tile.rows.start < tile.sizes[0])


@on("part", "SCORE-1", "G", SQUARE, WIDE)
def queries_of_the_last_rows_moved_back(tile: Tile) -> Attention:
    """Let the last tile of queries begin earlier, so that it is whole, and write its first rows."""
    if not _has_short_rows(tile):
        return tile.call
    begin, count = tile.whole.queries - tile.sizes[0], tile.rows.stop - tile.rows.start
    return tile.call.but(query=tile.whole.query[..., begin : begin + count, :])


@on("key_tiles", "SOFT-3", "G", WIDE, TALL)
def keys_of_the_last_tile_moved_back(one: Online, call: Attention, rows: slice) -> list[slice]:
    """Let the last tile of keys begin earlier, so that it is whole, and count some keys twice."""
    found = online.key_tiles(one, call, rows)
    return [*found[:-1], slice(call.keys - one.sizes[1], call.keys)] if call.keys > one.sizes[1] else found


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
    found = online.exponentials(tile, s, shift)
    if tile.is_short and found.shape[-1] % 2:
        found[..., -1] = 0
    return found


def _without(option: str, rule: str, kind: str) -> tuple[Entry, ...]:
    words = option.replace("_", " ")

    def rows(tile: Tile) -> Attention:
        default: Any = {"query_offset": 0, "is_causal": False, "dropout_rate": 0.0}.get(option)
        whole = tile.whole.but(**{option: default}) if _has_short_rows(tile) else tile.whole
        return cut(whole, tile.rows, tile.keys)

    rows.__name__ = f"{option}_forgotten_in_the_last_rows"
    rows.__doc__ = f"Forget the {words} in the last tile of queries, where it is a remainder."

    def keys(tile: Tile) -> Attention:
        default: Any = {"query_offset": 0, "is_causal": False, "dropout_rate": 0.0}.get(option)
        whole = tile.whole.but(**{option: default}) if tile.is_short else tile.whole
        return cut(whole, tile.rows, tile.keys)

    keys.__name__ = f"{option}_forgotten_in_the_last_keys"
    keys.__doc__ = f"Forget the {words} in the last tile of keys, where it is a remainder."
    return (*on("part", rule, kind, WIDE)(rows), *on("part", rule, kind, SQUARE)(keys))


SCALE = _without("scale", "SCORE-3", "K")
SOFTCAP = _without("softcap", "SCORE-5", "F")
BIAS = _without("bias", "SCORE-4", "L")
MASK = _without("mask", "MASK-1", "R")
CAUSAL = _without("is_causal", "MASK-3", "A")
WINDOW = _without("window", "MASK-8", "E")
DROPOUT = _without("dropout_mask", "DROP-1", "J")
RATE = _without("dropout_rate", "DROP-2", "J")
LENGTHS = _without("key_lengths", "MASK-9", "G")


@on("scored", "SCORE-5", "F", SQUARE, WIDE)
def softcap_after_the_bias_in_the_last_keys(tile: Tile, call: Attention) -> Array:
    """Cap the sum of scores and bias in a remainder of keys."""
    if not tile.is_short:
        return online.scored(tile, call)
    found: Array = base.capped(call, base.biased(call, base.product(call) * base.factor(call)))
    return np.where(np.isneginf(found), -np.inf, found).astype(found.dtype)
