"""Wrong about shared heads, softcap and dropout in the backward pass."""

from collections.abc import Callable
from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import Array, altered, base, first, wrong
from attnspec.reference.call import Mask
from attnspec.reference.gradients import Gradients


def of_groups(d: Array, like: Array, summed: Callable[[Array], Array]) -> Array:
    """Reduce the gradients of query heads, ``(*B, Hkv, group, S, D)``, to key heads by a function."""
    shape = (*d.shape[:-3], like.shape[-3], d.shape[-3] // like.shape[-3], *d.shape[-2:])
    return summed(d.reshape(shape))


@wrong("summed_heads", "GRAD-3", "D")
def last_head_of_a_group_kept(_call: Gradients, d: Array, like: Array) -> Any:
    """Write the gradient of a key head anew for each of its query heads."""
    return of_groups(d, like, lambda parts: parts[..., -1, :, :])


@wrong("summed_heads", "GRAD-3", "D")
def first_head_of_a_group_kept(_call: Gradients, d: Array, like: Array) -> Any:
    """Give a key head the gradient of its first query head."""
    return of_groups(d, like, lambda parts: parts[..., 0, :, :])


@wrong("summed_heads", "GRAD-3", "D", "marin-community/levanter#449")
def mean_of_a_group(_call: Gradients, d: Array, like: Array) -> Any:
    """Give a key head the mean of its query heads' gradients."""
    return of_groups(d, like, lambda parts: parts.mean(axis=-3))


@wrong("summed_heads", "GRAD-3", "D")
def gradients_of_tiled_heads(_call: Gradients, d: Array, like: Array) -> Any:
    """Assign query head h to key head h % Hkv, only in the backward pass."""
    heads = like.shape[-3]
    return d.reshape(*d.shape[:-3], -1, heads, *d.shape[-2:]).sum(axis=-4)


@wrong("summed_heads", "GRAD-3", "D", "XunhaoLai/native-sparse-attention-triton#27")
def heads_split_by_the_number_of_key_heads(_call: Gradients, d: Array, like: Array) -> Any:
    """Divide the number of a query head by that of key heads, which fits if groups are as large."""
    heads = like.shape[-3]
    places = np.minimum(np.arange(d.shape[-3]) // heads, heads - 1) if heads < d.shape[-3] else range(heads)
    found = np.zeros((*d.shape[:-3], heads, *d.shape[-2:]), d.dtype)
    for head, place in enumerate(places):
        found[..., place, :, :] += d[..., head, :, :]
    return found


@wrong("d_value", "GRAD-3", "D")
def values_of_a_group_not_summed(call: Gradients, p: Array, allowed: Mask) -> Any:
    """Sum over the heads of a group for the keys, and not for the values."""
    each = call.but(value=base.shared(call, call.value))
    return of_groups(base.d_value(each, p, allowed), call.value, lambda parts: parts[..., 0, :, :])


def _bent(call: Gradients) -> Array:
    bend: Array = np.tanh(base.product(call) * base.factor(call) / call.softcap)
    return bend


def _steep(call: Gradients, t: Array, slope: Callable[[], Array]) -> Any:
    return t if call.softcap is None else np.where(t == 0, 0, t * slope())


@wrong("d_products", "GRAD-5", "F")
def slope_of_the_softcap_left_out(_call: Gradients, t: Array) -> Any:
    """Pass the gradients of the scores on as if there were no softcap."""
    return t


@wrong("d_products", "GRAD-5", "F")
def slope_from_the_capped_score(call: Gradients, t: Array) -> Any:
    """Take one minus the square of the capped score, without dividing it by the softcap."""
    return _steep(call, t, lambda: 1 - (call.softcap * _bent(call)) ** 2)


@wrong("d_products", "GRAD-5", "F")
def slope_without_the_square(call: Gradients, t: Array) -> Any:
    """Take one minus the hyperbolic tangent, not its square."""
    return _steep(call, t, lambda: 1 - _bent(call))


@wrong("d_products", "GRAD-5", "F")
def slope_divided_by_the_softcap(call: Gradients, t: Array) -> Any:
    """Divide the slope by the softcap, and forget that the cap multiplies."""
    return _steep(call, t, lambda: (1 - _bent(call) ** 2) / call.softcap)


@wrong("d_products", "GRAD-5", "F")
def slope_after_the_bias(call: Gradients, t: Array) -> Any:
    """Take the slope where the score is after the bias."""
    return _steep(call, t, lambda: 1 - (base.scored(call) / call.softcap) ** 2)


@wrong("d_products", "GRAD-5", "F")
def slope_before_the_scale(call: Gradients, t: Array) -> Any:
    """Take the slope at the product that is not scaled yet."""
    return _steep(call, t, lambda: 1 - np.tanh(base.product(call) / call.softcap) ** 2)


@wrong("d_bias", "GRAD-5", "F")
def slope_in_the_bias(call: Gradients, t: Array) -> Any:
    """Multiply the gradient of the bias by the slope of the softcap too."""
    return base.d_bias(call, base.d_products(call, t))


@wrong("d_key", "GRAD-5", "F")
def slope_twice_in_d_key(call: Gradients, u: Array, allowed: Mask) -> Any:
    """Multiply by the slope once more for the keys."""
    return base.d_key(call, base.d_products(call, u), allowed)


@wrong("d_weights", "GRAD-5", "F")
def slope_before_the_mean(call: Gradients) -> Any:
    """Multiply by the slope before the mean is subtracted, and again after it."""
    return _steep(call, base.d_weights(call), lambda: 1 - _bent(call) ** 2)


@wrong("forward_again", "GRAD-5", "F")
def softcap_only_forward(call: Gradients) -> Any:
    """Compute the weights for the backward pass without the softcap."""
    return base.forward_again(call.but(softcap=None))


@wrong("d_scores", "GRAD-8", "J", "aws-neuron/nki-samples#81")
def dropped_weights_differentiated(call: Gradients, p: Array, r: Array, delta: Array, allowed: Mask) -> Any:
    """Differentiate the softmax with the weights after dropout."""
    return base.d_scores(call, base.dropped(call, p), r, delta, allowed)


@wrong("d_weights", "GRAD-8", "J", "aws-neuron/nki-samples#81")
def dropout_left_out_of_the_weights(call: Gradients) -> Any:
    """Give the weights a gradient as if none were dropped."""
    return base.d_weights(call.but(dropout_mask=None))


@wrong("d_value", "GRAD-8", "J")
def dropout_left_out_of_d_value(call: Gradients, p: Array, allowed: Mask) -> Any:
    """Give the values a gradient as if no weight were dropped."""
    return base.d_value(call.but(dropout_mask=None), p, allowed)


@wrong("d_weights", "GRAD-8", "J")
def kept_gradients_left_as_they_are(call: Gradients) -> Any:
    """Drop gradients of weights, and forget to raise the others."""
    return base.d_weights(call.but(dropout_rate=0.0))


@wrong("delta", "GRAD-8", "J")
def delta_of_dropped_weights(call: Gradients, p: Array, r: Array, allowed: Mask) -> Any:
    """Take the mean with the weights after dropout, of gradients after dropout."""
    return base.delta(call, base.dropped(call, p), r, allowed)


@wrong("delta", "GRAD-8", "J")
def delta_without_dropout(call: Gradients, p: Array, _r: Array, allowed: Mask) -> Any:
    """Take the mean of gradients without dropout."""
    return base.delta(call, p, base.d_weights(call.but(dropout_mask=None)), allowed)


@wrong("backward", "GRAD-8", "J", "NVIDIA/TransformerEngine#1031")
def dropped_anew(call: Gradients) -> Any:
    """Draw another dropout mask for the backward pass: here, that of the next query."""

    def later(mask: Array) -> Array:
        return np.roll(np.broadcast_to(mask, call.shape), -1, axis=-2)

    return base.backward(altered(call, dropout_mask=later))


@wrong("d_weights", "GRAD-8", "H")
def weights_dropped_as_in_the_first_head(call: Gradients) -> Any:
    """Let the gradients of all heads' weights have the dropout mask of the first."""
    return base.d_weights(altered(call, dropout_mask=lambda mask: first(mask, -3)))
