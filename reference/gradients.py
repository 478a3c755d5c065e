"""The gradients of attention, by the formulas of the chapter `gradients`."""

import math
from dataclasses import dataclass
from typing import Any, cast

from attnspec.reference.attention import check_arguments, drop
from attnspec.reference.call import Array, Call, Mask, part, step
from attnspec.reference.errors import Shape, check_lse_dtype, dtype_name, flag, need, real
from attnspec.reference.functions import public
from attnspec.reference.heads import repeat_heads
from attnspec.reference.masking import allowed_pairs
from attnspec.reference.notation import Attention, enter, narrow, out_dtype, reshape, wide
from attnspec.reference.scores import factor, product, score
from attnspec.reference.softmax import softmax_of


@dataclass(frozen=True)
class Gradients(Attention):
    """A call of attention, with the cotangents of its outputs."""

    d_output: Array = None  # (*B, Hq, L, Dv)
    d_lse: Array = None  # (*B, Hq, L)
    return_d_scale: bool = False


def attention_vjp_of(
    call: Call, query: Array, key: Array, value: Array, d_output: Array, **options: Any
) -> tuple[Array, ...]:
    """Gradients of attention for given cotangents: its vector-Jacobian product.

    Notes
    -----
    Rules GRAD-1 to GRAD-20. Dao et al., "FlashAttention", 2022, appendix B.2.

    Examples
    --------
    >>> from attnspec.reference import attention_vjp
    >>> d_query, d_key, d_value = attention_vjp([[0.0]], [[1.0], [3.0]], [[2.0], [6.0]], [[1.0]])
    >>> d_query.tolist(), d_value.tolist()
    ([[2.0]], [[0.5], [0.5]])
    """
    given = Gradients(call.steps, call.xp, call.dtype, query, key, value, d_output=d_output, **options)
    return attention_vjp_part(check_cotangents(cast("Gradients", check_arguments(given))))


attention_vjp = public(attention_vjp_of)


@step
def check_cotangents(call: Gradients) -> Gradients:
    """Check that cotangents have the shapes and dtypes of the outputs (GRAD-16)."""
    flag("return_d_scale", call.return_d_scale)
    shape = (*call.query.shape[:-1], call.value.shape[-1])
    own = tuple(real(call, "d_output", call.d_output, "ERR-2").shape)
    need("d_output", own == shape, f"shape {shape}", own, "GRAD-16")
    name, expected = dtype_name(call.d_output), dtype_name(call.query)
    need("d_output", call.d_output.dtype == call.query.dtype, f"dtype {expected} as in query", name, "ERR-1")
    if call.d_lse is not None:
        check_lse_dtype(call, "d_lse", call.d_lse, call.query)
        own = tuple(call.d_lse.shape)
        need("d_lse", own == shape[:-1], f"shape {shape[:-1]}", own, "GRAD-16")
    return call


@part
def attention_vjp_part(given: Gradients) -> tuple[Array, ...]:
    """Compute the gradients of a checked call, each in the dtype of its array (GRAD-2)."""
    call = convert_cotangents(cast("Gradients", enter(given)))
    results = backward(call)
    if call.flat:  # the bias and the sinks never had an axis of heads to remove
        results = [array[0, ...] if place < 3 else array for place, array in enumerate(results)]
    arrays = [given.query, given.key, given.value, given.bias, given.sinks]
    of = [array for array in arrays if array is not None]
    last = results[len(of) :]  # the gradient of the scale, if it is asked for, is as precise as an lse
    return (*(narrow(call, d, out_dtype(call, array)) for d, array in zip(results, of, strict=False)), *last)


@step
def convert_cotangents(call: Gradients) -> Gradients:
    """Convert the cotangents to the axes and precision of the call. A missing `d_lse` is 0 (GRAD-6)."""
    g, h = wide(call, call.d_output), call.d_lse
    g = g[None, ...] if call.flat else g
    if h is None:
        return call.but(d_output=g, d_lse=call.xp.zeros_like(g[..., :1]))
    h = call.xp.astype(h[None, ...] if call.flat else h, g.dtype, copy=False)
    return call.but(d_output=g, d_lse=h[..., None])


@step
def backward(call: Gradients) -> list[Array]:
    """Compute the gradients of query, key and value, and those of bias, sinks and scale if asked (GRAD-1)."""
    p, lse, seen = forward_again(call)  # (*B, Hq, L, S), (*B, Hq, L) and (*B, Hq, L, S)
    r = d_weights(call)  # (*B, Hq, L, S)
    row = delta(call, p, r, seen)  # (*B, Hq, L, 1)
    t = d_scores(call, p, r, row, seen)  # (*B, Hq, L, S)
    u = d_products(call, t)
    results = [d_query(call, u, seen), d_key(call, u, seen), d_value(call, p, seen)]
    results += [] if call.bias is None else [d_bias(call, t)]
    results += [] if call.sinks is None else [d_sinks(call, lse, row)]
    results += [d_scale(call, u, seen)] if call.return_d_scale else []
    return results


@step
def forward_again(call: Gradients) -> tuple[Array, Array, Mask]:
    """Compute the results of the forward pass: weights before dropout, lse, and allowed pairs."""
    seen = allowed_pairs(call)
    p, lse = softmax_of(call, score(call), seen)
    return p, lse, seen


@step
def d_weights(call: Gradients) -> Array:
    """Return the gradient with respect to each weight, through its dropout (GRAD-8)."""
    r = call.d_output @ call.xp.matrix_transpose(repeat_heads(call, call.value))
    return drop(call, r)


@step
def delta(call: Gradients, p: Array, r: Array, allowed: Mask) -> Array:
    """Return the mean of these gradients under the weights: the output times its cotangent, for each row."""
    terms = call.xp.where(allowed, p * r, 0.0)  # a value that no query attends to may be NaN (GRAD-12)
    return call.xp.sum(terms, axis=-1, keepdims=True)


@step
def d_scores(call: Gradients, p: Array, r: Array, delta: Array, allowed: Mask) -> Array:
    """Return the gradient with respect to each score, 0 for disallowed pairs (GRAD-6, GRAD-9, GRAD-10)."""
    return call.xp.where(allowed, p * (r - delta + call.d_lse), 0.0)


@step
def d_products(call: Gradients, t: Array) -> Array:
    """Return the gradient with respect to each scaled product, by the slope of the softcap (GRAD-5)."""
    if call.softcap is None:
        return t
    bend = call.xp.tanh(product(call) * factor(call) / call.softcap)
    # This is not 1 - bend ** 2, in which digits cancel near the cap. A NaN belongs to a disallowed pair.
    return call.xp.where(t == 0, 0.0, t * ((1 - bend) * (1 + bend)))


@step
def d_query(call: Gradients, u: Array, allowed: Mask) -> Array:
    """Sum over the keys (GRAD-1)."""
    return factor(call) * multiply_allowed(call, u, allowed, repeat_heads(call, call.key))


@step
def d_key(call: Gradients, u: Array, allowed: Mask) -> Array:
    """Sum over the queries, and over the heads that share the key (GRAD-3)."""
    turned = call.xp.matrix_transpose
    return factor(call) * sum_heads(
        call, multiply_allowed(call, turned(u), turned(allowed), call.query), call.key
    )


@step
def d_value(call: Gradients, p: Array, allowed: Mask) -> Array:
    """Sum the cotangents, multiplied by the weights after dropout (GRAD-8)."""
    q = call.xp.where(allowed, drop(call, p), 0.0)
    turned = call.xp.matrix_transpose
    return sum_heads(call, multiply_allowed(call, turned(q), turned(allowed), call.d_output), call.value)


@step
def d_bias(call: Gradients, t: Array) -> Array:
    """Sum over the axes along which the bias was broadcast (GRAD-4)."""
    return sum_to(call.xp, t, tuple(call.bias.shape))


@step
def d_sinks(call: Gradients, lse: Array, delta: Array) -> Array:
    """Sum the products of the sink's weight and the derivative by the denominator (GRAD-7)."""
    xp = call.xp
    p = xp.where(call.sink == -math.inf, 0.0, xp.exp(call.sink - lse[..., None]))  # (*B, Hq, L, 1)
    moved = xp.where(p == 0, 0.0, p * (call.d_lse - delta))
    return sum_to(xp, moved[..., 0], (*moved.shape[-3:-2], 1))[..., 0]


@step
def d_scale(call: Gradients, u: Array, allowed: Mask) -> Array:
    """Sum the dot products of all pairs, each times its gradient before the scale (GRAD-24)."""
    return call.xp.sum(call.xp.where(allowed, u * product(call), 0.0))


@step
def multiply_allowed(call: Gradients, weights: Array, pairs: Mask, array: Array) -> Array:
    """Multiply, so that NaN and infinity reach only rows that may attend to them (GRAD-12, GRAD-18)."""
    xp = call.xp
    finite = xp.isfinite(array)
    if call.steps.compiler is None and bool(xp.all(finite)):  # compiled code reads no values
        return weights @ array
    met = xp.astype(pairs, weights.dtype) @ xp.astype(~finite, weights.dtype) > 0
    return xp.where(met, math.nan, weights @ xp.where(finite, array, 0.0))


@step
def sum_heads(call: Gradients, d: Array, like: Array) -> Array:
    """Sum the gradients of the query heads that share a key head, ``(*B, Hkv, S, D)`` (GRAD-3)."""
    heads = like.shape[-3]
    group = d.shape[-3] // heads
    if group == 1:
        return d
    shape = (*d.shape[:-3], heads, group, *d.shape[-2:])
    return call.xp.sum(reshape(call.xp, d, shape), axis=-3)


def sum_to(xp: Any, array: Array, shape: Shape) -> Array:
    """Sum over the axes along which an array of a shape is broadcast."""
    for _ in range(array.ndim - len(shape)):
        array = xp.sum(array, axis=0)
    for axis, size in enumerate(shape):
        if size != array.shape[axis]:
            array = xp.sum(array, axis=axis, keepdims=True)
    return array
