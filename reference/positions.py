"""Where a key stands: rotary embedding and ALiBi, as in the chapter `positions`."""

import math

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from attnspec.reference.errors import ArgumentError, check_flag, check_integers, check_number
from attnspec.reference.notation import Real, as_real, check_axes


def rotary(
    features: ArrayLike,
    *,
    offset: ArrayLike = 0,
    base: float = 10000.0,
    interleaved: bool = False,
    rotary_depth: int | None = None,
    dtype: DTypeLike = np.float64,
) -> Real:
    """Turn pairs of features by angles in proportion to their position.

    Parameters
    ----------
    features : (*B, H, N, D) or (N, D)
    offset : int or (*B), optional
        Position of the first row.
    base : float, optional
        Pair ``k`` turns by ``base ** (-2 k / R)`` radians a position.
    interleaved : bool, optional
        Whether pairs are neighbours rather than half the depth apart.
    rotary_depth : int, optional
        How many features are turned, ``R``; all when not given.
    dtype : data type, optional
        Working precision and dtype of the result.

    Returns
    -------
    (*B, H, N, D)

    Raises
    ------
    ArgumentError
        When an argument does not fit.

    Notes
    -----
    Rules POS-1 to POS-6. Su et al., "RoFormer", 2021.

    Examples
    --------
    >>> from attnspec.reference import rotary
    >>> rotary([[1.0, 2.0, 3.0, 4.0]], offset=0).tolist()  # position 0 is not turned
    [[1.0, 2.0, 3.0, 4.0]]
    """
    features = as_real("features", features, dtype)
    if features.ndim < 2:
        raise ArgumentError(f"features: expected two axes or more, got shape {features.shape} [POS-1]")
    depth = _check_depth(rotary_depth, features.shape[-1])
    if check_number("base", base, "POS-1") <= 0:
        raise ArgumentError(f"base: expected a positive number, got {base!r} [POS-1]")
    starts = check_integers("offset", offset, features.shape[:-3], "POS-5")
    position = np.arange(features.shape[-2])[:, None] + starts.reshape(
        starts.shape + (1,) * (features.ndim - starts.ndim)
    )  # (*B, 1, N, 1)
    # Not in the working precision: the angle of a late position has few digits left after the point.
    angle = position * float(base) ** (-2 * np.arange(depth // 2) / depth)  # (*B, 1, N, R / 2)
    cosine, sine = np.cos(angle).astype(dtype), np.sin(angle).astype(dtype)
    if check_flag("interleaved", interleaved):
        first, second = slice(0, depth, 2), slice(1, depth, 2)
    else:
        first, second = slice(0, depth // 2), slice(depth // 2, depth)
    a, b = features[..., first], features[..., second]
    turned = features.copy()  # features past the rotary depth stay
    turned[..., first] = a * cosine - b * sine
    turned[..., second] = a * sine + b * cosine
    return turned


def alibi_slopes(heads: int) -> list[float]:
    """Slopes of ALiBi for a number of heads (POS-7).

    Examples
    --------
    >>> from attnspec.reference.positions import alibi_slopes
    >>> alibi_slopes(3)
    [0.0625, 0.00390625, 0.25]
    """
    lower = 2 ** int(math.log2(heads))
    slopes = [2 ** (-8 * (h + 1) / lower) for h in range(lower)]
    # Every second one of twice as many, from the first: those that lie between the others.
    between = [2 ** (-8 * (h + 1) / (2 * lower)) for h in range(0, 2 * lower, 2)]
    return slopes + between[: heads - lower]


def alibi_bias(
    query: ArrayLike, key: ArrayLike, *, query_offset: ArrayLike = 0, dtype: DTypeLike = np.float64
) -> Real:
    """Bias that takes away from a score in proportion to the distance of query and key.

    Parameters
    ----------
    query : (*B, Hq, L, D) or (L, D)
    key : (*B, Hkv, S, D) or (S, D)
        Only their shapes count.
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
        When an argument does not fit.

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
    query, key = as_real("query", query, dtype), as_real("key", key, dtype)
    check_axes(query, key)
    starts = check_integers("query_offset", query_offset, query.shape[:-3], "ERR-8")
    position = np.arange(query.shape[-2])[:, None] + starts.reshape(
        starts.shape + (1,) * (query.ndim - starts.ndim)
    )  # (*B, 1, L, 1)
    distance = np.abs(position - np.arange(key.shape[-2]))  # (*B, 1, L, S)
    slopes = np.array(alibi_slopes(query.shape[-3] if query.ndim > 2 else 1))
    slope = slopes[:, None, None] if query.ndim > 2 else slopes[:, None]
    bias: Real = (-slope * distance).astype(dtype)
    return bias


def _check_depth(given: int | None, depth: int) -> int:
    rotary_depth = depth if given is None else given
    whole = isinstance(rotary_depth, int | np.integer) and not isinstance(rotary_depth, bool)
    if not whole or rotary_depth % 2 or not 2 <= rotary_depth <= depth:
        raise ArgumentError(
            f"rotary_depth: expected an even number from 2 to {depth}, got {rotary_depth!r} [POS-6]"
        )
    return int(rotary_depth)
