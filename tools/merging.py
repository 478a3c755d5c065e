"""Attention in parts that are merged two at a time, as in rings and trees of devices."""

from collections.abc import Callable, Mapping
from functools import partial, reduce
from types import MappingProxyType
from typing import Any

import numpy as np

from tools.algorithms import Array, Mask, divided

#: An output and its lse.
Part = tuple[Array, Array]
Merge = Callable[[Part, Part], Part]


def by_sigmoids(one: Part, other: Part) -> Part:
    """Weight each output by the sigmoid of the difference of the lses."""
    (output, lse), (more, its) = one, other
    merged = _sigmoid(lse - its) * output + _sigmoid(its - lse) * more
    return merged, np.logaddexp(lse, its)


def by_difference(one: Part, other: Part) -> Part:
    """Move the first output towards the other, as implementations of ring attention do.

    The first output is rounded at its own size, even if its final weight is small.
    """
    (output, lse), (more, its) = one, other
    return output - _sigmoid(its - lse) * (output - more), np.logaddexp(lse, its)


def chain(
    query: Array,
    key: Array,
    value: Array,
    allowed: Mask,
    *,
    scale: float,
    parts: int,
    merge: Merge,
    **_: Any,
) -> Array:
    """Compute attention over each part of the keys, and merge each result into the previous ones."""
    found: list[Part] = []
    for k, v, a in zip(*(np.array_split(x, parts) for x in (key, value, allowed.T)), strict=True):
        scores = np.where(a.T, scale * (query @ k.T), -np.inf)
        top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
        shift = np.where(np.isfinite(top), top, np.zeros_like(top))
        exponentials = np.exp(scores - shift)
        total = exponentials.sum(axis=-1, keepdims=True)
        found.append((divided(exponentials @ v, total), np.log(total) + shift))
    return reduce(merge, found)[0]


def denominator_by_logarithms(
    query: Array,
    key: Array,
    value: Array,
    allowed: Mask,
    *,
    scale: float,
    result: str = "output",
    **_: Any,
) -> Array:
    """Add each key to the logarithm of the denominator, which is rounded at its own size each time."""
    scores = np.where(allowed, scale * (query @ key.T), -np.inf)
    lse = np.logaddexp.accumulate(scores, axis=-1)[:, -1:]
    return lse[:, 0] if result == "lse" else np.exp(scores - lse) @ value


def _sigmoid(x: Array) -> Array:
    """Return the sigmoid of a difference of two lses, or 0 if both are minus infinity."""
    weight: Array = 1 / (1 + np.exp(-x))
    return np.where(np.isnan(weight), np.zeros_like(weight), weight)


#: Algorithms in use that exceed the budget, by name, and the result that each computes.
EXCEEDING: Mapping[str, tuple[Callable[..., Array], str]] = MappingProxyType(
    {
        "merged by difference, 2 parts": (partial(chain, parts=2, merge=by_difference), "output"),
        "merged by difference, 8 parts": (partial(chain, parts=8, merge=by_difference), "output"),
        "denominator by logaddexp": (denominator_by_logarithms, "output"),
        "lse by logaddexp": (partial(denominator_by_logarithms, result="lse"), "lse"),
    }
)
