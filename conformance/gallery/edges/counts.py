"""Wrong above a number of heads, of heads in a group, of batch entries, or of queries."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.bases.online import SQUARE, TALL, WIDE
from attnspec.conformance.gallery.edges.entering import at
from attnspec.conformance.gallery.entry import Array, altered, base
from attnspec.reference.notation import Attention

_SQUARE, _WIDE, _TALL = SQUARE.attend, WIDE.attend, TALL.attend


def _heads(call: Attention) -> Array:
    return np.arange(call.query.shape[-3])


def _plane(array: Array, heads: Array) -> Array:
    """Read the planes of some heads if the array has an axis of heads."""
    return array[..., heads, :, :] if array.ndim > 2 and array.shape[-3] == len(heads) else array


@at("attend", "HEAD-1", "D", 8, 16, 32)
def heads_past_some_read_the_first_keys(count: int, call: Attention) -> Any:
    """Count key heads up to {}, and begin anew."""
    read = np.arange(call.key.shape[-3]) % count
    return _WIDE(call.but(key=call.key[..., read, :, :]))


@at("attend", "HEAD-1", "D", 8, 16, 32)
def heads_past_some_read_the_first_values(count: int, call: Attention) -> Any:
    """Count the heads of the values up to {}, and begin anew."""
    read = np.arange(call.value.shape[-3]) % count
    return _TALL(call.but(value=call.value[..., read, :, :]))


@at("attend", "SOFT-5", "M", 8, 16, 32)
def sinks_past_some_repeat(count: int, call: Attention) -> Any:
    """Keep the sinks of {} heads."""
    return _SQUARE(altered(call, sinks=lambda sinks: sinks[_heads(call) % count]))


@at("attend", "SCORE-4", "L", 8, 16)
def bias_past_some_heads_repeats(count: int, call: Attention) -> Any:
    """Read the bias of {} heads over and over."""
    return _WIDE(altered(call, bias=lambda bias: _plane(bias, _heads(call) % count)))


@at("attend", "MASK-1", "R", 8, 16)
def mask_past_some_heads_repeats(count: int, call: Attention) -> Any:
    """Read the mask of {} heads over and over."""
    return _TALL(altered(call, mask=lambda mask: _plane(mask, _heads(call) % count)))


@at("attend", "DROP-1", "J", 8)
def dropout_past_some_heads_repeats(count: int, call: Attention) -> Any:
    """Read what is dropped for {} heads over and over."""
    return _SQUARE(altered(call, dropout_mask=lambda mask: _plane(mask, _heads(call) % count)))


@at("attend", "HEAD-1", "D", 4, 8, 16)
def heads_of_a_group_past_some_dropped(count: int, call: Attention) -> Any:
    """Compute {} heads of a group, as many as a tile of one query has rows."""
    group = call.query.shape[-3] // call.key.shape[-3]
    output, lse, p = _SQUARE(call)
    written = _heads(call)[:, None, None] % group < count
    return np.where(written, output, 0), lse, p


@at("attend", "HEAD-1", "D", 2)
def groups_that_are_no_power_of_some_rounded(_count: int, call: Attention) -> Any:
    """Divide by a group of more than four heads by a shift, as if it were a power of {}."""
    group, shared = call.query.shape[-3] // call.key.shape[-3], call.key.shape[-3]
    if group <= 4:
        return _WIDE(call)
    read = np.minimum(_heads(call) >> (group.bit_length() - 1), shared - 1)
    return _WIDE(call.but(key=call.key[..., read, :, :], value=call.value[..., read, :, :]))


def _entries(numbers: Any, count: int) -> Any:
    """Read the number of an entry of the first few, for all of one batch axis or the flattened axes."""
    if np.ndim(numbers) == 0:
        return numbers
    flat = np.ravel(numbers)
    return flat[np.arange(flat.size) % count].reshape(np.shape(numbers))


@at("attend", "MASK-9", "G", 4, 8, 32)
def key_lengths_past_some_entries_repeat(count: int, call: Attention) -> Any:
    """Keep the key lengths of {} batch entries."""
    return _SQUARE(altered(call, key_lengths=lambda numbers: _entries(numbers, count)))


@at("attend", "MASK-10", "G", 4, 8)
def query_lengths_past_some_entries_repeat(count: int, call: Attention) -> Any:
    """Keep the query lengths of {} batch entries."""
    return _WIDE(altered(call, query_lengths=lambda numbers: _entries(numbers, count)))


@at("attend", "MASK-7", "A", 4, 8)
def offsets_past_some_entries_repeat(count: int, call: Attention) -> Any:
    """Keep the offsets of {} batch entries."""
    return _TALL(call.but(query_offset=_entries(call.query_offset, count)))


@at("attend", "SHAPE-1", "H", 4, 8, 16)
def batch_entries_past_some_read_the_first_keys(count: int, call: Attention) -> Any:
    """Count batch entries up to {} in the keys, and begin anew."""
    if call.key.ndim < 4:
        return _WIDE(call)
    flat = call.key.reshape(-1, *call.key.shape[-3:])
    return _WIDE(call.but(key=flat[np.arange(len(flat)) % count].reshape(call.key.shape)))


@at("attend", "SOFT-3", "G", 128, 256, 512, 1024, 2048)
def queries_past_some_dropped(count: int, call: Attention) -> Any:
    """Start as many programs as {} queries need, and no more."""
    output, lse, p = _WIDE(call)
    return np.where(call.i < count, output, 0), lse, p


@at("attend", "SOFT-3", "G", 256, 512, 1024, 2048, 4096)
def keys_past_some_dropped(count: int, call: Attention) -> Any:
    """Visit {} keys at most."""
    few = call.but(mask=(call.j < count) & base.by_mask(call)) if call.keys > count else call
    return _WIDE(few)
