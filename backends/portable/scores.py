"""Dot products, scale, softcap and bias, in Array API calls alone: the chapter `scores`."""

import math
from typing import Any

from attnspec.backends.portable.errors import (
    check,
    check_array,
    check_broadcast,
    check_floating,
    number,
    working,
)
from attnspec.backends.portable.notation import check_axes, score_shape, share
from attnspec.backends.portable.parts import part


def scores(
    query: Any, key: Any, *, scale: float | None = None, softcap: float | None = None, bias: Any = None
) -> Any:
    """Scaled and capped dot products, bias added (SCORE-1 to SCORE-6).

    Parameters
    ----------
    query : (*B, Hq, L, D) or (L, D)
    key : (*B, Hkv, S, D) or (S, D)
    bias : broadcasts to (*B, Hq, L, S), optional

    Returns
    -------
    array (*B, Hq, L, S) or (L, S)

    Raises
    ------
    ValueError
        When the arrays do not fit, or a number is not one that is expected.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.backends.portable.operations import COMPANIONS
    >>> COMPANIONS["scores"](np.array([[1.0, 2.0, 2.0, 0.0]]), np.array([[3.0, 0.0, 1.0, 7.0]]))
    array([[2.5]])
    """
    xp = check_axes(query=query, key=key)
    return xp.astype(working_scores(xp, query, key, scale, softcap, bias), query.dtype)


def working_scores(xp: Any, query: Any, key: Any, scale: Any, softcap: Any, bias: Any) -> Any:
    """Scores in the working precision, of arrays that fit."""
    factor = 1 / math.sqrt(query.shape[-1])
    if scale is not None:
        factor = number("scale", scale, "a finite number", "ERR-6")
    s = _products(xp, query, key) * factor  # (*B, Hq, L, S)
    if softcap is not None:
        s = _cap(xp, s, softcap)
    if bias is None:
        return s
    check_array(xp, "bias", bias, "SCORE-4")
    check_floating("ERR-2", bias=bias)
    check_broadcast("bias", bias, score_shape(query, key), "SCORE-4")
    return s + working(bias)  # a bias in float64 takes the scores with it (ERR-14)


@part
def _products(xp: Any, query: Any, key: Any) -> Any:
    return share(xp, working(query), xp.matrix_transpose(working(key)))


def _cap(xp: Any, s: Any, softcap: Any) -> Any:
    expected = "a positive finite number"
    limit = number("softcap", softcap, expected, "SCORE-6")
    check("softcap", limit > 0, expected, limit, "SCORE-6")
    # A cap that the working precision does not have would give 0 / 0, or 0 times infinity; so far out, the
    # nearest that it has makes no difference.
    known = xp.finfo(s.dtype)
    limit = min(max(limit, float(known.smallest_normal)), float(known.max) * float(known.eps))
    return xp.tanh(s / limit) * limit
