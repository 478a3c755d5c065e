"""Wrong about addresses: an index does not fit its bits, or an array is read without its strides."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.bases.online import SQUARE, TALL, WIDE
from attnspec.conformance.gallery.edges.entries import at
from attnspec.conformance.gallery.entry import Array, Entry, alter, base
from attnspec.reference.notation import Attention

_SQUARE, _WIDE, _TALL = SQUARE.attend, WIDE.attend, TALL.attend
#: The numbers of bits in the index of an element. 20 bits stand for 32, which would need too large arrays.
_BITS = (16, 20)


def _wrap(array: Array, bits: int) -> Any:
    """Read the elements by signed indices of so many bits; negative ones count from the end."""
    half = 2 ** (bits - 1)
    if array.size <= half:
        return array
    index = (np.arange(array.size) + half) % (2 * half) - half
    return np.ravel(array)[index % array.size].reshape(array.shape)


def _of(name: str, rule: str, kind: str) -> tuple[Entry, ...]:
    words = name.replace("_", " ")

    def attend(bits: int, call: Attention) -> Any:
        return _WIDE(alter(call, **{name: lambda array: _wrap(array, bits)}))

    attend.__name__ = f"{name}_by_indices_of_some_bits"
    attend.__doc__ = f"Read the elements of the {words} by signed indices of {{}} bits."
    return at("attend", rule, kind, *_BITS)(attend)


QUERIES = _of("query", "SCORE-1", "N")
KEYS = _of("key", "SCORE-1", "N")
VALUES = _of("value", "SOFT-3", "N")
MASKS = _of("mask", "MASK-1", "N")
BIASES = _of("bias", "SCORE-4", "N")
DROPOUTS = _of("dropout_mask", "DROP-1", "N")


@at("attend", "SOFT-3", "N", *_BITS)
def output_by_indices_of_some_bits(bits: int, call: Attention) -> Any:
    """Write the output by signed indices of {} bits."""
    output, lse, p = _SQUARE(call)
    return _wrap(output, bits), lse, p


@at("attend", "SOFT-4", "N", *_BITS)
def weights_by_indices_of_some_bits(bits: int, call: Attention) -> Any:
    """Write the weights by signed indices of {} bits."""
    output, lse, p = _TALL(call)
    return output, lse, _wrap(p, bits)


@at("attend", "SOFT-3", "N", 7, 8, 10)
def rows_by_indices_of_some_bits(bits: int, call: Attention) -> Any:
    """Read the values of a key by an index of {} bits, without a sign."""
    return _WIDE(call.but(value=call.value[..., np.arange(call.keys) % 2**bits, :]))


@at("by_causality", "MASK-3", "A", 8, 11)
def positions_of_some_digits(digits: int, call: Attention) -> Any:
    """Hold positions in floating point of {} binary digits for the causal mask."""

    def short(position: Any) -> Any:
        mantissa, exponent = np.frexp(np.asarray(position, np.float64))
        return np.ldexp(np.round(np.ldexp(mantissa, digits)), exponent - digits)

    return short(call.j) <= short(base.position(call)) if call.is_causal else True


@at("by_window", "MASK-8", "N", 8, 9)
def window_by_distances_of_some_bits(bits: int, call: Attention) -> Any:
    """Hold the distance of a key in a signed integer of {} bits for the window."""
    if call.window is None:
        return True
    half = 2 ** (bits - 1)
    ahead = (call.j - base.position(call) + half) % (2 * half) - half
    left, right = (None if side is None else min(side, 2**40) for side in call.window)
    after = True if left is None else ahead >= -left
    return after if right is None else after & (ahead <= right)


@at("by_key_lengths", "MASK-9", "N", 8, 10)
def key_lengths_of_some_bits(bits: int, call: Attention) -> Any:
    """Hold key lengths in {} bits, without a sign."""
    return base.by_key_lengths(alter(call, key_lengths=lambda n: np.asarray(n) % 2**bits))


@at("by_segments", "MASK-11", "N", 8, 16)
def segments_of_some_bits(bits: int, call: Attention) -> Any:
    """Hold segment ids in {} bits."""

    def short(ids: Array) -> Any:
        return ids % 2**bits

    return base.by_segments(alter(call, query_segment_ids=short, key_segment_ids=short))


def _memory(array: Array) -> Any:
    """Return the elements in memory order from the lowest address, including those between them."""
    low, _ = np.lib.array_utils.byte_bounds(array)
    whole: Any = array
    while isinstance(whole.base, np.ndarray):
        whole = whole.base
    begin, end = np.lib.array_utils.byte_bounds(whole)
    if whole.dtype != array.dtype or end - begin != whole.nbytes:
        return array.ravel(order="K")
    return whole.ravel(order="K")[(low - begin) // array.itemsize :]


def _without_strides(array: Array) -> Array:
    """Read as if the array were dense. Past the end of memory there are zeros."""
    if not isinstance(array, np.ndarray) or array.flags.c_contiguous or not array.size:
        return array
    result = _memory(array)[: array.size]
    padded: Array = np.pad(result, (0, array.size - result.size)).reshape(array.shape)
    return padded


def _strides_of(step: str, rule: str, *names: str) -> tuple[Entry, ...]:
    def replaced(_count: int, call: Attention) -> Any:
        from attnspec.conformance.gallery.entry import base

        return getattr(base, step)(alter(call, **dict.fromkeys(names, _without_strides)))

    words = names[0].replace("_", " ")
    replaced.__name__ = f"{names[0]}_without_strides"
    replaced.__doc__ = f"Read the {words} as if the array were dense."
    return at(step, rule, "H", 1)(replaced)


KEY_LENGTHS = _strides_of("check_integers", "NUM-8", "key_lengths")
QUERY_LENGTHS = _strides_of("check_integers", "NUM-8", "query_lengths")
OFFSETS = _strides_of("check_integers", "NUM-8", "query_offset")
QUERY_SEGMENTS = _strides_of("check_segments", "NUM-8", "query_segment_ids")
KEY_SEGMENTS = _strides_of("check_segments", "NUM-8", "key_segment_ids")
SINKS = _strides_of("enter", "NUM-8", "sinks")
STRIDED_BIASES = _strides_of("enter", "NUM-8", "bias")
STRIDED_MASKS = _strides_of("enter", "NUM-8", "mask")
STRIDED_DROPOUTS = _strides_of("enter", "NUM-8", "dropout_mask")


def _read_forward(array: Array, axis: int) -> Array:
    """Reverse an axis with a negative stride, as a pointer to the lowest address does."""
    return np.flip(array, axis) if array.size and array.strides[axis] < 0 else array


@at("attend", "NUM-8", "H", 1, 2, 3)
def negative_stride_of_keys_read_forward_by_axis_some_from_the_end(axis: int, call: Attention) -> Any:
    """Read the keys forward along axis {} from the end, whatever the sign of its stride."""
    return _WIDE(call.but(key=_read_forward(call.key, -axis)))


@at("attend", "NUM-8", "H", 1, 2)
def negative_stride_of_values_read_forward_by_axis_some_from_the_end(axis: int, call: Attention) -> Any:
    """Read the values forward along axis {} from the end, whatever the sign of its stride."""
    return _TALL(call.but(value=_read_forward(call.value, -axis)))


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
