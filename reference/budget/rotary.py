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
    work = arithmetic.work
    depth = given.get("rotary_depth") or features.shape[-1]
    position = _positions(features, given)
    multiplier = abs(float(given.get("attention_factor", 1.0)))
    cosine, sine, factor = _cosines_and_sines(position, given, arithmetic, depth)
    exact = (position == 0) & ("cosines" not in given) & (multiplier == 1)  # no number is rounded there
    if multiplier != 1:  # one more product, of cosine and sine or of the result
        cosine, sine, factor = (multiplier * x for x in (cosine, sine, factor + work.unit))
    if given.get("interleaved", False):
        first, second = slice(0, depth, 2), slice(1, depth, 2)
    else:
        first, second = slice(0, depth // 2), slice(depth // 2, depth)
    a, b = features[..., first], features[..., second]
    sine = direction * sine
    value, error = features.copy(), np.zeros(features.shape)
    for place, left, right in ((first, cosine * a, -sine * b), (second, sine * a, cosine * b)):
        value[..., place] = left + right
        error[..., place] = np.where(
            exact,
            0,
            factor * (np.abs(a) + np.abs(b))
            + TURNING * work.unit * (np.abs(left) + np.abs(right))
            + TURNING * work.normal,
        )
    return np.where(error == 0, 0, rounded(value, error, arithmetic.storage))


def _cosines_and_sines(
    position: Any, given: Mapping[str, Any], arithmetic: Arithmetic, depth: int
) -> tuple[Budget, Budget, Budget]:
    """Return cosines, sines and their error, for each row and pair."""
    work, storage = arithmetic.work, arithmetic.storage
    if "cosines" in given:
        own = np.arange(depth // 2)
        cosine, sine = (given[name][position, own] for name in ("cosines", "sines"))
        return cosine, sine, np.zeros(cosine.shape)
    k = np.arange(depth // 2)
    if "inverse_frequencies" in given:
        angle, power = position * given["inverse_frequencies"], np.zeros(depth // 2)
    else:
        base = float(given.get("base", 10000.0))
        angle = position * base ** (-2 * k / depth)
        # A power is exp(exponent * log(base)). Its exponent is rounded three times at its size.
        power = EXPONENTIAL + 3 * (2 * k / depth) * abs(np.log(base))
    angle_error = work.unit * np.abs(angle) * (power + 1)
    # Cosine and sine have the error of the angle, their own, and in the class `cast` a rounding to storage.
    factor = angle_error + EXPONENTIAL * work.unit + (storage.unit if arithmetic.casts else 0)
    return np.cos(angle), np.sin(angle), np.where(position == 0, 0, factor)


def _positions(features: Budget, given: Mapping[str, Any]) -> Any:
    """Return the position of each row and pair, ``(*B, 1, N, R / 2)``, or of each row."""
    starts = np.asarray(given.get("offset", 0))
    starts = starts.reshape(starts.shape + (1,) * (features.ndim - starts.ndim))
    if "axis_positions" in given:
        axis = np.repeat(np.arange(len(given["sections"])), given["sections"])
        own = np.moveaxis(np.asarray(given["axis_positions"])[axis], 0, -1)  # (*B, N, R / 2)
    elif "positions" in given:
        own = np.asarray(given["positions"])[..., None]
    else:
        return np.arange(features.shape[-2])[:, None] + starts
    return (own[..., None, :, :] if features.ndim > 2 else own) + starts
