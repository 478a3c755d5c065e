"""The operator, composed of the steps of the chapters, and the dropout of given weights."""

from typing import Any

from attnspec.reference.call import Array, Call, part, step
from attnspec.reference.errors import flag, need, number
from attnspec.reference.functions import public
from attnspec.reference.heads import check_heads
from attnspec.reference.masking import MASK_CHECKS, allowed_pairs
from attnspec.reference.notation import Attention, check_axes, check_dtypes, enter, finish
from attnspec.reference.scores import check_bias, check_scale, check_softcap, score
from attnspec.reference.softmax import check_sinks, maxima, softmax_of, weighted_sum


@step
def check_rate(call: Attention) -> Attention:
    """Check that the rate is at least 0, below 1, and given together with a mask (DROP-4)."""
    rate = number("dropout_rate", call.dropout_rate, "DROP-4")
    need("dropout_rate", 0 <= rate < 1, "0 to below 1", rate, "DROP-4")
    alone = rate > 0 and call.dropout_mask is None
    need("dropout_rate", not alone, "0 without a dropout_mask", rate, "DROP-4")
    return call


@step
def drop(call: Attention, p: Array) -> Array:
    """Drop weights after the softmax, and scale the others (DROP-1, DROP-2)."""
    if call.dropout_mask is None:
        return p
    # A dropped weight is a product, so that a row of NaN stays NaN (NUM-11). XLA makes a selection of a
    # product with the mask itself.
    return call.xp.where(call.dropout_mask, p / (1 - call.dropout_rate), 0 * p)


def attention_of(call: Call, query: Array, key: Array, value: Array, **options: Any) -> Any:
    """Scaled dot-product attention.

    Notes
    -----
    Vaswani et al., "Attention Is All You Need", 2017, section 3.2.1.

    Examples
    --------
    >>> from attnspec.reference import attention
    >>> attention([[0.0]], [[1.0], [2.0]], [[3.0], [5.0]]).tolist()
    [[4.0]]
    """
    return attention_part(
        check_arguments(Attention(call.steps, call.xp, call.dtype, query, key, value, **options))
    )


attention = public(attention_of)


@part
def attention_part(call: Attention) -> Any:
    """Compute what a checked call returns."""
    call = enter(call)
    results = finish(call, *attend(call))
    if not call.return_max:
        return results
    most = maxima(call)
    rest = results if isinstance(results, tuple) else (results,)
    return (*rest, most[0, ...] if call.flat else most)


@step
def attend(call: Attention) -> tuple[Array, Array, Array]:
    """Compute output, lse and weights."""
    s = score(call)  # (*B, Hq, L, S)
    seen = allowed_pairs(call)  # (*B, Hq, L, S)
    p, lse = softmax_of(call, s, seen)  # (*B, Hq, L, S) and (*B, Hq, L)
    p = drop(call, p)
    return weighted_sum(call, p, seen), lse, p  # (*B, Hq, L, Dv)


@step
def check_arguments(call: Attention) -> Attention:
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
