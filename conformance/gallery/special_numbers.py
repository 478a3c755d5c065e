"""Wrong about NaN and infinity."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import Array, base, wrong
from attnspec.reference.call import Mask
from attnspec.reference.notation import Attention


@wrong("scored", "NUM-11", "C")
def nan_scores_disallow(call: Attention) -> Any:
    """Lose NaN in a comparison with the maximum, which it is never above."""
    s = base.scored(call)
    return np.where(np.isnan(s), -np.inf, s)


@wrong("returned", "NUM-11", "B")
def nan_in_the_output_made_zero(call: Attention, output: Array, lse: Array, weights: Array) -> Any:
    """Replace NaN by 0 at the end, for the sake of empty rows."""
    clean = np.where(np.isnan(output), 0, output)
    return base.returned(call, clean, lse, weights)


@wrong("top", "NUM-11", "C", "thu-ml/SageAttention#372")
def nan_spreads_to_the_head(call: Attention, s: Array, allowed: Mask) -> Any:
    """Take a maximum of the whole head first, so that a NaN in one row reaches all."""
    most = base.top(call, s, allowed)
    spread = np.isnan(most).any(axis=-2, keepdims=True)
    return np.where(spread, np.nan, most)


@wrong("scored", "NUM-11", "C")
def infinite_scores_made_finite(call: Attention) -> Any:
    """Clip scores to the largest finite number."""
    s = base.scored(call)
    most = np.finfo(s.dtype).max
    return np.clip(s, -most, most)


@wrong("returned", "NUM-11", "I")
def nan_in_the_lse_made_infinite(call: Attention, output: Array, lse: Array, weights: Array) -> Any:
    """Take a row of NaN for an empty one, as far as its lse is concerned."""
    return base.returned(call, output, np.where(np.isnan(lse), -np.inf, lse), weights)


@wrong("weighted", "NUM-12", "C")
def nan_values_taken_for_zero(call: Attention, p: Array, allowed: Mask) -> Any:
    """Replace NaN in the values by 0, for the sake of unused memory."""
    return base.weighted(call.but(value=np.where(np.isnan(call.value), 0, call.value)), p, allowed)


@wrong("weighted", "NUM-12", "C")
def values_without_weight_skipped(call: Attention, p: Array, allowed: Mask) -> Any:
    """Pass over the values of keys whose weight has come out as 0, as if they were disallowed."""
    dropped = False if call.dropout_mask is None else ~call.dropout_mask
    return base.weighted(call, p, allowed & ((p > 0) | np.isnan(p) | dropped))


@wrong("weighted", "NUM-12", "G")
def nan_value_spreads_over_the_row(call: Attention, p: Array, allowed: Mask) -> Any:
    """Let NaN in one feature of a value reach all features of the output."""
    output = base.weighted(call, p, allowed)
    return np.where(np.isnan(output).any(axis=-1, keepdims=True), np.nan, output)


@wrong("weighted", "NUM-13", "C")
def infinite_values_made_finite(call: Attention, p: Array, allowed: Mask) -> Any:
    """Clip the values to the largest finite number."""
    most = np.finfo(call.value.dtype).max
    return base.weighted(call.but(value=np.clip(call.value, -most, most)), p, allowed)


@wrong("weighted", "NUM-13", "C")
def plus_infinity_wins_over_minus_infinity(call: Attention, p: Array, allowed: Mask) -> Any:
    """Return plus infinity where infinities of both signs meet."""
    plus = (base.shared(call, call.value) == np.inf)[..., None, :, :] & allowed[..., None]
    return np.where(plus.any(axis=-2), np.inf, base.weighted(call, p, allowed))


@wrong("scored", "NUM-14", "C")
def minus_infinite_scores_are_nan(call: Attention) -> Any:
    """Take any infinite score for an error."""
    s = base.scored(call)
    bare = base.scored(call.but(bias=None))
    return np.where(np.isinf(bare), np.nan, s)


@wrong("allowed", "NUM-14", "B")
def row_with_minus_infinity_taken_for_empty(call: Attention) -> Any:
    """Take a row for empty in which any score is minus infinity."""
    seen = base.allowed(call)
    below = (base.scored(call.but(bias=None)) == -np.inf) & seen
    return seen & ~below.any(axis=-1, keepdims=True)
