"""Compares an output with its exact values: first the non-finite pattern, then each number."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.conformance.verdict import Difference


def compare(
    name: str,
    got: NDArray[Any],
    expected: NDArray[Any],
    allowed: NDArray[Any],
    *dtypes: str,
    where: NDArray[np.bool_] | None = None,
) -> Difference | float:
    """Compare one output.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.conformance.judge.comparison import compare
    >>> got, expected = np.array([1.0, np.nan]), np.array([1.0, 2.0])
    >>> compare("output", got, expected, np.zeros(2), "float64").element
    (1,)
    >>> compare("output", expected, expected, np.zeros(2), "float64")
    0.0
    """
    if got.shape != expected.shape:
        return Difference("shape", name, (), str(got.shape), str(expected.shape))
    if str(got.dtype) not in dtypes:
        return Difference("dtype", name, (), str(got.dtype), " or ".join(dtypes))
    wide = got.astype(np.float64)
    if where is not None:
        wide, expected = np.where(where, wide, 0), np.where(where, expected, 0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        shares = np.abs(wide - expected) / allowed
    # What is not finite, and an error of 0 with a budget of 0, makes this NaN or infinite.
    if (most := shares.max(initial=0.0)) <= 1:
        return float(most)
    finite = np.isfinite(expected)
    same = np.where(finite, np.isfinite(wide), (wide == expected) | (np.isnan(wide) & np.isnan(expected)))
    if not same.all():
        place = _first(~same)
        count = int((~same).sum())
        return Difference(
            "pattern",
            name,
            _plain(place),
            float(wide[place]),
            float(expected[place]),
            0.0,
            np.inf,
            count,
            wide.size,
        )
    error = np.abs(np.subtract(wide, expected, where=finite, out=np.zeros(wide.shape)))
    # An error in an element with a budget of 0 uses an infinite share of it.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        shares = np.where(error == 0, 0.0, error / allowed)
    if not shares.size or shares.max() <= 1:
        return float(shares.max(initial=0.0))
    place = np.unravel_index(int(shares.argmax()), shares.shape)
    most = float(np.broadcast_to(allowed, wide.shape)[place])
    numbers = float(wide[place]), float(expected[place]), most, float(shares[place])
    return Difference("value", name, _plain(place), *numbers, int((shares > 1).sum()), wide.size)


def same_bits(name: str, got: NDArray[Any], expected: NDArray[Any]) -> Difference | None:
    """Compare two results that must have the same bits. Return None if they have.

    Zeros of different sign differ. NaN is the same as any other NaN, because its payload is not defined.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.conformance.judge.comparison import same_bits
    >>> same_bits("output", np.array([1.0, 2.0]), np.array([1.0, 3.0])).got
    2.0
    """
    if got.shape != expected.shape:
        return Difference("shape", name, (), str(got.shape), str(expected.shape))
    if got.tobytes() == expected.tobytes():
        return None
    left, right = (np.ascontiguousarray(array) for array in (got, expected))
    other = (left.view(f"V{left.itemsize}") != right.view(f"V{right.itemsize}")).reshape(got.shape)
    other &= ~(np.isnan(got) & np.isnan(expected))
    if not other.any():
        return None
    place = _first(other)
    numbers = float(got[place]), float(expected[place])
    return Difference("bits", name, _plain(place), *numbers, 0.0, np.inf, int(other.sum()), got.size)


def _first(where: NDArray[np.bool_]) -> tuple[Any, ...]:
    return np.unravel_index(int(where.argmax()), where.shape)


def _plain(place: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(int(index) for index in place)
