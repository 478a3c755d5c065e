"""Multi-head attention, self or cross: projections, heads, attention, and back (HEAD-6, HEAD-7)."""

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from attnspec.reference.attention import attention
from attnspec.reference.errors import ArgumentError
from attnspec.reference.heads import check_count, merge_heads, split_heads
from attnspec.reference.notation import Real, check_dtypes
from attnspec.reference.projection import project_as


def multi_head_attention(
    tokens: ArrayLike,
    query_weight: ArrayLike,
    key_weight: ArrayLike,
    value_weight: ArrayLike,
    output_weight: ArrayLike,
    *,
    heads: int,
    key_heads: int | None = None,
    memory: ArrayLike | None = None,
    query_bias: ArrayLike | None = None,
    key_bias: ArrayLike | None = None,
    value_bias: ArrayLike | None = None,
    output_bias: ArrayLike | None = None,
    scale: float | None = None,
    mask: ArrayLike | None = None,
    is_causal: bool = False,
    dtype: DTypeLike = np.float64,
) -> Real:
    """Project tokens, attend head by head, and project the merged result.

    Parameters
    ----------
    tokens : (*B, L, E)
    query_weight : (E, heads * D)
    key_weight : (E, key_heads * D)
    value_weight : (E, key_heads * Dv)
    output_weight : (heads * Dv, F)
    heads : int
    key_heads : int, optional
        As many as `heads` when not given.
    memory : (*B, S, E'), optional
        What keys and values are projected from; the tokens when not given.
    query_bias, key_bias, value_bias, output_bias : optional
        One number for each column of the weight of that name.
    scale, mask, is_causal
        As in `attention`; the mask broadcasts to (*B, heads, L, S).
    dtype : data type, optional
        Working precision and dtype of the result.

    Returns
    -------
    (*B, L, F)

    Raises
    ------
    ArgumentError
        When an argument does not fit.

    Notes
    -----
    Vaswani et al., "Attention Is All You Need", 2017, section 3.2.2.

    Examples
    --------
    >>> from attnspec.reference import multi_head_attention
    >>> identity = [[1.0, 0.0], [0.0, 1.0]]
    >>> tokens = [[1.0, 10.0], [3.0, 30.0]]
    >>> zero = [[0.0, 0.0], [0.0, 0.0]]
    >>> multi_head_attention(tokens, zero, identity, identity, identity, heads=2).tolist()
    [[2.0, 20.0], [2.0, 20.0]]
    """
    weights = {"query_weight": query_weight, "key_weight": key_weight, "value_weight": value_weight}
    given = {} if memory is None else {"memory": memory}
    check_dtypes(tokens=tokens, **weights, output_weight=output_weight, **given)
    source = tokens if memory is None else memory
    if np.shape(source)[:-2] != np.shape(tokens)[:-2]:
        batch = np.shape(tokens)[:-2]
        raise ArgumentError(
            f"memory: expected batch axes {batch} as in tokens, got shape {np.shape(source)} [SHAPE-6]"
        )
    check_count("heads", heads, "HEAD-5")
    key_heads = heads if key_heads is None else key_heads
    check_count("key_heads", key_heads, "HEAD-2")
    if heads % key_heads:
        raise ArgumentError(f"key_heads: expected a divisor of the {heads} heads, got {key_heads} [HEAD-2]")

    def project(name: str, given: ArrayLike, bias: ArrayLike | None, count: int) -> Real:
        features = project_as(name, given, weights[f"{name}_weight"], bias, "row", dtype)
        if features.shape[-1] % count:
            columns = f"a number of columns that {count} heads divide"
            raise ArgumentError(f"{name}_weight: expected {columns}, got {features.shape[-1]} [HEAD-5]")
        return split_heads(features, heads=count, dtype=dtype)

    query = project("query", tokens, query_bias, heads)  # (*B, heads, L, D)
    columns = query.shape[-1] * key_heads
    key_features = project_as("key", source, key_weight, key_bias, "row", dtype)
    if key_features.shape[-1] != columns:
        raise ArgumentError(f"key_weight: expected {columns} columns, got {key_features.shape[-1]} [HEAD-6]")
    output = attention(
        query,
        split_heads(key_features, heads=key_heads, dtype=dtype),  # (*B, key_heads, S, D)
        project("value", source, value_bias, key_heads),
        scale=scale,
        mask=mask,
        is_causal=is_causal,
        dtype=dtype,
    )
    return merge_and_project(output, output_weight, output_bias, dtype)


def merge_and_project(output: Real, weight: ArrayLike, bias: ArrayLike | None, dtype: DTypeLike) -> Real:
    """Merge heads and apply the last projection.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.reference.multi_head import merge_and_project
    >>> merge_and_project(np.ones((2, 1, 1)), np.ones((2, 1)), None, "float64").tolist()
    [[2.0]]
    """
    return project_as("output", merge_heads(output, dtype=dtype), weight, bias, "row", dtype)
