"""The signed mean: biased rounding, which stays within a budget and shows in the sum of the errors."""

from math import log, sqrt

import numpy as np

from attnspec.conformance.meta.algorithms import Array
from attnspec.dtypes import FORMATS
from attnspec.reference.budget.attention import APPROXIMATE

#: How often correct rounding may be called biased, by chance, on one problem.
CHANCE = 1e-9


def signed_mean(
    got: Array, expected: Array, allowed: Array, *, dtype: str, cast: tuple[Array, Array] | None = None
) -> float:
    """Compare the sum of the signed errors with what unbiased rounding leaves of it.

    Parameters
    ----------
    got : (L, Dv)
        What an implementation returned, in float64.
    expected : (L, Dv)
        The exact values.
    allowed : (L, Dv)
        The budget of the class ``full``.
    dtype : str
        Of the result: ``float16`` or ``bfloat16``. With longer ones the last
        rounding is lost among those before it, which need not be unbiased.
    cast : ((L, S), (S, Dv)), optional
        Exact weights and values, for the class ``cast``.

    Returns
    -------
    float
        The share of the threshold that the sum uses; above 1 rounding is biased.

    Notes
    -----
    An error is a part of the working precision, at most ``allowed`` less the
    last rounding, of whose signs nothing is assumed; plus roundings to `dtype`,
    each of mean 0, independent, and bounded: that of an output by ``u |o|``, that
    of a weight, in ``cast``, by ``u p``, which moves the sum of all errors of its
    row by ``u p |sum_c v_c|``. In ``cast`` an exponential may be approximate, which
    need not be unbiased: it moves that sum by at most `APPROXIMATE` times
    ``p |sum_c (v_c - o_c)|``. By Hoeffding's inequality the sum of the others
    exceeds ``sqrt(2 log(4 / chance) * sum of squared bounds)`` with at most that
    chance, for two sums of two tails each: of the errors, which finds rounding downwards, and
    of the errors away from zero, which finds truncation.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.conformance.judge.rounding_bias import signed_mean
    >>> exact = np.linspace(1, 2, 500)[None]
    >>> near = exact.astype(np.float16).astype(float)
    >>> low = np.floor(exact * 1024) / 1024
    >>> [signed_mean(got, exact, exact * 2**-11, dtype="float16") > 1 for got in (near, low)]
    [False, True]
    """
    if not np.isfinite(got).all():
        return np.inf
    storage = FORMATS[dtype]
    last = np.maximum(storage.unit * np.abs(expected), storage.subnormal / 2)
    working = np.maximum(allowed - last, 0).sum()
    shares = []
    for signs in (np.ones_like(expected), np.sign(expected)):
        squares, approximate = (last**2).sum(), 0.0
        if cast is not None:
            weights, value = cast
            together = signs @ value.T  # (L, S): by how much a weight moves the sum over its row
            squares += ((storage.unit * weights * together) ** 2).sum()
            # An approximate exponential is off by its argument, and not by chance.
            moved = together - (signs * expected).sum(axis=-1, keepdims=True)
            approximate += APPROXIMATE * (weights * np.abs(moved)).sum()
        # Two sums with two tails each.
        threshold = working + approximate + sqrt(2 * log(4 / CHANCE) * squares)
        shares.append(abs((signs * (got - expected)).sum()) / threshold)
    return float(max(shares))
