"""Wrong with two or three batch axes, and an option that is given for each batch entry."""

from collections.abc import Callable
from typing import Any

import numpy as np

from attnspec.conformance.gallery.bases.online import SQUARE, TALL, WIDE, Online
from attnspec.conformance.gallery.edges.entering import at
from attnspec.conformance.gallery.entry import Array, Entry, altered
from attnspec.reference.notation import Attention

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
    found: Array = turned.reshape(*batch, *rest)
    return found


def _by_the_last(axes: int, array: Any, count: int) -> Any:
    """Read the entries of the first of three batch axes, or more, for all of it."""
    if np.ndim(array) != axes + count or axes < 3:
        return array
    return np.broadcast_to(array[:1], array.shape)


def _with_another(name: str, count: int, base: Online, other: Callable[[int, Any, int], Any]) -> Any:
    """Make a function that attends with another array in the place of an option."""

    def attend(_count: int, call: Attention) -> Any:
        axes = len(call.batch)
        return base.attend(altered(call, **{name: lambda array: other(axes, array, count)}))

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


TWO = tuple(one for option in _OPTIONS for one in _of_two(*option))
THREE = tuple(one for option in _OPTIONS for one in _of_three(*option))


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
