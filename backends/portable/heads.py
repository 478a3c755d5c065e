"""Heads split and merged, and multi-head attention, in Array API calls alone: the chapter `heads`."""

from typing import Any

from attnspec.backends.portable.attention import attention
from attnspec.backends.portable.errors import check, check_floating, integer, namespace
from attnspec.backends.portable.notation import one_dtype, reshape
from attnspec.backends.portable.projection import check_tokens, project


def split_heads(features: Any, *, heads: int) -> Any:
    """Cut features into consecutive blocks, one a head (HEAD-3, HEAD-5).

    Parameters
    ----------
    features : (*B, N, heads * D)

    Returns
    -------
    array (*B, heads, N, D)

    Raises
    ------
    ValueError
        When `heads` does not divide the number of features.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.backends.portable.operations import COMPANIONS
    >>> COMPANIONS["split_heads"](np.array([[1.0, 2.0, 3.0, 4.0]]), heads=2).tolist()
    [[[1.0, 2.0]], [[3.0, 4.0]]]
    """
    xp = namespace("ERR-2", features=features)
    check_floating("ERR-2", features=features)
    shape = tuple(features.shape)
    check("features", len(shape) >= 2 and shape[-1] > 0, "(*B, N, heads * D)", f"shape {shape}", "HEAD-3")
    heads = integer("heads", heads, 1, "HEAD-5")
    check("heads", shape[-1] % heads == 0, f"a divisor of {shape[-1]} features", heads, "HEAD-5")
    blocks = reshape(xp, features, (*shape[:-1], heads, shape[-1] // heads))  # (*B, N, heads, D)
    return xp.moveaxis(blocks, -2, -3)


def merge_heads(split: Any) -> Any:
    """Lay the features of all heads side by side, the inverse of splitting (HEAD-4).

    Parameters
    ----------
    split : (*B, heads, N, D)

    Returns
    -------
    array (*B, N, heads * D)

    Raises
    ------
    ValueError
        When there is no axis of heads.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.backends.portable.operations import COMPANIONS
    >>> COMPANIONS["merge_heads"](np.array([[[1.0, 2.0]], [[3.0, 4.0]]])).tolist()
    [[1.0, 2.0, 3.0, 4.0]]
    """
    xp = namespace("ERR-2", split=split)
    check_floating("ERR-2", split=split)
    check("split", split.ndim >= 3, "(*B, heads, N, D)", f"shape {tuple(split.shape)}", "HEAD-4")
    *batch, heads, length, depth = split.shape
    return reshape(xp, xp.moveaxis(split, -3, -2), (*batch, length, heads * depth))


def multi_head_attention(
    tokens: Any,
    query_weight: Any,
    key_weight: Any,
    value_weight: Any,
    output_weight: Any,
    *,
    heads: int,
    key_heads: int | None = None,
    memory: Any = None,
    query_bias: Any = None,
    key_bias: Any = None,
    value_bias: Any = None,
    output_bias: Any = None,
    scale: float | None = None,
    mask: Any = None,
    is_causal: bool = False,
) -> Any:
    """Project, split, attend, merge, project (HEAD-6, HEAD-7).

    Parameters
    ----------
    tokens : (*B, N, E)
    query_weight : (E, heads * D)
    key_weight : (E', key_heads * D)
    value_weight : (E', key_heads * Dv)
    output_weight : (heads * Dv, F)
    memory : (*B, S, E'), optional
        What keys and values are made of; the tokens where it is not given.

    Returns
    -------
    array (*B, N, F)

    Raises
    ------
    ValueError
        When the arrays do not fit, or heads cannot be shared evenly.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.backends.portable.operations import COMPANIONS
    >>> tokens, eye = np.array([[2.0, 4.0]]), np.eye(2)
    >>> COMPANIONS["multi_head_attention"](tokens, eye, eye, eye, eye, heads=2)  # one token sees itself
    array([[2., 4.]])
    """
    weights = {"query_weight": query_weight, "key_weight": key_weight, "value_weight": value_weight}
    given = {} if memory is None else {"memory": memory}
    xp = check_tokens(tokens=tokens, **weights, output_weight=output_weight, **given)
    if memory is not None:
        batch, got = tuple(tokens.shape[:-2]), tuple(memory.shape[:-2])
        check("memory", got == batch, f"batch axes {batch} as in tokens", got, "SHAPE-6")
    heads = integer("heads", heads, 1, "HEAD-5")
    key_heads = heads if key_heads is None else integer("key_heads", key_heads, 1, "HEAD-2")
    check("key_heads", heads % key_heads == 0, f"a divisor of heads = {heads}", key_heads, "HEAD-2")
    source = tokens if memory is None else memory
    query = project(xp, tokens, "row", query_weight=query_weight, query_bias=query_bias)
    key = project(xp, source, "row", key_weight=key_weight, key_bias=key_bias)
    value = project(xp, source, "row", value_weight=value_weight, value_bias=value_bias)
    for name, array, parts in (
        ("query_weight", query, f"heads = {heads}"),
        ("value_weight", value, f"key_heads = {key_heads}"),
    ):
        good = array.shape[-1] % (heads if array is query else key_heads) == 0
        check(name, good, f"a number of columns that {parts} divides", array.shape[-1], "HEAD-5")
    columns = query.shape[-1] // heads * key_heads
    check("key_weight", key.shape[-1] == columns, f"{columns} columns", key.shape[-1], "HEAD-6")
    query, key, value = one_dtype(xp, query, key, value)
    merged = merge_heads(
        attention(
            split_heads(query, heads=heads),
            split_heads(key, heads=key_heads),
            split_heads(value, heads=key_heads),
            scale=scale,
            mask=mask,
            is_causal=is_causal,
        )
    )
    output = project(xp, merged, "row", output_weight=output_weight, output_bias=output_bias)
    return xp.astype(output, tokens.dtype)
