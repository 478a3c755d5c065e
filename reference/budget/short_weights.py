"""The error of an output whose weights are rounded to 8 bits: the profile `fp8` of the chapter `numerics`."""

import numpy as np

from attnspec.reference.budget.formats import Budget
from attnspec.reference.budget.profile import NORMALISED, RAISED, Profile

#: The largest part of a denominator that roundings to 0 may take: beyond it the bound is not derived.
MOST = 0.5


def short_weights(profile: Profile, weights: Budget, kept: Budget, value: Budget, output: Budget) -> Budget:
    """Return what the rounding of weights adds to the error of an output.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.reference.budget.profile import PROFILES
    >>> from attnspec.reference.budget.short_weights import short_weights
    >>> two, value = np.array([[0.5, 0.5]]), np.array([[1.0], [1.0]])
    >>> found = short_weights(PROFILES["fp8"]["float16"], two, np.ones((1, 2)), value, np.array([[1.0]]))
    >>> 1 / 16 < float(found[0, 0]) < 1.01 / 16
    True
    """
    keys = kept.shape[-1]
    there = (weights > 0).sum(axis=-1, keepdims=True)
    # A weight of 1 is not changed by its rounding, but 1 divided by a rate of keeping is.
    inexact = (there > 1) | (kept.max(axis=-1, keepdims=True, initial=0.0) > 1)
    p = weights[..., :keys] * inexact
    most = weights.max(axis=-1, keepdims=True, initial=0.0)
    absolute = profile.least * (most / RAISED + 1 / NORMALISED) * (p > 0)  # (*B, Hq, L, S)
    lost = np.minimum(absolute.sum(axis=-1, keepdims=True), MOST)
    moved = profile.weights * p + absolute
    size = (kept * moved) @ np.abs(value)
    found: Budget = np.maximum(size, spread_of(moved, kept, value, output)) / (1 - lost)
    return found


def spread_of(moved: Budget, kept: Budget, value: Budget, output: Budget) -> Budget:
    """Sum ``moved[i, j] * |kept[i, j] value[j, c] - output[i, c]|`` over j, one column at a time."""
    spread = np.empty_like(output)
    for c in range(value.shape[-1]):
        distance = np.abs(kept * value[..., None, :, c] - output[..., :, None, c])  # (*B, Hq, L, S)
        spread[..., c] = (moved * distance).sum(axis=-1)
    return spread
