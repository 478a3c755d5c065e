"""Rotary embedding and ALiBi, in Array API calls alone: the chapter `positions`."""

from typing import Any

from array_api_compat import device

from attnspec.backends.portable.errors import (
    check,
    check_flags,
    check_floating,
    count,
    integer,
    integers,
    namespace,
    number,
    working,
)
from attnspec.backends.portable.notation import check_axes, per_entry, reshape, score_shape


def rotary(
    features: Any,
    *,
    offset: Any = 0,
    base: float = 10000.0,
    interleaved: bool = False,
    rotary_depth: int | None = None,
) -> Any:
    """Turn pairs of features by angles that grow with the position (POS-1 to POS-6).

    Parameters
    ----------
    features : (*B, H, N, D) or (N, D)
    offset : int, or integers (*B)

    Returns
    -------
    array of the shape of `features`

    Raises
    ------
    ValueError
        When the rotary depth is odd or does not fit, or another argument is not as expected.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.backends.portable.operations import COMPANIONS
    >>> COMPANIONS["rotary"](np.array([[1.0, 0.0]]), offset=1).round(4).tolist()
    [[0.5403, 0.8415]]
    """
    xp = namespace("ERR-2", features=features)
    check_floating("ERR-2", features=features)
    shape = tuple(features.shape)
    check("features", len(shape) >= 2 and shape[-1] > 0, "(*B, H, N, D)", f"shape {shape}", "SHAPE-1")
    check_flags(interleaved=interleaved)
    base = number("base", base, "a positive finite number", "POS-1")
    check("base", base > 0, "a positive finite number", base, "POS-1")
    depth = shape[-1] if rotary_depth is None else integer("rotary_depth", rotary_depth, 2, "POS-6")
    even = 2 <= depth <= shape[-1] and depth % 2 == 0
    check("rotary_depth", even, f"an even number from 2 to {shape[-1]}", depth, "POS-6")
    start = integers(xp, "offset", offset, shape[:-3], "POS-5")
    positions = xp.astype(count(xp, shape[-2], features) + per_entry(start, len(shape) - 1), xp.float64)[
        ..., None
    ]
    # In float64: at position a million, float32 would be off by a sixteenth of a radian.
    steps = [base ** (-2 * pair / depth) for pair in range(depth // 2)]
    angles = positions * xp.asarray(steps, dtype=xp.float64, device=device(features))  # (*B, 1, N, R / 2)
    turned = working(features)
    cos, sin = (xp.astype(function(angles), turned.dtype) for function in (xp.cos, xp.sin))
    if interleaved:
        first, second = turned[..., 0:depth:2], turned[..., 1:depth:2]
    else:
        first, second = turned[..., : depth // 2], turned[..., depth // 2 : depth]
    pair = [first * cos - second * sin, first * sin + second * cos]
    if interleaved:
        joined = reshape(xp, xp.stack(pair, axis=-1), (*shape[:-1], depth))
    else:
        joined = xp.concat(pair, axis=-1)
    return xp.concat([xp.astype(joined, features.dtype), features[..., depth:]], axis=-1)


def alibi_bias(query: Any, key: Any, *, query_offset: Any = 0) -> Any:
    """Bias that takes away in proportion to distance (POS-7, POS-8).

    Parameters
    ----------
    query : (*B, Hq, L, D) or (L, D)
    key : (*B, Hkv, S, D) or (S, D)
    query_offset : int, or integers (*B)

    Returns
    -------
    array (*B, Hq, L, S) or (L, S)

    Raises
    ------
    ValueError
        When the arrays do not fit.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.backends.portable.operations import COMPANIONS
    >>> COMPANIONS["alibi_bias"](np.ones((1, 1, 2)), np.ones((1, 3, 2)), query_offset=2).tolist()
    [[[-0.0078125, -0.00390625, -0.0]]]
    """
    xp = check_axes(query=query, key=key)
    full = score_shape(query, key)
    start = per_entry(integers(xp, "query_offset", query_offset, full[:-3], "ERR-8"), len(full))
    rows, columns = count(xp, full[-2], query)[:, None], count(xp, full[-1], query)[None, :]
    distance = xp.astype(xp.abs(rows + start - columns), xp.float64)
    listed = _slopes(full[-3] if len(full) > 2 else 1)
    slopes = xp.asarray(listed, dtype=xp.float64, device=device(query))
    slopes = slopes[:, None, None] if len(full) > 2 else slopes[:, None]
    return xp.astype(xp.broadcast_to(-(slopes * distance), full), query.dtype)


def _slopes(heads: int) -> list[float]:
    """Slopes for any number of heads, as the authors of ALiBi publish them (POS-7)."""
    if not heads:
        return []
    power = 1 << (heads.bit_length() - 1)  # the largest power of two that is not above
    slopes = [2.0 ** (-8 * (head + 1) / power) for head in range(power)]
    between = [2.0 ** (-8 * (head + 1) / (2 * power)) for head in range(0, 2 * power, 2)]
    return slopes + between[: heads - power]
