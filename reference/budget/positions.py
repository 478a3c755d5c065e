"""Error budgets of rotary embedding and of its frequencies."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from attnspec.operations import OPERATIONS
from attnspec.reference.budget.arithmetic import Arithmetic, Budget, add_rounding
from attnspec.reference.budget.attention import EXPONENTIAL
from attnspec.reference.call import Steps
from attnspec.reference.frequencies import Frequencies, rotary_frequencies, yarn_pair, yarn_range

#: Roundings of a rotated feature: two products and their sum.
TURNING = 3


def rotary_budget(arguments: Mapping[str, Any], arithmetic: Arithmetic) -> dict[str, Budget]:
    """Return the budget of the rotated features."""
    return {"rotated": _turn(arguments["features"], arguments, arithmetic, 1)}


def rotary_gradient_budget(arguments: Mapping[str, Any], arithmetic: Arithmetic) -> dict[str, Budget]:
    """Return the budget of the gradient, which is a rotation by the negative angle (GRAD-22)."""
    cotangent, storage = arguments["d_rotated"], arithmetic.storage
    error = _turn(cotangent, arguments, arithmetic, -1)
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = (error == 0) & (cotangent.astype(storage.name) != cotangent)  # from another dtype
    return {"d_features": np.where(rounded, add_rounding(cotangent, error, storage), error)}


def _turn(features: Budget, arguments: Mapping[str, Any], arithmetic: Arithmetic, direction: int) -> Budget:
    work = arithmetic.work
    depth = arguments.get("rotary_depth") or features.shape[-1]
    position = _positions(features, arguments)
    multiplier = abs(float(arguments.get("attention_factor", 1.0)))
    cosine, sine, factor = _cosines_and_sines(position, arguments, arithmetic, depth)
    exact = (position == 0) & ("cosines" not in arguments) & (multiplier == 1)  # no number is rounded there
    if multiplier != 1:  # one more product, of cosine and sine or of the result
        off = work.unit + (multiplier < work.normal)  # it may be rounded to 0
        cosine, sine, factor = (multiplier * x for x in (cosine, sine, factor + off))
    if arguments.get("interleaved", False):
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
            + TURNING * work.normal * max(1, multiplier),
        )
        error[..., place] = arithmetic.unbounded(error[..., place], np.abs(left) + np.abs(right))
    return np.where(error == 0, 0, add_rounding(value, error, arithmetic.storage))


def _cosines_and_sines(
    position: Any, arguments: Mapping[str, Any], arithmetic: Arithmetic, depth: int
) -> tuple[Budget, Budget, Budget]:
    """Return cosines, sines and their error, for each row and pair."""
    work, storage = arithmetic.work, arithmetic.storage
    if "cosines" in arguments:
        own = np.arange(depth // 2)
        cosine, sine = (arguments[name][position, own] for name in ("cosines", "sines"))
        return cosine, sine, np.zeros(cosine.shape)
    k = np.arange(depth // 2)
    if "inverse_frequencies" in arguments:
        angle, power = position * arguments["inverse_frequencies"], np.zeros(depth // 2)
    else:
        base = float(arguments.get("base", 10000.0))
        angle = position * base ** (-2 * k / depth)
        # A power is exp(exponent * log(base)). Its exponent is rounded three times at its size.
        power = EXPONENTIAL + 3 * (2 * k / depth) * abs(np.log(base))
    # A position beyond the integers of the working precision is rounded too.
    angle_error = work.unit * np.abs(angle) * (power + 1 + (np.abs(position) * work.unit > 1))
    # Cosine and sine have the error of the angle, their own, and in the class `cast` a rounding to storage.
    factor = angle_error + EXPONENTIAL * work.unit + (storage.unit if arithmetic.casts else 0)
    return np.cos(angle), np.sin(angle), np.where(position == 0, 0, factor)


def _positions(features: Budget, arguments: Mapping[str, Any]) -> Any:
    """Return the position of each row and pair, ``(*B, 1, N, R / 2)``, or of each row."""
    starts = np.asarray(arguments.get("offset", 0), np.int64)  # a narrow dtype may not hold the sums
    starts = starts.reshape(starts.shape + (1,) * (features.ndim - starts.ndim))
    if "axis_positions" in arguments:
        axis = np.repeat(np.arange(len(arguments["sections"])), np.asarray(arguments["sections"], np.int64))
        own = np.moveaxis(np.asarray(arguments["axis_positions"], np.int64)[axis], 0, -1)  # (*B, N, R / 2)
    elif "positions" in arguments:
        own = np.asarray(arguments["positions"], np.int64)[..., None]
    else:
        return np.arange(features.shape[-2])[:, None] + starts
    return (own[..., None, :, :] if features.ndim > 2 else own) + starts


#: Roundings of a mixed frequency: quotient, 1 minus the ramp, two products, their sum.
MIXING = 5
#: Roundings of a ramp besides those of its ends: difference, width, quotient.
RAMP = 3
#: How far from its middle a ramp may be off: a little past its ends.
NEAR = 0.51
#: Roundings of the number of rotations of a pair besides that of its frequency: product, two pi, quotient.
ROTATIONS = 3

_DEFAULTS = {
    name: argument.default
    for name, argument in OPERATIONS["rotary_frequencies"].arguments.items()
    if not argument.required
}


def frequencies_budget(arguments: Mapping[str, Any], arithmetic: Arithmetic) -> dict[str, Budget]:
    """Return the budgets of the frequencies and of the attention factor."""
    own = {name: thing for name, thing in arguments.items() if name in _DEFAULTS}
    value, factor = rotary_frequencies(arguments["features"], **own | {"return_attention_factor": True})
    call = {**_DEFAULTS, **arguments}
    call["depth"] = call["rotary_depth"] or call["features"].shape[-1]
    # Both results are in the precision of an lse, and so is their computation.
    lse = arithmetic.lse
    call["unit"] = lse.unit
    error = lse.unit * _ERRORS[call["scaling"]](call, value)
    growth = {"yarn": 2 * (EXPONENTIAL + 4) + 1, "longrope": 2 * EXPONENTIAL + 4}.get(call["scaling"], 0)
    of_factor = add_rounding(factor, lse.unit * growth * np.abs(factor), lse) if growth else np.zeros(())
    return {"inverse_frequencies": add_rounding(value, error, lse), "attention_factor": np.asarray(of_factor)}


def _power(exponent: Budget, base: float) -> Budget:
    """Return the relative error of a power, in units: the exponential of a product with a logarithm."""
    return EXPONENTIAL + 3 * np.abs(exponent) * abs(math.log(base))


def _exponents(call: Mapping[str, Any]) -> Budget:
    pairs: Budget = np.arange(call["depth"] // 2) * (2 / call["depth"])
    return pairs


def _none(call: Mapping[str, Any], value: Budget) -> Budget:
    return value * (_power(_exponents(call), call["base"]) + 1)


def _divide(call: Mapping[str, Any], value: Budget) -> Budget:
    return _none(call, value) + 2 * value


def _dynamic(call: Mapping[str, Any], value: Budget) -> Budget:
    """Add the error of the raised base, which a frequency takes to the power of its exponent."""
    longer = max(call["length"], call["original_length"]) / call["original_length"]
    product, less = call["factor"] * longer, abs(call["factor"] - 1)
    ratio = product - (call["factor"] - 1)
    power = call["depth"] / max(call["depth"] - 2, 1)
    of_ratio = (2 * product + less) / ratio + 1
    of_base = power * of_ratio + _power(np.asarray(power), ratio) + 2
    base = call["base"] * ratio**power
    relative: Budget = _power(_exponents(call), base) + 1 + _exponents(call) * of_base
    return value * relative


def _mix(call: Mapping[str, Any], ramp: Budget, of_ramp: Budget) -> Budget:
    """Return the error of a ramp between a frequency and its quotient by the factor, in units."""
    plain = call["base"] ** -_exponents(call)
    stretched = plain / call["factor"]
    near = np.abs(ramp - 0.5) < NEAR  # elsewhere the ramp is exactly 0 or 1
    relative = _power(_exponents(call), call["base"]) + MIXING
    share = np.clip(ramp, 0, 1)
    size = (1 - share) * plain + share * stretched
    error: Budget = size * relative + np.where(near, np.abs(plain - stretched) * of_ramp, 0)
    return error


def _yarn(call: Mapping[str, Any], _value: Budget) -> Budget:
    own = {name: call[name] for name in _DEFAULTS if name != "rotary_depth"}
    frequencies = Frequencies(Steps(), np, None, call["features"], rotary_depth=call["depth"], **own)
    low, high = yarn_range(frequencies)
    ramp = (np.arange(call["depth"] // 2) - low) / (high - low)
    if call["truncate"]:  # the ends are integers, if no rounding makes them others
        ends = [_moved_range(frequencies, call["unit"] * sign) for sign in (-1, 1)]
        return _mix(call, ramp, np.asarray(RAMP)) if ends[0] == ends[1] else np.full(ramp.shape, np.inf)
    of_low, of_high = (_end_error(frequencies, end) for end in (low, high))
    of_ends = (1 + np.abs(ramp)) * of_low + np.abs(ramp) * of_high
    return _mix(call, ramp, RAMP * (1 + np.abs(ramp)) + of_ends / abs(high - low))  # either may be larger


def _end_error(call: Frequencies, end: float) -> float:
    """Return the error of an end, in units. A logarithm has its own and that of its argument."""
    error: float = abs(end) * 2 * (EXPONENTIAL + 2) + 4 * call.rotary_depth / (2 * abs(math.log(call.base)))
    return error


def _moved_range(call: Frequencies, unit: float) -> tuple[float, float]:
    """Return the range with ends that are off."""

    def moved(call: Frequencies, rotations: float) -> float:
        end = yarn_pair(call, rotations)
        return end + unit * _end_error(call, end)

    return yarn_range(call.but(steps=Steps({"yarn_pair": moved})))


def _llama3(call: Mapping[str, Any], _value: Budget) -> Budget:
    low, high = call["low_frequency_factor"], call["high_frequency_factor"]
    rotations = call["original_length"] * call["base"] ** -_exponents(call) / (2 * math.pi)
    of_rotations = rotations * (_power(_exponents(call), call["base"]) + ROTATIONS)
    # The share of the frequency that is not stretched is the opposite of a ramp.
    return _mix(call, (high - rotations) / (high - low), RAMP + of_rotations / (high - low))


_ERRORS = {
    "none": _none,
    "linear": _divide,
    "dynamic": _dynamic,
    "yarn": _yarn,
    "longrope": _divide,
    "llama3": _llama3,
}
