"""The operator in Array API calls alone."""

from typing import Any

from attnspec.backends.portable.errors import check_flags, working
from attnspec.backends.portable.masking import allowed_keys
from attnspec.backends.portable.notation import check_axes, score_shape
from attnspec.backends.portable.scores import working_scores
from attnspec.backends.portable.softmax import drop, softmax, weighted_sum


def attention(
    query: Any,
    key: Any,
    value: Any,
    *,
    scale: float | None = None,
    softcap: float | None = None,
    bias: Any = None,
    mask: Any = None,
    is_causal: bool = False,
    query_offset: Any = 0,
    window: Any = None,
    query_lengths: Any = None,
    key_lengths: Any = None,
    query_segment_ids: Any = None,
    key_segment_ids: Any = None,
    sinks: Any = None,
    dropout_mask: Any = None,
    dropout_rate: float = 0.0,
    return_lse: bool = False,
    return_weights: bool = False,
) -> Any:
    """Scaled dot-product attention, every rule of the standard.

    Parameters
    ----------
    query : (*B, Hq, L, D) or (L, D)
    key : (*B, Hkv, S, D) or (S, D)
    value : (*B, Hkv, S, Dv) or (S, Dv)

    Returns
    -------
    array (*B, Hq, L, Dv) or (L, Dv)
        And, as asked for, the lse ``(*B, Hq, L)`` and the weights ``(*B, Hq, L, S)``, in a tuple.

    Raises
    ------
    ValueError
        When an argument cannot be used; the message names it and the rule.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.backends.portable.operations import attention
    >>> attention(np.zeros((1, 2)), np.ones((3, 2)), np.array([[1.0], [2.0], [6.0]]))
    array([[3.]])
    """
    xp = check_axes(query=query, key=key, value=value)
    check_flags(is_causal=is_causal, return_lse=return_lse, return_weights=return_weights)
    full = score_shape(query, key)
    s = working_scores(xp, query, key, scale, softcap, bias)
    allowed = allowed_keys(
        xp,
        full,
        query,
        bias=bias,
        mask=mask,
        is_causal=is_causal,
        query_offset=query_offset,
        window=window,
        query_lengths=query_lengths,
        key_lengths=key_lengths,
        query_segment_ids=query_segment_ids,
        key_segment_ids=key_segment_ids,
    )
    weights, lse = softmax(xp, s, allowed, sinks)
    weights = drop(xp, weights, full, dropout_mask, dropout_rate)
    output = weighted_sum(xp, weights, value, allowed)
    results = [xp.astype(output, query.dtype)]
    if return_lse:
        results.append(xp.astype(lse, working(query).dtype))  # never in half precision (NUM-7)
    if return_weights:
        results.append(xp.astype(weights, query.dtype))
    return tuple(results) if len(results) > 1 else results[0]
