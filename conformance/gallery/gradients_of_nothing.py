"""Wrong about queries and keys that do not contribute to the gradients, and about NaN."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import Array, base, wrong
from attnspec.reference.call import Mask
from attnspec.reference.gradients import Gradients


def _empty(call: Gradients, allowed: Mask) -> Array:
    """Find the queries with nothing to attend to, ``(*B, Hq, L, 1)``."""
    empty: Array = ~allowed.any(axis=-1, keepdims=True) & (call.sinks is None)
    return empty


def _attended(call: Gradients, allowed: Mask, array: Array) -> Array:
    """Find the keys that some query may attend to, ``(*B, Hkv, S, 1)``."""
    some = allowed.any(axis=-2)[..., None]
    found: Array = base.summed_heads(call, some.astype(np.int64), array) > 0
    return found


@wrong("forward_again", "GRAD-10", "B", "pytorch/pytorch#41508")
def empty_rows_nan_backward(call: Gradients) -> Any:
    """Give the keys of a query that may attend to nothing weights of NaN in the backward pass."""
    p, lse, seen = base.forward_again(call)
    empty = _empty(call, seen)
    return np.where(empty, np.nan, p).astype(p.dtype), lse, seen | empty


@wrong("d_value", "GRAD-10", "B")
def empty_rows_uniform_backward(call: Gradients, p: Array, allowed: Mask) -> Any:
    """Let a query that may attend to nothing move all values equally."""
    empty = _empty(call, allowed)
    return base.d_value(call, np.where(empty, 1 / max(call.keys, 1), p).astype(p.dtype), allowed | empty)


@wrong("d_query", "GRAD-10", "B", "NVIDIA/cudnn-frontend#676")
def empty_rows_without_a_query_gradient(call: Gradients, u: Array, allowed: Mask) -> Any:
    """Divide by the sum of the weights of a row again, which is 0 / 0 for a query without keys."""
    some = allowed.any(axis=-1, keepdims=True).astype(u.dtype)
    return base.d_query(call, u, allowed) * (some / some)


@wrong("d_query", "GRAD-10", "G", "Dao-AILab/flash-attention#2324")
def query_without_keys_never_written(call: Gradients, u: Array, allowed: Mask) -> Any:
    """Leave what was in memory in the gradient of a query that may attend to nothing."""
    return np.where(allowed.any(axis=-1, keepdims=True), base.d_query(call, u, allowed), 0.5)


@wrong("d_key", "GRAD-9", "G", "Dao-AILab/flash-attention#2324")
def key_that_nobody_reads_never_written(call: Gradients, u: Array, allowed: Mask) -> Any:
    """Leave what was in memory in the gradient of a key that no query may attend to."""
    return np.where(_attended(call, allowed, call.key), base.d_key(call, u, allowed), 0.5)


@wrong("d_value", "GRAD-9", "G", "Dao-AILab/flash-attention#334")
def value_that_nobody_reads_never_written(call: Gradients, p: Array, allowed: Mask) -> Any:
    """Leave what was in memory in the gradient of a value that no query may attend to."""
    return np.where(_attended(call, allowed, call.value), base.d_value(call, p, allowed), np.nan)


@wrong("backward", "GRAD-9", "O", "Dao-AILab/flash-attention#2421")
def keys_without_queries_never_written(call: Gradients) -> Any:
    """Return what was in memory where there are no queries."""
    found = base.backward(call)
    return [np.full_like(d, 0.5) for d in found] if call.queries == 0 else found


@wrong("backward", "GRAD-10", "O")
def queries_without_keys_never_written(call: Gradients) -> Any:
    """Return what was in memory where there are no keys."""
    found = base.backward(call)
    return [np.full_like(d, 0.5) for d in found] if call.keys == 0 else found


@wrong("d_scores", "GRAD-9", "R")
def disallowed_pairs_move_by_delta(call: Gradients, p: Array, r: Array, delta: Array, allowed: Mask) -> Any:
    """Subtract the mean from disallowed pairs too, with the smallest weight of a row for theirs."""
    least = np.where(allowed, p, 1).min(axis=-1, keepdims=True, initial=1)
    return np.where(allowed, p, least) * (r - delta + call.d_lse)


@wrong("meeting", "GRAD-12", "R")
def nan_times_a_weight_of_zero(_call: Gradients, weights: Array, _pairs: Mask, array: Array) -> Any:
    """Multiply NaN by weights of 0."""
    return weights @ array


@wrong("d_scores", "GRAD-12", "R")
def masked_by_a_product(call: Gradients, p: Array, r: Array, delta: Array, _allowed: Mask) -> Any:
    """Trust that a weight of 0 removes the gradient of a disallowed pair, also of NaN."""
    return p * (r - delta + call.d_lse)


@wrong("meeting", "GRAD-18", "R")
def nan_everywhere_backward(call: Gradients, weights: Array, pairs: Mask, array: Array) -> Any:
    """Return NaN for all heads where something is not a number."""
    found = base.meeting(call, weights, pairs, array)
    return np.full_like(found, np.nan) if np.isnan(array).any() else found


@wrong("delta", "GRAD-18", "R")
def rows_scaled_together(call: Gradients, p: Array, r: Array, allowed: Mask) -> Any:
    """Scale the gradients of the weights of a head by the largest before the mean is taken."""
    most = np.abs(np.where(allowed, r, 0)).max(axis=(-2, -1), keepdims=True, initial=0)
    most = np.where(most == 0, 1, most)
    return base.delta(call, p, r / most, allowed) * most
