"""Correct entries that compute one step in another way: other formulas, other orders, other precisions."""

import math
from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import Array, Entry, base, correct
from attnspec.reference.call import Mask
from attnspec.reference.frequencies import Frequencies
from attnspec.reference.masking import SOURCES
from attnspec.reference.notation import Attention

plain = Entry("plain", "The implementation that all others differ from.", {})


@correct("scored")
def scale_in_the_query(call: Attention) -> Any:
    """Scale the queries before the product."""
    x = (call.query * base.factor(call)) @ np.swapaxes(base.shared(call, call.key), -1, -2)
    return base.biased(call, base.capped(call, x))


@correct("scored")
def scale_by_its_root(call: Attention) -> Any:
    """Multiply queries and keys by the root of the scale, its sign taken out first."""
    scale = call.query.dtype.type(base.factor(call))
    root = np.sqrt(np.abs(scale))
    query, key = call.query * (np.sign(scale) * root), base.shared(call, call.key) * root
    return base.biased(call, base.capped(call, query @ np.swapaxes(key, -1, -2)))


@correct("product")
def feature_by_feature(call: Attention) -> Any:
    """Add up the products of one feature after the other."""
    key = base.shared(call, call.key)
    x = np.zeros(call.shape, call.query.dtype)
    for feature in range(key.shape[-1]):
        x += call.query[..., :, None, feature] * key[..., None, :, feature]
    return x


@correct("product")
def heads_in_groups(call: Attention) -> Any:
    """Give the queries of a group an axis of their own, and repeat no key."""
    *batch, heads, queries, depth = call.query.shape
    shared = call.key.shape[-3]
    query = call.query.reshape(*batch, shared, heads // shared, queries, depth)  # (*B, Hkv, G, L, D)
    return np.einsum("...gld,...sd->...gls", query, call.key).reshape(call.shape)


@correct("scored")
def softcap_by_exponentials(call: Attention) -> Any:
    """Take the hyperbolic tangent from exponentials of a number that is never positive."""
    x = base.product(call) * base.factor(call)
    if call.softcap is None:
        return base.biased(call, x)
    cap = x.dtype.type(call.softcap)
    less = -np.expm1(-2 * np.abs(x / cap))
    return base.biased(call, cap * np.copysign(less / (2 - less), x))


@correct("allowed")
def masks_counted(call: Attention) -> Any:
    """Count the sources that allow a key, and ask for all of them."""
    sources = [source(call) for source in SOURCES]
    count = sum((np.broadcast_to(source, call.shape).astype(np.int8) for source in sources), np.int8(0))
    return count == len(sources)


@correct("exponentials")
def exponentials_to_base_two(_call: Attention, s: Array, allowed: Mask, top: Array) -> Any:
    """Take powers of 2, as hardware does."""
    return np.where(allowed, np.exp2((s - top) * s.dtype.type(np.log2(np.e))), 0)


@correct("exponentials")
def minus_infinity_filled_in(_call: Attention, s: Array, allowed: Mask, top: Array) -> Any:
    """Put minus infinity in the place of disallowed scores, and mask no more."""
    return np.exp(np.where(allowed, s, -np.inf).astype(s.dtype) - top)


@correct("softmax_of")
def weights_from_their_logarithm(call: Attention, s: Array, allowed: Mask) -> Any:
    """Take the logarithm of the denominator from the scores, and one exponential of that."""
    top = base.top(call, s, allowed)
    total = base.total(call, base.exponentials(call, s, allowed, top), top)
    shifted = (s - top) - np.log(np.where(total == 0, 1, total))
    return np.where(allowed, np.exp(shifted), 0), base.lse(call, top, total)


@correct("softmax_of")
def sink_as_a_key(call: Attention, s: Array, allowed: Mask) -> Any:
    """Put the sink in front of the scores as a key of its own, and drop its weight."""
    if call.sinks is None:
        return base.softmax_of(call, s, allowed)
    column = (*s.shape[:-1], 1)
    longer = np.concatenate([np.broadcast_to(call.sink, column), s], axis=-1)
    seen = np.concatenate([np.broadcast_to(call.sink != -np.inf, column), allowed], axis=-1)
    top = base.top(call, longer, seen)
    e = base.exponentials(call, longer, seen, top)
    total = e.sum(axis=-1, keepdims=True)
    return base.normalised(call, e, total)[..., 1:], base.lse(call, top, total)


@correct("softmax_of")
def keys_down_the_columns(call: Attention, s: Array, allowed: Mask) -> Any:
    """Hold scores with a row for each key, and take the softmax along the columns."""
    turned, seen = (np.ascontiguousarray(np.swapaxes(array, -1, -2)) for array in (s, allowed))  # (..., S, L)
    top = np.where(seen, turned, -np.inf).max(axis=-2, initial=-np.inf)[..., None, :]
    if call.sinks is not None:
        top = np.maximum(top, call.sink)
    top = np.where(top == -np.inf, 0, top).astype(s.dtype)
    e = np.where(seen, np.exp(turned - top), 0)
    total = np.add.reduce(e, axis=-2, keepdims=True)
    if call.sinks is not None:
        total = total + np.exp(call.sink - top)
    p = e / np.where(total == 0, 1, total)
    return np.swapaxes(p, -1, -2), (top + np.log(total))[..., 0, :]


@correct("total")
def sums_with_compensation(call: Attention, e: Array, top: Array) -> Any:
    """Carry what each addition lost on to the next."""
    total = np.zeros_like(top) if call.sinks is None else np.exp(call.sink - top)
    lost = np.zeros_like(total)
    for j in range(e.shape[-1]):
        term = e[..., j, None] - lost
        more = total + term
        total, lost = more, (more - total) - term
    return total


@correct("wide")
def everything_in_float64(_call: Attention, array: Array) -> Any:
    """Compute in float64 whatever the inputs are, and round at the end."""
    return array.astype(np.float64)


@correct("dropped")
def dropout_by_a_factor(call: Attention, p: Array) -> Any:
    """Multiply the weights by the mask over the share that is kept."""
    if call.dropout_mask is None:
        return p
    return p * (call.dropout_mask / p.dtype.type(1 - call.dropout_rate)).astype(p.dtype)


@correct("weighted", "cast")
def weights_cast_to_storage(call: Attention, p: Array, allowed: Mask) -> Any:
    """Round the weights to the dtype of the query before they meet the values, as fused kernels do."""
    return base.weighted(call, p.astype(call.storage).astype(p.dtype), allowed)


@correct("weighted")
def nan_carried_beside_the_product(call: Attention, p: Array, allowed: Mask) -> Any:
    """Use one product of matrices for the finite values, and add what is not finite after it."""
    value = base.shared(call, call.value)
    finite = np.isfinite(value)
    output = p @ np.where(finite, value, 0)
    if finite.all():
        return output
    seen, others = allowed[..., None], value[..., None, :, :]
    return output + np.where(seen & ~finite[..., None, :, :], p[..., None] * others, 0).sum(axis=-2)


@correct("llama3")
def smooth_by_wavelengths(call: Frequencies) -> Any:
    """Compare wavelengths, in float32, as the published code does."""
    plain = base.unstretched(call).astype(np.float32)
    length, low, high = call.original_length, call.low_frequency_factor, call.high_frequency_factor
    if call.features.dtype == np.float64:
        plain = base.unstretched(call)
    wavelength = 2 * math.pi / plain
    smooth = (length / wavelength - low) / (high - low)
    between = (1 - smooth) * plain / call.factor + smooth * plain
    found: Array = np.where(wavelength > length / low, plain / call.factor, plain)
    return np.where((wavelength <= length / low) & (wavelength >= length / high), between, found)
