"""Tokens to queries, keys and values, as in the chapter `projection`."""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from attnspec.reference.errors import ArgumentError
from attnspec.reference.notation import Real, as_real, check_dtypes

Convention = Literal["row", "column"]


def projection(
    tokens: ArrayLike,
    weight: ArrayLike,
    *,
    bias: ArrayLike | None = None,
    convention: Convention = "row",
    dtype: DTypeLike = np.float64,
) -> Real:
    """Project tokens by a weight: ``tokens W + b`` or ``W tokens + b``.

    Parameters
    ----------
    tokens : (*B, N, E), or (*B, E, N) in the column convention
    weight : (E, F), or (F, E) in the column convention
    bias : (F,), optional
    convention : {"row", "column"}
    dtype : data type, optional
        Working precision and dtype of the result.

    Returns
    -------
    (*B, N, F), or (*B, F, N) in the column convention

    Raises
    ------
    ArgumentError
        When an argument does not fit; a weight is never transposed to fit.

    Notes
    -----
    Rules PROJ-1 to PROJ-4.

    Examples
    --------
    >>> from attnspec.reference import projection
    >>> projection([[1.0, 2.0]], [[3.0], [4.0]], bias=[0.5]).tolist()
    [[11.5]]
    """
    check_dtypes(tokens=tokens, weight=weight)
    return project_as("", tokens, weight, bias, convention, dtype)


def project_as(
    name: str,
    tokens: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None,
    convention: Convention,
    dtype: DTypeLike,
) -> Real:
    """Project; errors speak of ``NAME_weight`` and ``NAME_bias``, as the caller knows them.

    Examples
    --------
    >>> from attnspec.reference.projection import project_as
    >>> project_as("key", [[1.0, 2.0]], [[3.0]], None, "row", "float64")
    Traceback (most recent call last):
        ...
    attnspec.reference.errors.ArgumentError: key_weight: expected shape (2, F) as tokens have depth 2, got (1, 1) [PROJ-4]
    """  # noqa: E501 - an error is one line
    weight_name, bias_name = (f"{name}_{part}" if name else part for part in ("weight", "bias"))
    tokens = as_real("tokens", tokens, dtype)
    weight = as_real(weight_name, weight, dtype)
    if convention not in ("row", "column"):
        raise ArgumentError(f"convention: expected 'row' or 'column', got {convention!r} [PROJ-1]")
    if tokens.ndim < 2:
        raise ArgumentError(f"tokens: expected two axes or more, got shape {tokens.shape} [PROJ-1]")
    columns = convention == "column"
    depth = tokens.shape[-2 if columns else -1]
    if weight.ndim != 2 or weight.shape[1 if columns else 0] != depth:
        fitting = f"(F, {depth})" if columns else f"({depth}, F)"
        expected = f"shape {fitting} as tokens have depth {depth}"
        raise ArgumentError(f"{weight_name}: expected {expected}, got {weight.shape} [PROJ-4]")
    projected = weight @ tokens if columns else tokens @ weight
    if bias is None:
        return projected
    bias = as_real(bias_name, bias, dtype)
    features = weight.shape[0 if columns else 1]
    if bias.shape != (features,):
        raise ArgumentError(f"{bias_name}: expected shape ({features},), got {bias.shape} [PROJ-3]")
    # Not `projected + bias` for columns: where N = F that adds the vector along the tokens.
    return projected + (bias[:, None] if columns else bias)
