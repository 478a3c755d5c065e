"""Wrong about the derivative of the softmax, the products of matrices, and the cotangents."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import Array, base, wrong
from attnspec.reference.call import Mask
from attnspec.reference.gradients import Gradients


@wrong("delta", "GRAD-1", "W")
def delta_left_out(_call: Gradients, _p: Array, r: Array, _allowed: Mask) -> Any:
    """Multiply the weights by their gradients and subtract no mean."""
    return np.zeros_like(r[..., :1])


@wrong("delta", "GRAD-1", "W")
def delta_as_a_plain_mean(_call: Gradients, _p: Array, r: Array, allowed: Mask) -> Any:
    """Subtract the mean of the gradients of the weights, without the weights."""
    count = np.maximum(allowed.sum(axis=-1, keepdims=True), 1)
    return np.where(allowed, r, 0).sum(axis=-1, keepdims=True) / count.astype(r.dtype)


@wrong("delta", "GRAD-1", "W")
def delta_of_the_next_row(call: Gradients, p: Array, r: Array, allowed: Mask) -> Any:
    """Read the mean of the row after, and of the first row after the last."""
    return np.roll(base.delta(call, p, r, allowed), -1, axis=-2)


@wrong("delta", "GRAD-1", "W")
def delta_added(call: Gradients, p: Array, r: Array, allowed: Mask) -> Any:
    """Give the mean the other sign."""
    return -base.delta(call, p, r, allowed)


@wrong("delta", "GRAD-1", "P", "XunhaoLai/native-sparse-attention-triton#27")
def values_cut_to_the_depth_of_keys(call: Gradients, p: Array, r: Array, allowed: Mask) -> Any:
    """Take as many features of values and cotangents as the keys have."""
    depth = call.key.shape[-1]
    short = call.but(value=call.value[..., :depth], d_output=call.d_output[..., :depth])
    r[...] = base.d_weights(short)
    return base.delta(call, p, r, allowed)


@wrong("d_scores", "GRAD-1", "W")
def diagonal_of_the_softmax(call: Gradients, p: Array, r: Array, _delta: Array, allowed: Mask) -> Any:
    """Take the softmax for a function of each score alone, such as a sigmoid."""
    return np.where(allowed, p * (1 - p) * (r + call.d_lse), 0)


@wrong("d_scores", "GRAD-1", "W")
def weights_left_out_of_the_softmax(call: Gradients, _p: Array, r: Array, delta: Array, allowed: Mask) -> Any:
    """Take the gradients of the weights for those of the scores, less their mean."""
    return np.where(allowed, r - delta + call.d_lse, 0)


@wrong("d_scores", "GRAD-1", "W")
def maximum_differentiated(call: Gradients, p: Array, r: Array, delta: Array, allowed: Mask) -> Any:
    """Let a derivative flow through the maximum in the numerators, and none in the denominator."""
    t = base.d_scores(call, p, r, delta, allowed)
    largest = (p == p.max(axis=-1, keepdims=True, initial=0)) & allowed
    return np.where(largest, t - delta, t)


@wrong("d_query", "GRAD-1", "K")
def scale_left_out_of_d_query(call: Gradients, u: Array, allowed: Mask) -> Any:
    """Scale only the gradient of the key."""
    return base.d_query(call.but(scale=1.0), u, allowed)


@wrong("d_key", "GRAD-1", "K")
def scale_left_out_of_d_key(call: Gradients, u: Array, allowed: Mask) -> Any:
    """Scale only the gradient of the query."""
    return base.d_key(call.but(scale=1.0), u, allowed)


@wrong("d_key", "GRAD-1", "K")
def scale_twice_in_d_key(call: Gradients, u: Array, allowed: Mask) -> Any:
    """Multiply queries that are scaled already by the scale."""
    return base.factor(call) * base.d_key(call, u, allowed)


@wrong("d_query", "GRAD-1", "K")
def default_scale_in_d_query(call: Gradients, u: Array, allowed: Mask) -> Any:
    """Multiply by one over the root of the depth, whatever scale is given."""
    return base.d_query(call.but(scale=None), u, allowed)


@wrong("forward_again", "GRAD-1", "K")
def weights_again_without_scale(call: Gradients) -> Any:
    """Compute the weights for the backward pass from products that are not scaled."""
    return base.forward_again(call.but(scale=1.0))


@wrong("d_value", "GRAD-1", "W")
def square_weights_not_transposed(call: Gradients, p: Array, allowed: Mask) -> Any:
    """Multiply by the weights as they are, where there are as many queries as keys."""
    if call.queries != call.keys:
        return base.d_value(call, p, allowed)
    return base.summed_heads(call, np.where(allowed, base.dropped(call, p), 0) @ call.d_output, call.value)


@wrong("d_value", "GRAD-1", "W")
def d_value_of_the_sum(call: Gradients, p: Array, allowed: Mask) -> Any:
    """Take the loss for the sum of all outputs in the gradient of the values."""
    return base.d_value(call.but(d_output=np.ones_like(call.d_output)), p, allowed)


@wrong("given_cotangents", "GRAD-1", "W")
def loss_of_the_sum(call: Gradients) -> Any:
    """Take the loss for the sum of all outputs, and put ones in the place of the cotangents."""
    given = base.given_cotangents(call)
    return given.but(d_output=np.ones_like(given.d_output))


@wrong("given_cotangents", "GRAD-6", "I", "Dao-AILab/flash-attention#889")
def cotangent_of_the_lse_ignored(call: Gradients) -> Any:
    """Accept a cotangent of the lse and forget it."""
    return base.given_cotangents(call.but(d_lse=None))


@wrong("d_scores", "GRAD-6", "I")
def cotangent_of_the_lse_subtracted(call: Gradients, p: Array, r: Array, delta: Array, allowed: Mask) -> Any:
    """Give the cotangent of the lse the other sign in the gradients of the scores."""
    return base.d_scores(call.but(d_lse=-call.d_lse), p, r, delta, allowed)


@wrong("delta", "GRAD-6", "I")
def cotangent_of_the_lse_added_to_delta(call: Gradients, p: Array, r: Array, allowed: Mask) -> Any:
    """Fold the cotangent of the lse into the mean, with the wrong sign."""
    return base.delta(call, p, r, allowed) + 2 * call.d_lse


@wrong("given_cotangents", "GRAD-6", "I", "meta-pytorch/attention-gym#200")
def cotangent_of_the_lse_in_base_two(call: Gradients) -> Any:
    """Take the cotangent of the lse for that of a logarithm to base 2."""
    given = base.given_cotangents(call)
    return given.but(d_lse=given.d_lse * np.log2(np.e).astype(given.d_lse.dtype))


@wrong("d_scores", "GRAD-6", "I")
def cotangent_of_the_lse_unweighted(call: Gradients, p: Array, r: Array, delta: Array, allowed: Mask) -> Any:
    """Add the cotangent of the lse to each score's gradient, without the weight."""
    return np.where(allowed, p * (r - delta) + call.d_lse, 0)


@wrong("given_cotangents", "GRAD-6", "D")
def cotangent_of_the_lse_of_the_first_head(call: Gradients) -> Any:
    """Let all heads have the cotangent of the lse of the first."""
    given = base.given_cotangents(call)
    return given.but(d_lse=np.broadcast_to(given.d_lse[..., :1, :, :], given.d_lse.shape))


@wrong("d_value", "GRAD-14", "I")
def values_moved_by_the_lse(call: Gradients, p: Array, allowed: Mask) -> Any:
    """Add the cotangent of the lse to that of each feature of the output."""
    return base.d_value(call.but(d_output=call.d_output + call.d_lse), p, allowed)


@wrong("backward", "GRAD-13", "W")
def divided_by_the_largest_cotangent(call: Gradients) -> Any:
    """Divide the cotangents by the largest one and multiply the gradients again, also if it is 0."""
    most = max(np.abs(call.d_output).max(initial=0), np.abs(call.d_lse).max(initial=0))
    scaled = call.but(d_output=call.d_output / most, d_lse=call.d_lse / most)
    return [found * most for found in base.backward(scaled)]


@wrong("given_cotangents", "GRAD-13", "W")
def small_number_added_to_cotangents(call: Gradients) -> Any:
    """Add one in ten million to each cotangent, so that none is 0."""
    given = base.given_cotangents(call)
    return given.but(d_output=given.d_output + given.d_output.dtype.type(1e-7))
