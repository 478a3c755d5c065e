"""Wrong if an index does not fit: 16 bits for elements, 20 bits instead of 32, fewer bits for positions."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.bases.online import SQUARE, TALL, WIDE
from attnspec.conformance.gallery.edges.entering import at
from attnspec.conformance.gallery.entry import Array, Entry, altered, base
from attnspec.reference.notation import Attention

_SQUARE, _WIDE, _TALL = SQUARE.attend, WIDE.attend, TALL.attend
#: The numbers of bits in the index of an element. 20 bits stand for 32, which would need too large arrays.
_BITS = (16, 20)


def _wrapped(array: Array, bits: int) -> Array:
    """Read the elements by signed indices of so many bits; negative ones count from the end."""
    half = 2 ** (bits - 1)
    if array.size <= half:
        return array
    index = (np.arange(array.size) + half) % (2 * half) - half
    found: Array = np.ravel(array)[index % array.size].reshape(array.shape)
    return found


def _of(name: str, rule: str, kind: str) -> tuple[Entry, ...]:
    words = name.replace("_", " ")

    def attend(bits: int, call: Attention) -> Any:
        return _WIDE(altered(call, **{name: lambda array: _wrapped(array, bits)}))

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
    return _wrapped(output, bits), lse, p


@at("attend", "SOFT-4", "N", *_BITS)
def weights_by_indices_of_some_bits(bits: int, call: Attention) -> Any:
    """Write the weights by signed indices of {} bits."""
    output, lse, p = _TALL(call)
    return output, lse, _wrapped(p, bits)


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
    return base.by_key_lengths(altered(call, key_lengths=lambda n: np.asarray(n) % 2**bits))


@at("by_segments", "MASK-11", "N", 8, 16)
def segments_of_some_bits(bits: int, call: Attention) -> Any:
    """Hold segment ids in {} bits."""

    def short(ids: Array) -> Array:
        found: Array = ids % 2**bits
        return found

    return base.by_segments(altered(call, query_segment_ids=short, key_segment_ids=short))
