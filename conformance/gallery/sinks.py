"""Wrong about the number that a sink adds to the denominator."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import Array, altered, base, wrong
from attnspec.reference.call import Mask
from attnspec.reference.notation import Attention

_LN2 = float(np.log(2))


@wrong("softmax_of", "SOFT-5", "M")
def sinks_not_to_base_two(call: Attention, s: Array, allowed: Mask) -> Any:
    """Put the sinks beside scores that are to base 2."""
    return base.softmax_of(altered(call, sinks=lambda sinks: sinks * sinks.dtype.type(_LN2)), s, allowed)


@wrong("softmax_of", "SOFT-5", "M")
def sinks_to_base_two_once_too_often(call: Attention, s: Array, allowed: Mask) -> Any:
    """Multiply the sinks by log2(e), and take their natural exponential."""
    return base.softmax_of(altered(call, sinks=lambda sinks: sinks * sinks.dtype.type(1 / _LN2)), s, allowed)


@wrong("total", "SOFT-5", "M")
def sink_added_to_the_sum(call: Attention, e: Array, _top: Array) -> Any:
    """Add the sink itself to the sum, and not its exponential."""
    total = e.sum(axis=-1, keepdims=True)
    return total if call.sinks is None else total + call.sink


@wrong("softmax_of", "SOFT-5", "M")
def negative_sink_taken_for_none(call: Attention, s: Array, allowed: Mask) -> Any:
    """Let no sink be below 0."""
    return base.softmax_of(altered(call, sinks=lambda sinks: np.maximum(sinks, 0)), s, allowed)


@wrong("softmax_of", "SOFT-5", "M")
def sign_of_the_sink_lost(call: Attention, s: Array, allowed: Mask) -> Any:
    """Take the sink with the other sign."""
    return base.softmax_of(altered(call, sinks=np.negative), s, allowed)


@wrong("softmax_of", "SOFT-5", "M")
def sinks_without_effect(call: Attention, s: Array, allowed: Mask) -> Any:
    """Accept sinks and forget them."""
    return base.softmax_of(call.but(sinks=None), s, allowed)


@wrong("attend", "SOFT-5", "M")
def sink_in_the_lse_alone(call: Attention) -> Any:
    """Let the sink into the lse, and into no denominator."""
    output, _, p = base.attend(call.but(sinks=None))
    return output, base.attend(call)[1], p


@wrong("attend", "SOFT-5", "M")
def sink_with_the_bias(call: Attention) -> Any:
    """Take the sink for a bias of its head."""
    s = base.scored(call) + (0 if call.sinks is None else call.sink)
    seen = base.allowed(call)
    p, lse = base.softmax_of(call.but(sinks=None), s, seen)
    return base.weighted(call, base.dropped(call, p), seen), lse, base.dropped(call, p)
