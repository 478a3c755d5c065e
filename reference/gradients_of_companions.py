"""The gradients of companions: merging, rotary embedding, multi-head attention and ALiBi."""

import math
from typing import Any

from attnspec.reference.attention import attention_of
from attnspec.reference.caching import check_partials
from attnspec.reference.call import Arguments, Array, Call, part, step
from attnspec.reference.errors import Shape, check_lse_dtype, dtype_name, need, real
from attnspec.reference.functions import public
from attnspec.reference.gradients import attention_vjp_of, sum_to
from attnspec.reference.heads import merge_heads_of, split_heads_of
from attnspec.reference.masking import key_position, position
from attnspec.reference.multi_head import heads_to_attend
from attnspec.reference.notation import Attention, largest, narrow, out_dtype, wide
from attnspec.reference.positions import Rotary, check_alibi, check_rotary, check_slopes, penalty, rotate
from attnspec.reference.projection import check_projection


def merge_partials_vjp_of(
    call: Call, outputs: Array, lses: Array, d_output: Array, *, d_lse: Array
) -> tuple[Array, Array]:
    """Gradients of the merging of partial results, for given cotangents.

    Notes
    -----
    Rule GRAD-21. A part relates to the merged row as a key to a query: its lse is the score, and its
    output is the value.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.reference import merge_partials_vjp
    >>> found = merge_partials_vjp([[[1.0]], [[5.0]]], np.log([[3.0], [1.0]]), [[2.0]])
    >>> [d.round(9).tolist() for d in found]
    [[[[1.5]], [[0.5]]], [[-1.5], [1.5]]]
    """
    check_partials(call, outputs, lses)
    shape = tuple(outputs.shape[1:])
    check_cotangent(call, "d_output", d_output, outputs, shape)
    if d_lse is not None:
        check_lse_dtype(call, "d_lse", d_lse, outputs)
        need("d_lse", tuple(d_lse.shape) == shape[:-1], f"shape {shape[:-1]}", tuple(d_lse.shape), "GRAD-16")
    return _merge_gradients(call, outputs, lses, d_output, d_lse)


merge_partials_vjp = public(merge_partials_vjp_of)


@step
def check_cotangent(call: Call, name: str, given: Array, like: Array, shape: Shape) -> None:
    """Check that a cotangent has the shape of the output and the dtype of its array (GRAD-16)."""
    own = tuple(real(call, name, given, "ERR-2").shape)
    need(name, own == shape, f"shape {shape}", own, "GRAD-16")
    expected = f"dtype {dtype_name(like)} as in the first array"
    need(name, given.dtype == like.dtype, expected, dtype_name(given), "ERR-1")


@part
def _merge_gradients(call: Call, outputs: Array, lses: Array, g: Array, h: Array) -> tuple[Array, Array]:
    xp, levels = call.xp, wide(call, lses)
    h = xp.zeros_like(wide(call, g)[..., 0]) if h is None else wide(call, h)
    d_outputs, d_lses = merge_gradients(call, wide(call, outputs), levels, wide(call, g), h)
    return narrow(call, d_outputs, out_dtype(call, outputs)), narrow(call, d_lses, out_dtype(call, lses))


@step
def merge_gradients(call: Call, outputs: Array, lses: Array, g: Array, h: Array) -> tuple[Array, Array]:
    """Pass the cotangents of a merged row on to its parts, and nothing to empty parts (GRAD-21)."""
    xp, empty = call.xp, lses == -math.inf
    w = shares(call, lses)  # (M, *B, H, L)
    kept = xp.where(empty[..., None], 0.0, outputs)  # 0 * NaN is NaN
    r = xp.sum(g * kept, axis=-1)  # (M, *B, H, L)
    delta = xp.sum(w * r, axis=0)  # (*B, H, L)
    return xp.where(empty[..., None], 0.0, w[..., None] * g), xp.where(
        empty, 0.0, d_levels(call, w, r, delta, h)
    )


@step
def shares(call: Call, lses: Array) -> Array:
    """Return the share of each part in the denominator of its row, 0 for empty parts (CACHE-7)."""
    xp = call.xp
    top = largest(xp, lses, axis=0)
    rates = xp.exp(lses - xp.where(top == -math.inf, 0.0, top))
    total = xp.sum(rates, axis=0, keepdims=True)
    return rates / xp.where(total == 0, 1.0, total)


@step
def d_levels(_call: Call, w: Array, r: Array, delta: Array, h: Array) -> Array:
    """Return the gradient with respect to each lse, through the shares and the merged lse (GRAD-21)."""
    return w * (r - delta + h)


def rotary_vjp_of(call: Call, features: Array, d_rotated: Array, **options: Any) -> Array:
    """Gradient of rotary embedding for a given cotangent: the transpose of the rotation.

    Notes
    -----
    Rule GRAD-22.

    Examples
    --------
    >>> from attnspec.reference import rotary_vjp
    >>> rotary_vjp([[0.0, 0.0]], [[1.0, 0.0]], offset=1).round(4).tolist()
    [[0.5403, -0.8415]]
    """
    checked = check_rotary(Rotary(call.steps, call.xp, call.dtype, features, **options))
    check_cotangent(call, "d_rotated", d_rotated, features, tuple(features.shape))
    return turn_back(checked, d_rotated)


rotary_vjp = public(rotary_vjp_of)


@step
def turn_back(call: Rotary, g: Array) -> Array:
    """Rotate each pair by its negative angle. A cotangent past the rotary depth does not change (GRAD-22)."""
    return rotate(call, g, back=True)


def alibi_bias_vjp_of(
    call: Call, query: Array, key: Array, d_bias: Array, *, slopes: Array, **positions: Any
) -> Array:
    """Gradient of the bias of ALiBi with respect to its slopes, for a given cotangent.

    Notes
    -----
    Rule GRAD-25.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.reference import alibi_bias_vjp
    >>> one = np.ones((2, 1))
    >>> alibi_bias_vjp(one, one, np.array([[1.0, 2.0], [4.0, 8.0]]), slopes=[0.5]).tolist()
    [-6.0]
    """
    checked = check_alibi(Attention(call.steps, call.xp, call.dtype, query, key, key, **positions), None)
    check_slopes(checked, slopes)
    check_cotangent(call, "d_bias", d_bias, query, checked.shape)
    return _d_slopes(checked, d_bias, slopes)


alibi_bias_vjp = public(alibi_bias_vjp_of)


@part
def _d_slopes(call: Attention, d_bias: Array, slopes: Array) -> Array:
    return narrow(call, d_slopes(call, wide(call, d_bias)), out_dtype(call, slopes))


@step
def d_slopes(call: Attention, g: Array) -> Array:
    """Sum the cotangents of each head, each times minus its distance, ``(Hq,)`` (GRAD-25)."""
    ones = call.xp.ones_like(call.xp.sum(g, axis=(-2, -1), keepdims=True))
    terms = penalty(call, ones, position(call), key_position(call)) * g
    terms = terms if terms.ndim > 2 else terms[None, ...]
    return sum_to(call.xp, terms, (terms.shape[-3], 1, 1))[:, 0, 0]


def multi_head_attention_vjp_of(call: Call, **arguments: Any) -> tuple[Array, ...]:
    """Gradients of multi-head attention, for a given cotangent of its output.

    Notes
    -----
    Rule GRAD-23.

    Examples
    --------
    >>> from attnspec.reference import multi_head_attention_vjp
    >>> identity, zero = [[1.0, 0.0], [0.0, 1.0]], [[0.0, 0.0], [0.0, 0.0]]
    >>> found = multi_head_attention_vjp(
    ...     [[1.0, 10.0], [3.0, 30.0]], zero, identity, identity, identity, [[1.0, 2.0], [0.0, 0.0]], heads=2
    ... )
    >>> found[0].tolist()  # both tokens have a weight of one half
    [[0.5, 1.0], [0.5, 1.0]]
    """
    arguments, arrays, options = heads_to_attend(call, arguments)
    merged = merge_heads_of(call, attention_of(call, *arrays, **options))  # (*B, L, heads * Dv)
    weight, bias = arguments["output_weight"], arguments["output_bias"]
    check_projection(call, "output", merged, weight, bias, arguments["convention"])
    features = weight.shape[-1 if arguments["convention"] == "row" else 0]
    shape = (*arguments["tokens"].shape[:-1], features)
    check_cotangent(call, "d_output", arguments["d_output"], arguments["tokens"], shape)
    g = wide(call, arguments["d_output"])
    d_merged = d_projected(call, g, wide(call, weight), arguments["convention"])
    cotangent = split_heads_of(call, d_merged, heads=arguments["heads"])
    results = attention_vjp_of(call, *arrays, cotangent, **options)
    names = ("query", "key", "value")
    ds = dict(zip(names, (merge_heads_of(call, d) for d in results), strict=True)) | {"output": g}
    gradients = {**_parameter_gradients(call, arguments, ds, merged), **_token_gradients(call, arguments, ds)}
    every = ("tokens", *(f"{name}_weight" for name in ds), "memory", *(f"{name}_bias" for name in ds))
    there = [name for name in every if arguments[name] is not None]
    return tuple(narrow(call, gradients[name], out_dtype(call, arguments[name])) for name in there)


multi_head_attention_vjp = public(multi_head_attention_vjp_of)


def _parameter_gradients(call: Call, arguments: Arguments, ds: Arguments, merged: Array) -> Arguments:
    results = {}
    tokens, source = wide(call, arguments["tokens"]), wide(call, arguments["source"])
    for name, inputs in (("query", tokens), ("key", source), ("value", source), ("output", merged)):
        results[f"{name}_weight"] = d_weight(call, inputs, ds[name], arguments["convention"])
        results[f"{name}_bias"] = d_shift(call, ds[name])
    return results


def _token_gradients(call: Call, arguments: Arguments, ds: Arguments) -> Arguments:
    """Compute the gradients through the projections to queries, keys and values."""
    parts = [
        d_projected(call, ds[name], wide(call, arguments[f"{name}_weight"]), arguments["convention"])
        for name in ("query", "key", "value")
    ]
    of_tokens, of_memory = collect(call, *parts, cross=arguments["memory"] is not None)
    return {"tokens": of_tokens, "memory": of_memory}


@step
def d_projected(call: Call, d: Array, weight: Array, convention: str) -> Array:
    """Return the gradient with respect to the projected tokens, by the transposed weight (GRAD-23)."""
    return d @ (call.xp.matrix_transpose(weight) if convention == "row" else weight)


@step
def d_weight(call: Call, inputs: Array, d: Array, convention: str) -> Array:
    """Return the gradient with respect to a weight, summed over all positions (GRAD-23, PROJ-7)."""
    turned = call.xp.matrix_transpose
    products = turned(inputs) @ d if convention == "row" else turned(d) @ inputs
    return sum_to(call.xp, products, tuple(products.shape[-2:]))


@step
def d_shift(call: Call, d: Array) -> Array:
    """Return the gradient with respect to a bias, summed over all positions (GRAD-23)."""
    return sum_to(call.xp, d, tuple(d.shape[-1:]))


@step
def collect(
    _call: Call, by_query: Array, by_key: Array, by_value: Array, *, cross: bool
) -> tuple[Array, Array]:
    """Return the gradients of tokens and memory. Without a memory, tokens collect all three (GRAD-23)."""
    of_source = by_key + by_value
    return (by_query, of_source) if cross else (by_query + of_source, None)
