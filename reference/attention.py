"""The operator, composed of the steps of the chapters."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from attnspec.reference.call import Array, Call, part, step
from attnspec.reference.dropout import check_rate, dropped
from attnspec.reference.errors import flag
from attnspec.reference.evaluate import evaluate
from attnspec.reference.heads import check_heads
from attnspec.reference.masking import MASK_CHECKS, allowed
from attnspec.reference.notation import Attention, Window, check_axes, check_dtypes, entered, returned
from attnspec.reference.scores import check_bias, check_scale, check_softcap, scored
from attnspec.reference.softmax import check_sinks, maxima, softmax_of, weighted


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
    return_max: bool = False,
    dtype: DTypeLike = np.float64,
) -> Any:
    """Scaled dot-product attention.

    Parameters
    ----------
    query : (*B, Hq, L, D) or (L, D)
    key : (*B, Hkv, S, D) or (S, D)
    value : (*B, Hkv, S, Dv) or (S, Dv)
    scale : float, optional
        Factor of the dot products, by default ``1 / sqrt(D)`` (SCORE-2).
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
        Number of valid queries and of valid keys (MASK-10, MASK-9).
    query_segment_ids, key_segment_ids : (*B, L) and (*B, S), optional
        A query attends only to keys with its own id (MASK-11).
    sinks : (Hq,), optional
        One more logit for each head in the denominator (SOFT-5).
    dropout_mask : bool, broadcasts to (*B, Hq, L, S), optional
        True where a weight is kept (DROP-1).
    dropout_rate : float, optional
        Kept weights are divided by 1 minus this rate (DROP-2).
    return_lse, return_weights, return_max : bool, optional
        Return the lse, the weights and the maxima too.
    dtype : data type, optional
        Working precision and dtype of the results.

    Returns
    -------
    output : (*B, Hq, L, Dv) or (L, Dv)
    lse : (*B, Hq, L) or (L,)
        Only with ``return_lse``.
    weights : (*B, Hq, L, S) or (L, S)
        Only with ``return_weights``.
    max : (*B, Hq, L) or (L,)
        Only with ``return_max``: the largest score of each row (SOFT-8).

    Raises
    ------
    ArgumentError
        If an argument is refused.

    Notes
    -----
    Vaswani et al., "Attention Is All You Need", 2017, section 3.2.1.

    Examples
    --------
    >>> from attnspec.reference import attention
    >>> attention([[0.0]], [[1.0], [2.0]], [[3.0], [5.0]]).tolist()
    [[4.0]]
    """
    return evaluate(attention_of, locals())


def attention_of(call: Call, query: Array, key: Array, value: Array, **options: Any) -> Any:
    """Check the arguments, and compute."""
    return computed(checked(Attention(call.steps, call.xp, call.dtype, query, key, value, **options)))


@part
def computed(call: Attention) -> Any:
    """Compute what a checked call returns."""
    call = entered(call)
    results = returned(call, *attend(call))
    if not call.return_max:
        return results
    most = maxima(call)
    rest = results if isinstance(results, tuple) else (results,)
    return (*rest, most[0, ...] if call.flat else most)


@step
def attend(call: Attention) -> tuple[Array, Array, Array]:
    """Compute output, lse and weights."""
    s = scored(call)  # (*B, Hq, L, S)
    seen = allowed(call)  # (*B, Hq, L, S)
    p, lse = softmax_of(call, s, seen)  # (*B, Hq, L, S) and (*B, Hq, L)
    p = dropped(call, p)
    return weighted(call, p, seen), lse, p  # (*B, Hq, L, Dv)


@step
def checked(call: Attention) -> Attention:
    """Check all arguments (ERR-3)."""
    for check in CHECKS:
        call = check(call)
    return call


@step
def check_flags(call: Attention) -> Attention:
    """Check that flags are True or False (ERR-3)."""
    for name in ("return_lse", "return_weights", "return_max"):
        flag(name, getattr(call, name))
    return call


#: In this order: later checks rely on earlier ones.
CHECKS = (
    check_dtypes,
    check_axes,
    check_heads,
    check_flags,
    check_scale,
    check_softcap,
    check_bias,
    *MASK_CHECKS,
    check_rate,
    check_sinks,
)
