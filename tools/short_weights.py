"""Simulated attention that rounds its weights to 8 bits before the second product: the profile `fp8`."""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np

from attnspec.dtypes import SHORT
from tools.algorithms import Array, Mask, divided
from tools.algorithms import rounded as narrowed
from tools.units import Unit

#: The largest number of each format.
_LARGEST = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}
Round = Callable[[Array], Array]


def to_nearest(x: Array, name: str = "float8_e4m3fn") -> Array:
    """Round to a format of 8 bits, to nearest, and saturate.

    Examples
    --------
    >>> import numpy as np
    >>> from tools.short_weights import to_nearest
    >>> to_nearest(np.array([17.0, 19.0, 500.0, 2.0**-10], np.float32)).tolist()
    [16.0, 20.0, 448.0, 0.0]
    """
    short: Array = np.minimum(x, np.float32(_LARGEST[name])).astype(getattr(ml_dtypes, name))
    return short.astype(np.float32)


def cut_off(x: Array) -> Array:
    """Truncate to the four digits of e4m3fn."""
    near = to_nearest(x)
    mantissa, exponent = np.frexp(x)
    spacing = np.maximum(np.ldexp(np.ones_like(mantissa), exponent - 4), 2.0**-9)
    cut: Array = np.where(near > x, near - spacing, near).astype(np.float32)
    return cut


def dense(
    query: Array,
    key: Array,
    value: Array,
    allowed: Mask,
    *,
    scale: float,
    storage: Any,
    factor: float = 256.0,
    rounded: Round = to_nearest,
    summed: bool = False,
    normalised: bool = False,
) -> Array:
    """Multiply all exponentials of a row, or its weights, by a factor, and round them."""
    s = np.where(allowed, np.float32(scale) * (query @ key.T), np.float32(-np.inf))
    exponentials = np.exp(s - s.max(axis=-1, keepdims=True))
    total = exponentials.sum(axis=-1, keepdims=True)
    if normalised:
        return narrowed(
            rounded(exponentials / total * np.float32(factor)) @ value / np.float32(factor), storage
        )
    short = rounded(exponentials * np.float32(factor))
    below = short.sum(axis=-1, keepdims=True) if summed else total * np.float32(factor)
    return divided(short @ value, below)


def online(
    query: Array,
    key: Array,
    value: Array,
    allowed: Mask,
    *,
    scale: float,
    storage: Any,  # noqa: ARG001 - every algorithm takes it
    factor: float = 256.0,
    lag: float = 0.0,
    tile: int = 8,
) -> Array:
    """Go tile by tile, and keep a maximum that is exceeded by less than `lag` binary orders."""
    s = np.where(allowed, np.float32(scale) * (query @ key.T), np.float32(-np.inf))
    top = np.full((len(s), 1), -np.inf, np.float32)
    total, output = np.zeros((len(s), 1), np.float32), np.zeros((len(s), value.shape[-1]), np.float32)
    for start in range(0, s.shape[-1], tile):
        part = s[:, start : start + tile]
        highest = part.max(axis=-1, keepdims=True)
        with np.errstate(invalid="ignore"):  # rows in which nothing is allowed yet
            raised = np.where(highest - top > lag * np.log(2), np.maximum(highest, top), top)
            kept = np.where(raised > -np.inf, np.exp(top - raised), 0).astype(np.float32)
            exponentials = np.where(part > -np.inf, np.exp(part - raised), 0) * np.float32(factor)
        total = total * kept + exponentials.sum(axis=-1, keepdims=True)
        output = output * kept + to_nearest(exponentials.astype(np.float32)) @ value[start : start + tile]
        top = raised.astype(np.float32)
    return divided(output, total)


_DTYPES = (*SHORT, "float32")


def _unit(function: Callable[..., Array], *, correct: bool = True, **options: Any) -> Unit:
    return Unit(partial(function, **options), "fp8", _DTYPES, "cast" if correct else None)


#: The algorithms by name: some that stay within the profile, and some that do not.
SHORT_WEIGHTS: Mapping[str, Unit] = MappingProxyType(
    {
        "fp8 weights, raised by 2^8": _unit(dense),
        "fp8 weights, raised by 2^4": _unit(dense, factor=16.0),
        "fp8 weights, normalised, times 448": _unit(dense, normalised=True, factor=448.0),
        "fp8 weights, summed as rounded": _unit(dense, summed=True),
        "fp8 weights, tile 8": _unit(online),
        "fp8 weights, maximum 4 behind": _unit(online, factor=16.0, lag=4.0),
        "fp8 weights, not raised": _unit(dense, factor=1.0, correct=False),
        "fp8 weights, normalised, not raised": _unit(dense, normalised=True, factor=1.0, correct=False),
        "fp8 weights, saturated": _unit(online, lag=4.0, correct=False),
        "fp8 weights, truncated": _unit(dense, rounded=cut_off, correct=False),
        "fp8 weights, in e5m2": _unit(dense, rounded=partial(to_nearest, name="float8_e5m2"), correct=False),
    }
)
