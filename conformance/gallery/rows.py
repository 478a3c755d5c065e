"""Wrong about some or all results of rows with nothing to attend to."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import Array, base, wrong
from attnspec.reference.notation import Attention


@wrong("attend", "MASK-6", "B")
def empty_rows_are_the_mean_but_for_the_lse(call: Attention) -> Any:
    """Give a row with nothing to attend to equal weights, and the lse minus infinity."""
    output, lse, p = base.attend(call)
    empty = ~base.allowed(call).any(axis=-1, keepdims=True) & (call.sinks is None) & (call.keys > 0)
    mean = base.shared(call, call.value).sum(axis=-2, keepdims=True) / max(call.keys, 1)
    return np.where(empty, mean, output), lse, np.where(empty, 1 / max(call.keys, 1), p).astype(p.dtype)


@wrong("normalised", "MASK-6", "B")
def empty_rows_are_nan_unless_all_are(call: Attention, e: Array, total: Array) -> Any:
    """Look for rows with nothing to attend to by looking at all of a head."""
    nothing = ~(total > 0).any(axis=-2, keepdims=True)
    return np.where(nothing, base.normalised(call, e, total), e / total)


@wrong("lse", "SOFT-7", "I")
def lse_of_empty_rows_is_nan(call: Attention, top: Array, total: Array) -> Any:
    """Take minus infinity from minus infinity in the lse of a row with nothing to attend to."""
    return np.where(total[..., 0] == 0, np.nan, base.lse(call, top, total))


@wrong("lse", "SOFT-7", "I")
def lse_of_empty_rows_is_the_lowest_number(call: Attention, top: Array, total: Array) -> Any:
    """Give a row with nothing to attend to the lowest finite number as its lse."""
    return np.where(total[..., 0] == 0, np.finfo(total.dtype).min, base.lse(call, top, total))


@wrong("attend", "MASK-6", "M")
def empty_rows_with_a_sink_are_nan(call: Attention) -> Any:
    """Take a row with a sink and no keys for one of no sum."""
    output, lse, p = base.attend(call)
    empty = ~base.allowed(call).any(axis=-1, keepdims=True) & (call.sinks is not None)
    return np.where(empty, np.nan, output), lse, np.where(empty, np.nan, p)
