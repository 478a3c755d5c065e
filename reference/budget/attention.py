"""Error budgets of scores and of attention: the formulas of the chapter `numerics`."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.dtypes import FORMATS, Format
from attnspec.operations import OPERATIONS
from attnspec.reference.budget.arithmetic import (
    NORMALISED,
    RAISED,
    Arithmetic,
    Budget,
    Profile,
    absolute,
    add_rounding,
    distances,
    finite_part,
    short_weights,
    softmax,
    spread_of,
)
from attnspec.reference.masking import allowed_keys

#: Relative error of a library's exponential, logarithm or other such function: two units in the last place.
EXPONENTIAL = 4
#: Additional relative error of an exponential if weights are cast: a quarter of float16's unit, for a cubic.
APPROXIMATE = 2.0**-13
#: Additional relative error of a tanh if weights are cast: the instruction of a GPU is off by 1.113e-5.
APPROXIMATE_TANH = 2.0**-16
#: Roundings of a score besides those of its sum: sqrt(D), its inverse, sqrt(scale) twice, two scaled inputs.
SCALING = 6
#: Roundings of a capped score besides its tanh: the quotient, the product.
CAPPING = 2
#: Roundings of an exponent's distance from the maximum: difference, conversion to base 2, its constant.
SHIFTING = 3
#: Roundings of an output besides those of its two sums: quotient, last rescaling, two for a merged part.
NORMALISING = 4
#: Roundings of the lse itself: conversion from base 2, its constant, the sum of shift and logarithm.
LOGARITHM = 3
#: Roundings of a maximum: to base 2 and back, with two constants.
CONVERTING = 4
#: Roundings of a weight by dropout: 1 minus the rate, the quotient by it.
DROPPING = 2

#: Errors of exponents above this may move an output further than its farthest value.
_COARSE = 0.4
#: The logarithm of the largest error of a weight: larger ones are the same, as a weight is at most 1.
_MOST = 600.0

#: The arguments of attention that mask.
MASKING = OPERATIONS["attention"].names("masks")


def scores_and_errors(
    query: Budget,
    key: Budget,
    arguments: Mapping[str, Any],
    arithmetic: Arithmetic,
    inherited: tuple[Budget, Budget] | None = None,
) -> tuple[Budget, Budget]:
    """Return the scores and their errors, including those inherited from query and key.

    A score of minus infinity stays, because its key has no weight (NUM-14). One that makes its row NaN is 0.
    """
    depth, work, profile = query.shape[-1], arithmetic.work, arithmetic.profile
    scale = arguments.get("scale")
    factor = 1 / np.sqrt(depth) if scale is None else float(scale)
    keys = np.swapaxes(repeat_heads(key, query.shape), -1, -2)
    with np.errstate(invalid="ignore", over="ignore"):
        value = factor * (query @ keys)
    value = np.where(np.isnan(value), 0, value)
    query, keys = finite_part(query), finite_part(keys)
    size = abs(factor) * (np.abs(query) @ np.abs(keys))
    relative = profile.summing_products(depth, work.unit) + SCALING * work.unit + profile.product
    relative = relative + (abs(factor) < work.normal)  # such a scale may be rounded to 0
    # Products may underflow, and a factor that the scale or its root is folded into.
    folded = np.abs(query).sum(axis=-1, keepdims=True) + np.abs(keys).sum(axis=-2, keepdims=True)
    least = (depth + SCALING) * max(1.0, abs(factor)) + max(1.0, np.sqrt(abs(factor))) * folded
    error = relative * size + np.minimum(least * work.normal, 3 * size)
    error = error + abs(factor) * arithmetic.subnormal_loss(query, keys)
    if inherited is not None:
        query_error = inherited[0]
        key_error = np.swapaxes(repeat_heads(inherited[1], query.shape), -1, -2)
        error += abs(factor) * (query_error @ (np.abs(keys) + key_error) + np.abs(query) @ key_error)
    for part in (_add_bias, _cap) if arguments.get("capped_bias") else (_cap, _add_bias):
        with np.errstate(invalid="ignore"):
            value, error = part(value, error, arguments, arithmetic)
    return np.where(np.isfinite(value) | (value == -np.inf), value, 0), error


def _cap(
    value: Budget, error: Budget, arguments: Mapping[str, Any], arithmetic: Arithmetic
) -> tuple[Budget, Budget]:
    """Return scores after the softcap, and their errors."""
    softcap, work = arguments.get("softcap"), arithmetic.work
    if softcap is None:
        return value, error
    finite = np.isfinite(value)  # minus infinity is capped in some variants
    # The slope of tanh is steepest at the point of the error's range that is nearest to 0.
    with np.errstate(over="ignore"):
        slope = np.cosh(np.maximum(np.abs(value) - error, 0) / softcap) ** -2.0
        error = np.where(finite, error + work.unit * np.abs(np.where(finite, value, 0)), 0)  # of the quotient
        value = softcap * np.tanh(value / softcap)
    least = max(1.0, softcap) * work.normal * (error > 0)  # the quotient or the product may underflow
    rounding = (CAPPING * work.unit + relative_tanh_error(arithmetic)) * np.abs(value) + least
    return value, np.minimum(slope * error, 2 * softcap) + rounding


def relative_tanh_error(arithmetic: Arithmetic) -> float:
    """Return the relative error of a tanh."""
    return EXPONENTIAL * arithmetic.work.unit + (APPROXIMATE_TANH if arithmetic.casts else 0.0)


def _add_bias(
    value: Budget, error: Budget, arguments: Mapping[str, Any], arithmetic: Arithmetic
) -> tuple[Budget, Budget]:
    """Return scores after the bias, and their errors. Minus infinity disallows, or it is a score to cap."""
    bias, work = arguments.get("bias"), arithmetic.work
    if bias is None:
        return value, error
    disallows = arguments.get("capped_bias") and not has_capped_infinity(arguments)
    value = value + (np.where(np.isfinite(bias), bias, 0) if disallows else bias)
    return value, error + np.where(np.isfinite(value), work.unit * (np.abs(value) + error), 0)


def attention_budget(  # noqa: PLR0915  # the formulas of the chapter, one after the other
    arrays: tuple[Budget, Budget, Budget],
    arguments: Mapping[str, Any],
    arithmetic: Arithmetic,
    inherited: tuple[Budget, Budget, Budget] | None = None,
) -> dict[str, Budget]:
    """Return the budgets of output, lse, weights and maximum, with the names of the chapter.

    Where NUM-3 does not apply, because a number is out of range, they are infinite.
    """
    from attnspec.reference.budget.overflow import out_of_range, undefined_elements

    query, key, value = arrays[0], arrays[1], finite_part(arrays[2])
    sizes = np.abs(finite_part(query)), np.abs(finite_part(key)), absolute(repeat_heads(value, query.shape))
    if inherited is not None:  # an error that is infinite is that of a number that is out of range
        sizes = (
            sizes[0] + inherited[0],
            sizes[1] + inherited[1],
            sizes[2] + repeat_heads(inherited[2], query.shape),
        )
        inherited = finite_part(inherited[0]), finite_part(inherited[1]), finite_part(inherited[2])
    storage, work, profile = arithmetic.storage, arithmetic.work, arithmetic.profile
    s, s_error = scores_and_errors(query, key, arguments, arithmetic, inherited and inherited[:2])
    unit, (weight_error, weight_least, exp_error) = work.unit, _cast_errors(arithmetic)
    allowed = budgeted_keys(s.shape, arguments)
    if np.any(arguments["uniform_rows"]):
        filled = arguments["uniform_rows"] & means(allowed, arguments.get("sinks"))
        s, s_error = np.where(filled, 0, s), np.where(filled, 0, s_error)
        allowed = allowed | filled
    allowed = allowed & (s > -np.inf)
    value, rate = repeat_heads(value, s.shape), arguments.get("dropout_rate", 0.0)
    dropout_mask = arguments.get("dropout_mask")
    kept = (np.ones(s.shape) if dropout_mask is None else np.broadcast_to(dropout_mask, s.shape)) / (1 - rate)
    rows, elements = out_of_range(sizes, arguments, allowed, kept, arithmetic.largest)
    dropping = DROPPING * unit if dropout_mask is not None else 0.0
    asked = {"max": _largest(s, s_error, allowed, arithmetic)} if arguments.get("return_max") else {}
    s, s_error, allowed = _with_sink(s, s_error, allowed, arguments.get("sinks"))
    (p, lse), count = softmax(s, allowed), allowed.sum(axis=-1, keepdims=True)  # with a column for the sink
    several, one = count > 1, count == 1
    top, distance = _below_the_top(s, allowed)
    sums, sums_of_products = (
        (of(count, unit) + NORMALISING * unit) * (count > 0)
        for of in (profile.summing, profile.summing_products)
    )
    largest = np.where(count > 0, np.abs(top), 0) + (1 + EXPONENTIAL) * np.log(np.maximum(count, 1))
    merging = 2 * unit * largest * several
    of_part = _part_error(arguments, s, lse, allowed, sums + merging, unit)
    exponent = s_error + SHIFTING * unit * distance + EXPONENTIAL * unit + exp_error + of_part
    exponent = np.where(allowed & several, exponent, 0)
    grown, raised, lost = _denominator_error(p, distance, exponent, allowed)
    alone = (
        exp_error
        + np.minimum(_error_near_one(arithmetic), unit * np.abs(top))
        + (p * of_part).sum(axis=-1, keepdims=True)
    )
    single = np.where(one, alone, 0)
    # A disallowed score may be infinite, and 0 times infinity is NaN, within which everything would lie.
    of_one = (p * np.where(p > 0, s_error + of_part, 0)).sum(axis=-1, keepdims=True) + exp_error * one
    of_sum = np.where(several, grown + sums + merging, of_one)
    of_lse = _lse_budget(lse, count[..., 0], of_sum[..., 0], work, arithmetic.lse)

    floor = work.normal * (allowed & several)  # an exponential may be flushed to zero
    of_sink = raised[..., value.shape[-2] :].sum(axis=-1, keepdims=True)
    whole, (p, raised, floor) = p, (x[..., : value.shape[-2]] for x in (p, raised, floor))
    allowed = allowed[..., : value.shape[-2]]
    q, size = kept * p, absolute(value) if inherited is not None else sizes[2]
    off = np.minimum(raised + p * (lost + sums + merging + single), 1)
    p_error = kept * (off + floor + dropping * p)
    # The weights of a shard, which are rounded, may be scaled.
    of_shards = arithmetic.casts and arguments.get("shards", 1) > 1
    of_shards = of_shards * (storage.unit * q + storage.subnormal / 2 * (q > 0))
    weights = add_rounding(q, p_error + of_shards, storage)

    mean, output = q @ size, q @ value  # (*B, Hq, L, Dv)
    spread = spread_of(raised, kept, value, output) + of_sink * np.abs(output)  # a sink has the value 0
    if exponent.max(initial=0) > _COARSE:
        spread = np.minimum(spread, _farthest(allowed, kept, value, output, arguments.get("sinks")))
    rounding = (several | (rate > 0)) * _cast_error(profile, weight_error, whole, kept, value, output)
    flushing = (kept * (floor + weight_least * (allowed & several))) @ size
    # The factor of dropout may multiply the sum at the end.
    flushing = flushing + count * several * work.normal / (1 - rate) * (mean > 0)
    of_parts, least = merge_error(arguments.get("shards", 1), arithmetic)
    flushing = flushing + least * (mean > 0)
    shared = (
        sums + sums_of_products + merging + dropping + single + profile.product - profile.inputs + of_parts
    )
    error = spread + shared * mean + rounding + flushing
    error = error + arithmetic.subnormal_loss(q, value, of_left=False)
    if inherited is not None:
        error = error + (q + p_error) @ repeat_heads(inherited[2], s.shape)
    if np.isinf(arrays[2]).any():
        most = whole.max(axis=-1, keepdims=True, initial=0.0)
        least_weight = np.maximum(storage.normal, 2 * profile.least * (most / RAISED + 1 / NORMALISED))
        light = (p < least_weight) | (kept == 0)
        elements = elements | undefined_elements(arrays, arguments, allowed, light)
    budgets = {"output": add_rounding(output, error, storage), "lse": of_lse, "weights": weights, **asked}
    beyond = {"output": elements, "weights": rows[..., None]}
    return {name: np.where(beyond.get(name, rows), np.inf, budget) for name, budget in budgets.items()}


def _part_error(
    arguments: Mapping[str, Any],
    s: Budget,
    lse: Budget,
    allowed: NDArray[np.bool_],
    common: Budget,
    unit: float,
) -> Budget | float:
    """Return the error of each key's exponent from the lse of its shard and its merges, 0 for one shard."""
    parts = arguments.get("shards", 1)
    if parts == 1:
        return 0.0
    finite = allowed & np.isfinite(s) & np.isfinite(lse)[..., None]
    size = np.where(np.isfinite(lse), np.abs(lse), 0)[..., None]
    far = np.where(finite, np.where(finite, lse[..., None], 0) - np.where(finite, s, 0), 0)
    moved = (parts + LOGARITHM - 1) * np.maximum(far, 0) + parts * (size + 2 * EXPONENTIAL)
    return np.where(finite, unit * moved + common, 0)


def merge_error(parts: int, arithmetic: Arithmetic, dtype: str = "") -> tuple[float, float]:
    """Return the relative and the absolute error of a sum of parts, each rounded to the dtype of the sum."""
    if parts == 1:
        return 0.0, 0.0
    storage, work = FORMATS[dtype] if dtype else arithmetic.storage, arithmetic.work
    casts = arithmetic.casts or storage.unit > arithmetic.storage.unit
    relative = (parts + NORMALISING) * 2 * work.unit + casts * storage.unit
    return relative, parts * (work.normal + storage.subnormal / 2)


def _largest(s: Budget, error: Budget, allowed: NDArray[np.bool_], arithmetic: Arithmetic) -> Budget:
    """Return the budget of the largest score, which is at most the largest upper end."""
    top = np.where(allowed, s, -np.inf).max(axis=-1, keepdims=True, initial=-np.inf)
    some = top[..., 0] > -np.inf
    top = np.where(top > -np.inf, top, 0)
    above = np.where(allowed & (s > -np.inf), error - (top - s), 0).max(axis=-1, initial=0.0)
    off = above + CONVERTING * arithmetic.work.unit * np.abs(top[..., 0])
    return np.where(some, add_rounding(top[..., 0], off, arithmetic.lse), 0)


def has_capped_infinity(arguments: Mapping[str, Any]) -> bool:
    """Whether a bias of minus infinity is added and then capped, so that its key has a weight."""
    return bool(arguments.get("capped_infinity")) and arguments.get("softcap") is not None


def budgeted_keys(shape: tuple[int, ...], arguments: Mapping[str, Any]) -> NDArray[np.bool_]:
    """Return the keys that are allowed in the variants of a call."""
    infinite = has_capped_infinity(arguments)
    masking = {
        name: arguments[name] for name in MASKING if name in arguments and not (infinite and name == "bias")
    }
    return allowed_keys(shape, **masking) if masking else np.ones(shape, bool)


def means(allowed: NDArray[np.bool_], sinks: Budget | None) -> NDArray[np.bool_]:
    """Find the rows that are means in the variant `uniform`: no key is allowed, and no sink has a weight."""
    empty = ~np.asarray(allowed.any(axis=-1, keepdims=True))  # (*B, Hq, L, 1)
    result: NDArray[np.bool_] = empty if sinks is None else empty & (_column(sinks, empty) == -np.inf)
    return result


def _below_the_top(s: Budget, allowed: NDArray[np.bool_]) -> tuple[Budget, Budget]:
    """Return the largest score of each row, and how far each allowed score is below it."""
    top = np.where(allowed, s, -np.inf).max(axis=-1, keepdims=True, initial=-np.inf)
    with np.errstate(invalid="ignore"):  # rows without an allowed key
        return top, np.where(allowed, top - s, 0)


def _denominator_error(
    p: Budget, distance: Budget, exponent: Budget, allowed: NDArray[np.bool_]
) -> tuple[Budget, Budget, Budget]:
    """Return how much the logarithm of the denominator, the weights, and what divides them may be off.

    All of them come from logarithms, because an exponential of the error may overflow where the weight is 0.
    """
    heaviest = p.max(axis=-1, keepdims=True, initial=0.0)
    logs = np.where(allowed, np.log(np.where(heaviest > 0, heaviest, 1)) - distance, -np.inf)
    most = exponent.max(axis=-1, keepdims=True, initial=0.0)
    with np.errstate(over="ignore"):  # a score near the lowest number, lowered by its error, has no weight
        left = _log_sum(logs - exponent)
    part = -np.expm1(-exponent)
    loss = (p * part).sum(axis=-1, keepdims=True)
    grown = np.log1p((p * np.expm1(np.minimum(exponent, 1))).sum(axis=-1, keepdims=True))
    if (most > 1).any():
        grown = np.where(most > 1, _log_sum(logs + exponent), grown)
    raised = np.exp(np.minimum(logs + exponent - left, _MOST)) * part
    return grown, raised, loss * np.exp(np.minimum(-left, _MOST))


def _log_sum(logs: Budget) -> Budget:
    """Return the logarithm of the sum of exponentials of a row, 0 for a row without an allowed key."""
    top = logs.max(axis=-1, keepdims=True, initial=-np.inf)
    top = np.where(top > -np.inf, top, 0)
    total = np.exp(logs - top).sum(axis=-1, keepdims=True)
    return top + np.log(np.where(total > 0, total, 1))


def repeat_heads(array: Budget, shape: tuple[int, ...]) -> Budget:
    """Repeat key heads in place until there is one for each query head (HEAD-1)."""
    if array.ndim == 2 or array.shape[-3] == 0:
        return array
    return np.repeat(array, shape[-3] // array.shape[-3], axis=-3)


def _cast_errors(arithmetic: Arithmetic) -> tuple[float, float, float]:
    """Return the relative and the absolute error of a cast weight, and the error of its exponential."""
    if arithmetic.profile.weights:  # `short_weights` has these
        return 0.0, 0.0, APPROXIMATE
    if arithmetic.casts:
        return arithmetic.storage.unit, arithmetic.least, APPROXIMATE
    return arithmetic.profile.inputs, 0.0, 0.0


def _error_near_one(arithmetic: Arithmetic) -> float:
    """Return the error of an exponential near 1 that is cast, where the sum uses it uncast."""
    return arithmetic.profile.weights or arithmetic.storage.unit * arithmetic.casts


def _cast_error(
    profile: Profile, relative: float, whole: Budget, kept: Budget, value: Budget, output: Budget
) -> Budget | float:
    """Return the larger of two errors, because the sum may use the cast or the uncast weights."""
    if profile.weights:
        return short_weights(profile, whole, kept, value, output)
    if not relative:
        return 0.0
    p = whole[..., : kept.shape[-1]]
    result: Budget = relative * np.maximum((kept * p) @ np.abs(value), spread_of(p, kept, value, output))
    return result


def _column(sinks: Budget, rows: NDArray[Any]) -> Budget:
    """Give the sinks the axes of rows, ``(Hq, 1, 1)`` or ``(1, 1)``."""
    column: Budget = sinks[:, None, None] if rows.ndim > 2 else sinks[:, None]
    return column


def _with_sink(
    s: Budget, error: Budget, allowed: NDArray[np.bool_], sinks: Budget | None
) -> tuple[Budget, Budget, NDArray[np.bool_]]:
    """Append the sink as one more key, whose logit has no error."""
    if sinks is None:
        return s, error, allowed
    sink = np.broadcast_to(_column(sinks, s), (*s.shape[:-1], 1))
    there = sink > -np.inf
    return (
        np.concatenate([s, np.where(there, sink, 0)], axis=-1),
        np.concatenate([error, np.zeros(sink.shape)], axis=-1),
        np.concatenate([allowed, there], axis=-1),
    )


def _lse_budget(lse: Budget, count: NDArray[Any], relative: Budget, work: Format, of_lse: Format) -> Budget:
    """Return the budget of the logarithm of a sum of some terms, from the relative error of the sum."""
    finite = np.isfinite(lse)
    size = np.where(finite, np.abs(lse), 0)
    logarithm = EXPONENTIAL * np.log(np.maximum(count, 1))
    error = relative + LOGARITHM * work.unit * size + work.unit * logarithm
    return np.where(finite, add_rounding(np.where(finite, lse, 0), error, of_lse), 0)


def _farthest(
    allowed: NDArray[np.bool_], kept: Budget, value: Budget, output: Budget, sinks: Budget | None
) -> Budget:
    """Return the largest distance of a value from the output: however wrong the weights, it is a mean."""
    most = np.zeros_like(output) if sinks is None else np.abs(output)
    for columns, distance in distances(kept, value, output):
        farthest = np.where(allowed[..., None, :, :], distance, 0).max(axis=-1, initial=0.0)
        most[..., columns] = np.maximum(most[..., columns], np.swapaxes(farthest, -1, -2))
    return most
