"""Multi-head attention, self or cross: projections, heads, attention, and back (HEAD-6, HEAD-7)."""

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from attnspec.reference.attention import attention
from attnspec.reference.errors import ArgumentError
from attnspec.reference.heads import merge_heads, split_heads
from attnspec.reference.notation import Real
from attnspec.reference.projection import projection


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
    source = tokens if memory is None else memory
    key_heads = heads if key_heads is None else key_heads
    for name, count in (("heads", heads), ("key_heads", key_heads)):
        if not isinstance(count, int | np.integer) or isinstance(count, bool) or count < 1:
            raise ArgumentError(f"{name}: expected a whole number of 1 or more, got {count!r} [HEAD-6]")
    if heads % key_heads:
        raise ArgumentError(f"key_heads: expected a divisor of the {heads} heads, got {key_heads} [HEAD-2]")

    def project(name: str, given: ArrayLike, weight: ArrayLike, bias: ArrayLike | None, count: int) -> Real:
        try:
            return split_heads(projection(given, weight, bias=bias, dtype=dtype), heads=count, dtype=dtype)
        except ArgumentError as error:
            # The parts know the weight and its bias by their own names.
            text = str(error)
            for own in ("weight", "bias"):
                text = f"{name}_{text}" if text.startswith(f"{own}:") else text
            raise ArgumentError(text) from error

    output = attention(
        project("query", tokens, query_weight, query_bias, heads),  # (*B, heads, L, D)
        project("key", source, key_weight, key_bias, key_heads),  # (*B, key_heads, S, D)
        project("value", source, value_weight, value_bias, key_heads),
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
    try:
        return projection(merge_heads(output, dtype=dtype), weight, bias=bias, dtype=dtype)
    except ArgumentError as error:
        raise ArgumentError(f"output_{error}") from error
