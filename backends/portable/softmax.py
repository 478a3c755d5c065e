"""Scores to weights to output, in Array API calls alone: the chapters `softmax` and `dropout`."""

import math
from typing import Any

from array_api_compat import device

from attnspec.backends.portable.errors import boolean, check, check_array, check_floating, number, working
from attnspec.backends.portable.notation import Shape, share
from attnspec.backends.portable.parts import part


def softmax(xp: Any, s: Any, allowed: Any, sinks: Any) -> tuple[Any, Any]:
    """Weights and lse of each row over its allowed keys (SOFT-1, SOFT-2, SOFT-5 to SOFT-7).

    Parameters
    ----------
    s : (*B, Hq, L, S) or (L, S)
        Scores.
    allowed : array of bool of the same shape
    sinks : (Hq,) or (1,), optional

    Returns
    -------
    array (*B, Hq, L, S) or (L, S)
        Weights; NaN all along a row with a score that is not a number (NUM-11).
    array (*B, Hq, L) or (L,)
        The lse.
    """
    normalised: tuple[Any, Any] = _normalise(xp, s, allowed, _sink(xp, s, sinks))
    return normalised


@part
def _normalise(xp: Any, s: Any, allowed: Any, sink: Any) -> tuple[Any, Any]:
    # Said of each row outright: libraries differ on the maximum of NaN and another number.
    spoilt = xp.any(allowed & ~(s < math.inf), axis=-1, keepdims=True) | ~(sink < math.inf)
    kept = xp.where(allowed & (s < math.inf), s, -math.inf)
    top = xp.maximum(largest(xp, kept, -1), sink)
    top = xp.where(top > -math.inf, top, 0.0)  # -inf - -inf would be NaN
    exponentials = xp.exp(kept - top)
    total = xp.sum(exponentials, axis=-1, keepdims=True) + xp.exp(sink - top)
    # Nothing allowed gives 0; scores of minus infinity alone, allowed all the same, give 0 / 0.
    nothing = xp.where(xp.any(allowed, axis=-1, keepdims=True), math.nan, xp.ones_like(total))
    weights = exponentials / xp.where(total > 0, total, nothing)
    lse = xp.where(total > 0, top + xp.log(xp.where(total > 0, total, 1.0)), -math.inf)
    return xp.where(spoilt, math.nan, weights), xp.where(spoilt, math.nan, lse)[..., 0]


def largest(xp: Any, array: Any, axis: int) -> Any:
    """Maximum along an axis, which is kept; that of nothing is minus infinity.

    The Array API leaves the maximum of nothing open, and Dask refuses every array without elements.
    """
    if 0 not in array.shape:
        return xp.max(array, axis=axis, keepdims=True)
    shape = list(array.shape)
    shape[axis] = 1
    return xp.full(tuple(shape), -math.inf, dtype=array.dtype, device=device(array))


def _sink(xp: Any, s: Any, sinks: Any) -> Any:
    """Give the sinks as ``(Hq, 1, 1)``; a sink of minus infinity is none."""
    if sinks is None:
        return xp.full((1, 1), -math.inf, dtype=s.dtype, device=device(s))
    heads = s.shape[-3] if s.ndim > 2 else 1
    check_array(xp, "sinks", sinks, "ERR-11")
    check_floating("ERR-2", sinks=sinks)
    check("sinks", tuple(sinks.shape) == (heads,), f"shape ({heads},)", tuple(sinks.shape), "ERR-11")
    sinks = working(sinks)
    return sinks[:, None, None] if s.ndim > 2 else sinks[:, None]


def drop(xp: Any, weights: Any, full: Shape, dropout_mask: Any, dropout_rate: Any) -> Any:
    """Weights after dropout (DROP-1, DROP-2, DROP-4)."""
    expected = "a number from 0 to below 1"
    rate = number("dropout_rate", dropout_rate, expected, "DROP-4")
    check("dropout_rate", 0 <= rate < 1, expected, rate, "DROP-4")
    if dropout_mask is None:
        check("dropout_rate", rate == 0, "0 where no dropout_mask is given", rate, "DROP-4")
        return weights
    kept = boolean(xp, "dropout_mask", dropout_mask, full, "DROP-1")
    # Multiplied, not selected: a row that is NaN stays NaN (NUM-11).
    return weights / (1 - rate) * xp.astype(kept, weights.dtype)


def weighted_sum(xp: Any, weights: Any, value: Any, allowed: Any) -> Any:
    """Sum the values by their weights (SOFT-3), NaN and infinity where they are attended to alone.

    Parameters
    ----------
    weights, allowed : (*B, Hq, L, S) or (L, S)
    value : (*B, Hkv, S, Dv) or (S, Dv)

    Returns
    -------
    array (*B, Hq, L, Dv) or (L, Dv)
    """
    if bool(_is_finite(xp, value)):
        return _sum(xp, weights, value)
    return _sum_with_infinities(xp, weights, value, allowed)


@part
def _is_finite(xp: Any, value: Any) -> Any:
    return xp.all(xp.isfinite(value))


@part
def _sum(xp: Any, weights: Any, value: Any) -> Any:
    return share(xp, weights, working(value))


@part
def _sum_with_infinities(xp: Any, weights: Any, value: Any, allowed: Any) -> Any:
    # A weight of 0 does not keep NaN and infinity out (MASK-13): they are taken out, and put back into the
    # rows that may attend to them (NUM-12, NUM-13).
    value = working(value)
    finite = xp.isfinite(value)
    output = share(xp, weights, xp.where(finite, value, 0.0))
    kinds = xp.concat(
        [xp.isnan(value), value == math.inf, value == -math.inf], axis=-1
    )  # (*B, Hkv, S, 3 * Dv)
    seen = share(xp, xp.astype(allowed, value.dtype), xp.astype(kinds, value.dtype)) > 0
    depth = value.shape[-1]
    nan, plus, minus = seen[..., :depth], seen[..., depth : 2 * depth], seen[..., 2 * depth :]
    nan = nan | (plus & minus) | xp.isnan(output)
    output = xp.where(minus, -math.inf, xp.where(plus, math.inf, output))
    return xp.where(nan, math.nan, output)
