"""A loop that visits no tile outside window, causal mask and lengths, and masks no tile inside them."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.bases.online import Online
from attnspec.conformance.gallery.bases.tile import Tile, slices
from attnspec.conformance.gallery.entry import base
from attnspec.reference.call import Mask
from attnspec.reference.notation import Attention


def bounds(call: Attention) -> tuple[Any, Any]:
    """Return the smallest and the largest distance from a position to a key, or None for no limit."""
    left, right = call.window or (None, None)
    if call.is_causal:
        right = 0 if right is None else min(right, 0)
    return (None if left is None else -left), right


def positions(call: Attention, rows: slice) -> tuple[int, int]:
    """Return the first and the last position of some queries over all batch entries."""
    offsets = np.asarray(call.query_offset)
    if not offsets.size or rows.start == rows.stop:
        return 0, -1
    return int(offsets.min()) + rows.start, int(offsets.max()) + rows.stop - 1


def visited(one: Online, call: Attention, rows: slice) -> list[slice]:
    """List the tiles that have a key that window, causal mask and lengths allow to some query."""
    (first, last), (least, most) = positions(call, rows), bounds(call)
    begin = 0 if least is None else first + least
    end = call.keys if most is None else last + most + 1
    if call.key_lengths is not None:
        end = min(end, int(np.max(call.key_lengths, initial=0)))
    return [keys for keys in slices(call.keys, one.sizes[1]) if keys.start < end and keys.stop > begin]


def masked_at_edges(tile: Tile, call: Attention) -> Mask:
    """Leave out window and causal mask if they allow every pair of the tile."""
    whole = tile.whole
    (first, last), (least, most) = positions(whole, tile.rows), bounds(whole)
    inside = least is None or tile.keys.start >= last + least
    inside = inside and (most is None or tile.keys.stop - 1 <= first + most)
    found: Mask = base.allowed(call.but(is_causal=False, window=None) if inside else call)
    return found


WINDOWED = Online("windowed_64x64", (64, 64), key_tiles=visited, seen=masked_at_edges)
WINDOWED_SMALL = Online("windowed_32x16", (32, 16), key_tiles=visited, seen=masked_at_edges)
