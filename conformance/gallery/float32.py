"""Wrong about float64, because one step is computed in float32; and steps that remove NaN."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import Array, altered, base, wrong
from attnspec.reference.call import Mask
from attnspec.reference.notation import Attention


def _short(array: Array) -> Array:
    with np.errstate(over="ignore"):
        return array.astype(np.float32).astype(array.dtype)


@wrong("scored", "NUM-2", "C")
def scores_through_float32(call: Attention) -> Any:
    """Round the scores to float32 whatever the inputs are."""
    return _short(base.scored(call))


@wrong("product", "NUM-2", "C")
def products_through_float32(call: Attention) -> Any:
    """Round the dot products to float32 whatever the inputs are."""
    return _short(base.product(call))


@wrong("softmax_of", "NUM-2", "C")
def weights_through_float32(call: Attention, s: Array, allowed: Mask) -> Any:
    """Round the weights to float32 whatever the inputs are."""
    p, lse = base.softmax_of(call, s, allowed)
    return _short(p), lse


@wrong("exponentials", "NUM-2", "C")
def exponentials_through_float32(call: Attention, s: Array, allowed: Mask, top: Array) -> Any:
    """Round the exponentials to float32 whatever the inputs are."""
    return _short(base.exponentials(call, s, allowed, top))


@wrong("weighted", "NUM-2", "C")
def output_through_float32(call: Attention, p: Array, allowed: Mask) -> Any:
    """Round the output to float32 whatever the inputs are."""
    return _short(base.weighted(call, p, allowed))


@wrong("total", "NUM-2", "C")
def sums_through_float32(call: Attention, e: Array, top: Array) -> Any:
    """Round the denominator to float32 whatever the inputs are."""
    return _short(base.total(call, e, top))


@wrong("top", "SOFT-2", "C")
def maximum_kept_from_below(call: Attention, s: Array, allowed: Mask) -> Any:
    """Begin the search for the largest score with -10000."""
    return np.maximum(base.top(call, s, allowed), -10000)


@wrong("biased", "NUM-2", "L")
def bias_through_float32(call: Attention, x: Array) -> Any:
    """Round the bias to float32 whatever the inputs are."""
    return base.biased(altered(call, bias=_short), x)


@wrong("weighted", "NUM-2", "C")
def values_through_float32(call: Attention, p: Array, allowed: Mask) -> Any:
    """Round the values to float32 whatever the inputs are."""
    return base.weighted(call.but(value=_short(call.value)), p, allowed)


@wrong("normalised", "NUM-11", "C")
def nan_weights_made_zero(call: Attention, e: Array, total: Array) -> Any:
    """Replace NaN in the weights by 0, for the sake of empty rows."""
    p = base.normalised(call, e, total)
    return np.where(np.isnan(p), 0, p)


@wrong("scored", "NUM-11", "C")
def nan_scores_made_zero(call: Attention) -> Any:
    """Replace NaN in the scores by 0."""
    s = base.scored(call)
    return np.where(np.isnan(s), 0, s)


@wrong("allowed", "NUM-11", "C")
def nan_scores_disallowed(call: Attention) -> Any:
    """Disallow keys whose score is NaN."""
    return base.allowed(call) & ~np.isnan(base.scored(call))
