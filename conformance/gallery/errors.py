"""Wrong about what must be refused."""

from typing import Any

import numpy as np

from attnspec.backends import DTYPES
from attnspec.conformance.gallery.entry import Array, base, wrong
from attnspec.reference.errors import ArgumentError
from attnspec.reference.notation import Attention

_ARRAYS = ("query", "key", "value")
_PER_ENTRY = ("query_offset", "query_lengths", "key_lengths")


@wrong("check_dtypes", "ERR-1", "L")
def mixed_dtypes_cast(call: Attention) -> Any:
    """Cast keys and values to the dtype of the query."""
    real = {name: getattr(call, name) for name in _ARRAYS if getattr(call, name).dtype.name in DTYPES}
    return base.check_dtypes(call.but(**{name: x.astype(call.query.dtype) for name, x in real.items()}))


@wrong("check_dtypes", "ERR-2", "L")
def integers_taken_for_numbers(call: Attention) -> Any:
    """Compute integers and booleans in float32."""
    whole = {name: getattr(call, name) for name in _ARRAYS if getattr(call, name).dtype.kind in "iub"}
    return base.check_dtypes(call.but(**{name: x.astype(np.float32) for name, x in whole.items()}))


@wrong("check_dtypes", "ERR-2", "L")
def imaginary_part_dropped(call: Attention) -> Any:
    """Take the real part of complex numbers."""
    return base.check_dtypes(call.but(**{name: getattr(call, name).real for name in _ARRAYS}))


@wrong("check_masks", "ERR-4", "R")
def numbers_taken_for_a_mask(call: Attention) -> Any:
    """Take any number but 0 for True."""
    masks = {
        name: getattr(call, name).astype(bool)
        for name in ("mask", "dropout_mask")
        if getattr(call, name) is not None
    }
    return base.check_masks(call.but(**masks))


@wrong("check_axes", "ERR-5", "O")
def depth_of_zero_computed(call: Attention) -> Any:
    """Take no features for one that is 0."""
    none = [name for name in _ARRAYS if getattr(call, name).ndim > 1 and getattr(call, name).shape[-1] == 0]
    zeros = {name: np.zeros((*getattr(call, name).shape[:-1], 1), call.query.dtype) for name in none}
    return base.check_axes(call.but(**zeros))


@wrong("check_scale", "ERR-6", "K")
def any_scale_taken(call: Attention) -> Any:
    """Multiply by whatever is given."""
    return call


@wrong("check_window", "ERR-7", "E")
def window_of_minus_one_is_open(call: Attention) -> Any:
    """Take -1 for an open side, as other libraries write it."""
    pair = isinstance(call.window, tuple) and -1 in call.window
    opened = tuple(None if bound == -1 else bound for bound in call.window) if pair else call.window
    return base.check_window(call.but(window=opened))


@wrong("check_window", "ERR-7", "E")
def window_of_one_number(call: Attention) -> Any:
    """Take a number for both sides."""
    one = call.window
    return base.check_window(call.but(window=(one, one)) if isinstance(one, int) else call)


@wrong("check_window", "ERR-7", "E")
def window_without_its_tail(call: Attention) -> Any:
    """Take the first two of more bounds."""
    many = isinstance(call.window, tuple)
    return base.check_window(call.but(window=call.window[:2]) if many else call)


@wrong("check_integers", "ERR-8", "U")
def fractions_cut(call: Attention) -> Any:
    """Cut offsets and lengths to integers."""
    whole = {
        name: np.asarray(getattr(call, name)).astype(np.int64)
        for name in _PER_ENTRY
        if getattr(call, name) is not None
    }
    return base.check_integers(call.but(**whole))


@wrong("check_integers", "ERR-8", "H")
def one_length_for_all_entries(call: Attention) -> Any:
    """Repeat an array of one for all batch entries."""
    single = {name: np.asarray(getattr(call, name)) for name in _PER_ENTRY if getattr(call, name) is not None}
    return base.check_integers(call.but(**{name: x[0] for name, x in single.items() if x.shape == (1,)}))


@wrong("check_ranges", "ERR-9", "U")
def lengths_clipped(call: Attention) -> Any:
    """Take a length past the end for the whole, and one below 0 for none."""
    for name, most in (("query_lengths", call.queries), ("key_lengths", call.keys)):
        if getattr(call, name) is not None:
            call = call.but(**{name: np.clip(getattr(call, name), 0, most)})
    return call


@wrong("check_segments", "ERR-10", "R")
def ids_of_one_side_for_both(call: Attention) -> Any:
    """Pass over ids that are given for one side."""
    both = call.query_segment_ids is not None and call.key_segment_ids is not None
    return base.check_segments(call if both else call.but(query_segment_ids=None, key_segment_ids=None))


@wrong("check_segments", "ERR-10", "H")
def ids_for_all_entries(call: Attention) -> Any:
    """Let all batch entries have the same ids where the batch axis is missing."""
    flat = {
        name: getattr(call, name)
        for name in ("query_segment_ids", "key_segment_ids")
        if getattr(call, name) is not None
    }
    batch = call.query.shape[:-3]
    repeated = {name: np.broadcast_to(x, (*batch, *x.shape)) for name, x in flat.items() if x.ndim == 1}
    return base.check_segments(call.but(**repeated))


@wrong("check_sinks", "ERR-11", "M")
def one_sink_for_all_heads(call: Attention) -> Any:
    """Repeat a single sink for every head."""
    heads = call.query.shape[-3:-2] or (1,)
    one = call.sinks is not None and call.sinks.shape == (1,)
    return base.check_sinks(call.but(sinks=np.repeat(call.sinks, heads[0])) if one else call)


@wrong("check_sinks", "ERR-11", "M")
def sinks_left_over(call: Attention) -> Any:
    """Read as many sinks as there are heads."""
    heads = call.query.shape[-3:-2] or (1,)
    many = call.sinks is not None and call.sinks.ndim == 1
    return base.check_sinks(call.but(sinks=call.sinks[: heads[0]]) if many else call)


@wrong("checked", "ERR-12", "U")
def errors_without_words(call: Attention) -> Any:
    """Say no more than that something is wrong."""
    try:
        return base.checked(call)
    except ArgumentError:
        raise ArgumentError("invalid argument") from None


@wrong("check_masks", "ERR-15", "R")
def mask_cut_to_the_scores(call: Attention) -> Any:
    """Read as much of a mask as there are queries and keys."""
    masks = {
        name: getattr(call, name)[..., : call.queries, : call.keys]
        for name in ("mask", "dropout_mask")
        if getattr(call, name) is not None and getattr(call, name).ndim > 1
    }
    return base.check_masks(call.but(**masks))


@wrong("checked", "ERR-17", "O")
def no_heads_are_one(call: Attention) -> Any:
    """Compute one head of zeros where there is none."""
    if call.query.ndim > 2 and call.query.shape[-3] == 0 == call.key.shape[-3]:
        one = {
            name: np.zeros((*x.shape[:-3], 1, *x.shape[-2:]), x.dtype) for name, x in _arrays(call).items()
        }
        call = call.but(**one)
    return base.checked(call)


def _arrays(call: Attention) -> dict[str, Array]:
    return {name: getattr(call, name) for name in _ARRAYS}
