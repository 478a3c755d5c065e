"""The budgets of rows, from sums over words: those of the chapter `numerics`, bounded from above.

The budget of an output sums ``p e |v - o|`` over the keys, with the relative error `e` of each
exponential. Here the largest `e` of a row stands before the sum, and the standard deviation of the
values bounds the rest. All other terms are the same.
"""

from dataclasses import dataclass

import numpy as np

from attnspec.reference.budget.arithmetic import NORMALISED, RAISED, Arithmetic
from attnspec.reference.budget.attention import (
    APPROXIMATE,
    DROPPING,
    EXPONENTIAL,
    LOGARITHM,
    MOST,
    NORMALISING,
    SHIFTING,
)
from attnspec.reference.budget.formats import Budget, rounded
from attnspec.reference.codebook.exponentials import Numbers

#: The sums of sizes are computed in float32.
_SLACK = 2.0**-16


@dataclass(frozen=True)
class Terms:
    """The terms of the denominators of some rows: one for each word, or one for each key.

    Attributes
    ----------
    scores, errors : (m, K)
        The scores, and the errors of the scores.
    counts : (m, K)
        How many allowed keys each term has.
    weights : (m, K)
        The weight of each of these keys.
    """

    scores: Numbers
    errors: Numbers
    counts: Numbers
    weights: Numbers


@dataclass(frozen=True)
class Moments:
    """Weighted means of the values of some rows.

    Attributes
    ----------
    size, square : (m, Dv)
        The means of the absolute values and of the squares.
    total : (m, 1)
        At least the sum of the absolute values, without weights.
    """

    size: Numbers
    square: Numbers
    total: Numbers


def budgets_of_rows(
    terms: Terms, moments: Moments, output: Numbers, lse: Numbers, arithmetic: Arithmetic, *, dropped: bool
) -> tuple[Budget, Budget]:
    """Return bounds of the budgets of the outputs ``(m, Dv)`` and of the lse ``(m,)``."""
    work, storage, profile = arithmetic.work, arithmetic.storage, arithmetic.profile
    unit, there = work.unit, terms.counts > 0
    keys = terms.counts.sum(axis=-1, keepdims=True)
    several = keys > 1
    top = np.where(there, terms.scores, -np.inf).max(axis=-1, keepdims=True, initial=-np.inf)
    top = np.where(keys > 0, top, 0)
    approximate = APPROXIMATE if arithmetic.casts or profile.weights else 0.0
    exponent = terms.errors + unit * (SHIFTING * (top - terms.scores) + EXPONENTIAL) + approximate
    exponential = np.where(there & several, np.expm1(np.minimum(exponent, 700)), 0)
    shares = terms.counts * terms.weights
    alone = approximate * (keys == 1)
    sums = (profile.summing(keys, unit) + NORMALISING * unit) * (keys > 0)
    logarithm = np.log(np.maximum(keys, 1))
    merging = 2 * unit * (np.abs(top) + (1 + EXPONENTIAL) * logarithm) * several

    mean = (shares * exponential).sum(axis=-1, keepdims=True)
    of_one = (shares * terms.errors).sum(axis=-1, keepdims=True) + alone
    relative = np.where(several, mean + sums + merging, of_one)[:, 0]
    finite = np.isfinite(lse)
    of_log = LOGARITHM * np.where(finite, np.abs(lse), 0)
    error = relative + unit * (of_log + EXPONENTIAL * logarithm[:, 0])
    of_lse = np.where(finite, rounded(np.where(finite, lse, 0), error, arithmetic.lse), 0.0)

    largest = exponential.max(axis=-1, keepdims=True, initial=0)
    size = (1 + _SLACK) * moments.size
    deviation = (1 + _SLACK) * moments.square
    deviation -= output * output
    np.sqrt(np.maximum(deviation, 0, out=deviation), out=deviation)
    factor = 2 * sums + merging + alone + profile.product - profile.inputs
    factor = factor + DROPPING * unit * dropped
    error = largest * deviation
    error += factor * size
    inexact = several | dropped
    if profile.weights:  # as in `attnspec.reference.budget.forms`
        most = np.where(there, terms.weights, 0).max(axis=-1, keepdims=True, initial=0)
        least = inexact * profile.least * (most / RAISED + 1 / NORMALISED)
        rounding = inexact * profile.weights * np.maximum(size, deviation)
        whole = moments.total + keys * np.abs(output)
        error += (rounding + least * whole) / (1 - np.minimum(keys * least, MOST))
    elif cast := storage.unit if arithmetic.casts else profile.inputs:
        error += inexact * cast * np.maximum(size, deviation)
    flushed = work.normal + (storage.subnormal / 2 if arithmetic.casts else 0)
    error += several * (flushed * moments.total + keys * work.normal * (moments.size > 0))
    return rounded(output, error, storage), of_lse
