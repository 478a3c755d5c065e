"""Self-attention: three projections of the same tokens, then attention (PROJ-5)."""

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from attnspec.reference.attention import attention
from attnspec.reference.errors import ArgumentError
from attnspec.reference.notation import Real, check_dtypes
from attnspec.reference.projection import Convention, project_as


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
    check_dtypes(tokens=tokens, query_weight=query_weight, key_weight=key_weight, value_weight=value_weight)

    def rows(name: str, weight: ArrayLike, bias: ArrayLike | None) -> Real:
        projected = project_as(name, tokens, weight, bias, convention, dtype)
        return np.swapaxes(projected, -1, -2) if convention == "column" else projected

    query = rows("query", query_weight, query_bias)  # (*B, L, D)
    key = rows("key", key_weight, key_bias)
    if key.shape[-1] != query.shape[-1]:
        raise ArgumentError(
            f"key_weight: expected {query.shape[-1]} features as query_weight has, "
            f"got {key.shape[-1]} [SHAPE-6]"
        )
    output = attention(
        query,
        key,
        rows("value", value_weight, value_bias),
        scale=scale,
        mask=mask,
        is_causal=is_causal,
        dtype=dtype,
    )
    return np.swapaxes(output, -1, -2) if convention == "column" else output
