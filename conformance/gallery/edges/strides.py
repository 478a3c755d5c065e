"""Wrong about the memory layout of arrays: they are read without their strides."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.bases.online import SQUARE, TALL, WIDE
from attnspec.conformance.gallery.edges.entering import at
from attnspec.conformance.gallery.entry import Array, Entry, altered
from attnspec.reference.notation import Attention

_SQUARE, _WIDE, _TALL = SQUARE.attend, WIDE.attend, TALL.attend


def _memory(array: Array) -> Array:
    """Return the elements in memory order from the lowest address, including those between them."""
    low, _ = np.lib.array_utils.byte_bounds(array)
    whole: Any = array
    while isinstance(whole.base, np.ndarray):
        whole = whole.base
    begin, end = np.lib.array_utils.byte_bounds(whole)
    if whole.dtype != array.dtype or end - begin != whole.nbytes:
        return array.ravel(order="K")
    found: Array = whole.ravel(order="K")[(low - begin) // array.itemsize :]
    return found


def _without_strides(array: Array) -> Array:
    """Read as if the array were dense. Past the end of memory there are zeros."""
    if not isinstance(array, np.ndarray) or array.flags.c_contiguous or not array.size:
        return array
    found = _memory(array)[: array.size]
    padded: Array = np.pad(found, (0, array.size - found.size)).reshape(array.shape)
    return padded


def _of(step: str, rule: str, *names: str) -> tuple[Entry, ...]:
    def replaced(_count: int, call: Attention) -> Any:
        from attnspec.conformance.gallery.entry import base

        return getattr(base, step)(altered(call, **dict.fromkeys(names, _without_strides)))

    words = names[0].replace("_", " ")
    replaced.__name__ = f"{names[0]}_without_strides"
    replaced.__doc__ = f"Read the {words} as if the array were dense."
    return at(step, rule, "H", 1)(replaced)


KEY_LENGTHS = _of("check_integers", "NUM-8", "key_lengths")
QUERY_LENGTHS = _of("check_integers", "NUM-8", "query_lengths")
OFFSETS = _of("check_integers", "NUM-8", "query_offset")
QUERY_SEGMENTS = _of("check_segments", "NUM-8", "query_segment_ids")
KEY_SEGMENTS = _of("check_segments", "NUM-8", "key_segment_ids")
SINKS = _of("entered", "NUM-8", "sinks")
BIASES = _of("entered", "NUM-8", "bias")
MASKS = _of("entered", "NUM-8", "mask")
DROPOUTS = _of("entered", "NUM-8", "dropout_mask")


def _turned(array: Array, axis: int) -> Array:
    """Reverse an axis with a negative stride, as a pointer to the lowest address does."""
    return np.flip(array, axis) if array.size and array.strides[axis] < 0 else array


@at("attend", "NUM-8", "H", 1, 2, 3)
def negative_stride_of_keys_read_forward_by_axis_some_from_the_end(axis: int, call: Attention) -> Any:
    """Read the keys forward along axis {} from the end, whatever the sign of its stride."""
    return _WIDE(call.but(key=_turned(call.key, -axis)))


@at("attend", "NUM-8", "H", 1, 2)
def negative_stride_of_values_read_forward_by_axis_some_from_the_end(axis: int, call: Attention) -> Any:
    """Read the values forward along axis {} from the end, whatever the sign of its stride."""
    return _TALL(call.but(value=_turned(call.value, -axis)))


@at("attend", "NUM-8", "H", 32, 128)
def heads_without_their_stride_past_some_keys(count: int, call: Attention) -> Any:
    """Copy more than {} keys in the order of memory, whose heads and positions are exchanged."""
    key = call.key
    apart = key.ndim > 2 and key.size and 0 < abs(key.strides[-3]) < abs(key.strides[-2])
    if not apart or call.keys <= count or key.shape[-3] == 1:
        return _SQUARE(call)
    positions_first = np.swapaxes(key, -3, -2)
    return _SQUARE(call.but(key=positions_first.reshape(key.shape)))


@at("attend", "NUM-8", "H", 32, 128)
def values_in_fortran_order_past_some_keys(count: int, call: Attention) -> Any:
    """Read values whose positions lie side by side as if features did, past {} keys."""
    value = call.value
    turned = value.size and abs(value.strides[-2]) < abs(value.strides[-1]) and min(value.shape[-2:]) > 1
    if not turned or call.keys <= count:
        return _WIDE(call)
    return _WIDE(call.but(value=np.swapaxes(value, -1, -2).reshape(value.shape)))


@at("attend", "NUM-8", "H", 32, 128)
def broadcast_values_read_as_dense_past_some_keys(count: int, call: Attention) -> Any:
    """Read positions of stride 0 one after the other, past {} keys: after the first there is nothing."""
    value = call.value
    if call.keys <= count or not value.size or value.strides[-2] != 0:
        return _TALL(call)
    return _TALL(call.but(value=np.where(np.arange(call.keys)[:, None] == 0, value, 0)))
