"""Frequencies of rotary embedding, for the second oracle."""

from collections.abc import Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, getcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.reference.rational.functions import pi

Arguments = Mapping[str, Any]

_DEFAULTS = {
    "base": 10000.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale": 1.0,
    "mscale_all_depth": 0.0,
    "low_frequency_factor": 1.0,
    "high_frequency_factor": 4.0,
}


def rotary_frequencies(arguments: Arguments, dialect: Mapping[str, str]) -> dict[str, NDArray[np.float64]]:
    """Compute the wavelength of every pair, stretched, and from it the angle at position 1."""
    given = {**_DEFAULTS, **{name: thing for name, thing in arguments.items() if thing is not None}}
    depth = given.get("rotary_depth") or np.asarray(given["features"]).shape[-1]
    scaling = given.get("scaling", "none")
    inverse = np.array([float(_stretched(given, scaling, k, depth, dialect)) for k in range(depth // 2)])
    return {
        "inverse_frequencies": inverse,
        "attention_factor": np.asarray(float(_growth(given, scaling, dialect))),
    }


def _number(given: Arguments, name: str) -> Decimal:
    return Decimal(float(given[name]))


def _power(base: Decimal, numerator: int, denominator: int) -> Decimal:
    return (base.ln() * numerator / denominator).exp()


def _stretched(given: Arguments, scaling: str, k: int, depth: int, dialect: Mapping[str, str]) -> Decimal:
    base = _number(given, "base")
    period = _power(base, 2 * k, depth)  # the positions of one radian
    if scaling == "none":
        return 1 / period
    if scaling == "longrope":
        past = given["length"] > given["original_length"]
        return 1 / (period * Decimal(float(given["long_factors" if past else "short_factors"][k])))
    factor = _number(given, "factor")
    if scaling == "linear":
        return 1 / (period * factor)
    if scaling == "dynamic":
        if k == 0:
            return Decimal(1)
        longest = max(given["length"], given["original_length"])
        ratio = factor * longest / given["original_length"] - factor + 1
        return 1 / _power(base * _power(ratio, depth, depth - 2), 2 * k, depth)
    kept = _kept_by_yarn if scaling == "yarn" else _kept_by_llama3
    part = kept(given, k, depth, period, dialect)
    return part / period + (1 - part) / (period * factor)


def _clipped(x: Decimal) -> Decimal:
    return min(max(x, Decimal(0)), Decimal(1))


def _turns(given: Arguments, period: Decimal) -> Decimal:
    """Return how often a pair turns in the original length."""
    return Decimal(given["original_length"]) / (2 * pi(getcontext().prec) * period)


def _kept_by_yarn(
    given: Arguments, k: int, depth: int, period: Decimal, dialect: Mapping[str, str]
) -> Decimal:
    fast, slow = _number(given, "beta_fast"), _number(given, "beta_slow")
    if dialect.get("POS-21") == "by-rotations":
        return _clipped((_turns(given, period) - slow) / (fast - slow))
    base = _number(given, "base")
    first, last = (
        Decimal(depth) / 2 * (_turns(given, Decimal(1)) / rotations).ln() / base.ln()
        for rotations in (fast, slow)
    )
    if given.get("truncate", True):
        first = first.to_integral_value(ROUND_FLOOR)
        last = last.to_integral_value(ROUND_CEILING)
    first, last = max(first, Decimal(0)), min(last, Decimal(depth - 1))
    width = last - first or Decimal("0.001")
    return 1 - _clipped((k - first) / width)


def _kept_by_llama3(
    given: Arguments, _k: int, _depth: int, period: Decimal, _dialect: Mapping[str, str]
) -> Decimal:
    low, high = _number(given, "low_frequency_factor"), _number(given, "high_frequency_factor")
    turns = _turns(given, period)
    if turns >= high:
        return Decimal(1)
    return Decimal(0) if turns <= low else (turns - low) / (high - low)


def _growth(given: Arguments, scaling: str, dialect: Mapping[str, str]) -> Decimal:
    if scaling not in ("yarn", "longrope") or given["factor"] <= 1:
        return Decimal(1)
    octaves = _number(given, "factor").ln()
    if scaling == "longrope":
        return (1 + octaves / Decimal(given["original_length"]).ln()).sqrt()
    numbers = [_number(given, name) for name in ("mscale", "mscale_all_depth")]
    if dialect.get("POS-22") == "both-or-none" and 0 in numbers:
        numbers = [Decimal(1), Decimal(0)]
    above, below = (1 + number * octaves / 10 for number in numbers)
    return above / below
