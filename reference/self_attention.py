"""Self-attention: three projections of the same tokens, then attention (PROJ-5)."""

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from attnspec.reference.attention import attention
from attnspec.reference.notation import Real
from attnspec.reference.projection import Convention, projection


def self_attention(
    tokens: ArrayLike,
    query_weight: ArrayLike,
    key_weight: ArrayLike,
    value_weight: ArrayLike,
    *,
    query_bias: ArrayLike | None = None,
    key_bias: ArrayLike | None = None,
    value_bias: ArrayLike | None = None,
    convention: Convention = "row",
    scale: float | None = None,
    mask: ArrayLike | None = None,
    is_causal: bool = False,
    dtype: DTypeLike = np.float64,
) -> Real:
    """Project tokens three times and attend.

    Parameters
    ----------
    tokens : (*B, L, E), or (*B, E, L) in the column convention
    query_weight, key_weight : (E, D), or (D, E) in the column convention
    value_weight : (E, Dv), or (Dv, E) in the column convention
    query_bias, key_bias, value_bias : (D,), (D,) and (Dv,), optional
    convention : {"row", "column"}
        Of the tokens, the weights and the result.
    scale, mask, is_causal
        As in `attention`.
    dtype : data type, optional
        Working precision and dtype of the result.

    Returns
    -------
    (*B, L, Dv), or (*B, Dv, L) in the column convention

    Raises
    ------
    ArgumentError
        When an argument does not fit.

    Examples
    --------
    >>> from attnspec.reference import self_attention
    >>> self_attention([[1.0], [2.0]], [[0.0]], [[1.0]], [[10.0]]).tolist()
    [[15.0], [15.0]]
    """

    def rows(weight: ArrayLike, bias: ArrayLike | None) -> Real:
        projected = projection(tokens, weight, bias=bias, convention=convention, dtype=dtype)
        return np.swapaxes(projected, -1, -2) if convention == "column" else projected

    output = attention(
        rows(query_weight, query_bias),  # (*B, L, D)
        rows(key_weight, key_bias),
        rows(value_weight, value_bias),
        scale=scale,
        mask=mask,
        is_causal=is_causal,
        dtype=dtype,
    )
    return np.swapaxes(output, -1, -2) if convention == "column" else output
