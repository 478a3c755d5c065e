"""Attention with the steps of a variant: the reference, which knows neither budgets nor dialects."""

import numpy as np

from attnspec import reference
from attnspec.conformance.gallery import entry
from attnspec.conformance.gallery.entry import base


def _sum_with_the_bias(call):
    return base.add_bias(call, base.product(call) * base.factor(call))


def _slope_at_the_sum(call, t):
    if call.softcap is None:
        return t
    bend = np.tanh(_sum_with_the_bias(call) / call.softcap)
    return np.where(t == 0, 0, t * ((1 - bend) * (1 + bend)))


def _filled(call):
    """Put a low finite number where anything but the bias disallows a key."""
    seen = np.broadcast_to(base.by_bias(call), call.shape)
    low = np.finfo(np.float16 if call.storage.itemsize == 2 else call.storage).min
    s = np.where(base.allowed_pairs(call.but(bias=None)), base.score(call), low).astype(call.query.dtype)
    p, lse = base.softmax_of(call, s, seen)
    return base.weighted_sum(call, p, seen), lse, p


def _at_the_last_key(call):
    """Align queries at the last key where nothing says where a query stands."""
    free = call.query_positions is None and np.ndim(call.query_offset) == 0 and call.query_offset == 0
    return call.but(query_offset=call.keys - call.queries) if free else call


def _mean_of_all(call, p, allowed):
    """Let a row of which nothing is left, before its length, have equal weights."""
    without_sink = True if call.sinks is None else call.sink == -np.inf
    empty = ~p.any(axis=-1, keepdims=True) & without_sink & base.by_query_lengths(call)
    return base.d_value(call, np.where(empty, 1 / max(call.keys, 1), p), allowed | empty)


#: The steps of each variant. Those of `added` are meant beside those of `after-bias`.
STEPS = {
    "after-bias": {
        "score": lambda call: base.cap(call, _sum_with_the_bias(call)),
        "d_products": _slope_at_the_sum,
        "d_bias": lambda call, t: base.d_bias(call, _slope_at_the_sum(call, t)),
    },
    "added": {"by_bias": lambda call: call.softcap is not None or base.by_bias(call)},
    "bottom-right": {
        "by_causality": lambda call: base.by_causality(_at_the_last_key(call)),
        "by_window": lambda call: base.by_window(_at_the_last_key(call)),
    },
    "tiled": {**entry("key_heads_tiled").steps, **entry("gradients_of_tiled_heads").steps},
    "uniform": {"d_value": _mean_of_all},
    "filled": {"attend": _filled},
}


def plain(*variants, operation="attention"):
    """Make a function of attention, or of its gradients, with the steps of some variants."""
    return reference.functions({name: step for x in variants for name, step in STEPS[x].items()})[operation]


def in_storage(*short):
    """Make a function of attention that rounds each intermediate result of these dtypes."""

    def rounded(name):
        def step(call, *rest):
            result = getattr(base, name)(call, *rest)
            return result.astype(call.storage).astype(result.dtype) if call.storage.name in short else result

        return step

    names = ("product", "cap", "add_bias", "exponentials", "total", "normalise", "lse", "weighted_sum")
    return reference.functions({name: rounded(name) for name in names})["attention"]
