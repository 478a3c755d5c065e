"""Wrong about numbers that multiply, bound or are added to the scores and the weights."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import Array, altered, base, family, wrong
from attnspec.reference.call import Step
from attnspec.reference.notation import Attention

_LN2, _LOG2E = float(np.log(2)), float(1 / np.log(2))


@wrong("factor", "SCORE-3", "K")
def sign_of_the_scale_lost(call: Attention) -> Any:
    """Take the size of a negative scale."""
    return abs(base.factor(call))


@wrong("factor", "SCORE-3", "K")
def scale_applied_twice(call: Attention) -> Any:
    """Multiply queries and keys by the whole scale each."""
    return base.factor(call) ** 2


@wrong("factor", "SCORE-3", "K")
def given_scale_divides(call: Attention) -> Any:
    """Divide by a scale that is given, unless it is 0."""
    return base.factor(call) if not call.scale else 1 / call.scale


@wrong("factor", "SCORE-3", "K")
def given_scale_without_effect(call: Attention) -> Any:
    """Multiply by the default, whatever scale is given."""
    return base.factor(call.but(scale=None))


@wrong("factor", "SCORE-3", "K")
def scale_cut_to_an_integer(call: Attention) -> Any:
    """Cut a given scale to an integer."""
    return base.factor(call) if call.scale is None else float(int(call.scale))


@wrong("factor", "SCORE-2", "K")
def scale_of_the_number_of_keys(call: Attention) -> Any:
    """Divide by the root of the number of keys."""
    return max(call.keys, 1) ** -0.5 if call.scale is None else base.factor(call)


@wrong("factor", "SCORE-2", "K")
def scale_of_a_depth_of_a_power_of_two(call: Attention) -> Any:
    """Divide by the root of the depth rounded up to a power of 2."""
    padded = 1 << (call.query.shape[-1] - 1).bit_length()
    return float(padded**-0.5) if call.scale is None else base.factor(call)


@wrong("factor", "SCORE-2", "K")
def scale_of_a_depth_of_sixteens(call: Attention) -> Any:
    """Divide by the root of the depth rounded up to a multiple of 16."""
    padded = -(-call.query.shape[-1] // 16) * 16
    return float(padded**-0.5) if call.scale is None else base.factor(call)


@wrong("factor", "HEAD-1", "K")
def default_scale_dropped_in_shared_heads(call: Attention) -> Any:
    """Leave the dot products as they are where key heads are shared, unless a scale is given."""
    shared = call.key.shape[-3] != call.query.shape[-3]
    return 1.0 if shared and call.scale is None else base.factor(call)


@wrong("scored", "SCORE-4", "L")
def bias_scaled_by_the_scale(call: Attention) -> Any:
    """Multiply the bias by the scale after the cap."""
    return base.biased(
        altered(call, bias=lambda bias: bias * base.factor(call)), base.scored(call.but(bias=None))
    )


@wrong("biased", "SCORE-4", "L")
def bias_subtracted(call: Attention, x: Array) -> Any:
    """Subtract a finite bias."""
    return base.biased(altered(call, bias=lambda bias: np.where(np.isfinite(bias), -bias, bias)), x)


@wrong("biased", "SCORE-4", "L")
def bias_not_to_base_two(call: Attention, x: Array) -> Any:
    """Add the bias to scores that are to base 2."""
    return base.biased(altered(call, bias=lambda bias: bias * bias.dtype.type(_LN2)), x)


@wrong("capped", "SCORE-5", "F")
def cap_to_base_two(call: Attention, x: Array) -> Any:
    """Cap scores that are to base 2."""
    return base.capped(call, x * x.dtype.type(_LOG2E)) / x.dtype.type(_LOG2E)


@wrong("capped", "SCORE-5", "F")
def cap_not_divided_by(call: Attention, x: Array) -> Any:
    """Multiply the tangent by the cap, and divide by nothing inside of it."""
    return x if call.softcap is None else np.tanh(x) * x.dtype.type(call.softcap)


@wrong("capped", "SCORE-5", "F")
def cap_multiplied_inside(call: Attention, x: Array) -> Any:
    """Multiply by the cap inside of the tangent, and divide outside."""
    return x if call.softcap is None else np.tanh(x * x.dtype.type(call.softcap)) / x.dtype.type(call.softcap)


@wrong("capped", "SCORE-5", "F")
def positive_scores_capped_alone(call: Attention, x: Array) -> Any:
    """Cap scores above 0, and leave those below as they are."""
    return np.where(x > 0, base.capped(call, x), x)


@wrong("normalised", "DROP-1", "J")
def dropped_keys_leave_the_denominator(call: Attention, e: Array, total: Array) -> Any:
    """Drop keys before the sum is taken, so that the other weights grow."""
    if call.dropout_mask is None:
        return base.normalised(call, e, total)
    kept = np.where(call.dropout_mask, e, 0).sum(axis=-1, keepdims=True)
    sink = 0 if call.sinks is None else total - e.sum(axis=-1, keepdims=True)
    return base.normalised(call, e, kept + sink)


@wrong("dropped", "DROP-1", "J")
def dropout_mask_forgotten_at_a_rate_of_zero(call: Attention, p: Array) -> Any:
    """Drop nothing where the rate is 0, whatever the mask says."""
    return base.dropped(call, p) if call.dropout_rate else p


@wrong("dropped", "DROP-1", "J")
def weights_raised_and_none_dropped(call: Attention, p: Array) -> Any:
    """Divide by one minus the rate, and drop nothing."""
    return base.dropped(altered(call, dropout_mask=np.ones_like), p)


@wrong("dropped", "DROP-2", "J")
def kept_weights_multiplied_by_the_rest_of_the_rate(call: Attention, p: Array) -> Any:
    """Multiply by one minus the rate instead of dividing."""
    return base.dropped(call, p) * p.dtype.type((1 - call.dropout_rate) ** 2)


@wrong("dropped", "DROP-2", "J")
def kept_weights_raised_twice(call: Attention, p: Array) -> Any:
    """Divide by one minus the rate twice."""
    return base.dropped(call, p) / p.dtype.type(1 - call.dropout_rate)


@wrong("scored", "DROP-1", "J")
def dropped_scores_are_zero(call: Attention) -> Any:
    """Drop scores before the softmax, which leaves them at 0."""
    s = base.scored(call)
    return s if call.dropout_mask is None else np.where(call.dropout_mask, s, 0)


def _kept_from_zero(power: int) -> tuple[str, str, Step]:
    def normalised(_call: Attention, e: Array, total: Array) -> Any:
        return e / (total + total.dtype.type(10.0**-power))

    return f"denominator_plus_1e_{power}", f"Add 1e-{power} to the denominator.", normalised


KEPT_FROM_ZERO = family(_kept_from_zero, "normalised", "SOFT-1", "B", 5, 6, 12)
# In float64 these results are as wrong as those of float32.
KEPT_FROM_ZERO_IN_FLOAT64 = family(_kept_from_zero, "normalised", "NUM-2", "B", 8, 9, 10)
