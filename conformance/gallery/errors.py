"""Wrong about what must be refused."""

from typing import Any

import numpy as np

from attnspec.backends import DTYPES
from attnspec.conformance.gallery import base_checks as base
from attnspec.conformance.gallery.base import Steps
from attnspec.conformance.gallery.base_checks import Given, RefusedError
from attnspec.conformance.gallery.entry import wrong

_ARRAYS = ("query", "key", "value")
_PER_ENTRY = ("query_offset", "query_lengths", "key_lengths")


@wrong("check_dtypes", "ERR-1", "L")
def mixed_dtypes_cast(given: Given) -> Any:
    """Cast keys and values to the dtype of the query."""
    real = {name: given[name] for name in _ARRAYS if given[name].dtype.name in DTYPES}
    return base.check_dtypes(given | {name: x.astype(given["query"].dtype) for name, x in real.items()})


@wrong("check_dtypes", "ERR-2", "L")
def integers_taken_for_numbers(given: Given) -> Any:
    """Compute integers and booleans in float32."""
    whole = {name: given[name] for name in _ARRAYS if given[name].dtype.kind in "iub"}
    return base.check_dtypes(given | {name: x.astype(np.float32) for name, x in whole.items()})


@wrong("check_dtypes", "ERR-2", "L")
def imaginary_part_dropped(given: Given) -> Any:
    """Take the real part of complex numbers."""
    return base.check_dtypes(given | {name: given[name].real for name in _ARRAYS})


@wrong("check_masks", "ERR-4", "R")
def numbers_taken_for_a_mask(given: Given) -> Any:
    """Take any number but 0 for True."""
    masks = {name: given[name].astype(bool) for name in ("mask", "dropout_mask") if given[name] is not None}
    return base.check_masks(given | masks)


@wrong("check_axes", "ERR-5", "O")
def depth_of_zero_computed(given: Given) -> Any:
    """Take no features for one that is 0."""
    none = [name for name in _ARRAYS if given[name].ndim > 1 and given[name].shape[-1] == 0]
    return base.check_axes(
        given | {name: np.zeros((*given[name].shape[:-1], 1), given[name].dtype) for name in none}
    )


@wrong("check_scale", "ERR-6", "K")
def any_scale_taken(given: Given) -> Any:
    """Multiply by whatever is given."""
    return given


@wrong("check_window", "ERR-7", "E")
def window_of_minus_one_is_open(given: Given) -> Any:
    """Take -1 for an open side, as other libraries write it."""
    pair = isinstance(given["window"], tuple) and -1 in given["window"]
    opened = tuple(None if bound == -1 else bound for bound in given["window"]) if pair else given["window"]
    return base.check_window(given | {"window": opened})


@wrong("check_window", "ERR-7", "E")
def window_of_one_number(given: Given) -> Any:
    """Take a number for both sides."""
    one = given["window"]
    return base.check_window(given | {"window": (one, one)} if isinstance(one, int) else given)


@wrong("check_window", "ERR-7", "E")
def window_without_its_tail(given: Given) -> Any:
    """Take the first two of more bounds."""
    many = isinstance(given["window"], tuple)
    return base.check_window(given | {"window": given["window"][:2]} if many else given)


@wrong("check_integers", "ERR-8", "U")
def fractions_cut(given: Given) -> Any:
    """Cut offsets and lengths to integers."""
    whole = {name: np.asarray(given[name]).astype(np.int64) for name in _PER_ENTRY if given[name] is not None}
    return base.check_integers(given | whole)


@wrong("check_integers", "ERR-8", "H")
def one_length_for_all_entries(given: Given) -> Any:
    """Repeat an array of one for all batch entries."""
    single = {name: np.asarray(given[name]) for name in _PER_ENTRY if given[name] is not None}
    return base.check_integers(given | {name: x[0] for name, x in single.items() if x.shape == (1,)})


@wrong("check_ranges", "ERR-9", "U")
def lengths_clipped(given: Given) -> Any:
    """Take a length past the end for the whole, and one below 0 for none."""
    for name, axis in (("query_lengths", "query"), ("key_lengths", "key")):
        if given[name] is not None:
            given = given | {name: np.clip(given[name], 0, given[axis].shape[-2])}
    return given


@wrong("check_segments", "ERR-10", "R")
def ids_of_one_side_for_both(given: Given) -> Any:
    """Pass over ids that are given for one side."""
    both = given["query_segment_ids"] is not None and given["key_segment_ids"] is not None
    return base.check_segments(
        given if both else given | {"query_segment_ids": None, "key_segment_ids": None}
    )


@wrong("check_segments", "ERR-10", "H")
def ids_for_all_entries(given: Given) -> Any:
    """Let all batch entries have the same ids where the batch axis is missing."""
    flat = {name: given[name] for name in ("query_segment_ids", "key_segment_ids") if given[name] is not None}
    batch = given["query"].shape[:-3]
    repeated = {name: np.broadcast_to(x, (*batch, *x.shape)) for name, x in flat.items() if x.ndim == 1}
    return base.check_segments(given | repeated)


@wrong("check_sinks", "ERR-11", "M")
def one_sink_for_all_heads(given: Given) -> Any:
    """Repeat a single sink for every head."""
    heads = given["query"].shape[-3:-2] or (1,)
    one = given["sinks"] is not None and given["sinks"].shape == (1,)
    return base.check_sinks(given | {"sinks": np.repeat(given["sinks"], heads[0])} if one else given)


@wrong("check_sinks", "ERR-11", "M")
def sinks_left_over(given: Given) -> Any:
    """Read as many sinks as there are heads."""
    heads = given["query"].shape[-3:-2] or (1,)
    many = given["sinks"] is not None and given["sinks"].ndim == 1
    return base.check_sinks(given | {"sinks": given["sinks"][: heads[0]]} if many else given)


@wrong("checked", "ERR-12", "U")
def errors_without_words(own: Steps, given: Given) -> Any:
    """Say no more than that something is wrong."""
    try:
        return base.checked(own, given)
    except RefusedError:
        raise RefusedError("invalid argument") from None
