"""Error budgets of rotary embedding and of its gradient."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from attnspec.reference.budget.arithmetic import Arithmetic
from attnspec.reference.budget.attention import EXPONENTIAL
from attnspec.reference.budget.formats import Budget, rounded

#: Roundings of a rotated feature: two products and their sum.
TURNING = 3


def rotary_budget(given: Mapping[str, Any], arithmetic: Arithmetic) -> dict[str, Budget]:
    """Return the budget of the rotated features."""
    return {"rotated": _turned(given["features"], given, arithmetic, 1)}


def rotary_gradient_budget(given: Mapping[str, Any], arithmetic: Arithmetic) -> dict[str, Budget]:
    """Return the budget of the gradient, which is a rotation by the negative angle (GRAD-22)."""
    return {"d_features": _turned(given["d_rotated"], given, arithmetic, -1)}


def _turned(features: Budget, given: Mapping[str, Any], arithmetic: Arithmetic, direction: int) -> Budget:
    storage, work = arithmetic.storage, arithmetic.work
    depth = given.get("rotary_depth") or features.shape[-1]
    starts = np.asarray(given.get("offset", 0))
    position = np.arange(features.shape[-2])[:, None] + starts.reshape(
        starts.shape + (1,) * (features.ndim - starts.ndim)
    )
    base = float(given.get("base", 10000.0))
    k = np.arange(depth // 2)
    angle = position * base ** (-2 * k / depth)  # (*B, 1, N, R / 2)
    # A power is exp(exponent * log(base)). Its exponent is rounded three times at its size.
    power = EXPONENTIAL + 3 * (2 * k / depth) * abs(np.log(base))
    angle_error = np.where(position == 0, 0, work.unit * np.abs(angle) * (power + 1))
    # Cosine and sine have the error of the angle, their own, and in the class `cast` a rounding to storage.
    factor = angle_error + np.where(position == 0, 0, EXPONENTIAL * work.unit)
    if arithmetic.casts:
        factor = factor + np.where(position == 0, 0, storage.unit)
    if given.get("interleaved", False):
        first, second = slice(0, depth, 2), slice(1, depth, 2)
    else:
        first, second = slice(0, depth // 2), slice(depth // 2, depth)
    a, b = features[..., first], features[..., second]
    cosine, sine = np.cos(angle), direction * np.sin(angle)
    value, error = features.copy(), np.zeros(features.shape)
    for place, left, right in ((first, cosine * a, -sine * b), (second, sine * a, cosine * b)):
        value[..., place] = left + right
        error[..., place] = factor * (np.abs(a) + np.abs(b)) + np.where(
            position == 0, 0, TURNING * work.unit * (np.abs(left) + np.abs(right)) + TURNING * work.normal
        )
    return np.where(error == 0, 0, rounded(value, error, storage))
