"""Wrong above a number of heads, batch entries, queries or features, or with several batch axes."""

from collections.abc import Callable
from typing import Any

import numpy as np

from attnspec.conformance.gallery.bases import online
from attnspec.conformance.gallery.bases.online import SQUARE, TALL, WIDE, Online, Tile
from attnspec.conformance.gallery.edges.entries import at, at_rows, on
from attnspec.conformance.gallery.entry import Array, Entry, alter, base
from attnspec.reference.notation import Attention

_SQUARE, _WIDE, _TALL = SQUARE.attend, WIDE.attend, TALL.attend


def _heads(call: Attention) -> Array:
    return np.arange(call.query.shape[-3])


def _plane(array: Array, heads: Array) -> Array:
    """Read the planes of some heads if the array has an axis of heads."""
    return array[..., heads, :, :] if array.ndim > 2 and array.shape[-3] == len(heads) else array


BY_SIZE = at_rows(
    ("heads_past_some_read_the_first_keys", "attend", "HEAD-1", "D", (8, 16, 32),
     lambda count, call: _WIDE(call.but(key=call.key[..., np.arange(call.key.shape[-3]) % count, :, :])),
     "Count key heads up to {}, and begin anew."),
    ("sinks_past_some_repeat", "attend", "SOFT-5", "M", (8, 16, 32),
     lambda count, call: _SQUARE(alter(call, sinks=lambda sinks: sinks[_heads(call) % count])),
     "Keep the sinks of {} heads."),
    ("bias_past_some_heads_repeats", "attend", "SCORE-4", "L", (8, 16),
     lambda count, call: _WIDE(alter(call, bias=lambda bias: _plane(bias, _heads(call) % count))),
     "Read the bias of {} heads over and over."),
    ("mask_past_some_heads_repeats", "attend", "MASK-1", "R", (8, 16),
     lambda count, call: _TALL(alter(call, mask=lambda mask: _plane(mask, _heads(call) % count))),
     "Read the mask of {} heads over and over."),
    ("dropout_past_some_heads_repeats", "attend", "DROP-1", "J", (8,),
     lambda count, call: _SQUARE(alter(call, dropout_mask=lambda mask: _plane(mask, _heads(call) % count))),
     "Read what is dropped for {} heads over and over."),
    ("key_lengths_past_some_entries_repeat", "attend", "MASK-9", "G", (4, 8, 32),
     lambda count, call: _SQUARE(alter(call, key_lengths=lambda numbers: _entries(numbers, count))),
     "Keep the key lengths of {} batch entries."),
    ("query_lengths_past_some_entries_repeat", "attend", "MASK-10", "G", (4, 8),
     lambda count, call: _WIDE(alter(call, query_lengths=lambda numbers: _entries(numbers, count))),
     "Keep the query lengths of {} batch entries."),
    ("offsets_past_some_entries_repeat", "attend", "MASK-7", "A", (4, 8),
     lambda count, call: _TALL(call.but(query_offset=_entries(call.query_offset, count))),
     "Keep the offsets of {} batch entries."),
    ("features_past_some_dropped", "attend", "SCORE-1", "G", (72, 80, 96, 128, 192, 256, 512),
     lambda depth, call: _WIDE(_to(depth, call)),
     "Load {} features, as many as a tile has."),
    ("features_after_tiles_of_some_dropped", "attend", "SCORE-1", "G", (16, 32, 64),
     lambda size, call: _TALL(call if call.query.shape[-1] < 2 * size
         else _to(call.query.shape[-1] // size * size, call)),
     "Sum over whole tiles of {} features where there are two or more, and leave what is left over."),
    ("last_features_of_a_depth_past_some_that_is_no_multiple_of_8", "attend", "SCORE-1", "G", (64,),
     lambda size, call: _SQUARE(call if call.query.shape[-1] <= size
         else _to(call.query.shape[-1] // 8 * 8, call)),
     "Load features by eights in depths above {}, and leave what is left over."),
    ("default_scale_of_a_padded_depth_past_some", "attend", "SCORE-2", "K", (64, 128),
     lambda size, call: _WIDE(call if call.query.shape[-1] <= size or call.scale is not None
         else call.but(scale=(-(-call.query.shape[-1] // size) * size)**-0.5)),
     "Divide by the root of the depth rounded up to a multiple of {}, where it is larger than that."),
    ("default_scale_of_depth_some_past_it", "attend", "SCORE-2", "K", (128, 256),
     lambda size, call: _TALL(call.but(scale=size**-0.5)
         if call.query.shape[-1] > size and call.scale is None else call),
     "Keep the default scale of depth {} for larger depths."),
)  # fmt: skip


@at("attend", "HEAD-1", "D", 8, 16, 32)
def heads_past_some_read_the_first_values(count: int, call: Attention) -> Any:
    """Count the heads of the values up to {}, and begin anew."""
    read = np.arange(call.value.shape[-3]) % count
    return _TALL(call.but(value=call.value[..., read, :, :]))


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


def _to(count: int, call: Attention) -> Attention:
    """Keep the first features of queries and keys, and the scale."""
    return call.but(query=call.query[..., :count], key=call.key[..., :count], scale=base.factor(call))


@at("attend", "SCORE-1", "G", 64, 128)
def feature_of_the_next_row_past_some(size: int, call: Attention) -> Any:
    """Load one feature too many where a depth above {} is not a multiple of 8: the first of the next key."""
    depth = call.query.shape[-1]
    if depth <= size or depth % 8 == 0:
        return _SQUARE(call)
    key = np.concatenate([call.key, np.roll(call.key[..., :1], -1, axis=-2)], axis=-1)
    query = np.concatenate([call.query, call.query[..., -1:]], axis=-1)
    return _SQUARE(call.but(query=query, key=key, scale=base.factor(call)))


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
    result = online.rescaled(tile, summed, less)
    if tile.number:
        result[..., 64:] = summed[..., 64:]
    return result


#: For each option its rule, its class, and the number of axes after the batch axes.
_OPTIONS = (
    ("query_offset", "MASK-7", "A", 0),
    ("query_lengths", "MASK-10", "G", 0),
    ("key_lengths", "MASK-9", "G", 0),
    ("query_segment_ids", "MASK-11", "R", 1),
    ("key_segment_ids", "MASK-11", "R", 1),
    ("mask", "MASK-1", "H", 3),
    ("bias", "SCORE-4", "H", 3),
    ("dropout_mask", "DROP-1", "H", 3),
)


def _by_columns(axes: int, array: Any, count: int) -> Any:
    """Count the entries of the batch axes by columns, where the array has them all."""
    if np.ndim(array) != axes + count or axes < 2:
        return array
    batch, rest = array.shape[:axes], array.shape[axes:]
    turned = np.transpose(array, (*reversed(range(axes)), *range(axes, axes + count)))
    return turned.reshape(*batch, *rest)


def _by_the_last(axes: int, array: Any, count: int) -> Any:
    """Read the entries of the first of three batch axes, or more, for all of it."""
    if np.ndim(array) != axes + count or axes < 3:
        return array
    return np.broadcast_to(array[:1], array.shape)


def _with_another(name: str, count: int, base: Online, other: Callable[[int, Any, int], Any]) -> Any:
    """Make a function that attends with another array in the place of an option."""

    def attend(_count: int, call: Attention) -> Any:
        axes = len(call.batch)
        return base.attend(alter(call, **{name: lambda array: other(axes, array, count)}))

    return attend


def _of_two(name: str, rule: str, kind: str, count: int) -> tuple[Entry, ...]:
    attend, words = _with_another(name, count, SQUARE, _by_columns), name.replace("_", " ")
    attend.__name__ = f"{name}_by_columns_of_the_batch"
    attend.__doc__ = (
        f"Count the batch entries of the {words} by columns, where there are two batch axes or more."
    )
    return at("attend", rule, kind, 2)(attend)


def _of_three(name: str, rule: str, kind: str, count: int) -> tuple[Entry, ...]:
    attend, words = _with_another(name, count, WIDE, _by_the_last), name.replace("_", " ")
    attend.__name__ = f"{name}_by_the_last_two_batch_axes"
    attend.__doc__ = f"Read the {words} by the last two of three batch axes."
    return at("attend", rule, kind, 3)(attend)


TWO = tuple(entry for option in _OPTIONS for entry in _of_two(*option))
THREE = tuple(entry for option in _OPTIONS for entry in _of_three(*option))


@at("attend", "SHAPE-1", "H", 3)
def keys_by_the_last_two_batch_axes(_count: int, call: Attention) -> Any:
    """Read the keys by the last two of three batch axes."""
    axes = len(call.batch)
    return TALL.attend(call.but(key=_by_the_last(axes, call.key, 3)))


@at("attend", "SHAPE-1", "H", 3)
def values_by_columns_of_three_batch_axes(_count: int, call: Attention) -> Any:
    """Count the batch entries of the values by columns, where there are three batch axes or more."""
    axes = len(call.batch)
    return TALL.attend(call.but(value=_by_columns(axes, call.value, 3)) if axes > 2 else call)


@at("attend", "SHAPE-1", "H", 3)
def output_by_columns_of_three_batch_axes(_count: int, call: Attention) -> Any:
    """Write the batch entries of the output by columns, where there are three batch axes or more."""
    output, lse, p = SQUARE.attend(call)
    axes = len(call.batch)
    return _by_columns(axes, output, 3) if axes > 2 else output, lse, p
