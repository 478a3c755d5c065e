"""Wrong about scores: dot products, scale, softcap, bias, and numbers that bound or multiply them."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import After, Array, alter, base, family, first, rows, wrong
from attnspec.reference.call import Step
from attnspec.reference.errors import is_number
from attnspec.reference.notation import Attention

#: The constant of an entry, for which a diagnosis takes that of a backend.
CONSTANT = 0.125
_LN2, _LOG2E = float(np.log(2)), float(1 / np.log(2))

ENTRIES = rows(
    ("absolute_scores", "product", "SCORE-1", "G", lambda call: np.abs(base.product(call)),
     "Lose the sign of the dot products."),
    ("depth_past_sixteen_dropped", "product", "SCORE-1", "G",
     lambda call: base.product(call.but(query=call.query[..., :16], key=call.key[..., :16])),
     "Sum over the first 16 features."),
    ("no_default_scale", "factor", "SCORE-2", "K",
     lambda call: base.factor(call.but(scale=1.0 if call.scale is None else call.scale)),
     "Leave the dot products as they are unless a scale is given."),
    ("scale_without_the_root", "factor", "SCORE-2", "K",
     lambda call: 1 / call.query.shape[-1] if call.scale is None else base.factor(call),
     "Divide by the depth."),
    ("constant_scale", "factor", "SCORE-2", "K",
     lambda call: CONSTANT if call.scale is None else base.factor(call),
     f"Take a constant scale of {CONSTANT}, whatever the depth."),
    ("scale_of_zero_is_the_default", "factor", "SCORE-3", "K",
     lambda call: base.factor(call.but(scale=call.scale or None)),
     "Ask whether a scale is given by asking whether it is true."),
    ("scale_dropped_beside_a_mask", "factor", "ERR-3", "K",
     lambda call: base.factor(call.but(scale=None) if call.mask is not None else call),
     "Fall back to the default on the path for masks.", "pytorch/pytorch#174361"),
    ("bias_before_the_scale", "score", "SCORE-4", "L",
     lambda call: base.cap(call, base.add_bias(call, base.product(call)) * base.factor(call)),
     "Add the bias to the dot products and scale the sum."),
    ("bias_of_the_first_head", "add_bias", "SCORE-4", "H",
     lambda call, x: base.add_bias(alter(call, bias=lambda bias: first(bias, -3)), x),
     "Let all heads have the bias of the first."),
    ("bias_of_the_first_query", "add_bias", "SCORE-4", "H",
     lambda call, x: base.add_bias(alter(call, bias=lambda bias: first(bias, -2)), x),
     "Read the bias with a stride of 0 over the queries."),
    ("positive_bias_dropped", "add_bias", "SCORE-4", "L",
     lambda call, x: base.add_bias(alter(call, bias=lambda bias: np.minimum(bias.astype(x.dtype), 0)), x),
     "Take a bias for an additive mask, which is never above zero."),
    ("cap_after_the_bias", "score", "SCORE-5", "F",
     lambda call: base.cap(call, base.add_bias(call, base.product(call) * base.factor(call))),
     "Cap the sum of score and bias.", "onnx/onnx#7867"),
    ("cap_by_softsign", "cap", "SCORE-5", "F",
     lambda call, x: x if call.softcap is None else x / (1 + np.abs(x) / x.dtype.type(call.softcap)),
     "Squeeze by ``x / (1 + |x| / cap)``."),
    ("cap_not_multiplied_back", "cap", "SCORE-5", "F",
     lambda call, x: x if call.softcap is None else np.tanh(x / x.dtype.type(call.softcap)),
     "Leave the scores between -1 and 1."),
    ("cap_by_clipping", "cap", "SCORE-5", "F",
     lambda call, x: x if call.softcap is None else np.clip(x, -call.softcap, call.softcap),
     "Cut scores off at the cap."),
    ("cap_before_the_scale", "score", "SCORE-5", "F",
     lambda call: base.add_bias(call, base.cap(call, base.product(call)) * base.factor(call)),
     "Cap the dot products, and scale them after that."),
    ("cap_dropped_for_one_query", "cap", "SCORE-5", "F",
     lambda call, x: x if call.queries == 1 else base.cap(call, x),
     "Forget the cap on the path for decoding."),
    ("cap_of_zero_is_none", "check_softcap", "SCORE-6", "U",
     lambda call: base.check_softcap(call.but(softcap=call.softcap or None)),
     "Take 0 for no cap, as other libraries write it."),
    ("sign_of_the_scale_lost", "factor", "SCORE-3", "K", lambda call: abs(base.factor(call)),
     "Take the size of a negative scale."),
    ("scale_applied_twice", "factor", "SCORE-3", "K", lambda call: base.factor(call) ** 2,
     "Multiply queries and keys by the whole scale each."),
    ("given_scale_divides", "factor", "SCORE-3", "K",
     lambda call: base.factor(call) if not call.scale else 1 / call.scale,
     "Divide by a scale that is given, unless it is 0."),
    ("given_scale_without_effect", "factor", "SCORE-3", "K", lambda call: base.factor(call.but(scale=None)),
     "Multiply by the default, whatever scale is given."),
    ("scale_cut_to_an_integer", "factor", "SCORE-3", "K",
     lambda call: base.factor(call) if call.scale is None else float(int(call.scale)),
     "Cut a given scale to an integer."),
    ("scale_of_the_number_of_keys", "factor", "SCORE-2", "K",
     lambda call: max(call.keys, 1) ** -0.5 if call.scale is None else base.factor(call),
     "Divide by the root of the number of keys."),
    ("bias_not_to_base_two", "add_bias", "SCORE-4", "L",
     lambda call, x: base.add_bias(alter(call, bias=lambda bias: bias * bias.dtype.type(_LN2)), x),
     "Add the bias to scores that are to base 2."),
    ("cap_to_base_two", "cap", "SCORE-5", "F",
     lambda call, x: base.cap(call, x * x.dtype.type(_LOG2E)) / x.dtype.type(_LOG2E),
     "Cap scores that are to base 2."),
    ("cap_not_divided_by", "cap", "SCORE-5", "F",
     lambda call, x: x if call.softcap is None else np.tanh(x) * x.dtype.type(call.softcap),
     "Multiply the tangent by the cap, and divide by nothing inside of it."),
    ("positive_scores_capped_alone", "cap", "SCORE-5", "F",
     lambda call, x: np.where(x > 0, base.cap(call, x), x),
     "Cap scores above 0, and leave those below as they are."),
    ("dropout_mask_forgotten_at_a_rate_of_zero", "drop", "DROP-1", "J",
     lambda call, p: base.drop(call, p) if call.dropout_rate else p,
     "Drop nothing where the rate is 0, whatever the mask says."),
    ("weights_raised_and_none_dropped", "drop", "DROP-1", "J",
     lambda call, p: base.drop(alter(call, dropout_mask=np.ones_like), p),
     "Divide by one minus the rate, and drop nothing."),
    ("kept_weights_multiplied_by_the_rest_of_the_rate", "drop", "DROP-2", "J",
     lambda call, p: base.drop(call, p) * p.dtype.type((1 - call.dropout_rate) ** 2),
     "Multiply by one minus the rate instead of dividing."),
    ("kept_weights_raised_twice", "drop", "DROP-2", "J",
     lambda call, p: base.drop(call, p) / p.dtype.type(1 - call.dropout_rate),
     "Divide by one minus the rate twice."),
    ("bias_subtracted", "add_bias", "SCORE-4", "L",
     lambda call, x: base.add_bias(
         alter(call, bias=lambda bias: np.where(np.isfinite(bias), -bias, bias)), x),
     "Subtract a finite bias."),
    ("cap_multiplied_inside", "cap", "SCORE-5", "F",
     lambda call, x: x if call.softcap is None
         else np.tanh(x * x.dtype.type(call.softcap)) / x.dtype.type(call.softcap),
     "Multiply by the cap inside of the tangent, and divide outside."),
    ("scores_transposed", "product", "SCORE-1", "H",
     After(lambda x, call: np.swapaxes(x, -1, -2) if call.queries == call.keys else x),
     "Exchange queries and keys, where there are as many of both."),
    ("bias_of_keys_along_the_queries", "add_bias", "SCORE-4", "H",
     lambda call, x: base.add_bias(alter(call, bias=lambda bias: bias[:, None]
         if bias.shape == (call.queries,) else bias), x),
     "Align a bias of one axis with the queries, where it fits there."),
    ("negative_cap_taken", "check_softcap", "SCORE-6", "U",
     lambda call: base.check_softcap(call.but(softcap=-call.softcap)
         if is_number(call.softcap) and call.softcap < 0 else call),
     "Pass over the sign of a cap, which makes no difference."),
    ("sign_of_the_scale_lost_under_a_causal_mask", "factor", "MASK-3", "K",
     After(lambda result, call: abs(result) if call.is_causal else result),
     "Take the size of a negative scale on the causal path."),
    ("default_scale_dropped_in_shared_heads", "factor", "HEAD-1", "K",
     lambda call: 1.0 if call.key.shape[-3] != call.query.shape[-3] and call.scale is None
         else base.factor(call),
     "Leave the dot products as they are where key heads are shared, unless a scale is given."),
    ("bias_scaled_by_the_scale", "score", "SCORE-4", "L",
     lambda call: base.add_bias(alter(call, bias=lambda bias: bias * base.factor(call)),
         base.score(call.but(bias=None))),
     "Multiply the bias by the scale after the cap."),
    ("dropped_keys_leave_the_denominator", "normalise", "DROP-1", "J",
     lambda call, e, total: base.normalise(call, e, total) if call.dropout_mask is None
         else base.normalise(call, e, np.where(call.dropout_mask, e, 0).sum(axis=-1, keepdims=True) + (0
         if call.sinks is None else total - e.sum(axis=-1, keepdims=True))),
     "Drop keys before the sum is taken, so that the other weights grow."),
    ("dropped_scores_are_zero", "score", "DROP-1", "J",
     After(lambda s, call: s if call.dropout_mask is None else np.where(call.dropout_mask, s, 0)),
     "Drop scores before the softmax, which leaves them at 0."),
)  # fmt: skip


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


@wrong("factor", "SCORE-2", "K", "vllm-project/vllm-ascend#1958")
def scale_of_a_padded_depth(call: Attention) -> Any:
    """Divide by the root of the depth rounded up to a multiple of 8."""
    padded = -(-call.query.shape[-1] // 8) * 8
    return base.factor(call.but(scale=padded**-0.5 if call.scale is None else call.scale))


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


@wrong("attend", "SCORE-5", "F", "ggml-org/llama.cpp#29034")
def cap_after_the_mask(call: Attention) -> Any:
    """Fill disallowed places with minus infinity and cap after that, which makes a score of them."""
    masked = np.where(
        base.allowed_pairs(call), base.add_bias(call, base.product(call) * base.factor(call)), -np.inf
    )
    s = base.cap(call, masked)
    seen = s > -np.inf
    p, lse = base.softmax_of(call, s, seen)
    return base.weighted_sum(call, base.drop(call, p), seen), lse, base.drop(call, p)


def _kept_from_zero(power: int) -> tuple[str, str, Step]:
    def normalised(_call: Attention, e: Array, total: Array) -> Any:
        return e / (total + total.dtype.type(10.0**-power))

    return f"denominator_plus_1e_{power}", f"Add 1e-{power} to the denominator.", normalised


KEPT_FROM_ZERO = family(_kept_from_zero, "normalise", "SOFT-1", "B", 5, 6, 12)
# In float64 these results are as wrong as those of float32.
KEPT_FROM_ZERO_IN_FLOAT64 = family(_kept_from_zero, "normalise", "NUM-2", "B", 8, 9, 10)


LAST = rows(
    ("scale_of_the_value_depth", "factor", "SCORE-2", "P",
     lambda call: base.factor(call.but(scale=call.value.shape[-1]**-0.5
         if call.scale is None else call.scale)),
     "Divide by the root of the depth of the values."),
    ("scale_of_all_heads", "factor", "SCORE-2", "K",
     lambda call: base.factor(call.but(scale=(call.query.shape[-1] * call.query.shape[-3])**-0.5
         if call.scale is None else call.scale)),
     "Divide by the root of the depth of all heads together."),
    ("scale_of_a_depth_of_a_power_of_two", "factor", "SCORE-2", "K",
     lambda call: float((1 << (call.query.shape[-1] - 1).bit_length())**-0.5) if call.scale is None
         else base.factor(call),
     "Divide by the root of the depth rounded up to a power of 2."),
    ("scale_of_a_depth_of_sixteens", "factor", "SCORE-2", "K",
     lambda call: float((-(-call.query.shape[-1] // 16) * 16)**-0.5) if call.scale is None
         else base.factor(call),
     "Divide by the root of the depth rounded up to a multiple of 16."),
)  # fmt: skip


def _padded_depth(size: int) -> tuple[str, str, Step]:
    def factor(call: Attention) -> Any:
        padded = -(-call.query.shape[-1] // size) * size
        return base.factor(call.but(scale=padded**-0.5) if call.scale is None else call)

    text = f"Divide by the root of the depth rounded up to a multiple of {size}."
    return f"scale_of_a_depth_of_multiples_of_{size}", text, factor


PADDED_DEPTHS = family(_padded_depth, "factor", "SCORE-2", "K", 32, 64, 128)
