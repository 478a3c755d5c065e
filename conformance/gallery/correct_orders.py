"""Correct entries with the same bits in every batch, chunk, layout and thread. All claims hold."""

from typing import Any

from attnspec import claimable
from attnspec.conformance.gallery.entry import correct
from attnspec.conformance.gallery.orders import in_splits, in_tiles
from attnspec.reference.notation import Attention


@correct("attend", claims=claimable())
def one_order_of_sums(call: Attention) -> Any:
    """Add up features and keys one after the other, whatever is beside them."""
    return in_splits(call)


@correct("attend", claims=claimable())
def tiles_of_a_fixed_size(call: Attention) -> Any:
    """Add up the keys in tiles of 32 from the first key on, however many there are."""
    return in_tiles(call, 32)
