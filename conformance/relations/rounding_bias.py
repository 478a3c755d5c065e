"""The signed mean detects biased rounding, which stays within the budget but adds up over elements."""

from collections.abc import Callable
from math import log, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.dtypes import FORMATS, Format
from attnspec.reference.budget.attention import APPROXIMATE

Array = NDArray[Any]

#: The largest probability that correct rounding is called biased on one problem.
CHANCE = 1e-9


def signed_mean(
    got: Array, expected: Array, allowed: Array, *, dtype: str, cast: tuple[Array, Array] | None = None
) -> float:
    """Compare the sum of the signed errors with the bound for unbiased rounding.

    An error has two parts. The first is due to the working precision. It is at most ``allowed`` minus the
    last rounding, and its sign is arbitrary. The second consists of roundings to `dtype`, which are
    independent, have mean 0 and are bounded: by ``u |o|`` for an output, and in ``cast`` by ``u p`` for a
    weight, which moves the sum of all errors of its row by ``u p |sum_c v_c|``. In ``cast`` an exponential
    may be approximate, and this error may be biased: it moves the sum by at most `APPROXIMATE` times ``p
    |sum_c (v_c - o_c)|``. By Hoeffding's inequality, the sum of the roundings exceeds ``sqrt(2 log(4 /
    chance) * sum of squared bounds)`` with a probability of at most `chance`. The factor 4 stands for two
    sums with two tails each: the sum of the errors, which shows rounding downwards, and the sum of the errors
    away from zero, which shows truncation.
    """

    def movements(signs: Array) -> tuple[Array, float]:
        if cast is None:
            return np.zeros(0), 0.0
        weights, value = cast
        together = signs @ value.T  # (L, S): how far a weight moves the sum over its row
        # The error of an approximate exponential depends on its argument and is not random.
        apart = together - (signs * expected).sum(axis=-1, keepdims=True)
        return weights * together, APPROXIMATE * (weights * np.abs(apart)).sum()

    return _share(got, expected, allowed, FORMATS[dtype], movements)


def signed_sum(
    got: Array,
    expected: Array,
    allowed: Array,
    *,
    dtype: str,
    cast: tuple[Array, Array] | None = None,
) -> float:
    """Compare the sum of the signed errors of a gradient with what unbiased rounding leaves of it (GRAD-20).

    As in `signed_mean`. Unlike weights, the rounded factors do not sum to 1, so an approximate exponential,
    and with it the sum that it is divided by, moves the sum of a row by at most ``2 * APPROXIMATE`` times the
    sum of the sizes of its terms.
    """

    def movements(signs: Array) -> tuple[Array, float]:
        if cast is None:
            return np.zeros(0), 0.0
        factors, others = cast
        together = np.abs(factors * (signs @ others.T))  # (N, M)
        return together, 2 * APPROXIMATE * together.sum()

    return _share(got, expected, allowed, FORMATS[dtype], movements)


def _share(
    got: Array,
    expected: Array,
    allowed: Array,
    storage: Format,
    moved: Callable[[Array], tuple[Array, float]],
) -> float:
    """Return the share of its threshold that the larger of the two signed sums uses.

    For the signs of a sum, `movements` returns how far each cast factor moves the sum, before
    the factor is multiplied by the unit of `storage`, and the part of the threshold for
    approximate exponentials.
    """
    if not np.isfinite(got).all():
        return np.inf
    last = np.maximum(storage.unit * np.abs(expected), storage.subnormal / 2)
    working = np.maximum(allowed - last, 0).sum()
    shares = []
    for signs in (np.ones_like(expected), np.sign(expected)):
        factors, approximate = moved(signs)
        squares = (last**2).sum() + ((storage.unit * factors) ** 2).sum()
        # Two sums with two tails each.
        threshold = working + approximate + sqrt(2 * log(4 / CHANCE) * squares)
        if not threshold >= 0:
            raise AssertionError(f"expected a bound that is not negative and not NaN, got {threshold}")
        shares.append(abs((signs * (got - expected)).sum()) / threshold)
    return float(max(shares))
