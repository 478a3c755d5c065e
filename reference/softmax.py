"""Weights, output and log-sum-exp: the chapter `softmax`."""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnspec.reference.call import Array, Call, Mask, step
from attnspec.reference.errors import need, real
from attnspec.reference.functions import evaluate
from attnspec.reference.heads import repeat_heads
from attnspec.reference.masking import allowed_pairs
from attnspec.reference.notation import Attention, enter, largest
from attnspec.reference.scores import score

Real = NDArray[np.floating[Any]]


def softmax(scores: ArrayLike, allowed: ArrayLike, sinks: ArrayLike | None = None) -> Real:
    """Return the weights of each row over its allowed keys.

    Parameters
    ----------
    scores : (*B, Hq, L, S)
    allowed : (*B, Hq, L, S)
    sinks : (Hq,), optional
        One more logit for each head, in the denominator only.

    Returns
    -------
    (*B, Hq, L, S)
        Without sinks each row sums to 1. A row with no allowed key is 0 (MASK-6).

    Notes
    -----
    Rules SOFT-1, SOFT-2 and SOFT-5.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.reference import softmax
    >>> softmax(np.array([[5000.0, 5000.0, 9.0]]), np.array([[True, True, False]])).tolist()
    [[0.5, 0.5, 0.0]]
    """
    s = np.asarray(scores)
    arguments = {"s": s, "allowed": np.asarray(allowed), "sinks": sinks, "dtype": s.dtype}

    def run(call: Call, s: Array, allowed: Mask, sinks: Array) -> Array:
        each = enter(Attention(call.steps, call.xp, call.dtype, s, s, s, sinks=sinks))
        weights, _ = softmax_of(each, s, allowed)
        return weights[0] if each.flat and sinks is not None else weights

    weights: Real = evaluate(run, arguments)
    return weights


@step
def check_sinks(call: Attention) -> Attention:
    """Check that there is one sink for each query head (ERR-11)."""
    if call.sinks is not None:
        heads = tuple(call.query.shape[-3:-2]) or (1,)
        shape = tuple(real(call, "sinks", call.sinks, "ERR-11").shape)
        need("sinks", shape == heads, f"shape {heads}", shape, "ERR-11")
    return call


@step
def softmax_of(call: Attention, s: Array, allowed: Mask) -> tuple[Array, Array]:
    """Return weights and lse of each row, over its allowed keys (SOFT-1, SOFT-6)."""
    m = top(call, s, allowed)  # (*B, Hq, L, 1)
    e = exponentials(call, s, allowed, m)  # (*B, Hq, L, S)
    d = total(call, e, m)  # (*B, Hq, L, 1)
    return normalise(call, e, d), lse(call, m, d)


@step
def top(call: Attention, s: Array, allowed: Mask) -> Array:
    """Return the largest logit of each row, or 0 if there is none: -inf minus -inf is NaN (SOFT-2)."""
    most = largest(call.xp, call.xp.where(allowed, s, -math.inf), axis=-1)
    if call.sinks is not None:
        most = call.xp.maximum(most, call.sink)
    shift = call.xp.where(most == -math.inf, 0.0, most)
    # It changes nothing (SOFT-2), so no derivative flows through it. That of a maximum divides by the number
    # of elements equal to it, which is 0 when a compiler computes the scores again with other roundings.
    return shift if call.steps.constant is None else call.steps.constant(shift)


@step
def maxima(call: Attention) -> Array:
    """Return the largest score of each row over its allowed keys, without the sink (SOFT-8, SOFT-9)."""
    shown = call.xp.where(allowed_pairs(call), score(call), -math.inf)
    return call.xp.astype(largest(call.xp, shown, axis=-1)[..., 0], call.query.dtype, copy=False)


@step
def exponentials(call: Attention, s: Array, allowed: Mask, top: Array) -> Array:
    """Return the shifted exponentials, and 0 for disallowed keys whatever their score (MASK-5, MASK-12)."""
    # The selection comes before the exponential: the derivative of one that overflows is NaN (GRAD-9).
    return call.xp.exp(call.xp.where(allowed, s - top, -math.inf))


@step
def total(call: Attention, e: Array, top: Array) -> Array:
    """Return the denominator of each row, its sink included (SOFT-5)."""
    keys = call.xp.sum(e, axis=-1, keepdims=True)
    return keys if call.sinks is None else keys + call.xp.exp(call.sink - top)


@step
def normalise(call: Attention, e: Array, total: Array) -> Array:
    """Return the weights. A row with nothing to attend to is 0 (MASK-6)."""
    return e / call.xp.where(total == 0, 1.0, total)


@step
def lse(call: Attention, top: Array, total: Array) -> Array:
    """Return the logarithm of the denominator; of 0 it is minus infinity (SOFT-6, SOFT-7, NUM-7)."""
    some = total != 0  # the derivative of the logarithm of 0 is infinite, and 0 times it is NaN (GRAD-10)
    result = call.xp.where(some, top + call.xp.log(call.xp.where(some, total, 1.0)), -math.inf)
    # Infinity minus itself is NaN, so with a score of infinity `total` is NaN. The lse is infinity (NUM-11).
    result = call.xp.where(top == math.inf, top, result)
    return call.xp.astype(result[..., 0], call.query.dtype, copy=False)


@step
def weighted_sum(call: Attention, p: Array, allowed: Mask) -> Array:
    """Return the weighted sum of the values, without those of disallowed keys (SOFT-3, MASK-13)."""
    xp, value = call.xp, call.xp.astype(repeat_heads(call, call.value), p.dtype, copy=False)
    finite = xp.isfinite(value)
    if call.steps.compiler is None and bool(xp.all(finite)):  # compiled code reads no values
        return p @ value
    # 0 * NaN is NaN, so a weight of 0 does not exclude a value. NaN and infinity are removed first and then
    # put back into the rows that may attend to them (NUM-12, NUM-13).
    output = p @ xp.where(finite, value, 0.0)
    pairs = xp.astype(allowed, p.dtype)
    for number, places in (
        (math.nan, xp.isnan(value)),
        (math.inf, value == math.inf),
        (-math.inf, value == -math.inf),
    ):
        met = pairs @ xp.astype(places, p.dtype) > 0
        output = xp.where(met, output + number, output)  # infinities of both signs add to NaN
    return output
