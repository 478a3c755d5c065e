"""Scores to weights, as in the chapter `softmax`."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.reference.notation import Real


def softmax(scores: Real, allowed: NDArray[np.bool_]) -> Real:
    """Weights of each row over its allowed keys.

    Parameters
    ----------
    scores : (*B, H, L, S)
    allowed : (*B, H, L, S)

    Returns
    -------
    (*B, H, L, S)
        Rows sum to 1; a row with no allowed key is 0 (MASK-6).

    Notes
    -----
    Rules SOFT-1 and SOFT-2.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.reference import softmax
    >>> softmax(np.array([[5000.0, 5000.0, 9.0]]), np.array([[True, True, False]])).tolist()
    [[0.5, 0.5, 0.0]]
    """
    exponentials = _shifted_exponentials(scores, allowed, axis=-1)
    total = exponentials.sum(axis=-1, keepdims=True)
    # Asked of `allowed`, not of the total: a total of NaN must stay NaN.
    empty = ~allowed.any(axis=-1, keepdims=True)
    return exponentials / np.where(empty, 1, total)


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


def _shifted_exponentials(scores: Real, allowed: NDArray[np.bool_], axis: int | tuple[int, ...]) -> Real:
    """exp(s - max s) where allowed, 0 elsewhere; the shift cancels in any quotient."""
    masked: NDArray[Any] = np.where(allowed, scores, -np.inf)
    top = masked.max(axis=axis, keepdims=True, initial=-np.inf)
    # With nothing allowed the maximum is -inf, and -inf - -inf would be NaN.
    exponentials: Real = np.exp(masked - np.where(top == -np.inf, 0, top))
    return exponentials
