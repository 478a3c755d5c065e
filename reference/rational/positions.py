"""Rotary embedding and ALiBi, for the second oracle."""

import itertools
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.reference.rational.functions import cosine_and_sine
from attnspec.reference.rational.masking import of_entry

Arguments = Mapping[str, Any]


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
            turned = _turned(first, second, *turn(arguments, features.ndim, index, k, depth, dialect))
            for d, x in zip(pair, turned, strict=True):
                result[(*index, d)] = x
    return {"rotated": result}


def _turned(first: float, second: float, cosine: Decimal, sine: Decimal) -> tuple[float, float]:
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
        cosine, sine = _of_base(position, pair, depth, float(arguments.get("base", 10000.0)))
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
def _of_base(position: int, pair: int, depth: int, base: float) -> tuple[Decimal, Decimal]:
    """Compute cosine and sine of the angle of a pair."""
    rate = (Decimal(-2 * pair) / depth * Decimal(base).ln()).exp()
    return cosine_and_sine(position * rate)


def alibi_bias(arguments: Arguments, dialect: Mapping[str, str]) -> dict[str, NDArray[np.float64]]:
    """Compute minus slope times distance for every head."""
    query, key = np.asarray(arguments["query"]), np.asarray(arguments["key"])
    result = np.zeros((*query.shape[:-1], key.shape[-2]))  # (*B, Hq, L, S)
    batch = query.shape[:-3]
    slopes = _slopes(query.shape[-3] if query.ndim > 2 else 1)
    if arguments.get("slopes") is not None:
        slopes = [Decimal(float(slope)) for slope in arguments["slopes"]]
    for index in itertools.product(*map(range, result.shape)):
        *entry, i, j = index
        p = i + (of_entry(arguments.get("query_offset", 0), batch, index) or 0)
        times = _steps(p, j, dialect.get("POS-8"))
        result[index] = float(slopes[entry[-1] if entry else 0] * times)
    return {"bias": result}


def _steps(p: int, j: int, variant: str | None) -> int:
    """Return the factor of the slope for a query at position `p` and a key at `j`."""
    if variant == "key-position":
        return j
    return j - p if variant == "signed" else -abs(p - j)


def _slopes(heads: int) -> list[Decimal]:
    """Compute the slopes: those of the largest power of two, then every second one of twice that power."""
    power = 1 << (heads.bit_length() - 1)
    slopes = [Decimal(2) ** (Decimal(-8 * (h + 1)) / power) for h in range(power)]
    return slopes + [
        Decimal(2) ** (Decimal(-8 * (h + 1)) / (2 * power)) for h in range(0, 2 * (heads - power), 2)
    ]
