"""Dropout of given weights: the chapter `dropout`."""

from attnspec.reference.call import Array, step
from attnspec.reference.errors import need, number
from attnspec.reference.notation import Attention


@step
def check_rate(call: Attention) -> Attention:
    """Check that the rate is at least 0, below 1, and given together with a mask (DROP-4)."""
    rate = number("dropout_rate", call.dropout_rate, "DROP-4")
    need("dropout_rate", 0 <= rate < 1, "0 to below 1", rate, "DROP-4")
    alone = rate > 0 and call.dropout_mask is None
    need("dropout_rate", not alone, "0 without a dropout_mask", rate, "DROP-4")
    return call


@step
def dropped(call: Attention, p: Array) -> Array:
    """Drop weights after the softmax, and scale the others (DROP-1, DROP-2).

    Examples
    --------
    >>> from attnspec.reference import attention
    >>> zero, values = [[0.0], [0.0]], [[2.0], [4.0]]
    >>> attention(zero, zero, values, dropout_mask=[True, False], dropout_rate=0.5).tolist()
    [[2.0], [2.0]]
    """
    if call.dropout_mask is None:
        return p
    # A product, not a selection, so that a row of NaN stays NaN (NUM-11).
    return p / (1 - call.dropout_rate) * call.xp.astype(call.dropout_mask, p.dtype)
