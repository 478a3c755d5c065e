"""Wrong about what else is in the denominator, and about its logarithm."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import Array, altered, base, wrong
from attnspec.reference.call import Mask
from attnspec.reference.notation import Attention


@wrong("total", "SOFT-5", "M", "ROCm/rocm-libraries#12227")
def sink_counted_twice(call: Attention, e: Array, top: Array) -> Any:
    """Add the sink once for each of two parts of the keys."""
    total = base.total(call, e, top)
    return total if call.sinks is None else total + np.exp(call.sink - top)


@wrong("softmax_of", "SOFT-5", "M", "ROCm/rocm-libraries#12229")
def sink_scaled(call: Attention, s: Array, allowed: Mask) -> Any:
    """Multiply the sinks by the scale too."""
    return base.softmax_of(altered(call, sinks=lambda sinks: sinks * base.factor(call)), s, allowed)


@wrong("softmax_of", "SOFT-5", "M")
def sink_capped(call: Attention, s: Array, allowed: Mask) -> Any:
    """Squeeze the sinks as the scores are."""
    return base.softmax_of(
        altered(call, sinks=lambda sinks: base.capped(call, sinks.astype(s.dtype))), s, allowed
    )


@wrong("softmax_of", "SOFT-5", "M")
def sink_of_the_key_head(call: Attention, s: Array, allowed: Mask) -> Any:
    """Let the query heads that share keys have the sink of the first among them."""
    groups = call.query.shape[-3] // call.key.shape[-3]
    shared = altered(call, sinks=lambda sinks: np.repeat(sinks[::groups], groups))
    return base.softmax_of(shared, s, allowed)


@wrong("total", "SOFT-5", "M", "modular/modular#6591")
def sink_by_the_row(call: Attention, e: Array, top: Array) -> Any:
    """Take the sink of the row's number, modulo the number of heads."""
    if call.sinks is None:
        return base.total(call, e, top)
    sinks = call.sink.ravel()[call.i % call.sinks.size]  # (L, 1)
    return e.sum(axis=-1, keepdims=True) + np.exp(sinks - top)


@wrong("weighted", "SOFT-5", "M")
def sink_with_the_first_value(call: Attention, p: Array, allowed: Mask) -> Any:
    """Let the weight of the sink go to the first value."""
    output = base.weighted(call, p, allowed)
    if call.sinks is None or call.dropout_mask is not None:
        return output
    return output + (1 - p.sum(axis=-1, keepdims=True)) * base.shared(call, call.value)[..., :1, :]


@wrong("total", "SOFT-5", "M")
def sink_not_shifted(call: Attention, e: Array, _top: Array) -> Any:
    """Add the exponential of the sink to exponentials that are shifted by the maximum."""
    total = e.sum(axis=-1, keepdims=True)
    return total if call.sinks is None else total + np.exp(call.sink)


@wrong("top", "SOFT-5", "M")
def sink_left_out_of_the_maximum(call: Attention, s: Array, allowed: Mask) -> Any:
    """Shift by the largest score, so that a sink far above it overflows."""
    return base.top(call.but(sinks=None), s, allowed)


@wrong("total", "SOFT-5", "M")
def sink_masked_with_the_last_key(call: Attention, e: Array, top: Array) -> Any:
    """Leave the sink out where the last key is disallowed."""
    total = e.sum(axis=-1, keepdims=True)
    if call.sinks is None or not call.keys:
        return base.total(call, e, top)
    return total + np.where(base.allowed(call)[..., -1:], np.exp(call.sink - top), 0)


@wrong("lse", "SOFT-6", "I", "sgl-project/sglang#35045")
def lse_to_base_two(call: Attention, top: Array, total: Array) -> Any:
    """Return the logarithm to base 2."""
    return base.lse(call, top, total) / np.log(2).astype(top.dtype)


@wrong("lse", "SOFT-6", "I")
def lse_without_the_maximum(call: Attention, top: Array, total: Array) -> Any:
    """Return the logarithm of the shifted sum."""
    return base.lse(call, np.zeros_like(top), total)


@wrong("lse", "SOFT-6", "I")
def lse_negative(call: Attention, top: Array, total: Array) -> Any:
    """Return the negative lse, as some kernels keep it for a backward pass, except for empty rows."""
    lse = base.lse(call, top, total)
    return np.where(lse == -np.inf, lse, -lse)


@wrong("attend", "SOFT-6", "M")
def lse_without_the_sink(call: Attention) -> Any:
    """Return the lse of only the keys, without the sink, if there are any keys."""
    output, lse, p = base.attend(call)
    bare = base.attend(call.but(sinks=None))[1]
    return output, np.where(bare == -np.inf, lse, bare), p


@wrong("lse", "SOFT-6", "D", "facebookresearch/xformers#850")
def lse_of_the_first_of_a_group(call: Attention, top: Array, total: Array) -> Any:
    """Let the query heads that share keys have the lse of the first among them."""
    lse = base.lse(call, top, total)
    groups = call.query.shape[-3] // call.key.shape[-3]
    return np.repeat(lse[..., ::groups, :], groups, axis=-2)


@wrong("attend", "SOFT-6", "I")
def lse_before_the_bias(call: Attention) -> Any:
    """Return the lse of the scores without their bias."""
    output, _, p = base.attend(call)
    s = base.capped(call, base.product(call) * base.factor(call))
    return output, base.softmax_of(call, s, base.allowed(call))[1], p


@wrong("lse", "SOFT-6", "G")
def lse_of_the_last_tile(call: Attention, top: Array, total: Array) -> Any:
    """Return the largest score where there are more keys than a tile of 16."""
    return top[..., 0] if call.keys > 16 else base.lse(call, top, total)


@wrong("attend", "SOFT-6", "F")
def lse_before_the_cap(call: Attention) -> Any:
    """Return the lse of the scores without their cap."""
    output, _, p = base.attend(call)
    uncapped = call.but(softcap=None)
    return output, base.softmax_of(uncapped, base.scored(uncapped), base.allowed(call))[1], p
