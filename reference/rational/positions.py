"""Rotary embedding, its frequencies, and ALiBi for the second oracle."""

import itertools
from collections.abc import Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, getcontext
from fractions import Fraction
from functools import lru_cache
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.reference.rational.numbers import cosine_and_sine, pi
from attnspec.reference.rational.scores import entry_number

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
    inverse = np.array([float(_frequency(given, scaling, k, depth, dialect)) for k in range(depth // 2)])
    return {
        "inverse_frequencies": inverse,
        "attention_factor": np.asarray(float(_growth(given, scaling, dialect))),
    }


def _number(arguments: Arguments, name: str) -> Decimal:
    return Decimal(float(arguments[name]))


def _power(base: Decimal, numerator: int, denominator: int) -> Decimal:
    return (base.ln() * numerator / denominator).exp()


def _frequency(arguments: Arguments, scaling: str, k: int, depth: int, dialect: Mapping[str, str]) -> Decimal:
    base = _number(arguments, "base")
    period = _power(base, 2 * k, depth)  # the positions of one radian
    if scaling == "none":
        return 1 / period
    if scaling == "longrope":
        past = arguments["length"] > arguments["original_length"]
        return 1 / (period * Decimal(float(arguments["long_factors" if past else "short_factors"][k])))
    factor = _number(arguments, "factor")
    if scaling == "linear":
        return 1 / (period * factor)
    if scaling == "dynamic":
        if k == 0:
            return Decimal(1)
        longest = max(arguments["length"], arguments["original_length"])
        ratio = factor * longest / arguments["original_length"] - factor + 1
        return 1 / _power(base * _power(ratio, depth, depth - 2), 2 * k, depth)
    kept = _yarn_share if scaling == "yarn" else _llama3_share
    part = kept(arguments, k, depth, period, dialect)
    return part / period + (1 - part) / (period * factor)


def _clip(x: Decimal) -> Decimal:
    return min(max(x, Decimal(0)), Decimal(1))


def _turns(arguments: Arguments, period: Decimal) -> Decimal:
    """Return how often a pair turns in the original length."""
    return Decimal(arguments["original_length"]) / (2 * pi(getcontext().prec) * period)


def _yarn_share(
    arguments: Arguments, k: int, depth: int, period: Decimal, dialect: Mapping[str, str]
) -> Decimal:
    fast, slow = _number(arguments, "beta_fast"), _number(arguments, "beta_slow")
    if dialect.get("POS-21") == "by-rotations":
        return _clip((_turns(arguments, period) - slow) / (fast - slow))
    base = _number(arguments, "base")
    first, last = (
        Decimal(depth) / 2 * (_turns(arguments, Decimal(1)) / rotations).ln() / base.ln()
        for rotations in (fast, slow)
    )
    if arguments.get("truncate", True):
        first = first.to_integral_value(ROUND_FLOOR)
        last = last.to_integral_value(ROUND_CEILING)
    first, last = max(first, Decimal(0)), min(last, Decimal(depth - 1))
    width = last - first or Decimal("0.001")
    return 1 - _clip((k - first) / width)


def _llama3_share(
    arguments: Arguments, _k: int, _depth: int, period: Decimal, _dialect: Mapping[str, str]
) -> Decimal:
    low, high = _number(arguments, "low_frequency_factor"), _number(arguments, "high_frequency_factor")
    turns = _turns(arguments, period)
    if turns >= high:
        return Decimal(1)
    return Decimal(0) if turns <= low else (turns - low) / (high - low)


def _growth(arguments: Arguments, scaling: str, dialect: Mapping[str, str]) -> Decimal:
    if scaling not in ("yarn", "longrope") or arguments["factor"] <= 1:
        return Decimal(1)
    octaves = _number(arguments, "factor").ln()
    if scaling == "longrope":
        return (1 + octaves / Decimal(arguments["original_length"]).ln()).sqrt()
    numbers = [_number(arguments, name) for name in ("mscale", "mscale_all_depth")]
    if dialect.get("POS-22") == "both-or-none" and 0 in numbers:
        numbers = [Decimal(1), Decimal(0)]
    above, below = (1 + number * octaves / 10 for number in numbers)
    return above / below


def rotary(arguments: Arguments, dialect: Mapping[str, str]) -> dict[str, NDArray[np.float64]]:
    """Rotate pairs of features by the angle of their position."""
    features = np.asarray(arguments["features"]).astype(np.float64)
    depth = arguments.get("rotary_depth")
    depth = features.shape[-1] if depth is None else int(depth)
    result = features.copy()
    for index in itertools.product(*map(range, features.shape[:-1])):
        for k in range(depth // 2):
            pair = (2 * k, 2 * k + 1) if arguments.get("interleaved") else (k, k + depth // 2)
            first, second = (float(features[(*index, d)]) for d in pair)
            turned = _turn(first, second, *turn(arguments, features.ndim, index, k, depth, dialect))
            for d, x in zip(pair, turned, strict=True):
                result[(*index, d)] = x
    return {"rotated": result}


def _turn(first: float, second: float, cosine: Decimal, sine: Decimal) -> tuple[float, float]:
    if isfinite(first) and isfinite(second):
        a, b = Decimal(first), Decimal(second)
        return float(a * cosine - b * sine), float(a * sine + b * cosine)
    c, s = float(cosine), float(sine)  # for NaN and infinity only signs and zeros matter
    return first * c - second * s, first * s + second * c


def turn(
    arguments: Arguments,
    axes: int,
    index: tuple[int, ...],
    pair: int,
    depth: int,
    dialect: Mapping[str, str],
) -> tuple[Decimal, Decimal]:
    """Compute cosine and sine of a pair of a row, times the attention factor."""
    row = (*index[:-2], index[-1]) if axes > 2 else index[-1:]
    offset = np.asarray(arguments.get("offset", 0))
    position = int(offset[row[:-1]] if offset.ndim else offset) + _own(arguments, row, pair, dialect)
    factor = Decimal(float(arguments.get("attention_factor", 1.0)))
    if arguments.get("cosines") is not None:
        cosine, sine = (Decimal(float(arguments[name][position, pair])) for name in ("cosines", "sines"))
    elif arguments.get("inverse_frequencies") is not None:
        rate = Decimal(float(arguments["inverse_frequencies"][pair]))
        cosine, sine = cosine_and_sine(position * rate)
    else:
        cosine, sine = _base_rotation(position, pair, depth, float(arguments.get("base", 10000.0)))
    return factor * cosine, factor * sine


def _own(arguments: Arguments, row: tuple[int, ...], pair: int, dialect: Mapping[str, str]) -> int:
    """Return the position of a pair of a row, without the offset."""
    if arguments.get("positions") is not None:
        return int(arguments["positions"][row])
    if arguments.get("axis_positions") is None:
        return row[-1]
    counts = np.asarray(arguments["sections"]).tolist()
    if dialect.get("POS-15") == "alternating":
        # The pairs of axis 1 are 1, 4, 7 and so on, those of axis 2 are 2, 5, 8, and the rest is of axis 0.
        owner = {a + len(counts) * n: a for a in range(1, len(counts)) for n in range(counts[a])}
        axis = owner.get(pair, 0)
    else:
        axis = [a for a, size in enumerate(counts) for _ in range(size)][pair]
    return int(arguments["axis_positions"][(axis, *row)])


@lru_cache(maxsize=1 << 16)
def _base_rotation(position: int, pair: int, depth: int, base: float) -> tuple[Decimal, Decimal]:
    """Compute cosine and sine of the angle of a pair."""
    rate = (Decimal(-2 * pair) / depth * Decimal(base).ln()).exp()
    return cosine_and_sine(position * rate)


def alibi_bias(arguments: Arguments, dialect: Mapping[str, str]) -> dict[str, NDArray[np.float64]]:
    """Compute minus slope times distance for every head."""
    query, key = np.asarray(arguments["query"]), np.asarray(arguments["key"])
    result = np.zeros((*query.shape[:-1], key.shape[-2]))  # (*B, Hq, L, S)
    slopes = _slopes(query.shape[-3] if query.ndim > 2 else 1)
    if arguments.get("slopes") is not None:
        slopes = [Decimal(float(slope)) for slope in arguments["slopes"]]
    for index in itertools.product(*map(range, result.shape)):
        result[index] = float(slopes[index[-3] if len(index) > 2 else 0] * _times(arguments, index, dialect))
    return {"bias": result}


def alibi_bias_vjp(arguments: Arguments, dialect: Mapping[str, str]) -> dict[str, NDArray[np.float64]]:
    """Differentiate each element of the bias by the slope of its head, and apply the chain rule.

    Raises
    ------
    ValueError
        If a cotangent is not finite.
    """
    sums = [Fraction(0)] * len(arguments["slopes"])
    for index, g in np.ndenumerate(np.asarray(arguments["d_bias"]).astype(np.float64)):
        if not isfinite(g):
            raise ValueError(f"d_bias: expected finite numbers, got {g} [unspecified]")
        sums[index[-3] if len(index) > 2 else 0] += Fraction(float(g)) * _times(arguments, index, dialect)
    return {"d_slopes": np.array([float(x) for x in sums])}


def _times(arguments: Arguments, index: tuple[int, ...], dialect: Mapping[str, str]) -> int:
    """Return the factor of the slope in one element of the bias."""
    *entry, i, j = index
    b, batch = tuple(entry[:-1]), np.shape(arguments["query"])[:-3]
    p = i + (entry_number(arguments.get("query_offset", 0), batch, index) or 0)
    if arguments.get("query_positions") is not None:
        p = int(arguments["query_positions"][b][i])
    place = j if arguments.get("key_positions") is None else int(arguments["key_positions"][b][j])
    return _steps(p, place, dialect.get("POS-8"))


def _steps(p: int, place: int, variant: str | None) -> int:
    """Return the factor of the slope for a query at position `p` and a key at `place`."""
    if variant == "key-position":
        return place
    return place - p if variant == "signed" else -abs(p - place)


def _slopes(heads: int) -> list[Decimal]:
    """Compute the slopes: those of the largest power of two, then every second one of twice that power."""
    power = 1 << max(heads.bit_length() - 1, 0)
    slopes = [Decimal(2) ** (Decimal(-8 * (h + 1)) / power) for h in range(power)]
    return slopes + [
        Decimal(2) ** (Decimal(-8 * (h + 1)) / (2 * power)) for h in range(0, 2 * (heads - power), 2)
    ]
