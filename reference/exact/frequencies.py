"""Frequencies of rotary embedding for the exact oracle."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from flint import arb, fmpq

from attnspec.dtypes import FORMATS
from attnspec.reference.exact.balls import Settled, settle
from attnspec.reference.exact.head import rational

Arguments = Mapping[str, Any]


def rotary_frequencies(arguments: Arguments, variant: str | None, dtype: str) -> dict[str, Settled]:
    """Enclose each frequency and the attention factor in a ball (POS-18 to POS-24)."""
    depth = arguments.get("rotary_depth") or np.asarray(arguments["features"]).shape[-1]
    scaling = arguments.get("scaling", "none")
    of_lse = FORMATS[dtype].lse

    def balls() -> list[arb]:
        return [_frequency(arguments, scaling, k, depth, variant) for k in range(depth // 2)]

    def exactly(flat: int) -> fmpq | None:
        """Return the frequency of the first pair, which turns by 1 before it is stretched."""
        if flat or scaling not in ("none", "linear", "longrope"):
            return None
        if scaling == "longrope":
            return 1 / rational(_factors(arguments)[0])
        return 1 / _number(arguments, "factor") if scaling == "linear" else fmpq(1)

    return {
        "inverse_frequencies": settle((depth // 2,), balls, exactly, of_lse),
        "attention_factor": settle(
            (), lambda: [_growth(arguments, scaling, variant)], lambda _: fmpq(1), of_lse
        ),
    }


def _number(arguments: Arguments, name: str, default: float = 0.0) -> fmpq:
    return rational(float(arguments.get(name, default)))


def _power(base: arb, exponent: fmpq) -> arb:
    return (arb(exponent) * base.log()).exp()


def _frequency(arguments: Arguments, scaling: str, k: int, depth: int, variant: str | None) -> arb:
    base = arb(_number(arguments, "base", 10000.0))
    exponent = fmpq(-2 * k, depth)
    plain = _power(base, exponent)
    if scaling == "none":
        return plain
    if scaling == "longrope":
        return plain / arb(rational(_factors(arguments)[k]))
    factor = _number(arguments, "factor")
    if scaling == "linear":
        return plain / arb(factor)
    original = fmpq(arguments["original_length"])
    if scaling == "dynamic":
        longest = max(fmpq(arguments["length"]), original)
        ratio = factor * longest / original - (factor - 1)
        return plain if k == 0 else plain * _power(arb(ratio), fmpq(-2 * k, depth - 2))
    rotations = arb(original) * plain / (2 * arb.pi())
    share = _yarn_share if scaling == "yarn" else _llama3_share
    stretched = share(arguments, k, depth, rotations, variant)
    return (1 - stretched) * plain + stretched * plain / arb(factor)


def _clipped(x: arb) -> arb:
    return x.max(arb(0)).min(arb(1))


def _yarn_share(arguments: Arguments, k: int, depth: int, rotations: arb, variant: str | None) -> arb:
    """Return how far a pair is stretched: a ramp over pairs, or over rotations (POS-21)."""
    fast, slow = (
        arb(_number(arguments, f"beta_{name}", default)) for name, default in (("fast", 32), ("slow", 1))
    )
    if variant == "by-rotations":
        return 1 - _clipped((rotations - slow) / (fast - slow))
    base, original = arb(_number(arguments, "base", 10000.0)), arb(fmpq(arguments["original_length"]))
    ends = [depth * (original / (beta * 2 * arb.pi())).log() / (2 * base.log()) for beta in (fast, slow)]
    if arguments.get("truncate", True):
        ends = [ends[0].floor(), ends[1].ceil()]
    low, high = ends[0].max(arb(0)), ends[1].min(arb(depth - 1))
    if low == high:
        high = high + arb(fmpq(1, 1000))
    return _clipped((k - low) / (high - low))


def _llama3_share(arguments: Arguments, _k: int, _depth: int, rotations: arb, _variant: str | None) -> arb:
    low, high = (
        arb(_number(arguments, f"{name}_frequency_factor", default))
        for name, default in (("low", 1), ("high", 4))
    )
    return _clipped((high - rotations) / (high - low))


def _factors(arguments: Arguments) -> Any:
    """Return the factors of the length at hand (POS-23)."""
    longer = arguments["length"] > arguments["original_length"]
    return np.asarray(arguments["long_factors" if longer else "short_factors"], np.float64)


def _growth(arguments: Arguments, scaling: str, variant: str | None) -> arb:
    """Return the attention factor (POS-22, POS-23)."""
    factor = _number(arguments, "factor", 1.0)
    if factor <= 1 or scaling not in ("yarn", "longrope"):
        return arb(1)
    logarithm = arb(factor).log()
    if scaling == "longrope":
        return (1 + logarithm / arb(fmpq(arguments["original_length"])).log()).sqrt()
    tenth = logarithm / 10
    above, below = _number(arguments, "mscale", 1.0), _number(arguments, "mscale_all_depth", 0.0)
    if variant == "both-or-none" and (above == 0 or below == 0):
        above, below = fmpq(1), fmpq(0)
    return (1 + arb(above) * tenth) / (1 + arb(below) * tenth)
