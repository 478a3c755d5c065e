"""Error budgets of the gradients of attention: the formulas of the chapter `gradients`."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.dtypes import FORMATS
from attnspec.reference.budget.arithmetic import (
    LARGEST,
    Arithmetic,
    Budget,
    Pair,
    add_rounding,
    exponential_error,
    finite_part,
    softmax,
    transpose,
)
from attnspec.reference.budget.attention import (
    APPROXIMATE,
    CAPPING,
    DROPPING,
    EXPONENTIAL,
    SCALING,
    SHIFTING,
    attention_budget,
    budgeted_keys,
    has_capped_infinity,
    means,
    merge_error,
    relative_tanh_error,
    repeat_heads,
    scores_and_errors,
)

#: Roundings of an exponent at the size of the lse, if score and lse are converted to base 2 one by one.
CONVERTING = 2
#: Roundings of `r - delta + h` at the size of its terms: `p r` and `p delta`, or `delta - h` first.
DIFFERENCE = 2
#: Roundings of `r`, and of `delta` from an output, if both are divided by the denominator first.
DIVIDING = 2
#: Roundings of `r` by dropout: those of a weight, and the product, because the factor is not a quotient here.
DROPPING_TWICE = DROPPING + 1

#: The arrays that have no axis of heads if there are only two axes.
_HEADED = ("query", "key", "value", "d_output", "d_lse")
#: Errors of query, key, value and `d_output`.
Inherited = tuple[Budget, Budget, Budget, Budget]


def gradient_budget(
    arguments: Mapping[str, Any],
    dtypes: Mapping[str, str],
    arithmetic: Arithmetic,
    inherited: Inherited | None = None,
) -> dict[str, Budget]:
    """Return the budgets of the gradients, those of bias and sinks if these are given."""
    with np.errstate(over="ignore", invalid="ignore"):  # infinite errors are those of numbers out of range
        if arguments["query"].ndim > 2:
            return _head_budgets(arguments, dtypes, arithmetic, inherited)
        heads = {name: arguments[name][None] for name in _HEADED if name in arguments}
        results = _head_budgets({**arguments, **heads}, dtypes, arithmetic)
    return {name: x[0] if name[2:] in _HEADED else x for name, x in results.items()}


def _head_budgets(  # noqa: PLR0915  # the formulas of the chapter, one after the other
    arguments: Mapping[str, Any],
    dtypes: Mapping[str, str],
    arithmetic: Arithmetic,
    inherited: Inherited | None = None,
) -> dict[str, Budget]:
    query, key, g = finite_part(arguments["query"]), finite_part(arguments["key"]), arguments["d_output"]
    work, profile = arithmetic.work, arithmetic.profile
    h = arguments.get("d_lse", np.zeros(g.shape[:-1]))[..., None]  # (*B, Hq, L, 1)
    active = (np.abs(g).sum(axis=-1, keepdims=True) > 0) | (h != 0)
    weights, shares, allowed, met, output_error = _weights(arguments, arithmetic, inherited)
    rate = arguments.get("dropout_rate", 0.0)
    kept, forward = met * arguments.get("dropout_mask", True) / (1 - rate), arithmetic
    arithmetic = replace(arithmetic, later=1 / (1 - rate))
    dropping = DROPPING_TWICE * work.unit * ("dropout_mask" in arguments)
    values = repeat_heads(arguments["value"], met.shape)
    r = _cotangents_of_weights(g, values, kept, dropping, arithmetic)
    output = (kept * weights[0]) @ values
    if inherited is not None:
        value_error = repeat_heads(inherited[2], met.shape)
        r = r[0], r[1] + kept * _product_error((g, inherited[3]), (_across(values), _across(value_error)))
    delta = _means(weights, r, g, output, output_error, arithmetic)
    if inherited is not None:
        of_output = inherited[3] * (np.abs(output) + output_error)
        delta = delta[0], delta[1] + of_output.sum(axis=-1, keepdims=True)
    t = _product(weights, _differences(r, delta, h, arithmetic), allowed & active, arithmetic)
    sloped = _through_the_cap(t, arguments, (forward, arithmetic), inherited)
    scaled = _product_gradient(sloped, arguments, arithmetic)

    dtypes = {**dict.fromkeys(("query", "key", "value"), arithmetic.storage.name), **dtypes}
    shards, ranks = arguments.get("shards", 1), arguments.get("ranks", 1)
    over_ranks = {name: merge_error(ranks, forward, dtype) for name, dtype in dtypes.items()}
    of_parts, least = merge_error(shards, forward, dtypes["query"])
    across = allowed.sum(axis=-1, keepdims=True)  # (*B, Hq, L, 1)
    down = np.swapaxes(met.sum(axis=-2, keepdims=True), -1, -2)  # (*B, Hq, S, 1)
    of_row, of_column = (profile.summing(n, work.unit) for n in (across, down))
    shared = key.shape[-3]
    group = met.shape[-3] // max(shared, 1)
    of_column = repeat_heads(_sum_group(of_column, shared), met.shape) + work.unit * group * (group > 1)
    scaling = SCALING * work.unit + (_scale(arguments) < work.normal)  # such a scale may be rounded to 0
    q_error, k_error, _, g_error = inherited or (None, None, None, None)
    k_error = None if k_error is None else repeat_heads(k_error, met.shape)
    keys = repeat_heads(key, met.shape), k_error
    folded = _folded(sloped, keys[0], across, arguments)
    wide = scaled[0] / _smaller_scale(arguments) if _scale(arguments) else sloped[0]  # the scale may be last
    sums = of_row + scaling + of_parts
    results = {"query": _matrix(scaled, keys, sums, folded, arithmetic, wide, least)}
    relative = {name: of_column + over_ranks[name][0] for name in ("key", "value")}
    folded = _folded(transpose(sloped), query, down, arguments)
    queries, sums = (query, q_error), relative["key"] + scaling
    d_key = _matrix(transpose(scaled), queries, sums, folded, arithmetic, np.swapaxes(wide, -1, -2))
    dropped = _drop(weights, kept, dropping, arithmetic)
    d_value = _matrix(transpose(dropped), (g, g_error), relative["value"], down + SCALING, arithmetic)
    for name, (gradient, error) in (("key", d_key), ("value", d_value)):
        total = _sum_group(error, shared)
        results[name] = _sum_group(gradient, shared), total + over_ranks[name][1] * (total > 0)
    budgets = {f"d_{name}": add_rounding(*pair, FORMATS[dtypes[name]]) for name, pair in results.items()}
    if "bias" in arguments:
        added = sloped if arguments.get("capped_bias") else t
        cast = added[0], added[1] + _cast(added, 1.0, arithmetic)
        pair = _sum_to(cast, allowed & active, np.shape(arguments["bias"]), arithmetic, over_ranks["bias"])
        budgets["d_bias"] = add_rounding(*pair, FORMATS[dtypes["bias"]])
    if arguments.get("return_d_scale"):
        of_scale = merge_error(ranks, forward, arithmetic.lse.name)
        pair = _scale_gradient(sloped, queries, keys, allowed & active, arithmetic, of_scale, arguments)
        budgets["d_scale"] = add_rounding(*pair, arithmetic.lse)
    if "sinks" in arguments:
        there = np.isfinite(arguments["sinks"])[:, None, None] & active  # (*B, Hq, L, 1)
        z = _differences((np.zeros(h.shape), np.zeros(h.shape)), delta, h, arithmetic)
        heads = (there.shape[-3], 1, 1)
        products = _product(shares, z, there, arithmetic)
        pair = _sum_to(products, there, heads, arithmetic, over_ranks["sinks"])
        budgets["d_sinks"] = add_rounding(*pair, FORMATS[dtypes["sinks"]])[:, 0, 0]
    return budgets


def _weights(
    arguments: Mapping[str, Any], arithmetic: Arithmetic, inherited: Inherited | None
) -> tuple[Pair, Pair, NDArray[np.bool_], NDArray[np.bool_], Budget]:
    """Return the weights from an lse, those of the sinks, the counted keys, and the error of the output."""
    work, sinks = arithmetic.work, arguments.get("sinks")
    arrays = arguments["query"], arguments["key"], arguments["value"]
    s, s_error = scores_and_errors(arrays[0], arrays[1], arguments, arithmetic, inherited and inherited[:2])
    allowed = budgeted_keys(s.shape, arguments) & (s > -np.inf)
    met = allowed | (arguments["uniform_rows"] & means(allowed, sinks))
    s, s_error = np.where(allowed, s, 0), np.where(allowed, s_error, 0)
    p, lse = softmax(s, met, None if sinks is None else sinks[:, None, None])  # (*B, Hq, L, S), (*B, Hq, L)
    lse = np.where(np.isfinite(lse), lse, 0)[..., None]
    forward = attention_budget(arrays, arguments, arithmetic, inherited and inherited[:3])
    of_row = forward["lse"][..., None] + work.unit * (CONVERTING * np.abs(lse) + EXPONENTIAL)
    of_row = of_row + (APPROXIMATE if arithmetic.casts else 0.0)
    error = exponential_error(s - lse, s_error + work.unit * SHIFTING * np.abs(s - lse) + of_row)
    sink = np.full(lse.shape, -np.inf) if sinks is None else sinks[:, None, None]
    there = np.isfinite(sink)
    distance = np.where(there, sink, lse) - lse  # (*B, Hq, L, 1)
    share = there * np.exp(distance)
    share_error = there * exponential_error(distance, work.unit * SHIFTING * np.abs(distance) + of_row)
    # An exponential may be flushed to zero.
    beyond = np.where(np.isinf(forward["output"]).any(axis=-1, keepdims=True), np.inf, 0)
    weights = p, np.where(met, error + work.normal + beyond, 0)
    shares = share, np.where(there, share_error + work.normal + beyond, 0)
    return weights, shares, allowed, met, forward["output"]


def _cotangents_of_weights(
    g: Budget, values: Budget, kept: Budget, dropping: float, arithmetic: Arithmetic
) -> Pair:
    """Return the cotangent of each weight before dropout: a dot product of depth Dv times its factor."""
    depth, work, profile = g.shape[-1], arithmetic.work, arithmetic.profile
    turned = np.swapaxes(values, -1, -2)
    products = g @ turned, np.abs(g) @ np.abs(turned)  # (*B, Hq, L, S)
    # That with a disallowed value may be infinite.
    r, size = (kept * np.where(kept > 0, product, 0) for product in products)
    error = (profile.summing(depth, work.unit) + profile.product + DIVIDING * work.unit + dropping) * size
    error = error + (depth + 1) * arithmetic.tiny * (size > 0)
    lost = np.where(kept > 0, arithmetic.subnormal_loss(g, turned), 0)
    error = arithmetic.unbounded(error + kept * lost, size)
    return r, error + _cast((r, error), 1.0, arithmetic)


def _means(
    weights: Pair, r: Pair, g: Budget, output: Budget, output_error: Budget, arithmetic: Arithmetic
) -> Pair:
    """Return the mean of `r` under the weights: the sum over keys, or from the output of the forward pass."""
    work, profile = arithmetic.work, arithmetic.profile
    delta = (weights[0] * r[0]).sum(axis=-1, keepdims=True)  # (*B, Hq, L, 1)
    keys, depth = (weights[1] > 0).sum(axis=-1, keepdims=True), g.shape[-1]
    size = (weights[0] + weights[1]) * (np.abs(r[0]) + r[1])
    by_keys = (size - weights[0] * np.abs(r[0])).sum(axis=-1, keepdims=True)
    by_keys = by_keys + profile.summing(keys, work.unit) * size.sum(axis=-1, keepdims=True)
    output_error = np.minimum(output_error, np.exp(LARGEST))
    size = np.abs(g) * (np.abs(output) + output_error)
    sums = profile.summing(depth, work.unit) + DIVIDING * work.unit
    by_output = (np.abs(g) * output_error + sums * size).sum(axis=-1, keepdims=True)
    some = np.abs(g).sum(axis=-1, keepdims=True) > 0
    return delta, np.maximum(by_keys, by_output) + some * np.maximum(keys, depth) * arithmetic.tiny


def _differences(r: Pair, delta: Pair, h: Budget, arithmetic: Arithmetic) -> Pair:
    """Return the differences `r - delta + h`, in any order of operations."""
    size = np.abs(r[0]) + r[1] + np.abs(delta[0]) + delta[1] + np.abs(h)
    error = r[1] + delta[1] + DIFFERENCE * arithmetic.work.unit * size
    exact = np.abs(r[0]) + np.abs(delta[0]) + np.abs(h)
    return r[0] - delta[0] + h, arithmetic.unbounded(error, exact)


def _drop(weights: Pair, kept: Budget, dropping: float, arithmetic: Arithmetic) -> Pair:
    """Return the weights after dropout, which are multiplied by the cotangents of the output."""
    value, error = kept * weights[0], kept * (weights[1] + dropping * (weights[0] + weights[1]))
    return value, error + _cast((value, error), 1.0, arithmetic)


def _product(weights: Pair, factor: Pair, where: NDArray[np.bool_], arithmetic: Arithmetic) -> Pair:
    """Return the product of a weight and a number, with one rounding if the pair is active."""
    (p, p_error), (w, w_error), work = weights, factor, arithmetic.work
    error = p_error * np.abs(w) + (p + p_error) * w_error
    error = error + work.unit * (p * np.abs(w) + error) + arithmetic.tiny
    return np.where(where, p * w, 0), np.where(where, error, 0)


def _through_the_cap(
    t: Pair,
    arguments: Mapping[str, Any],
    arithmetics: tuple[Arithmetic, Arithmetic],
    inherited: Inherited | None,
) -> Pair:
    """Return the gradient of what the softcap is applied to: times its slope, if there is one."""
    (value, error), (arithmetic, later), softcap = t, arithmetics, arguments.get("softcap")
    if softcap is None:
        return t
    plain = {"scale": arguments.get("scale")}
    if arguments.get("capped_bias"):
        plain |= {name: arguments[name] for name in ("bias", "capped_bias") if name in arguments}
    arrays = arguments["query"], arguments["key"]
    x, x_error = scores_and_errors(*arrays, plain, arithmetic, inherited and inherited[:2])
    if has_capped_infinity(arguments) and "bias" in arguments:
        x = np.where(arguments["bias"] == -np.inf, -np.inf, x)
    size = np.abs(value) + error
    slope, slope_error = slope_and_error(x, x_error, softcap, arithmetic)
    error = slope * error + size * slope_error
    error = (error + arithmetic.work.unit * size * (slope + slope_error) + later.tiny) * (size > 0)
    return value * slope, error


def _product_gradient(t: Pair, arguments: Mapping[str, Any], arithmetic: Arithmetic) -> Pair:
    """Return the gradient of the dot products: times the scale, and cast."""
    size = _scale(arguments)
    value, error = np.copysign(size, arguments.get("scale") or 1.0) * t[0], size * t[1]
    return value, error + _cast((value, error), max(size, 1.0), arithmetic)


def _scale(arguments: Mapping[str, Any]) -> float:
    """Return the size of the scale."""
    scale = arguments.get("scale")
    return float(max(arguments["query"].shape[-1], 1) ** -0.5 if scale is None else abs(scale))


def _smaller_scale(arguments: Mapping[str, Any]) -> float:
    """Return the size of the scale, and 1 if it is larger or 0."""
    return min(_scale(arguments), 1.0) or 1.0


def _scale_gradient(
    u: Pair,
    query: tuple[Budget, Budget | None],
    key: tuple[Budget, Budget | None],
    where: NDArray[np.bool_],
    arithmetic: Arithmetic,
    over_ranks: tuple[float, float],
    arguments: Mapping[str, Any],
) -> Pair:
    """Return the sum over all pairs of a gradient times its dot product, or over all queries (GRAD-24)."""
    work, profile = arithmetic.work, arithmetic.profile
    bounds = [np.abs(array) if its is None else np.abs(array) + its for array, its in (query, key)]
    size = bounds[0] @ _across(bounds[1])  # (*B, Hq, L, S)
    moved = (
        size
        - np.abs(query[0]) @ _across(np.abs(key[0]))
        + arithmetic.subnormal_loss(query[0], _across(key[0]))
    )
    product = np.where(where, query[0] @ _across(key[0]), 0)
    value, error = u[0], u[1] + _cast(u, 1.0, arithmetic)
    across, pairs = where.sum(axis=-1, keepdims=True), where.sum()
    sums = profile.summing(query[0].shape[-1], work.unit) + profile.summing(across, work.unit)
    sums = sums + profile.product + (pairs + SCALING) * work.unit + over_ranks[0]
    terms = error * np.abs(product) + (np.abs(value) + error) * (moved + sums * size)
    # A product with the gradient, or a factor of it, may underflow before the query multiplies it and the
    # scale divides it.
    most, least_scale = np.abs(value) + error, _smaller_scale(arguments)
    later = bounds[0].sum(axis=-1, keepdims=True) / least_scale
    least = (query[0].shape[-1] + across + 2) * np.maximum(most, np.maximum(later, 1))
    least = least + size / least_scale + most * later
    terms = terms + np.minimum(least * arithmetic.tiny, most * size)  # all of it at most
    total = np.where(where, terms, 0).sum()
    exact = np.sum(np.abs(value) * np.where(where, np.abs(query[0]) @ _across(np.abs(key[0])), 0))
    total = arithmetic.unbounded(total + over_ranks[1] * (total > 0), exact)
    return np.asarray(np.sum(value * product)), total


def slope_and_error(x: Budget, x_error: Budget, softcap: float, arithmetic: Arithmetic) -> Pair:
    """Return the slope of the softcap, `1 - tanh^2`. Its error is twice that of the tanh, and at most 1."""
    unit, infinite = arithmetic.work.unit, np.isinf(x)
    x_error = np.where(infinite, 0, x_error + unit * np.abs(np.where(infinite, 0, x)))
    relative = CAPPING * unit + relative_tanh_error(arithmetic)
    with np.errstate(over="ignore"):
        steepest = np.cosh(np.maximum(np.abs(x) - x_error, 0) / softcap) ** -2.0
        tanh, slope = np.abs(np.tanh(x / softcap)), np.cosh(x / softcap) ** -2.0
        error = steepest * x_error / softcap
        error = error + relative * (tanh + error)
        error = np.minimum((2 * tanh + error) * error, 1 + 3 * relative)  # of the square
    return slope, error + unit * (
        1 + 2 * error
    )  # those of the square and of the difference, which add up to 1


def _cast(pair: Pair, largest: Any, arithmetic: Arithmetic) -> Budget:
    """Return the error of rounding to the storage dtype before a product, in the class `cast`."""
    if not arithmetic.casts:
        return np.zeros(pair[0].shape)
    storage, size = arithmetic.storage, np.abs(pair[0]) + pair[1]
    error: Budget = np.maximum(storage.unit * size, largest * arithmetic.least * (size > 0))
    return error


def _across(array: Budget) -> Budget:
    turned: Budget = np.swapaxes(array, -1, -2)
    return turned


def _product_error(left: Pair, right: Pair) -> Budget:
    """Bound the error of the product of two matrices that their errors cause."""
    moved: Budget = left[1] @ (np.abs(right[0]) + right[1]) + np.abs(left[0]) @ right[1]
    return moved


def _folded(rho: Pair, right: Budget, terms: Any, arguments: Mapping[str, Any]) -> Budget:
    """Return how often a product, or a factor that the scale or its root is folded into, may underflow."""
    scale, size = _scale(arguments), np.abs(rho[0]) + rho[1]
    factors = size.sum(axis=-1, keepdims=True) + (size > 0) @ np.abs(right)
    result: Budget = (terms + SCALING) * max(1.0, scale) + max(1.0, np.sqrt(scale)) * factors
    return result


def _matrix(
    left: Pair,
    right: tuple[Budget, Budget | None],
    sums: Any,
    underflows: Any,
    arithmetic: Arithmetic,
    wide: Budget | None = None,
    least: float = 0.0,
) -> Pair:
    """Return the product of two matrices and its error. The right matrix may be exact."""
    array, its = right
    size = (np.abs(left[0]) + left[1]) @ (np.abs(array) if its is None else np.abs(array) + its)
    error = left[1] @ np.abs(array) if its is None else _product_error(left, (array, its))
    error = error + (sums + arithmetic.profile.product) * size + arithmetic.subnormal_loss(left[0], array)
    error += np.minimum(underflows * arithmetic.tiny, 3 * size) + least * (size > 0)
    wide = np.abs(left[0] if wide is None else wide) @ np.abs(array)
    return left[0] @ array, arithmetic.unbounded(error, wide)


def _sum_group(array: Budget, shared: int) -> Budget:
    """Sum over the query heads of each shared head."""
    *batch, heads, rows, columns = array.shape
    groups = array.reshape(*batch, shared, heads // max(shared, 1), rows, columns)
    total: Budget = groups.sum(axis=-3)
    return total


def _sum_to(
    pair: Pair,
    terms: NDArray[np.bool_],
    shape: tuple[int, ...],
    arithmetic: Arithmetic,
    over_ranks: tuple[float, float],
) -> Pair:
    """Sum over the axes along which an array is broadcast. Every term except one adds a rounding."""
    count, size = (_to_shape(x, shape) for x in (terms.astype(np.float64), np.abs(pair[0]) + pair[1]))
    additions = np.maximum(count - 1, 0) * arithmetic.work.unit + over_ranks[0]
    error = _to_shape(pair[1], shape) + additions * size + over_ranks[1] * (size > 0)
    return _to_shape(pair[0], shape), arithmetic.unbounded(error, _to_shape(np.abs(pair[0]), shape))


def _to_shape(array: Budget, shape: tuple[int, ...]) -> Budget:
    over = tuple(
        axis - len(shape)
        for axis, size in enumerate(shape)
        if size == 1 and array.shape[array.ndim - len(shape) + axis] != 1
    )
    total: Budget = array.sum(axis=(*range(array.ndim - len(shape)), *over)).reshape(shape)
    return total
