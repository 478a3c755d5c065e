"""A tile: some queries and some keys of a call, as a separate call."""

from dataclasses import dataclass, fields
from typing import Any

from attnspec.conformance.gallery.entry import Array, base
from attnspec.reference.notation import Attention
from attnspec.reference.packing import Packed


@dataclass(frozen=True)
class Tile:
    """Some queries and some keys of a call.

    Attributes
    ----------
    whole : Attention
        The call, in the working precision.
    rows, keys : slice
        The queries and the keys of the tile.
    number, count : int
        Its place among the visited tiles of keys, and the number of these tiles.
    sizes : pair of int
        The numbers of queries and of keys in a whole tile.
    """

    whole: Attention
    rows: slice
    keys: slice
    number: int = 0
    count: int = 1
    sizes: tuple[int, int] = (1, 1)

    @property
    def call(self) -> Attention:
        """The call of only these queries and keys."""
        return cut(self.whole, self.rows, self.keys)

    @property
    def is_short(self) -> bool:
        """Whether it is the remainder after the whole tiles of keys."""
        return bool(self.keys.start > 0 and self.keys.stop - self.keys.start < self.sizes[1])

    @property
    def is_last(self) -> bool:
        """Whether it is the last of several visited tiles of keys."""
        return self.number > 0 and self.number == self.count - 1


def of_one_sequence(call: Attention) -> Attention:
    """Replace the positions of packed sequences by a mask, because a tile counts positions from one row."""
    if not isinstance(call, Packed):
        return call
    own = {field.name: getattr(call, field.name) for field in fields(Attention)}
    return Attention(**own | {"mask": base.allowed(call), "is_causal": False, "window": None})


def cut(call: Attention, rows: slice, keys: slice) -> Attention:
    """Slice some queries and keys from a call, with their parts of the options.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.conformance.gallery.bases.tile import cut
    >>> from attnspec.conformance.gallery.entry import base
    >>> from attnspec.reference.call import Steps
    >>> from attnspec.reference.notation import Attention
    >>> one = np.ones((1, 4, 1))
    >>> call = Attention(Steps(), np, None, one, one, one, is_causal=True)
    >>> base.allowed(cut(call, slice(2, 4), slice(3, 4))).tolist()
    [[[False], [True]]]
    """
    changes: dict[str, Any] = {
        "query": call.query[..., rows, :],
        "key": call.key[..., keys, :],
        "value": call.value[..., keys, :],
        "query_offset": call.query_offset + rows.start - keys.start,
    }
    for name, start in (("query_lengths", rows.start), ("key_lengths", keys.start)):
        if getattr(call, name) is not None:
            changes[name] = getattr(call, name) - start
    for name, part in (("query_segment_ids", rows), ("key_segment_ids", keys)):
        if getattr(call, name) is not None:
            changes[name] = getattr(call, name)[..., part]
    for name in ("mask", "bias", "dropout_mask"):
        if getattr(call, name) is not None:
            changes[name] = part_of(getattr(call, name), rows, keys)
    return call.but(**changes)


def part_of(array: Array, rows: slice, keys: slice) -> Array:
    """Slice the last two axes, if they exist, of an array that broadcasts to the scores.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.conformance.gallery.bases.tile import part_of
    >>> part_of(np.arange(6).reshape(1, 6), slice(2, 3), slice(4, 6)).tolist()
    [[4, 5]]
    """
    if array.ndim > 0 and array.shape[-1] != 1:
        array = array[..., keys]
    if array.ndim > 1 and array.shape[-2] != 1:
        array = array[..., rows, :]
    return array


def slices(count: int, size: int) -> list[slice]:
    """Divide a range into tiles. An empty range has one empty tile.

    Examples
    --------
    >>> from attnspec.conformance.gallery.bases.tile import slices
    >>> slices(5, 4)
    [slice(0, 4, None), slice(4, 5, None)]
    """
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]
