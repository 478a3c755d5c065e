"""The operator, composed of scores, masking, softmax and dropout."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from attnspec.reference.dropout import dropout
from attnspec.reference.errors import ArgumentError, check_flag
from attnspec.reference.heads import repeat_heads
from attnspec.reference.masking import Window, allowed_keys
from attnspec.reference.notation import Real, as_real, check_axes, check_dtypes
from attnspec.reference.scores import scores
from attnspec.reference.softmax import log_sum_exp, softmax


def attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    *,
    scale: float | None = None,
    softcap: float | None = None,
    bias: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    is_causal: bool = False,
    query_offset: ArrayLike = 0,
    window: Window | None = None,
    query_lengths: ArrayLike | None = None,
    key_lengths: ArrayLike | None = None,
    query_segment_ids: ArrayLike | None = None,
    key_segment_ids: ArrayLike | None = None,
    sinks: ArrayLike | None = None,
    dropout_mask: ArrayLike | None = None,
    dropout_rate: float = 0.0,
    return_lse: bool = False,
    return_weights: bool = False,
    dtype: DTypeLike = np.float64,
) -> Any:
    """Scaled dot-product attention.

    Parameters
    ----------
    query : (*B, Hq, L, D) or (L, D)
    key : (*B, Hkv, S, D) or (S, D)
    value : (*B, Hkv, S, Dv) or (S, Dv)
    scale : float, optional
        Factor of the dot products; ``1 / sqrt(D)`` when not given (SCORE-2).
    softcap : float, optional
        Bound that the scaled scores approach (SCORE-5).
    bias : broadcasts to (*B, Hq, L, S), optional
        Added to the scaled scores (SCORE-4); minus infinity masks (MASK-2).
    mask : bool, broadcasts to (*B, Hq, L, S), optional
        True where the query may attend to the key (MASK-1).
    is_causal : bool, optional
        Disallow keys after the query (MASK-3).
    query_offset : int or (*B), optional
        Position of query 0 among the keys (MASK-7).
    window : pair of int or None, optional
        Bounds to the left and right of the query's position, inclusive (MASK-8).
    query_lengths, key_lengths : int or (*B), optional
        How many queries and keys there are of the axis (MASK-9, MASK-10).
    query_segment_ids, key_segment_ids : (*B, L) and (*B, S), optional
        Only equal ids attend to each other (MASK-11).
    sinks : (Hq,), optional
        One more logit for each head in the denominator (SOFT-5).
    dropout_mask : bool, broadcasts to (*B, Hq, L, S), optional
        True where a weight is kept (DROP-1).
    dropout_rate : float, optional
        Kept weights are divided by one less it (DROP-2).
    return_lse, return_weights : bool, optional
        Return these too.
    dtype : data type, optional
        Working precision and dtype of the results.

    Returns
    -------
    output : (*B, Hq, L, Dv) or (L, Dv)
    lse : (*B, Hq, L) or (L,)
        Only with ``return_lse``.
    weights : (*B, Hq, L, S) or (L, S)
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
    check_dtypes(query=query, key=key, value=value)
    wanted = check_flag("return_lse", return_lse), check_flag("return_weights", return_weights)
    query, key, value = (
        as_real(name, array, dtype) for name, array in (("query", query), ("key", key), ("value", value))
    )
    check_axes(query, key, value)
    with np.errstate(invalid="ignore"):  # NaN and infinity among the inputs are no error of the arithmetic
        s = scores(query, key, scale=scale, softcap=softcap, bias=bias, dtype=dtype)  # (*B, Hq, L, S)
    allowed = allowed_keys(
        s.shape,
        mask=mask,
        is_causal=is_causal,
        query_offset=query_offset,
        window=window,
        query_lengths=query_lengths,
        key_lengths=key_lengths,
        query_segment_ids=query_segment_ids,
        key_segment_ids=key_segment_ids,
        bias=bias,
    )
    if sinks is not None:
        sinks = as_real("sinks", sinks, dtype)
        heads = s.shape[-3] if s.ndim > 2 else 1
        if sinks.shape != (heads,):
            raise ArgumentError(f"sinks: expected shape ({heads},), got {sinks.shape} [ERR-11]")
    weights = dropout(softmax(s, allowed, sinks), mask=dropout_mask, rate=dropout_rate)
    output = weighted_sum(weights, allowed, repeat_heads(value, s.shape))  # (*B, Hq, L, Dv)
    results = [output]
    if wanted[0]:
        results.append(log_sum_exp(s, allowed, sinks))
    if wanted[1]:
        results.append(weights)
    return tuple(results) if any(wanted) else output


def weighted_sum(weights: Real, allowed: NDArray[np.bool_], value: Real) -> Real:
    """Sum values by their weights, where a value that may not be attended to leaves no trace.

    Parameters
    ----------
    weights : (*B, Hq, L, S)
    allowed : (*B, Hq, L, S)
    value : (*B, Hq, S, Dv)

    Returns
    -------
    (*B, Hq, L, Dv)

    Notes
    -----
    Rules SOFT-3, MASK-13, NUM-12 and NUM-13.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.reference.attention import weighted_sum
    >>> value = np.array([[1.0, np.inf], [np.nan, 2.0]])
    >>> weighted_sum(np.array([[1.0, 0.0]]), np.array([[True, False]]), value).tolist()
    [[1.0, inf]]
    """
    finite = np.isfinite(value)
    if finite.all():
        output: Real = weights @ value
        return output
    # 0 * NaN is NaN: a weight of 0 does not keep a value out, so it is left out by hand.
    output = weights @ np.where(finite, value, 0)
    pairs = allowed.astype(value.dtype)
    for number in (np.nan, np.inf, -np.inf):
        is_it = np.isnan(value) if np.isnan(number) else value == number
        met = pairs @ is_it.astype(value.dtype) > 0
        with np.errstate(invalid="ignore"):  # both infinities are NaN
            output = np.where(met, output + value.dtype.type(number), output)
    return output
