"""Error budgets of scores and of attention: the formulas of the chapter `numerics`."""

from collections.abc import Mapping
from math import e, log2
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.dtypes import FORMATS, Format
from attnspec.operations import OPERATIONS
from attnspec.reference.budget.arithmetic import (
    Arithmetic,
    Budget,
    Profile,
    distances,
    rounded,
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

#: Relative errors of exponentials above this may move an output further than its farthest value.
_COARSE = 0.5
#: Larger relative errors of a weight are the same: a weight is at most 1.
_MOST = 1e300

#: The arguments of attention that mask.
MASKING = OPERATIONS["attention"].names("masks")


def scores_and_errors(
    query: Budget,
    key: Budget,
    arguments: Mapping[str, Any],
    arithmetic: Arithmetic,
    inherited: tuple[Budget, Budget] | None = None,
) -> tuple[Budget, Budget]:
    """Return the scores and their errors, including those inherited from query and key."""
    depth, work, profile = query.shape[-1], arithmetic.work, arithmetic.profile
    scale = arguments.get("scale")
    factor = 1 / np.sqrt(depth) if scale is None else float(scale)
    keys = np.swapaxes(repeat_heads(key, query.shape), -1, -2)
    value = factor * (query @ keys)
    size = abs(factor) * (np.abs(query) @ np.abs(keys))
    relative = profile.summing(depth, work.unit) + SCALING * work.unit + profile.product
    error = relative * size + (depth + SCALING) * abs(factor) * work.normal * (size > 0)
    if inherited is not None:
        query_error = inherited[0]
        key_error = np.swapaxes(repeat_heads(inherited[1], query.shape), -1, -2)
        error += abs(factor) * (query_error @ (np.abs(keys) + key_error) + np.abs(query) @ key_error)
    for part in (_biased, _capped) if arguments.get("capped_bias") else (_capped, _biased):
        value, error = part(value, error, arguments, arithmetic)
    return value, error


def _capped(
    value: Budget, error: Budget, arguments: Mapping[str, Any], arithmetic: Arithmetic
) -> tuple[Budget, Budget]:
    """Return scores after the softcap, and their errors."""
    softcap, work = arguments.get("softcap"), arithmetic.work
    if softcap is None:
        return value, error
    finite = np.isfinite(value)  # minus infinity is capped in some variants
    # The slope of tanh is steepest at the point of the error's range that is nearest to 0.
    nearest = np.maximum(np.abs(value) - error, 0) / softcap
    slope = np.cosh(np.minimum(nearest, 300)) ** -2.0
    error = np.where(finite, error + work.unit * np.abs(np.where(finite, value, 0)), 0)  # of the quotient
    value = softcap * np.tanh(value / softcap)
    rounding = (CAPPING * work.unit + of_tanh(arithmetic)) * np.abs(value) + work.normal * (error > 0)
    return value, slope * error + rounding


def of_tanh(arithmetic: Arithmetic) -> float:
    """Return the relative error of a tanh."""
    return EXPONENTIAL * arithmetic.work.unit + (APPROXIMATE_TANH if arithmetic.casts else 0.0)


def _biased(
    value: Budget, error: Budget, arguments: Mapping[str, Any], arithmetic: Arithmetic
) -> tuple[Budget, Budget]:
    """Return scores after the bias, and their errors. Minus infinity disallows, or it is a score to cap."""
    bias, work = arguments.get("bias"), arithmetic.work
    if bias is None:
        return value, error
    disallows = arguments.get("capped_bias") and not has_capped_infinity(arguments)
    value = value + (np.where(np.isfinite(bias), bias, 0) if disallows else bias)
    return value, error + np.where(np.isfinite(value), work.unit * (np.abs(value) + error), 0)


def attention_budget(
    arrays: tuple[Budget, Budget, Budget],
    arguments: Mapping[str, Any],
    arithmetic: Arithmetic,
    inherited: tuple[Budget, Budget, Budget] | None = None,
) -> dict[str, Budget]:
    """Return the budgets of output, lse and weights."""
    query, key, value = arrays
    storage, work, profile = arithmetic.storage, arithmetic.work, arithmetic.profile
    s, score_error = scores_and_errors(query, key, arguments, arithmetic, inherited and inherited[:2])
    relative, absolute, approximate = _casting(arithmetic)
    allowed = budgeted_keys(s.shape, arguments)
    if np.any(arguments["uniform_rows"]):
        filled = arguments["uniform_rows"] & means(allowed, arguments.get("sinks"))
        s, score_error = np.where(filled, 0, s), np.where(filled, 0, score_error)
        allowed = allowed | filled
    value = repeat_heads(value, s.shape)
    kept = np.broadcast_to(arguments.get("dropout_mask", True), s.shape) / (
        1 - arguments.get("dropout_rate", 0.0)
    )
    dropping = DROPPING * work.unit if "dropout_mask" in arguments else 0.0
    asked = {"max": _largest(s, score_error, allowed, arithmetic)} if arguments.get("return_max") else {}
    s, score_error, allowed = _with_sink(s, score_error, allowed, arguments.get("sinks"))
    p, logarithm = softmax(s, allowed)  # (*B, Hq, L, S), and a column for the sink
    keys = allowed.sum(axis=-1, keepdims=True)
    top, below = _below_the_top(s, allowed)
    # Relative error of each exponential. It cancels if the key is the only one in its row. What remains there
    # are the roundings of its product with the value and of the quotient.
    exponent = score_error + SHIFTING * work.unit * below + EXPONENTIAL * work.unit + approximate
    exponent = np.where(allowed & (keys > 1), exponent, 0)
    # An exponential near 1 is rounded when it is cast, but the sum may use it uncast. It differs from 1 where
    # it is approximate, or where the maximum is rounded in base 2 before it is subtracted.
    shifted = np.minimum(profile.weights or relative * arithmetic.casts, work.unit * np.abs(top))
    alone = np.where(keys == 1, approximate + shifted, 0)
    exponential = np.expm1(np.minimum(exponent, 700))
    sums = (profile.summing(keys, work.unit) + NORMALISING * work.unit) * (keys > 0)
    # Parts are merged by exp(lse_part - lse). The error of each lse is that of its rounding and logarithm.
    largest = np.where(keys > 0, np.abs(top), 0) + (1 + EXPONENTIAL) * np.log(np.maximum(keys, 1))
    merging = 2 * work.unit * largest * (keys > 1)
    floor = work.normal * (allowed & (keys > 1))  # an exponential may be flushed to zero
    mean, lost, left = _of_denominator(p, exponential)
    # The lse of a single key still has the error of its score.
    # A disallowed score may be infinite, and 0 times infinity is NaN, within which everything would lie.
    of_one = (p * np.where(p > 0, score_error, 0)).sum(axis=-1, keepdims=True) + approximate * (keys == 1)
    of_sum = np.where(keys > 1, _of_logarithm(mean, lost, left) + sums + merging, of_one)
    lse = _lse_budget(logarithm, allowed, of_sum[..., 0], work, arithmetic.lse)
    whole, (p, exponential, floor) = p, (x[..., : value.shape[-2]] for x in (p, exponential, floor))
    allowed = allowed[..., : value.shape[-2]]
    # A bound above 1 carries no information.
    moved = np.minimum(_quotient(exponential + lost, left), _MOST)
    weight_error = kept * (np.minimum(p * (moved + sums + merging + alone), 1) + floor + dropping * p)
    weights = rounded(kept * p, weight_error, storage)

    q = kept * p
    size, output = q @ np.abs(value), q @ value  # (*B, Hq, L, Dv)
    spread = spread_of(p * exponential, kept, value, output)
    if "sinks" in arguments:  # a sink has the value 0
        spread = spread + (mean - (p * exponential).sum(axis=-1, keepdims=True)) * np.abs(output)
    # A common factor of all weights cancels, so only the distance of a value from the output matters.
    spread = _quotient(spread, left)
    if exponential.max(initial=0) > _COARSE:
        spread = np.minimum(spread, _farthest(allowed, kept, value, output, arguments.get("sinks")))
    # A weight of 1 is not changed by a cast, but 1 divided by a rate of keeping is.
    cast = ((keys > 1) | (arguments.get("dropout_rate", 0.0) > 0)) * _of_cast(
        profile, relative, whole, kept, value, output
    )
    # An exponential, or its product with a value, may be flushed to zero.
    underflow = (kept * (floor + absolute * (allowed & (keys > 1)))) @ np.abs(value) + keys * (
        keys > 1
    ) * work.normal * (size > 0)
    # `cast` covers the rounding of the weights. The profile adds the rounding of the values.
    common = 2 * sums + merging + dropping + alone + profile.product - profile.inputs
    error = spread + common * size + cast + underflow
    if inherited is not None:
        error = error + (q + weight_error) @ repeat_heads(inherited[2], s.shape)
    return {"output": rounded(output, error, storage), "lse": lse, "weights": weights, **asked}


def _largest(s: Budget, error: Budget, allowed: NDArray[np.bool_], arithmetic: Arithmetic) -> Budget:
    """Return the budget of the largest score, between the largest lower end and the largest upper end."""
    top, upper, lower = (
        np.where(allowed, x, -np.inf).max(axis=-1, initial=-np.inf) for x in (s, s + error, s - error)
    )
    some = top > -np.inf
    top, upper, lower = (np.where(some, x, 0) for x in (top, upper, lower))
    off = np.maximum(upper - top, top - lower) + CONVERTING * arithmetic.work.unit * np.abs(top)
    return np.where(some, rounded(top, off, arithmetic.lse), 0)


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


def _of_denominator(p: Budget, exponential: Budget) -> tuple[Budget, Budget, Budget]:
    """Return by what share the denominator may grow, what share it may lose, and what is then left of it."""
    mean = (p * exponential).sum(axis=-1, keepdims=True)
    lost = (p * (exponential / (1 + exponential))).sum(axis=-1, keepdims=True)
    left = (p / (1 + exponential)).sum(axis=-1, keepdims=True)
    return mean, lost, np.where(left > 0, left, 1)  # a row without an allowed key has no denominator


def _of_logarithm(mean: Budget, lost: Budget, left: Budget) -> Budget:
    """Return by how much the logarithm of the denominator may be off because of its exponentials."""
    least = np.where(lost < _COARSE, -np.log1p(-np.minimum(lost, _COARSE)), -np.log(left))
    return np.maximum(np.log1p(mean), least)


def _quotient(part: Budget, left: Budget) -> Budget:
    with np.errstate(over="ignore"):
        return part / left


def repeat_heads(array: Budget, shape: tuple[int, ...]) -> Budget:
    """Repeat key heads in place until there is one for each query head (HEAD-1)."""
    if array.ndim == 2 or array.shape[-3] == 0:
        return array
    return np.repeat(array, shape[-3] // array.shape[-3], axis=-3)


def _casting(arithmetic: Arithmetic) -> tuple[float, float, float]:
    """Return the relative and the absolute error of a cast weight, and the error of its exponential."""
    if arithmetic.profile.weights:  # `short_weights` has these
        return 0.0, 0.0, APPROXIMATE
    if arithmetic.casts:
        return arithmetic.storage.unit, arithmetic.storage.subnormal / 2, APPROXIMATE
    return arithmetic.profile.inputs, 0.0, 0.0


def _of_cast(
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


def _lse_budget(
    lse: Budget, allowed: NDArray[np.bool_], relative: Budget, work: Format, of_lse: Format
) -> Budget:
    """Return the budget of the logarithm of a sum, from the relative error of the sum."""
    finite = np.isfinite(lse)
    size = np.where(finite, np.abs(lse), 0)
    logarithm = EXPONENTIAL * np.log(np.maximum(allowed.sum(axis=-1), 1))
    error = relative + LOGARITHM * work.unit * size + work.unit * logarithm
    return np.where(finite, rounded(np.where(finite, lse, 0), error, of_lse), 0)


def _farthest(
    allowed: NDArray[np.bool_], kept: Budget, value: Budget, output: Budget, sinks: Budget | None
) -> Budget:
    """Return the largest distance of a value from the output: however wrong the weights, it is a mean."""
    most = np.zeros_like(output) if sinks is None else np.abs(output)
    for columns, distance in distances(kept, value, output):
        farthest = np.where(allowed[..., None, :, :], distance, 0).max(axis=-1, initial=0.0)
        most[..., columns] = np.maximum(most[..., columns], np.swapaxes(farthest, -1, -2))
    return most


def overflowing_rows(
    arguments: Mapping[str, Any], dtype: str, *, capped_bias: bool = False
) -> NDArray[np.bool_]:
    """Find the rows of attention in which a computation in a dtype may exceed its largest number.

    Products and their partial sums may, scores before and after scale, bias and conversion to
    base 2, and sums of exponentials and of their products with the values.
    """
    storage = FORMATS[dtype]
    query, key, value = (_finite(arguments[name]) for name in ("query", "key", "value"))
    depth = query.shape[-1]
    size = np.abs(query) @ np.swapaxes(repeat_heads(np.abs(key), query.shape), -1, -2)  # (*B, Hq, L, S)
    scale, softcap, bias = (arguments.get(name) for name in ("scale", "softcap", "bias"))
    scaled = size * (1 / np.sqrt(depth) if scale is None else abs(float(scale)))
    added = np.zeros(()) if bias is None else np.abs(_finite(bias))
    before = scaled + added if capped_bias else scaled
    capped = before if softcap is None else np.minimum(before, float(softcap))
    score = capped if capped_bias else capped + added
    most = np.maximum(np.maximum(size, before), log2(e) * score) * (1 + (depth + SCALING) * storage.unit)
    given = {name: arguments[name] for name in MASKING if arguments.get(name) is not None}
    allowed = allowed_keys(size.shape, **given)
    keys = allowed.sum(axis=-1)
    sums = (allowed @ repeat_heads(np.abs(value), size.shape)).max(axis=-1, initial=0.0)
    largest = np.where(allowed, most, 0).max(axis=-1, initial=0.0)
    result: NDArray[np.bool_] = np.maximum(largest, np.maximum(keys, sums)) > storage.largest
    return result


def _finite(array: NDArray[Any]) -> NDArray[np.float64]:
    wide: NDArray[np.float64] = array.astype(np.float64)
    return np.where(np.isfinite(wide), wide, 0)
