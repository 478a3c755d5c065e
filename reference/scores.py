"""Scores of queries and keys: the chapter `scores`."""

import math
from typing import Any

from attnspec.dtypes import FORMATS
from attnspec.reference.call import Array, Call, part, step
from attnspec.reference.errors import broadcastable, dtype_name, need, number, real
from attnspec.reference.functions import public
from attnspec.reference.heads import check_heads, repeat_heads
from attnspec.reference.notation import Attention, check_axes, check_dtypes, enter, narrow, wide


def scores_of(call: Call, query: Array, key: Array, **options: Any) -> Array:
    """Return the scaled dot products of queries and keys, with softcap and bias.

    Notes
    -----
    Rules SCORE-1 to SCORE-6.

    Examples
    --------
    >>> from attnspec.reference import scores
    >>> scores([[1.0, 1.0]], [[2.0, 3.0], [4.0, 5.0]], scale=1.0).tolist()
    [[5.0, 9.0]]
    """
    each = Attention(call.steps, call.xp, call.dtype, query, key, key, **options)
    for check in (check_dtypes, check_axes, check_heads, check_scale, check_softcap, check_bias):
        each = check(each)
    return _scores(each)


scores = public(scores_of)


@part
def _scores(call: Attention) -> Array:
    call = enter(call)
    s = narrow(call, score(call), call.storage)
    return s[0, ...] if call.flat else s


@step
def check_scale(call: Attention) -> Attention:
    """Check that the scale is a finite number (ERR-6)."""
    return call if call.scale is None else call.but(scale=number("scale", call.scale, "ERR-6"))


@step
def check_softcap(call: Attention) -> Attention:
    """Check that the softcap is a positive finite number (SCORE-6)."""
    if call.softcap is None:
        return call
    cap = number("softcap", call.softcap, "SCORE-6")
    need("softcap", cap > 0, "a positive number", cap, "SCORE-6")
    # A cap outside the range of the working precision would give 0 / 0, or 0 times infinity. The nearest
    # cap within the range has the same effect.
    known = FORMATS[dtype_name(wide(call, call.query))]
    return call.but(softcap=min(max(cap, known.normal), known.largest * 2 * known.unit))


@step
def check_bias(call: Attention) -> Attention:
    """Check that the bias broadcasts to the scores (SCORE-4, ERR-15)."""
    if call.bias is not None:
        broadcastable("bias", real(call, "bias", call.bias, "ERR-2"), call.shape, "ERR-15")
    return call


@step
def score(call: Attention) -> Array:
    """Scale the dot products, apply the softcap, add the bias (SCORE-4, SCORE-5), ``(*B, Hq, L, S)``."""
    return add_bias(call, cap(call, product(call) * factor(call)))


@step
def product(call: Attention) -> Array:
    """Return the dot product of each query with each key of its head (SCORE-1)."""
    return call.query @ call.xp.matrix_transpose(repeat_heads(call, call.key))


@step
def factor(call: Attention) -> float:
    """Return the scale, by default one over the root of the depth (SCORE-2, SCORE-3)."""
    return 1 / math.sqrt(call.query.shape[-1]) if call.scale is None else call.scale


@step
def cap(call: Attention, x: Array) -> Array:
    """Apply the softcap to the scaled scores (SCORE-5)."""
    return x if call.softcap is None else call.softcap * call.xp.tanh(x / call.softcap)


@step
def add_bias(call: Attention, x: Array) -> Array:
    """Add the bias at its value. A bias in float64 converts the scores to float64 (SCORE-4, ERR-14)."""
    return x if call.bias is None else x + wide(call, call.bias)
