"""Wrong about scores: dot products, scale, softcap, bias, and numbers that bound or multiply them."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import Array, altered, base, family, first, wrong
from attnspec.reference.call import Step
from attnspec.reference.errors import is_number
from attnspec.reference.notation import Attention


@wrong("product", "SCORE-1", "G")
def absolute_scores(call: Attention) -> Any:
    """Lose the sign of the dot products."""
    return np.abs(base.product(call))


@wrong("product", "SCORE-1", "H")
def scores_transposed(call: Attention) -> Any:
    """Exchange queries and keys, where there are as many of both."""
    x = base.product(call)
    return np.swapaxes(x, -1, -2) if call.queries == call.keys else x


@wrong("product", "SCORE-1", "G")
def depth_past_sixteen_dropped(call: Attention) -> Any:
    """Sum over the first 16 features."""
    return base.product(call.but(query=call.query[..., :16], key=call.key[..., :16]))


@wrong("product", "SCORE-1", "G")
def last_of_an_odd_depth_dropped(call: Attention) -> Any:
    """Load features in pairs, and leave the last of an odd number greater than one."""
    depth = call.query.shape[-1]
    kept = depth - 1 if depth % 2 and depth > 1 else depth
    return base.product(call.but(query=call.query[..., :kept], key=call.key[..., :kept]))


@wrong("product", "SCORE-1", "K")
def keys_normalised(call: Attention) -> Any:
    """Divide each key by its length."""
    length = np.sqrt((call.key**2).sum(axis=-1, keepdims=True))
    return base.product(call.but(key=call.key / np.where(length == 0, 1, length)))


@wrong("factor", "SCORE-2", "K")
def no_default_scale(call: Attention) -> Any:
    """Leave the dot products as they are unless a scale is given."""
    return base.factor(call.but(scale=1.0 if call.scale is None else call.scale))


@wrong("factor", "SCORE-2", "K")
def scale_without_the_root(call: Attention) -> Any:
    """Divide by the depth."""
    return 1 / call.query.shape[-1] if call.scale is None else base.factor(call)


@wrong("factor", "SCORE-2", "K", "vllm-project/vllm-ascend#1958")
def scale_of_a_padded_depth(call: Attention) -> Any:
    """Divide by the root of the depth rounded up to a multiple of 8."""
    padded = -(-call.query.shape[-1] // 8) * 8
    return base.factor(call.but(scale=padded**-0.5 if call.scale is None else call.scale))


@wrong("factor", "SCORE-2", "P")
def scale_of_the_value_depth(call: Attention) -> Any:
    """Divide by the root of the depth of the values."""
    depth = call.value.shape[-1]
    return base.factor(call.but(scale=depth**-0.5 if call.scale is None else call.scale))


@wrong("factor", "SCORE-2", "K")
def scale_of_all_heads(call: Attention) -> Any:
    """Divide by the root of the depth of all heads together."""
    depth = call.query.shape[-1] * call.query.shape[-3]
    return base.factor(call.but(scale=depth**-0.5 if call.scale is None else call.scale))


@wrong("factor", "SCORE-3", "K")
def scale_of_zero_is_the_default(call: Attention) -> Any:
    """Ask whether a scale is given by asking whether it is true."""
    return base.factor(call.but(scale=call.scale or None))


@wrong("factor", "SCORE-3", "K", "pytorch/pytorch#105202")
def negative_scale_by_its_root(call: Attention) -> Any:
    """Multiply both inputs by the root of the scale."""
    root = np.sqrt(base.factor(call))
    return root * root


@wrong("factor", "SCORE-3", "K")
def scale_on_top_of_the_default(call: Attention) -> Any:
    """Multiply by the given scale and divide by the root of the depth too."""
    default = base.factor(call.but(scale=None))
    return default if call.scale is None else base.factor(call) * default


@wrong("factor", "ERR-3", "K", "pytorch/pytorch#174361")
def scale_dropped_beside_a_mask(call: Attention) -> Any:
    """Fall back to the default on the path for masks."""
    return base.factor(call.but(scale=None) if call.mask is not None else call)


@wrong("scored", "SCORE-4", "L")
def bias_before_the_scale(call: Attention) -> Any:
    """Add the bias to the dot products and scale the sum."""
    return base.capped(call, base.biased(call, base.product(call)) * base.factor(call))


@wrong("biased", "SCORE-4", "H")
def bias_of_the_first_head(call: Attention, x: Array) -> Any:
    """Let all heads have the bias of the first."""
    return base.biased(altered(call, bias=lambda bias: first(bias, -3)), x)


@wrong("biased", "SCORE-4", "H")
def bias_of_the_first_query(call: Attention, x: Array) -> Any:
    """Read the bias with a stride of 0 over the queries."""
    return base.biased(altered(call, bias=lambda bias: first(bias, -2)), x)


@wrong("biased", "SCORE-4", "H")
def bias_of_keys_along_the_queries(call: Attention, x: Array) -> Any:
    """Align a bias of one axis with the queries, where it fits there."""
    turned = altered(call, bias=lambda bias: bias[:, None] if bias.shape == (call.queries,) else bias)
    return base.biased(turned, x)


@wrong("biased", "SCORE-4", "L")
def positive_bias_dropped(call: Attention, x: Array) -> Any:
    """Take a bias for an additive mask, which is never above zero."""
    return base.biased(altered(call, bias=lambda bias: np.minimum(bias.astype(x.dtype), 0)), x)


@wrong("scored", "SCORE-5", "F", "onnx/onnx#7867")
def cap_after_the_bias(call: Attention) -> Any:
    """Cap the sum of score and bias."""
    return base.capped(call, base.biased(call, base.product(call) * base.factor(call)))


@wrong("attend", "SCORE-5", "F", "ggml-org/llama.cpp#29034")
def cap_after_the_mask(call: Attention) -> Any:
    """Fill disallowed places with minus infinity and cap after that, which makes a score of them."""
    masked = np.where(base.allowed(call), base.biased(call, base.product(call) * base.factor(call)), -np.inf)
    s = base.capped(call, masked)
    seen = s > -np.inf
    p, lse = base.softmax_of(call, s, seen)
    return base.weighted(call, base.dropped(call, p), seen), lse, base.dropped(call, p)


@wrong("capped", "SCORE-5", "F")
def cap_by_softsign(call: Attention, x: Array) -> Any:
    """Squeeze by ``x / (1 + |x| / cap)``."""
    return x if call.softcap is None else x / (1 + np.abs(x) / x.dtype.type(call.softcap))


@wrong("capped", "SCORE-5", "F")
def cap_not_multiplied_back(call: Attention, x: Array) -> Any:
    """Leave the scores between -1 and 1."""
    return x if call.softcap is None else np.tanh(x / x.dtype.type(call.softcap))


@wrong("capped", "SCORE-5", "F")
def cap_by_clipping(call: Attention, x: Array) -> Any:
    """Cut scores off at the cap."""
    return x if call.softcap is None else np.clip(x, -call.softcap, call.softcap)


@wrong("scored", "SCORE-5", "F")
def cap_before_the_scale(call: Attention) -> Any:
    """Cap the dot products, and scale them after that."""
    return base.biased(call, base.capped(call, base.product(call)) * base.factor(call))


@wrong("capped", "SCORE-5", "F")
def cap_dropped_for_one_query(call: Attention, x: Array) -> Any:
    """Forget the cap on the path for decoding."""
    return x if call.queries == 1 else base.capped(call, x)


@wrong("check_softcap", "SCORE-6", "U")
def cap_of_zero_is_none(call: Attention) -> Any:
    """Take 0 for no cap, as other libraries write it."""
    return base.check_softcap(call.but(softcap=call.softcap or None))


@wrong("check_softcap", "SCORE-6", "U")
def negative_cap_taken(call: Attention) -> Any:
    """Pass over the sign of a cap, which makes no difference."""
    positive = is_number(call.softcap) and call.softcap < 0
    return base.check_softcap(call.but(softcap=-call.softcap) if positive else call)


@wrong("factor", "MASK-3", "K")
def sign_of_the_scale_lost_under_a_causal_mask(call: Attention) -> Any:
    """Take the size of a negative scale on the causal path."""
    found = base.factor(call)
    return abs(found) if call.is_causal else found


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
