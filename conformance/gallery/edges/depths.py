"""Wrong above a depth, between the depths that kernels are made for, and in depths of the values."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.bases import online
from attnspec.conformance.gallery.bases.online import SQUARE, TALL, WIDE
from attnspec.conformance.gallery.bases.tile import Tile
from attnspec.conformance.gallery.edges.entering import at, on
from attnspec.conformance.gallery.entry import Array, base
from attnspec.reference.notation import Attention

_SQUARE, _WIDE, _TALL = SQUARE.attend, WIDE.attend, TALL.attend


def _to(count: int, call: Attention) -> Attention:
    """Keep the first features of queries and keys, and the scale."""
    return call.but(query=call.query[..., :count], key=call.key[..., :count], scale=base.factor(call))


@at("attend", "SCORE-1", "G", 72, 80, 96, 128, 192, 256, 512)
def features_past_some_dropped(depth: int, call: Attention) -> Any:
    """Load {} features, as many as a tile has."""
    return _WIDE(_to(depth, call))


@at("attend", "SCORE-1", "G", 16, 32, 64)
def features_after_tiles_of_some_dropped(size: int, call: Attention) -> Any:
    """Sum over whole tiles of {} features where there are two or more, and leave what is left over."""
    depth = call.query.shape[-1]
    return _TALL(call if depth < 2 * size else _to(depth // size * size, call))


@at("attend", "SCORE-1", "G", 64)
def last_features_of_a_depth_past_some_that_is_no_multiple_of_8(size: int, call: Attention) -> Any:
    """Load features by eights in depths above {}, and leave what is left over."""
    depth = call.query.shape[-1]
    return _SQUARE(call if depth <= size else _to(depth // 8 * 8, call))


@at("attend", "SCORE-1", "G", 64, 128)
def feature_of_the_next_row_past_some(size: int, call: Attention) -> Any:
    """Load one feature too many where a depth above {} is not a multiple of 8: the first of the next key."""
    depth = call.query.shape[-1]
    if depth <= size or depth % 8 == 0:
        return _SQUARE(call)
    key = np.concatenate([call.key, np.roll(call.key[..., :1], -1, axis=-2)], axis=-1)
    query = np.concatenate([call.query, call.query[..., -1:]], axis=-1)
    return _SQUARE(call.but(query=query, key=key, scale=base.factor(call)))


@at("attend", "SCORE-2", "K", 64, 128)
def default_scale_of_a_padded_depth_past_some(size: int, call: Attention) -> Any:
    """Divide by the root of the depth rounded up to a multiple of {}, where it is larger than that."""
    depth = call.query.shape[-1]
    padded = -(-depth // size) * size
    return _WIDE(call if depth <= size or call.scale is not None else call.but(scale=padded**-0.5))


@at("attend", "SCORE-2", "K", 128, 256)
def default_scale_of_depth_some_past_it(size: int, call: Attention) -> Any:
    """Keep the default scale of depth {} for larger depths."""
    larger = call.query.shape[-1] > size and call.scale is None
    return _TALL(call.but(scale=size**-0.5) if larger else call)


@at("attend", "SOFT-3", "P", 64, 72, 80, 96, 128, 256)
def columns_past_some_dropped(depth: int, call: Attention) -> Any:
    """Write {} columns of the output, as many as a tile has."""
    output, lse, p = _SQUARE(call)
    output[..., depth:] = 0
    return output, lse, p


@at("attend", "SOFT-3", "P", 32, 64)
def columns_after_tiles_of_some_dropped(size: int, call: Attention) -> Any:
    """Write whole tiles of {} columns where there are two or more."""
    depth = call.value.shape[-1]
    output, lse, p = _WIDE(call)
    output[..., depth if depth < 2 * size else depth // size * size :] = 0
    return output, lse, p


@at("attend", "SOFT-3", "P", 64, 128)
def columns_past_some_repeat(size: int, call: Attention) -> Any:
    """Read columns of the values past {} from the beginning again."""
    columns = np.arange(call.value.shape[-1]) % size
    return _TALL(call.but(value=call.value[..., columns]))


@at("attend", "SOFT-3", "P", 64, 128)
def columns_past_the_depth_dropped_above_some(size: int, call: Attention) -> Any:
    """Write as many columns as the queries have features, where these are more than {}."""
    output, lse, p = _SQUARE(call)
    depth = call.query.shape[-1]
    output[..., depth if depth > size else output.shape[-1] :] = 0
    return output, lse, p


@on("rescaled", "NUM-3", "P", SQUARE, TALL)
def columns_past_64_not_rescaled(tile: Tile, summed: Array, less: Array) -> Array:
    """Rescale the first 64 columns of what has been summed where the maximum rises."""
    found = online.rescaled(tile, summed, less)
    if tile.number:
        found[..., 64:] = summed[..., 64:]
    return found
