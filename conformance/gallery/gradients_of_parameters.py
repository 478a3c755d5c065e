"""Wrong about the gradients of bias and sinks, and about gradients that are not offered."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import Array, base, first, wrong
from attnspec.reference.call import Mask
from attnspec.reference.gradients import Gradients, summed_to


@wrong("d_bias", "GRAD-2", "L")
def d_bias_of_all_scores(_call: Gradients, t: Array) -> Any:
    """Return the gradient of the bias in the shape of the scores."""
    return t


@wrong("d_bias", "GRAD-4", "L", "pytorch/pytorch#188302")
def last_entry_of_a_broadcast_bias(call: Gradients, t: Array) -> Any:
    """Write the gradient of a bias anew along each axis that it is broadcast along."""
    return _picked(call, t, -1)


@wrong("d_bias", "GRAD-4", "L")
def mean_where_the_bias_is_broadcast(call: Gradients, t: Array) -> Any:
    """Take the mean over the axes that a bias is broadcast along, not the sum."""
    found = base.d_bias(call, t)
    return found * found.dtype.type(found.size / t.size) if t.size else found


@wrong("d_bias", "GRAD-4", "L")
def batch_left_out_of_a_broadcast_bias(call: Gradients, t: Array) -> Any:
    """Sum over heads, queries and keys, and take the first batch entry."""
    return base.d_bias(call, t if call.bias.ndim == t.ndim and call.bias.shape[0] > 1 else t[:1])


@wrong("d_bias", "GRAD-4", "H")
def bias_of_keys_summed_over_keys(call: Gradients, t: Array) -> Any:
    """Sum over keys for a bias that has none but keys, where there are as many queries."""
    only_keys = call.bias.ndim == 1 or (call.bias.ndim > 1 and call.bias.shape[-2] == 1)
    turned = only_keys and call.bias.shape[-1] == call.keys == call.queries
    return base.d_bias(call, np.swapaxes(t, -1, -2) if turned else t)


@wrong("d_bias", "GRAD-4", "K")
def d_bias_scaled(call: Gradients, t: Array) -> Any:
    """Multiply the gradient of the bias by the scale, as that of the product."""
    return base.factor(call) * base.d_bias(call, t)


@wrong("d_bias", "GRAD-4", "K")
def d_bias_before_the_softmax_scale(call: Gradients, t: Array) -> Any:
    """Divide the gradient of the bias by the scale, as if the scale came after the bias."""
    scale = base.factor(call)
    return base.d_bias(call, t) / scale if scale else base.d_bias(call, t)


@wrong("d_bias", "GRAD-11", "R")
def d_bias_nan_at_minus_infinity(call: Gradients, t: Array) -> Any:
    """Multiply the bias by 0 on the way, which gives NaN where it is minus infinity."""
    return base.d_bias(call, t) + 0 * call.bias.astype(t.dtype)


@wrong("d_bias", "GRAD-11", "R")
def d_bias_where_others_mask(call: Gradients, _t: Array) -> Any:
    """Give the bias a gradient wherever it is finite, masked or not."""
    p, lse, seen = base.forward_again(call)
    r = base.d_weights(call)
    row = base.delta(call, p, r, seen)
    everywhere = np.exp(base.scored(call) - lse[..., None])
    return base.d_bias(call, base.d_scores(call, everywhere, r, row, True))


@wrong("d_bias", "GRAD-17", "L", "ml-explore/mlx#2909")
def d_bias_silently_zero(call: Gradients, _t: Array) -> Any:
    """Return zeros for the gradient of the bias."""
    return np.zeros(call.bias.shape, call.query.dtype)


@wrong("d_sinks", "GRAD-17", "M", "ml-explore/mlx#2909")
def d_sinks_silently_zero(call: Gradients, _lse: Array, _delta: Array) -> Any:
    """Return zeros for the gradient of the sinks."""
    return np.zeros(call.query.shape[-3], call.query.dtype)


@wrong("d_value", "GRAD-17", "W")
def d_value_silently_zero(call: Gradients, _p: Array, _allowed: Mask) -> Any:
    """Return zeros for the gradient of the value."""
    return np.zeros_like(call.value)


@wrong("d_sinks", "GRAD-7", "M", "NVIDIA/cudnn-frontend#676")
def d_sinks_of_other_sign(call: Gradients, lse: Array, delta: Array) -> Any:
    """Move the sinks the other way."""
    return -base.d_sinks(call, lse, delta)


@wrong("d_sinks", "GRAD-7", "M")
def d_sinks_of_the_first_entry(call: Gradients, lse: Array, delta: Array) -> Any:
    """Sum over only the queries of the first batch entry."""
    each = call.but(d_lse=_entry(call.d_lse))
    return base.d_sinks(each, lse.reshape(-1, *lse.shape[-2:])[0], _entry(delta))


@wrong("d_sinks", "GRAD-7", "D")
def d_sinks_of_the_first_head(call: Gradients, lse: Array, delta: Array) -> Any:
    """Give all sinks the gradient of the first."""
    found = base.d_sinks(call, lse, delta)
    return np.broadcast_to(found[:1], found.shape)


@wrong("d_sinks", "GRAD-7", "M")
def d_sinks_without_the_lse(call: Gradients, lse: Array, delta: Array) -> Any:
    """Forget the cotangent of the lse for the sinks."""
    return base.d_sinks(call.but(d_lse=np.zeros_like(call.d_lse)), lse, delta)


@wrong("d_sinks", "GRAD-7", "M")
def d_sinks_without_their_weight(call: Gradients, _lse: Array, delta: Array) -> Any:
    """Sum what moves the denominator, without the weight of the sink."""
    return summed_to(np, (call.d_lse - delta)[..., 0], (call.query.shape[-3], 1))[..., 0]


@wrong("d_sinks", "GRAD-7", "M")
def d_sinks_without_empty_rows(call: Gradients, lse: Array, delta: Array) -> Any:
    """Leave out queries that may attend to no key, whose denominator is the sink."""
    some = base.allowed(call).any(axis=-1, keepdims=True)
    each = call.but(d_lse=np.where(some, call.d_lse, 0))
    return base.d_sinks(each, lse, np.where(some, delta, 0))


@wrong("d_sinks", "GRAD-7", "M")
def sink_of_minus_infinity_moved(call: Gradients, lse: Array, delta: Array) -> Any:
    """Subtract the lse from a sink of minus infinity, which is NaN where nothing else is in the row."""
    p = np.exp(call.sink - lse[..., None])
    return summed_to(np, (p * (call.d_lse - delta))[..., 0], (call.query.shape[-3], 1))[..., 0]


@wrong("forward_again", "GRAD-7", "M", "Dao-AILab/flash-attention#2706")
def sinks_only_forward(call: Gradients) -> Any:
    """Compute the weights for the backward pass without the sinks."""
    p, _, seen = base.forward_again(call.but(sinks=None))
    return p, base.forward_again(call)[1], seen


def _picked(call: Gradients, t: Array, place: int) -> Array:
    """Take one entry along each axis that the bias is broadcast along."""
    t = t[(place,) * (t.ndim - call.bias.ndim)]
    for axis, size in enumerate(call.bias.shape):
        if size != t.shape[axis]:
            t = np.take(t, [place], axis=axis)
    return t


def _entry(array: Array) -> Array:
    return array if array.ndim < 4 else first(array.reshape(-1, *array.shape[-3:]), -4)[0]
