"""The operator, composed of scores, masking and softmax."""

from typing import Literal, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from attnspec.reference.masking import allowed_keys
from attnspec.reference.notation import Real, as_real, check_axes
from attnspec.reference.scores import scores
from attnspec.reference.softmax import softmax


@overload
def attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    *,
    scale: float | None = ...,
    bias: ArrayLike | None = ...,
    mask: ArrayLike | None = ...,
    is_causal: bool = ...,
    return_weights: Literal[False] = ...,
    dtype: DTypeLike = ...,
) -> Real: ...
@overload
def attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    *,
    scale: float | None = ...,
    bias: ArrayLike | None = ...,
    mask: ArrayLike | None = ...,
    is_causal: bool = ...,
    return_weights: Literal[True],
    dtype: DTypeLike = ...,
) -> tuple[Real, Real]: ...
def attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    *,
    scale: float | None = None,
    bias: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    is_causal: bool = False,
    return_weights: bool = False,
    dtype: DTypeLike = np.float64,
) -> Real | tuple[Real, Real]:
    """Scaled dot-product attention.

    Parameters
    ----------
    query : (*B, H, L, D) or (L, D)
    key : (*B, H, S, D) or (S, D)
    value : (*B, H, S, Dv) or (S, Dv)
    scale : float, optional
        Factor of the dot products; ``1 / sqrt(D)`` when not given (SCORE-2).
    bias : broadcasts to (*B, H, L, S), optional
        Added to the scaled scores (SCORE-4); minus infinity masks (MASK-2).
    mask : bool, broadcasts to (*B, H, L, S), optional
        True where the query may attend to the key (MASK-1).
    is_causal : bool, optional
        Disallow keys after the query (MASK-3).
    return_weights : bool, optional
        Return the weights too.
    dtype : data type, optional
        Working precision and dtype of the result.

    Returns
    -------
    output : (*B, H, L, Dv) or (L, Dv)
    weights : (*B, H, L, S) or (L, S)
        Only with ``return_weights``.

    Raises
    ------
    ArgumentError
        When an argument does not fit.

    Notes
    -----
    Vaswani et al., "Attention Is All You Need", 2017, section 3.2.1.

    Examples
    --------
    >>> from attnspec.reference import attention
    >>> attention([[0.0]], [[1.0], [2.0]], [[3.0], [5.0]]).tolist()
    [[4.0]]
    """
    value = as_real("value", value, dtype)
    s = scores(query, key, scale=scale, bias=bias, dtype=dtype)  # (*B, H, L, S)
    check_axes(np.asarray(query), np.asarray(key), value)
    weights = softmax(s, allowed_keys(s.shape, mask=mask, is_causal=is_causal, bias=bias))
    output: Real = weights @ value  # (*B, H, L, Dv)
    return (output, weights) if return_weights else output
