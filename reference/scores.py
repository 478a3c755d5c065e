"""Queries and keys to scores, as in the chapter `scores`."""

import math

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from attnspec.reference.errors import ArgumentError
from attnspec.reference.notation import Real, as_real, check_axes, check_broadcast


def scores(
    query: ArrayLike,
    key: ArrayLike,
    *,
    scale: float | None = None,
    bias: ArrayLike | None = None,
    dtype: DTypeLike = np.float64,
) -> Real:
    """Scaled dot products of queries and keys, bias added.

    Parameters
    ----------
    query : (*B, H, L, D) or (L, D)
    key : (*B, H, S, D) or (S, D)
    scale : float, optional
        Factor of the dot products; ``1 / sqrt(D)`` when not given.
    bias : broadcasts to (*B, H, L, S), optional
    dtype : data type, optional
        Working precision and dtype of the result.

    Returns
    -------
    (*B, H, L, S)

    Raises
    ------
    ArgumentError
        When an argument does not fit.

    Notes
    -----
    Rules SCORE-1 to SCORE-4.

    Examples
    --------
    >>> from attnspec.reference import scores
    >>> scores([[1.0, 1.0]], [[2.0, 3.0], [4.0, 5.0]], scale=1.0).tolist()
    [[5.0, 9.0]]
    """
    query = as_real("query", query, dtype)
    key = as_real("key", key, dtype)
    check_axes(query, key)
    if scale is None:
        scale = 1 / math.sqrt(query.shape[-1])
    elif isinstance(scale, bool) or not isinstance(scale, int | float | np.floating):
        raise ArgumentError(f"scale: expected a number or None, got {scale!r} [SCORE-3]")
    products = query @ np.swapaxes(key, -1, -2)  # (*B, H, L, S)
    scaled = products * query.dtype.type(scale)
    if bias is None:
        return scaled
    bias = as_real("bias", bias, dtype)
    check_broadcast("bias", bias.shape, scaled.shape, "SCORE-4")
    return scaled + bias
