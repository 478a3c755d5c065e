"""Rotary embedding and ALiBi: the chapter `positions`."""

from typing import Any

import numpy as np
from array_api_compat import device
from numpy.typing import ArrayLike, DTypeLike, NDArray

from attnspec.reference.call import Array, Call, part, step
from attnspec.reference.errors import flag, integers, is_integer, need, number, real
from attnspec.reference.evaluate import evaluate
from attnspec.reference.heads import check_heads
from attnspec.reference.masking import check_integers, position
from attnspec.reference.notation import (
    Attention,
    check_axes,
    check_dtypes,
    count,
    narrow,
    of_batch,
    stored,
    wide,
)


def rotary(
    features: ArrayLike,
    *,
    offset: ArrayLike = 0,
    base: float = 10000.0,
    interleaved: bool = False,
    rotary_depth: int | None = None,
    dtype: DTypeLike = np.float64,
) -> NDArray[Any]:
    """Rotate pairs of features by angles that are proportional to their position.

    Parameters
    ----------
    features : (*B, H, N, D) or (N, D)
    offset : int or (*B), optional
        Position of the first row.
    base : float, optional
        Pair ``k`` is rotated by ``base ** (-2 k / R)`` radians for each position.
    interleaved : bool, optional
        Whether pairs are adjacent features, and not features half the rotary depth apart.
    rotary_depth : int, optional
        Number of features that are rotated, ``R``; by default all.
    dtype : data type, optional
        Working precision and dtype of the result.

    Returns
    -------
    (*B, H, N, D)

    Raises
    ------
    ArgumentError
        If an argument is refused.

    Notes
    -----
    Rules POS-1 to POS-6. Su et al., "RoFormer", 2021.

    Examples
    --------
    >>> from attnspec.reference import rotary
    >>> rotary([[1.0, 2.0, 3.0, 4.0]], offset=0).tolist()  # position 0 is not rotated
    [[1.0, 2.0, 3.0, 4.0]]
    """
    result: NDArray[Any] = evaluate(rotary_of, locals())
    return result


def rotary_of(
    call: Call, features: Array, *, offset: Any, base: float, interleaved: bool, rotary_depth: int | None
) -> Array:
    """Check the arguments, and rotate."""
    starts, depth = check_rotary(call, features, offset, base, rotary_depth)
    return rotated(call, features, starts, float(base), depth, interleaved=flag("interleaved", interleaved))


@step
def check_rotary(
    call: Call, features: Array, offset: Any, base: float, rotary_depth: int | None
) -> tuple[Any, int]:
    """Check that the rotary depth is even and from 2 to D (POS-6)."""
    shape = tuple(real(call, "features", features, "ERR-2").shape)
    need("features", len(shape) >= 2, "two axes or more", f"shape {shape}", "ERR-16")
    need("base", number("base", base, "POS-9") > 0, "a positive number", base, "POS-9")
    depth, most = shape[-1] if rotary_depth is None else rotary_depth, shape[-1]
    good = is_integer(depth) and depth % 2 == 0 and 2 <= depth <= most
    need("rotary_depth", good, f"an even number from 2 to {most}", repr(depth), "POS-6")
    return integers(call, "offset", offset, shape[:-3], "ERR-16"), int(depth)


@step
@part
def rotated(
    call: Call,
    features: Array,
    offset: Any,
    base: float,
    depth: int,
    *,
    interleaved: bool,
    back: bool = False,
) -> Array:
    """Rotate each pair by its angle, or back. Features past the rotary depth do not change (POS-1, POS-4)."""
    xp, storage = call.xp, stored(call, features)
    angle = angles(call, features, offset, base, depth)  # (*B, 1, N, R / 2)
    first, second = pairs(call, depth, interleaved=interleaved)
    given = wide(call, features)
    cosine, sine = (xp.astype(function(angle), given.dtype) for function in (xp.cos, xp.sin))
    a, b = turned(call, given[..., first], given[..., second], cosine, -sine if back else sine)
    # Concatenate the pairs, then take each feature from its place in the concatenation.
    places = [*range(depth)[first], *range(depth)[second]]
    order = xp.asarray(sorted(range(depth), key=places.__getitem__), device=device(features))
    together = xp.take(xp.concat([a, b], axis=-1), order, axis=-1)
    return xp.concat([narrow(call, x, storage) for x in (together, features[..., depth:])], axis=-1)


@step
def angles(call: Call, features: Array, offset: Any, base: float, depth: int) -> Array:
    """Position times frequency, ``(*B, 1, N, R / 2)``, in float64 (POS-1, POS-5)."""
    # In float32 the angle of a late position has few digits left after the decimal point.
    xp, starts = call.xp, of_batch(offset) if features.ndim > 2 else offset
    position = xp.astype(count(xp, features.shape[-2], features)[:, None] + starts, xp.float64)
    pair = xp.astype(count(xp, depth // 2, features), xp.float64)
    return position * base ** (-2 * pair / depth)


@step
def pairs(_call: Call, depth: int, *, interleaved: bool) -> tuple[slice, slice]:
    """Return the two features of each pair, adjacent or half the rotary depth apart (POS-2, POS-3)."""
    if interleaved:
        return slice(0, depth, 2), slice(1, depth, 2)
    return slice(0, depth // 2), slice(depth // 2, depth)


@step
def turned(_call: Call, a: Array, b: Array, cosine: Array, sine: Array) -> tuple[Array, Array]:
    """Rotate a pair counterclockwise (POS-1)."""
    return a * cosine - b * sine, a * sine + b * cosine


def alibi_bias(
    query: ArrayLike, key: ArrayLike, *, query_offset: ArrayLike = 0, dtype: DTypeLike = np.float64
) -> NDArray[Any]:
    """Return the bias of ALiBi, which decreases with the distance of query and key.

    Parameters
    ----------
    query : (*B, Hq, L, D) or (L, D)
    key : (*B, Hkv, S, D) or (S, D)
        Only the shapes are used.
    query_offset : int or (*B), optional
        Position of query 0 among the keys.
    dtype : data type, optional
        Dtype of the result.

    Returns
    -------
    (*B, Hq, L, S)

    Raises
    ------
    ArgumentError
        If an argument is refused.

    Notes
    -----
    Rules POS-7 and POS-8. Press, Smith and Lewis, "Train Short, Test Long", 2021.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.reference import alibi_bias
    >>> alibi_bias(np.ones((1, 1, 2)), np.ones((1, 3, 2)), query_offset=1).tolist()
    [[[-0.00390625, -0.0, -0.00390625]]]
    """
    result: NDArray[Any] = evaluate(alibi_bias_of, locals())
    return result


def alibi_bias_of(call: Call, query: Array, key: Array, *, query_offset: Any) -> Array:
    """Check the arguments, and compute the bias."""
    each = Attention(call.steps, call.xp, call.dtype, query, key, key, query_offset=query_offset)
    for check in (check_dtypes, check_axes, check_heads, check_integers):
        each = check(each)
    return _alibi_bias(each)


@part
def _alibi_bias(call: Attention) -> Array:
    xp, shape = call.xp, call.shape
    heads = shape[-3] if len(shape) > 2 else 1
    slope = xp.asarray(slopes(call, heads), dtype=xp.float64, device=device(call.query))[:, None, None]
    bias = distant(call, slope, position(call), call.j)  # (*B, Hq, L, S)
    bias = xp.broadcast_to(bias if len(shape) > 2 else bias[0, ...], shape)
    return narrow(call, bias, stored(call, call.query))


@step
def distant(call: Call, slopes: Array, p: Array, j: Array) -> Array:
    """Return minus slope times distance (POS-8)."""
    return -slopes * call.xp.astype(call.xp.abs(p - j), slopes.dtype)


@step
def slopes(_call: Call, heads: int) -> list[float]:
    """Return the slope of each head (POS-7).

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.reference import alibi_bias
    >>> alibi_bias(np.ones((3, 2, 1)), np.ones((3, 1, 1)))[:, 1].ravel().tolist()
    [-0.0625, -0.00390625, -0.25]
    """
    power = 1 << (heads.bit_length() - 1)  # the largest power of two up to `heads`
    few = [2.0 ** (-8 * (h + 1) / power) for h in range(power)]
    twice = [2.0 ** (-8 * (h + 1) / (2 * power)) for h in range(2 * power)]
    return few + twice[::2][: heads - power]
