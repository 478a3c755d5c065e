"""Tokens to queries, keys and values, in Array API calls alone: the chapter `projection`."""

from typing import Any, Literal

from attnspec.backends.portable.attention import attention
from attnspec.backends.portable.errors import (
    check,
    check_array,
    check_dtypes,
    check_floating,
    describe,
    namespace,
    working,
)
from attnspec.backends.portable.notation import one_dtype

Convention = Literal["row", "column"]


def projection(tokens: Any, weight: Any, *, bias: Any = None, convention: Convention = "row") -> Any:
    """Project tokens by a weight (PROJ-1 to PROJ-4).

    Parameters
    ----------
    tokens : (*B, N, E), or (*B, E, N) in the column convention
    weight : (E, F), or (F, E) in the column convention
    bias : (F,), optional

    Returns
    -------
    array (*B, N, F), or (*B, F, N) in the column convention

    Raises
    ------
    ValueError
        When the arrays do not fit.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.backends.portable.operations import COMPANIONS
    >>> COMPANIONS["projection"](np.array([[2.0, 1.0]]), np.array([[1.0], [10.0]]), bias=np.array([0.5]))
    array([[12.5]])
    """
    xp = check_tokens(tokens=tokens, weight=weight)
    return xp.astype(project(xp, tokens, convention, weight=weight, bias=bias), tokens.dtype)


def check_tokens(**arrays: Any) -> Any:
    """Refuse tokens and weights that are no arrays of one floating-point dtype; return their namespace."""
    xp = namespace("ERR-2", **arrays)
    check_dtypes(**arrays)
    for name in ("tokens", "memory"):
        if name in arrays:
            shape = tuple(arrays[name].shape)
            check(name, len(shape) >= 2, "two axes or more", f"shape {shape}", "SHAPE-1")
    return xp


def project(xp: Any, tokens: Any, convention: str, **weight_and_bias: Any) -> Any:
    """Project in the working precision; weight and bias come under the names that the caller knows."""
    good = isinstance(convention, str) and convention in ("row", "column")
    check("convention", good, "'row' or 'column'", describe(convention), "PROJ-1")
    (name, weight), (bias_name, bias) = weight_and_bias.items()
    columns = convention == "column"
    depth = tokens.shape[-2 if columns else -1]
    shape = tuple(weight.shape)
    fits = len(shape) == 2 and shape[1 if columns else 0] == depth
    wanted = f"shape {f'(F, {depth})' if columns else f'({depth}, F)'} as tokens have depth {depth}"
    check(name, fits and 0 not in shape, wanted, shape, "PROJ-4")
    tokens, weight = one_dtype(xp, working(tokens), working(weight))
    projected = weight @ tokens if columns else tokens @ weight
    if bias is None:
        return projected
    features = shape[0 if columns else 1]
    check_array(xp, bias_name, bias, "PROJ-3")
    check_floating("PROJ-3", **{bias_name: bias})
    check(bias_name, tuple(bias.shape) == (features,), f"shape ({features},)", tuple(bias.shape), "PROJ-3")
    return projected + (working(bias)[:, None] if columns else working(bias))


def self_attention(
    tokens: Any,
    query_weight: Any,
    key_weight: Any,
    value_weight: Any,
    *,
    query_bias: Any = None,
    key_bias: Any = None,
    value_bias: Any = None,
    convention: Convention = "row",
    scale: float | None = None,
    mask: Any = None,
    is_causal: bool = False,
) -> Any:
    """Three projections of the same tokens, then attention (PROJ-5).

    Parameters
    ----------
    tokens : (*B, N, E), or (*B, E, N) in the column convention
    query_weight, key_weight : (E, D), or (D, E) in the column convention
    value_weight : (E, Dv), or (Dv, E) in the column convention

    Returns
    -------
    array (*B, N, Dv), or (*B, Dv, N) in the column convention

    Raises
    ------
    ValueError
        When the arrays do not fit.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.backends.portable.operations import COMPANIONS
    >>> one = np.ones((1, 1))
    >>> COMPANIONS["self_attention"](np.array([[2.0], [2.0]]), one, one, 3 * one)
    array([[6.],
           [6.]])
    """
    weights = {"query_weight": query_weight, "key_weight": key_weight, "value_weight": value_weight}
    xp = check_tokens(tokens=tokens, **weights)
    query, key, value = (
        project(xp, tokens, convention, query_weight=query_weight, query_bias=query_bias),
        project(xp, tokens, convention, key_weight=key_weight, key_bias=key_bias),
        project(xp, tokens, convention, value_weight=value_weight, value_bias=value_bias),
    )
    columns = convention == "column"
    axis = -2 if columns else -1
    depth, features = query.shape[axis], key.shape[axis]
    check("key_weight", features == depth, f"{depth} features as query_weight has", features, "SHAPE-6")
    # The working precision is kept throughout, and rounded once.
    query, key, value = one_dtype(xp, query, key, value)
    if columns:
        query, key, value = (xp.matrix_transpose(array) for array in (query, key, value))
    output = attention(query, key, value, scale=scale, mask=mask, is_causal=is_causal)
    return xp.astype(xp.matrix_transpose(output) if columns else output, tokens.dtype)
