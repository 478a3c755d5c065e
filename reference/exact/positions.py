"""Rotary embedding, its frequencies, and ALiBi for the exact oracle."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from flint import arb, fmpq
from numpy.typing import NDArray

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


def _clip(x: arb) -> arb:
    return x.max(arb(0)).min(arb(1))


def _yarn_share(arguments: Arguments, k: int, depth: int, rotations: arb, variant: str | None) -> arb:
    """Return how far a pair is stretched: a ramp over pairs, or over rotations (POS-21)."""
    fast, slow = (
        arb(_number(arguments, f"beta_{name}", default)) for name, default in (("fast", 32), ("slow", 1))
    )
    if variant == "by-rotations":
        return 1 - _clip((rotations - slow) / (fast - slow))
    base, original = arb(_number(arguments, "base", 10000.0)), arb(fmpq(arguments["original_length"]))
    ends = [depth * (original / (beta * 2 * arb.pi())).log() / (2 * base.log()) for beta in (fast, slow)]
    if arguments.get("truncate", True):
        ends = [ends[0].floor(), ends[1].ceil()]
    low, high = ends[0].max(arb(0)), ends[1].min(arb(depth - 1))
    if low == high:
        high = high + arb(fmpq(1, 1000))
    return _clip((k - low) / (high - low))


def _llama3_share(arguments: Arguments, _k: int, _depth: int, rotations: arb, _variant: str | None) -> arb:
    low, high = (
        arb(_number(arguments, f"{name}_frequency_factor", default))
        for name, default in (("low", 1), ("high", 4))
    )
    return _clip((high - rotations) / (high - low))


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


Place = tuple[int, ...]


def rotary(arguments: Arguments, variant: str | None, dtype: str) -> dict[str, Settled]:
    """Turn each pair by its angle, or by its given cosine and sine (POS-1, POS-12)."""
    features = np.asarray(arguments["features"], np.float64)
    return {"rotated": _rotate(features, arguments, 1, variant, dtype)}


def rotary_vjp(arguments: Arguments, variant: str | None, dtype: str) -> dict[str, Settled]:
    """Turn back: the transpose of a rotation is that by the negative angle (GRAD-22)."""
    cotangent = np.asarray(arguments["d_rotated"], np.float64)
    return {"d_features": _rotate(cotangent, arguments, -1, variant, dtype)}


def _rotate(
    features: NDArray[np.float64], arguments: Arguments, direction: int, variant: str | None, dtype: str
) -> Settled:
    depth = arguments.get("rotary_depth") or features.shape[-1]
    factor = rational(arguments.get("attention_factor", 1.0))
    places = list(np.ndindex(*features.shape))

    def turn(place: Place) -> tuple[fmpq, fmpq, int, int, bool]:
        """Return the pair of an element: its two numbers, position, index, and whether it is the second."""
        *outer, n, d = place
        if arguments.get("interleaved", False):
            k, second = divmod(d, 2)
            left, right = 2 * k, 2 * k + 1
        else:
            second, k = divmod(d, depth // 2)
            left, right = k, k + depth // 2
        a, b = (factor * rational(features[(*outer, n, x)]) for x in (left, right))
        return a, b, _position(arguments, (*outer[:-1], n), k, variant), k, bool(second)

    def balls() -> list[arb]:
        results = []
        for place in places:
            if place[-1] >= depth:
                results.append(arb(rational(features[place])))
                continue
            a, b, position, k, second = turn(place)
            cosine, sine = _cosine_and_sine(arguments, position, k, depth)
            sine = direction * sine
            results.append(arb(a) * sine + arb(b) * cosine if second else arb(a) * cosine - arb(b) * sine)
        return results

    def exactly(flat: int) -> fmpq | None:
        place = places[flat]
        if place[-1] >= depth:
            return rational(features[place])
        a, b, position, k, second = turn(place)
        if "cosines" in arguments:
            cosine, sine = (rational(arguments[name][position, k]) for name in ("cosines", "sines"))
            sine = direction * sine
            return a * sine + b * cosine if second else a * cosine - b * sine
        if position == 0 or _frequency_is_zero(arguments, k):
            return b if second else a
        return fmpq(0) if a == b == 0 else None

    return settle(features.shape, balls, exactly, dtype)


def _frequency_is_zero(arguments: Arguments, pair: int) -> bool:
    given = arguments.get("inverse_frequencies")
    return given is not None and float(given[pair]) == 0


def _position(arguments: Arguments, row: Place, pair: int, variant: str | None) -> int:
    """Return the position of a pair of a row (POS-5, POS-10, POS-15)."""
    *batch, n = row
    starts = np.asarray(arguments.get("offset", 0))
    start = int(starts[tuple(batch)]) if starts.ndim else int(starts)
    if "positions" in arguments:
        return start + int(arguments["positions"][row])
    if "axis_positions" not in arguments:
        return start + n
    sections = [int(count) for count in arguments["sections"]]
    if variant == "alternating":
        # Every pair after the first belongs to the next axis, as long as that axis has pairs left.
        axis = pair % len(sections) if pair < len(sections) * sections[pair % len(sections)] else 0
    else:
        ends = [sum(sections[: last + 1]) for last in range(len(sections))]
        axis = next(place for place, end in enumerate(ends) if pair < end)
    return start + int(arguments["axis_positions"][(axis, *row)])


def _cosine_and_sine(arguments: Arguments, position: int, pair: int, depth: int) -> tuple[arb, arb]:
    if "cosines" in arguments:
        return (
            arb(rational(arguments["cosines"][position, pair])),
            arb(rational(arguments["sines"][position, pair])),
        )
    if "inverse_frequencies" in arguments:
        angle = arb(position * rational(arguments["inverse_frequencies"][pair]))
    else:
        base = rational(arguments.get("base", 10000.0))
        angle = arb(position) * (arb(fmpq(-2 * pair, depth)) * arb(base).log()).exp()
    return angle.cos(), angle.sin()


def alibi_bias(arguments: Arguments, variant: str | None, dtype: str) -> dict[str, Settled]:
    """Subtract in proportion to the distance (POS-7, POS-8, POS-26)."""
    query, key = np.asarray(arguments["query"]), np.asarray(arguments["key"])
    heads = query.shape[-3] if query.ndim > 2 else 1
    exponents, given = _exponents(heads), arguments.get("slopes")
    factors = _factors_of_slopes(arguments, variant)

    def balls() -> list[arb]:
        slopes = [
            arb(2) ** arb(exponents[h]) if given is None else arb(rational(given[h])) for h in range(heads)
        ]
        return [slopes[h] * times for h, times in factors]

    def exactly(flat: int) -> fmpq | None:
        h, times = factors[flat]
        if times == 0:
            return fmpq(0)
        if given is not None:
            return times * rational(given[h])
        return fmpq(times) * fmpq(2) ** int(exponents[h].p) if exponents[h].q == 1 else None

    return {"bias": settle((*query.shape[:-1], key.shape[-2]), balls, exactly, dtype)}


def alibi_bias_vjp(arguments: Arguments, variant: str | None, dtype: str) -> dict[str, Settled]:
    """Add up the cotangents of each head, each times the factor of the slope (GRAD-25)."""
    sums = [fmpq(0)] * len(arguments["slopes"])
    cotangents = np.asarray(arguments["d_bias"]).ravel()
    for (h, times), g in zip(_factors_of_slopes(arguments, variant), cotangents, strict=True):
        sums[h] += times * rational(g)
    return {
        "d_slopes": settle((len(sums),), lambda: list(map(arb, sums)), sums.__getitem__, FORMATS[dtype].lse)
    }


def _factors_of_slopes(arguments: Arguments, variant: str | None) -> list[tuple[int, int]]:
    """Return the head of each element of the bias, and the factor of its slope."""
    query, key = np.asarray(arguments["query"]), np.asarray(arguments["key"])
    starts = np.broadcast_to(arguments.get("query_offset", 0), query.shape[:-3])
    standing, stored = arguments.get("query_positions"), arguments.get("key_positions")

    def factor(place: Place) -> tuple[int, int]:
        *outer, i, j = place
        start = int(starts[tuple(outer[:-1])]) if outer else int(starts)
        row = (*outer[:-1], i)
        p = i + start if standing is None else int(standing[row])
        at = j if stored is None else int(stored[(*outer[:-1], j)])
        ahead = at - p
        factors = {"signed": ahead, "key-position": at}
        return outer[-1] if outer else 0, factors.get(variant or "", -abs(ahead))

    return list(map(factor, np.ndindex(*query.shape[:-1], key.shape[-2])))


def _exponents(heads: int) -> list[fmpq]:
    """Return the exponents of 2 of the slopes (POS-7)."""
    lower = 1
    while 2 * lower <= heads:
        lower *= 2
    first = [fmpq(-8 * (h + 1), lower) for h in range(lower)]
    rest = [fmpq(-8 * (2 * h + 1), 2 * lower) for h in range(heads - lower)]
    return first + rest
