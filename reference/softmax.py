"""Scores to weights, as in the chapter `softmax`."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.reference.notation import Real


def softmax(scores: Real, allowed: NDArray[np.bool_], sinks: Real | None = None) -> Real:
    """Weights of each row over its allowed keys.

    Parameters
    ----------
    scores : (*B, Hq, L, S)
    allowed : (*B, Hq, L, S)
    sinks : (Hq,), optional
        One more logit for each head, in the denominator alone.

    Returns
    -------
    (*B, Hq, L, S)
        Without sinks rows sum to 1; a row with no allowed key is 0 (MASK-6).

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
    exponentials, _, total = _denominator(scores, allowed, sinks)
    # Asked of `allowed`, not of the total: a total of NaN must stay NaN.
    empty = ~allowed.any(axis=-1, keepdims=True)
    weights = np.divide(exponentials, np.where(empty, 1, total), out=exponentials)
    weights[~allowed] = 0  # in a row of NaN too
    return weights


def log_sum_exp(scores: Real, allowed: NDArray[np.bool_], sinks: Real | None = None) -> Real:
    """Natural logarithm of each row's denominator.

    Parameters
    ----------
    scores, allowed, sinks
        As in `softmax`.

    Returns
    -------
    (*B, Hq, L)
        Minus infinity for a row with no allowed key and no sink (SOFT-7).

    Notes
    -----
    Rules SOFT-6 and SOFT-7.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.reference.softmax import log_sum_exp
    >>> log_sum_exp(np.array([[5000.0, 9.0], [1.0, 2.0]]), np.array([[True, False], [False, False]])).tolist()
    [5000.0, -inf]
    """
    _, shift, total = _denominator(scores, allowed, sinks)
    with np.errstate(divide="ignore"):  # the logarithm of an empty sum
        lse: Real = (shift + np.log(total))[..., 0]
    return lse


def matrix_weights(scores: Real, allowed: NDArray[np.bool_]) -> Real:
    """Compute the weights of the variant `matrix` of SOFT-1, which does not conform.

    Exponentials are divided by the sum over all queries and keys, as worked
    example 004 does at first.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.reference.softmax import matrix_weights
    >>> matrix_weights(np.zeros((2, 2)), np.ones((2, 2), dtype=bool)).tolist()
    [[0.25, 0.25], [0.25, 0.25]]
    """
    exponentials = _shifted_exponentials(scores, allowed, axis=(-2, -1))
    weights: Real = exponentials / exponentials.sum(axis=(-2, -1), keepdims=True)
    return weights


def sum_weights(scores: Real) -> Real:
    """Compute the weights of the variant `sum` of SOFT-1, which does not conform.

    Scores are divided by the sum of their row, as worked example 003 does at first.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.reference.softmax import sum_weights
    >>> sum_weights(np.array([[1.0, 3.0]])).tolist()
    [[0.25, 0.75]]
    """
    weights: Real = scores / scores.sum(axis=-1, keepdims=True)
    return weights


def _denominator(scores: Real, allowed: NDArray[np.bool_], sinks: Real | None) -> tuple[Real, Real, Real]:
    """Shifted exponentials, the shift of each row, and the shifted denominator of each row."""
    masked: NDArray[Any] = np.where(allowed, scores, -np.inf)
    top = masked.max(axis=-1, keepdims=True, initial=-np.inf)  # (*B, Hq, L, 1)
    if sinks is not None:
        sink = sinks[:, None, None] if scores.ndim > 2 else sinks[:, None]  # (Hq, 1, 1)
        top = np.maximum(top, sink)  # NaN stays NaN
    # With nothing allowed the maximum is -inf, and -inf - -inf would be NaN.
    shift = np.where(top == -np.inf, 0, top)
    with np.errstate(invalid="ignore"):  # a score of +inf, less itself: the row is NaN (NUM-11)
        exponentials = np.subtract(masked, shift, out=masked)
        np.exp(exponentials, out=exponentials)
        total = exponentials.sum(axis=-1, keepdims=True)
        if sinks is not None:
            total = total + np.exp(sink - shift)
    return exponentials, shift, total


def _shifted_exponentials(scores: Real, allowed: NDArray[np.bool_], axis: int | tuple[int, ...]) -> Real:
    """exp(s - max s) where allowed, 0 elsewhere; the shift cancels in any quotient."""
    masked: NDArray[Any] = np.where(allowed, scores, -np.inf)
    top = masked.max(axis=axis, keepdims=True, initial=-np.inf)
    # With nothing allowed the maximum is -inf, and -inf - -inf would be NaN.
    exponentials: Real = np.exp(masked - np.where(top == -np.inf, 0, top))
    return exponentials
