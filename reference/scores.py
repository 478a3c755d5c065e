"""Queries and keys to scores, as in the chapter `scores`."""

import math

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from attnspec.reference.errors import ArgumentError, check_number
from attnspec.reference.heads import repeat_heads
from attnspec.reference.notation import Real, as_real, check_axes, check_broadcast, check_dtypes


def scores(
    query: ArrayLike,
    key: ArrayLike,
    *,
    scale: float | None = None,
    softcap: float | None = None,
    bias: ArrayLike | None = None,
    dtype: DTypeLike = np.float64,
) -> Real:
    """Scaled dot products of queries and keys, capped, bias added.

    Parameters
    ----------
    query : (*B, Hq, L, D) or (L, D)
    key : (*B, Hkv, S, D) or (S, D)
    scale : float, optional
        Factor of the dot products; ``1 / sqrt(D)`` when not given.
    softcap : float, optional
        Bound that the scaled scores approach, before the bias.
    bias : broadcasts to (*B, Hq, L, S), optional
    dtype : data type, optional
        Working precision and dtype of the result.

    Returns
    -------
    (*B, Hq, L, S)

    Raises
    ------
    ArgumentError
        When an argument does not fit.

    Notes
    -----
    Rules SCORE-1 to SCORE-6.

    Examples
    --------
    >>> from attnspec.reference import scores
    >>> scores([[1.0, 1.0]], [[2.0, 3.0], [4.0, 5.0]], scale=1.0).tolist()
    [[5.0, 9.0]]
    """
    check_dtypes(query=query, key=key)
    query = as_real("query", query, dtype)
    key = as_real("key", key, dtype)
    check_axes(query, key)
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else check_number("scale", scale, "ERR-6")
    products = query @ np.swapaxes(repeat_heads(key, query.shape), -1, -2)  # (*B, Hq, L, S)
    result = np.multiply(products, query.dtype.type(factor), out=products)
    if softcap is not None:
        cap = query.dtype.type(check_number("softcap", softcap, "SCORE-6"))
        if cap <= 0:
            raise ArgumentError(f"softcap: expected a positive number or None, got {softcap!r} [SCORE-6]")
        # Before the bias: capped together, minus infinity would become a score like any other.
        result = cap * np.tanh(result / cap)
    if bias is None:
        return result
    bias = as_real("bias", bias, dtype)
    check_broadcast("bias", bias.shape, result.shape, "SCORE-4")
    return result + bias
