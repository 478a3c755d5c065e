"""Error budgets of calls by formula: of the results, and of the gradients."""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from attnspec.conformance.sizes.codebook.exponentials import Numbers
from attnspec.conformance.sizes.codebook.words import ByWord, Whole
from attnspec.reference.budget.arithmetic import (
    LARGEST,
    MOST,
    NORMALISED,
    RAISED,
    Arithmetic,
    Budget,
    add_rounding,
)
from attnspec.reference.budget.attention import (
    APPROXIMATE,
    DROPPING,
    EXPONENTIAL,
    LOGARITHM,
    NORMALISING,
    SCALING,
    SHIFTING,
)
from attnspec.reference.budget.gradients import CONVERTING, DIFFERENCE, DIVIDING

#: The sums of sizes are computed in float32.
_SLACK = 2.0**-16


@dataclass(frozen=True)
class Terms:
    """The terms of the denominators of some rows: one for each word, or one for each key."""

    scores: Numbers  # (m, K)
    errors: Numbers  # (m, K): those of the scores
    counts: Numbers  # (m, K): how many allowed keys each term has
    weights: Numbers  # (m, K): the weight of each of these keys


@dataclass(frozen=True)
class Moments:
    """Weighted means of the values of some rows."""

    size: Numbers  # (m, Dv): the means of the absolute values
    square: Numbers  # (m, Dv): those of the squares
    total: Numbers  # (m, 1): at least the sum of the absolute values, without weights


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
    of_lse = np.where(finite, add_rounding(np.where(finite, lse, 0), error, arithmetic.lse), 0.0)

    largest = exponential.max(axis=-1, keepdims=True, initial=0)
    size = (1 + _SLACK) * moments.size
    deviation = (1 + _SLACK) * moments.square
    deviation -= output * output
    np.sqrt(np.maximum(deviation, 0, out=deviation), out=deviation)
    # The cast of an exponential that the rounding of the maximum moves off 1, where there is one key.
    shifted = np.minimum(profile.weights or storage.unit * arithmetic.casts, unit * np.abs(top)) * (keys == 1)
    of_products = (profile.summing_products(keys, unit) + NORMALISING * unit) * (keys > 0)
    factor = sums + of_products + merging + alone + shifted + profile.product - profile.inputs
    factor = factor + DROPPING * unit * dropped
    error = largest * deviation
    error += factor * size
    inexact = several | dropped
    if profile.weights:  # as in `attnspec.reference.budget.arithmetic`
        most = np.where(there, terms.weights, 0).max(axis=-1, keepdims=True, initial=0)
        least = inexact * profile.least * (most / RAISED + 1 / NORMALISED)
        rounding = inexact * profile.weights * np.maximum(size, deviation)
        whole = moments.total + keys * np.abs(output)
        error += (rounding + least * whole) / (1 - np.minimum(keys * least, MOST))
    elif cast := storage.unit if arithmetic.casts else profile.inputs:
        error += inexact * cast * np.maximum(size, deviation)
    flushed = work.normal + (arithmetic.least if arithmetic.casts else 0)
    error += several * (flushed * moments.total + keys * work.normal * (moments.size > 0))
    return add_rounding(output, error, storage), of_lse


@dataclass(frozen=True)
class Slopes:
    """The factors between a score and a dot product, for each word of queries and of keys, ``(Q, C)``."""

    slope: Numbers  # that of the softcap; 1 without one
    of_errors: Numbers  # what multiplies the error of a number before the slope, in the error after it
    of_sizes: Numbers  # and its size
    scale: float

    def at(self, words: NDArray[np.uint8], *, keys: bool = False) -> "Slopes":
        """Return the factors of some words of queries, or of some words of keys, ``(m, C)`` or ``(m, Q)``."""
        slope, of_errors, of_sizes = (
            part.T[words] if keys else part[words] for part in (self.slope, self.of_errors, self.of_sizes)
        )
        return Slopes(slope, of_errors, of_sizes, self.scale)


@dataclass(frozen=True)
class Rows:
    """What the errors of some rows depend on, one number for each row, or for each row and word of keys."""

    weights: Numbers  # (m, C): the weight of a key of each word
    exponentials: Numbers  # (m, C): its relative error
    shares: Numbers  # (m,): 1 divided by the denominator
    delta: Numbers  # (m,): the mean of `r`, less the cotangent of the lse
    difference: Numbers  # (m,): the part of the error of ``r - delta + h`` that is that of the row
    active: Numbers  # (m,): whether a cotangent is not 0

    def put(self, rows: Whole, found: "Rows") -> None:
        """Store some rows."""
        for field in fields(self):
            getattr(self, field.name)[rows] = getattr(found, field.name)


def no_rows(count: int, words: int) -> Rows:
    """Make the arrays of some rows."""
    return Rows(*(np.zeros((count, words)) for _ in range(2)), *(np.zeros(count) for _ in range(4)))


def exponentials_of(
    scores: Numbers, errors: Numbers, lse: Numbers, lse_error: Budget, arithmetic: Arithmetic
) -> Numbers:
    """Return the relative errors of weights that are computed again from an lse."""
    unit, finite = arithmetic.work.unit, np.where(np.isfinite(lse), lse, 0)[:, None]
    of_row = lse_error[:, None] + unit * (CONVERTING * np.abs(finite) + EXPONENTIAL)
    of_row = of_row + (APPROXIMATE if arithmetic.casts else 0.0)
    exponent = errors + unit * SHIFTING * np.abs(scores - finite) + of_row
    found: Numbers = np.expm1(np.minimum(exponent, LARGEST))
    return found


def difference_of(
    sums: ByWord,
    rows: Rows,
    g: Numbers,
    h: Numbers,
    output: Numbers,
    output_error: Budget,
    own: Numbers,
    arithmetic: Arithmetic,
) -> Numbers:
    """Return the part of the error of ``r - delta + h`` that is that of a row, ``(m,)``."""
    work, profile, depth = arithmetic.work, arithmetic.profile, g.shape[-1]
    n = sums.counts.sum(axis=-1)
    r, r_error = _r_and_error(sums, np.abs(rows.delta), depth, own, arithmetic)
    p, e = rows.weights, rows.exponentials
    error = p * e + work.normal * (sums.counts > 0)
    moved = (error * r + (p + error) * r_error).sum(axis=-1)
    by_keys = moved + profile.summing(n, work.unit) * ((p + error) * (r + r_error)).sum(axis=-1)
    output_error = np.minimum(output_error, np.exp(LARGEST))
    size = np.abs(g) * (np.abs(output) + output_error)
    relative = profile.summing(depth, work.unit) + DIVIDING * work.unit
    by_output = (np.abs(g) * output_error + relative * size).sum(axis=-1)
    some = np.abs(g).sum(axis=-1) > 0
    delta = np.maximum(by_keys, by_output) + some * np.maximum(n, depth) * work.normal
    sizes = np.abs(rows.delta + h) + np.abs(h)  # those of the mean and of the cotangent of the lse
    found: Numbers = delta + (DIFFERENCE * work.unit + own) * (sizes + delta)
    return found


def query_error(
    sums: ByWord, rows: Rows, slopes: Slopes, depth: int, own: Numbers, arithmetic: Arithmetic
) -> Numbers:
    """Return the errors of the factors of codes in the gradients of some queries, ``(m, C)``."""
    work, n = arithmetic.work, sums.counts
    p, error = rows.weights, rows.weights * rows.exponentials + work.normal * (n > 0)
    (w,) = sums.absolute
    r, r_error = _r_and_error(sums, np.abs(rows.delta), depth, own, arithmetic)
    w_error = r_error + DIFFERENCE * work.unit * (r + r_error) + n * rows.difference[:, None]
    found = error * w + (p + error) * w_error
    found = found + work.unit * (p * w + found) + n * work.normal
    counts = n * rows.active[:, None]
    across = arithmetic.profile.summing(n.sum(axis=-1, keepdims=True), work.unit)
    return _product_error(p * w, found, counts, across, slopes, arithmetic)


def _product_error(
    t: Numbers, error: Numbers, counts: Numbers, sums: Numbers, slopes: Slopes, arithmetic: Arithmetic
) -> Numbers:
    """Return the errors of sums of gradients of dot products, from those of gradients of scores."""
    work, storage = arithmetic.work, arithmetic.storage
    scale = abs(slopes.scale)
    size = scale * slopes.slope * t
    error = scale * (slopes.of_errors * error + slopes.of_sizes * t + work.normal * counts)
    if arithmetic.casts:
        error = error + storage.unit * (size + error)
        error = error + max(scale, 1.0) * arithmetic.least * counts * (size + error > 0)
    relative = sums + SCALING * work.unit + arithmetic.profile.product
    found: Numbers = (error + relative * (size + error)) * (counts > 0)
    return found


def _r_and_error(
    sums: ByWord, delta: Numbers, depth: int, own: Numbers, arithmetic: Arithmetic
) -> tuple[Numbers, Numbers]:
    """Return the sums of the sizes of `r` over the keys of each word, and of its errors, ``(m, C)``."""
    work, n = arithmetic.work, sums.counts
    r = np.minimum(sums.absolute[0] + delta[:, None] * n, sums.dotted)
    error = (relative_of_r(depth, arithmetic) + own[:, None]) * sums.dotted + (depth + 1) * work.normal * n
    if arithmetic.casts:
        error = error + arithmetic.storage.unit * (r + error) + arithmetic.least * n
    return r, error


def relative_of_r(depth: int, arithmetic: Arithmetic) -> float:
    """Return the error of a dot product of values and cotangents, relative to the size of its terms."""
    profile, unit = arithmetic.profile, arithmetic.work.unit
    return float(profile.summing(depth, unit) + profile.product + DIVIDING * unit)


@dataclass(frozen=True)
class Columns:
    """What the errors of keys sum over rows, ``(L, ...)``."""

    #: (L, 2): what multiplies `|r - delta + h|`: in the gradient of a score, and in its error.
    weights: Numbers
    #: (L, Dv): what multiplies the sizes of the values in the error of the gradient of a score.
    dotted: Numbers
    constant: Numbers  # (L,): the rest of this error
    of_value: Numbers  # (L, 2 Dv): the size of the gradient of a value, and its error


def columns_of(
    rows: Rows, g: Numbers, there: NDArray[np.bool_], own: float, arithmetic: Arithmetic
) -> Columns:
    """Return what the errors of keys sum over rows."""
    work, storage, depth, unit = arithmetic.work, arithmetic.storage, g.shape[-1], arithmetic.work.unit
    cast = storage.unit if arithmetic.casts else 0.0
    e = np.where(there, rows.exponentials, 0).max(axis=-1)
    f, share = 1 + e, rows.shares * rows.active
    twice = 1 + DIFFERENCE * unit
    of_w = e * (1 + unit) + unit + f * (1 + unit) * twice * cast
    of_size = (
        f * (1 + unit) * (twice * (relative_of_r(depth, arithmetic) + own) * (1 + cast) + DIFFERENCE * unit)
    )
    floor = (depth + 1) * work.normal * (1 + cast) + cast * np.abs(rows.delta)
    floor = floor + (arithmetic.least if arithmetic.casts else 0.0) + own * np.abs(rows.delta)
    constant = f * (1 + unit) * (rows.difference + twice * floor)
    g = np.abs(g) * rows.shares[:, None]
    of_value = np.concatenate([g, (e + f * cast)[:, None] * g], axis=-1)
    return Columns(
        np.stack([share, share * of_w], axis=-1),
        of_size[:, None] * g * rows.active[:, None],
        share * constant,
        of_value,
    )


def key_error(
    sums: ByWord, exponentials: Numbers, most: float, slopes: Slopes, down: Numbers, arithmetic: Arithmetic
) -> Numbers:
    """Return the errors of the factors of codes in the gradients of some keys, ``(m, Q)``."""
    size, error = exponentials * sums.absolute
    error = error + exponentials * sums.dotted
    counts = sums.counts * (sums.dotted > 0)  # no row whose cotangents are all 0 has an error
    error = error + arithmetic.work.normal * (2 * most + 1) * counts
    return _product_error(size, error, counts, down[:, None], slopes, arithmetic)


def value_error(
    size: Numbers, error: Numbers, n: Numbers, down: Numbers, most: float, arithmetic: Arithmetic
) -> Numbers:
    """Return the errors of the gradients of some values, ``(m, Dv)``."""
    work = arithmetic.work
    floor = work.normal + (arithmetic.least if arithmetic.casts else 0.0)
    error = error + most * floor * n[:, None]
    relative = down[:, None] + arithmetic.profile.product
    error = error + relative * (size + error) + (n[:, None] + SCALING) * work.normal
    found: Numbers = np.where(size > 0, error, 0)
    return found


def matrix_error(factors: Numbers, codes: Numbers, n: Numbers, arithmetic: Arithmetic) -> Numbers:
    """Multiply errors by the sizes of codes, ``(m, D)``."""
    error = factors @ np.abs(codes)
    found: Numbers = error + (n[:, None] + SCALING) * arithmetic.work.normal * (error > 0)
    return found


def sink_error(
    share: Numbers,
    sink: float,
    lse: Numbers,
    lse_error: Budget,
    rows: Rows,
    own: float,
    arithmetic: Arithmetic,
) -> tuple[float, float, float]:
    """Return the error of the gradient of a sink before its sum, the size of the terms, and their number."""
    unit, normal, z = arithmetic.work.unit, arithmetic.work.normal, np.abs(rows.delta)
    scores = np.full((len(share), 1), sink)
    exponential = exponentials_of(scores, np.zeros(scores.shape), lse, lse_error, arithmetic)[:, 0]
    moved = share * exponential + normal
    error = moved * z + (share + moved) * rows.difference
    error = error + (unit + own) * (share * z + error) + normal
    where = rows.active > 0
    return float(error[where].sum()), float((share * z)[where].sum()), float(where.sum())
