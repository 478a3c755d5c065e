"""Wrong about precision, dtypes, shapes and NaN of gradients, and about what does not contribute to them."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import After, Array, base, rows, wrong
from attnspec.conformance.gallery.numerics import in_half, truncate
from attnspec.reference.call import Mask, Step, Steps
from attnspec.reference.gradients import Gradients


def _empty(call: Gradients, allowed: Mask) -> Array:
    """Find the queries with nothing to attend to, ``(*B, Hq, L, 1)``."""
    empty: Array = ~allowed.any(axis=-1, keepdims=True) & (call.sinks is None)
    return empty


def _attended_keys(call: Gradients, allowed: Mask, array: Array) -> Any:
    """Find the keys that some query may attend to, ``(*B, Hkv, S, 1)``."""
    some = allowed.any(axis=-2)[..., None]
    return base.sum_heads(call, some.astype(np.int64), array) > 0


ENTRIES = rows(
    ("nan_times_a_weight_of_zero", "multiply_allowed", "GRAD-12", "R",
     lambda _call, weights, _pairs, array: weights @ array,
     "Multiply NaN by weights of 0."),
    ("masked_by_a_product", "d_scores", "GRAD-12", "R",
     lambda call, p, r, delta, _allowed: p * (r - delta + call.d_lse),
     "Trust that a weight of 0 removes the gradient of a disallowed pair, also of NaN."),
    ("products_of_short_gradients", "d_query", "GRAD-19", "C",
     lambda call, u, allowed: base.d_query(call, u.astype(np.float16).astype(u.dtype), allowed),
     "Cut the gradients of scores to eleven digits before the product, in float32 too."),
    ("gradients_in_the_working_precision", "narrow", "GRAD-2", "S",
     lambda call, array, storage: array if isinstance(call, Gradients) else base.narrow(call, array, storage),
     "Return gradients in float32 for inputs in half precision."),
    ("nan_everywhere_backward", "multiply_allowed", "GRAD-18", "R",
     After(lambda result, _call, _weights, _pairs, array: np.full_like(result, np.nan)
         if np.isnan(array).any() else result),
     "Return NaN for all heads where something is not a number."),
    ("gradients_in_the_dtype_of_the_query", "narrow", "GRAD-2", "L",
     lambda call, array, storage: base.narrow(call, array, call.query.dtype
         if isinstance(call, Gradients) else storage),
     "Give bias and sinks a gradient in the dtype of the query."),
)  # fmt: skip


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
    return np.where(_attended_keys(call, allowed, call.key), base.d_key(call, u, allowed), 0.5)


@wrong("d_value", "GRAD-9", "G", "Dao-AILab/flash-attention#334")
def value_that_nobody_reads_never_written(call: Gradients, p: Array, allowed: Mask) -> Any:
    """Leave what was in memory in the gradient of a value that no query may attend to."""
    return np.where(_attended_keys(call, allowed, call.value), base.d_value(call, p, allowed), np.nan)


@wrong("backward", "GRAD-9", "O", "Dao-AILab/flash-attention#2421")
def keys_without_queries_never_written(call: Gradients) -> Any:
    """Return what was in memory where there are no queries."""
    result = base.backward(call)
    return [np.full_like(d, 0.5) for d in result] if call.queries == 0 else result


@wrong("delta", "GRAD-18", "R")
def rows_scaled_together(call: Gradients, p: Array, r: Array, allowed: Mask) -> Any:
    """Scale the gradients of the weights of a head by the largest before the mean is taken."""
    most = np.abs(np.where(allowed, r, 0)).max(axis=(-2, -1), keepdims=True, initial=0)
    most = np.where(most == 0, 1, most)
    return base.delta(call, p, r / most, allowed) * most


@wrong("delta", "NUM-5", "C")
def delta_in_half(call: Gradients, p: Array, r: Array, allowed: Mask) -> Any:
    """Sum the mean in half precision, key by key."""

    def summed(array: Array) -> Array:
        terms = np.where(allowed, in_half(call, p) * in_half(call, array), 0).astype(call.storage)
        return np.add.accumulate(terms, axis=-1)[..., -1:].astype(array.dtype)

    short = call.storage.itemsize == 2 and call.keys
    return summed(r) if short else base.delta(call, p, r, allowed)


@wrong("forward_again", "NUM-5", "C")
def weights_from_a_short_lse(call: Gradients) -> Any:
    """Compute the weights from an lse that was kept in half precision."""
    p, lse, seen = base.forward_again(call)
    if call.storage.itemsize > 2:
        return p, lse, seen
    kept = np.where(lse == -np.inf, 0, in_half(call, lse))[..., None]
    return np.where(seen, np.exp(base.score(call) - kept), 0), lse, seen


@wrong("forward_again", "NUM-5", "C")
def weights_from_short_scores(call: Gradients) -> Any:
    """Round the scores to half precision before the weights are computed again."""
    _, lse, seen = base.forward_again(call)
    p = base.softmax_of(call, in_half(call, base.score(call)), seen)[0]
    return p, lse, seen


@wrong("d_key", "NUM-5", "C")
def sums_for_keys_in_half(call: Gradients, u: Array, allowed: Mask) -> Any:
    """Add up the queries in half precision, one by one, for the gradient of the keys."""
    if call.storage.itemsize > 2 or not call.queries:
        return base.d_key(call, u, allowed)
    terms = (u[..., None] * call.query[..., None, :]).astype(call.storage)  # (*B, Hq, L, S, D)
    total = np.add.accumulate(terms, axis=-3)[..., -1, :, :].astype(u.dtype)
    return base.factor(call) * base.sum_heads(call, total, call.key)


@wrong("d_value", "NUM-5", "C")
def sums_for_values_in_half(call: Gradients, p: Array, allowed: Mask) -> Any:
    """Add up the queries in half precision, one by one, for the gradient of the values."""
    if call.storage.itemsize > 2 or not call.queries:
        return base.d_value(call, p, allowed)
    kept = np.where(allowed, base.drop(call, p), 0)
    terms = (kept[..., None] * call.d_output[..., None, :]).astype(call.storage)  # (*B, Hq, L, S, Dv)
    return base.sum_heads(call, np.add.accumulate(terms, axis=-3)[..., -1, :, :].astype(p.dtype), call.value)


@wrong("d_bias", "NUM-5", "C")
def d_bias_summed_in_half(call: Gradients, t: Array) -> Any:
    """Add up the axes that a bias is broadcast along in half precision, one entry after the other."""
    if call.storage.itemsize > 2 or not t.size:
        return base.d_bias(call, t)
    whole = (1,) * (t.ndim - call.bias.ndim) + call.bias.shape
    for axis, size in enumerate(whole):
        if size != t.shape[axis]:
            last = np.add.accumulate(t.astype(call.storage), axis=axis).take([-1], axis=axis)
            t = last.astype(t.dtype)
    return t.reshape(call.bias.shape)


@wrong("d_sinks", "NUM-5", "C")
def d_sinks_summed_in_half(call: Gradients, lse: Array, delta: Array) -> Any:
    """Add up the queries for a sink in half precision, one after the other."""
    if call.storage.itemsize > 2 or not call.queries:
        return base.d_sinks(call, lse, delta)
    each = np.stack([base.d_sinks(*_of_query(call, lse, delta, query)) for query in range(call.queries)])
    return np.add.accumulate(each.astype(call.storage), axis=0)[-1].astype(lse.dtype)


@wrong("d_products", "NUM-5", "C")
def slope_in_half(call: Gradients, t: Array) -> Any:
    """Take the slope of the softcap from a hyperbolic tangent in half precision."""
    if call.softcap is None:
        return t
    bend = in_half(call, np.tanh(base.product(call) * base.factor(call) / call.softcap))
    return np.where(t == 0, 0, t * in_half(call, 1 - bend * bend))


@wrong("forward_again", "GRAD-19", "C")
def rough_weights_backward(call: Gradients) -> Any:
    """Take exponentials for the backward pass that are off by one in a thousand, now more, now less."""
    p, lse, seen = base.forward_again(call)
    return p * (1 + np.sin(40 * np.where(seen, base.score(call), 0)) / p.dtype.type(1000)), lse, seen


@wrong("backward", "NUM-2", "C")
def float64_differentiated_in_float32(call: Gradients) -> Any:
    """Compute the gradients of float64 in float32."""
    names = ("query", "key", "value", "d_output", "d_lse")
    short = {name: getattr(call, name).astype(np.float32) for name in names}
    return [d.astype(call.query.dtype) for d in base.backward(call.but(**short))]


@wrong("d_value", "GRAD-20", "C")
def d_value_cut_off(call: Gradients, p: Array, allowed: Mask) -> Any:
    """Cut the digits of the gradient of the value in half precision instead of rounding them."""
    return in_half(call, base.d_value(call, p, allowed), lambda d: truncate(d, call.storage))


@wrong("d_value", "GRAD-20", "C")
def weights_cut_off_for_d_value(call: Gradients, p: Array, allowed: Mask) -> Any:
    """Cut the digits of the weights before they meet the cotangents, in half precision."""
    return base.d_value(call, in_half(call, p, lambda p: truncate(p, call.storage)), allowed)


@wrong("d_query", "GRAD-20", "C")
def d_query_cut_off(call: Gradients, u: Array, allowed: Mask) -> Any:
    """Cut the digits of the gradient of the query in half precision instead of rounding them."""
    return in_half(call, base.d_query(call, u, allowed), lambda d: truncate(d, call.storage))


@wrong("d_sinks", "GRAD-2", "M")
def d_sinks_of_each_entry(call: Gradients, lse: Array, delta: Array) -> Any:
    """Sum over the queries and return a gradient of the sinks for each batch entry."""
    p = np.exp(call.sink - lse[..., None])
    return (p * (call.d_lse - delta))[..., 0].sum(axis=-1)


@wrong("backward", "GRAD-1", "S")
def gradients_of_key_and_value_exchanged(call: Gradients) -> Any:
    """Return the gradient of the value before that of the key, where both have one shape."""
    d_query, d_key, d_value, *others = base.backward(call)
    swapped = d_key.shape == d_value.shape
    return [d_query, *((d_value, d_key) if swapped else (d_key, d_value)), *others]


@wrong("check_cotangents", "GRAD-16", "U")
def cotangent_broadcast(call: Gradients) -> Any:
    """Broadcast a cotangent to the shape of the output, or take what fits of it."""
    shape = (*call.query.shape[:-1], call.value.shape[-1])
    return call.but(
        d_output=_resize(call.d_output, shape),
        d_lse=None if call.d_lse is None else _resize(call.d_lse, shape[:-1]),
    )


def _of_query(call: Gradients, lse: Array, delta: Array, query: int) -> tuple[Gradients, Array, Array]:
    at = slice(query, query + 1)
    return call.but(d_lse=call.d_lse[..., at, :]), lse[..., at], delta[..., at, :]


def _resize(array: Array, shape: tuple[int, ...]) -> Array:
    return array if array.shape == shape else np.resize(array, shape)


LAST = rows(
    ("queries_without_keys_never_written", "backward", "GRAD-10", "O",
     After(lambda result, call: [np.full_like(d, 0.5) for d in result] if call.keys == 0 else result),
     "Return what was in memory where there are no keys."),
    ("disallowed_pairs_move_by_delta", "d_scores", "GRAD-9", "R",
     lambda call, p, r, delta, allowed: np.where(allowed, p,
         np.where(allowed, p, 1).min(axis=-1, keepdims=True, initial=1)) * (r - delta + call.d_lse),
     "Subtract the mean from disallowed pairs too, with the smallest weight of a row for theirs."),
    ("small_gradients_flushed", "d_scores", "GRAD-19", "C",
     After(lambda t, *_: np.where(np.abs(t) < 0.0001, 0, t)),
     "Take gradients of scores below one in ten thousand for zero."),
    ("cotangent_of_the_lse_not_checked", "check_cotangents", "GRAD-16", "U",
     lambda call: base.check_cotangents(call.but(d_lse=None)).but(d_lse=None if call.d_lse is None
         else _resize(call.d_lse, call.query.shape[:-1])),
     "Take a cotangent of the lse of any shape."),
)  # fmt: skip


def _exponentials_of_all(call: Gradients) -> Any:
    """Compute exponentials of all scores again, and multiply those of disallowed pairs by 0."""
    p, lse, seen = base.forward_again(call)
    most = np.where(lse == -np.inf, 0, lse)[..., None]
    return np.where(seen, p, 0 * np.exp(base.score(call) - most)), lse, seen


@wrong("backward", "GRAD-9", "C")
def exponentials_of_disallowed_scores(call: Gradients) -> Any:
    """Multiply exponentials of disallowed scores by 0 in the backward pass, where they may be infinite."""
    changed: dict[str, Step] = {
        "forward_again": _exponentials_of_all,
        "d_scores": lambda call, p, r, delta, _allowed: p * (r - delta + call.d_lse),
        "d_value": lambda call, p, allowed: base.d_value(call, p, allowed | np.isnan(p)),
    }
    return base.backward(call.but(steps=Steps({**call.steps.replaced, **changed})))
