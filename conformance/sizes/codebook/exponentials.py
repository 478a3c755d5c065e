"""The exponentials of a problem by formula, one for each pair of different rows.

Scores are computed with 40 decimal digits, and so are their exponentials, which `decimal` rounds correctly.
Each exponential is then split into a multiple of 2^-22 and a rest. Sums of the multiples times integers are
exact in float64, and the rest is so small that its roundings do not matter.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

_DIGITS = 40
#: The multiples of 2^-22 below 1, times an integer below 2^28, times 8, are below 2^53.
_QUANTUM = 2.0**-22
#: A smaller exponential could be subnormal.
_DEEPEST = Decimal(-600)


@dataclass(frozen=True)
class Split:
    """Numbers, each as the exact sum of two."""

    first: Numbers  # multiples of 2^-22
    rest: Numbers  # from 0 to 2^-22

    @property
    def whole(self) -> Numbers:
        """The numbers, rounded."""
        return self.first + self.rest

    @property
    def without_rest(self) -> "Split":
        """The rounded numbers without rests, whose sums are precise enough for all but float64."""
        return Split(self.whole, np.zeros_like(self.rest))


@dataclass(frozen=True)
class Table:
    """The scores of a problem and their exponentials."""

    #: (Q,): a number near the largest score of each word of queries. It is subtracted before the exponential.
    shift: Numbers
    scores: Numbers  # (Q, C, A): the scores, rounded, for each word of queries and of keys and each bias
    exponentials: Split  # their exponentials, relative to that of the shift

    def sink_exponentials(self, sinks: Numbers) -> Split:
        """Return the exponentials of sinks for each word of queries, ``(Hq, Q)``."""
        with localcontext(prec=_DIGITS):
            return _split([[(_exact(sink) - _exact(shift)).exp() for shift in self.shift] for sink in sinks])


def table(codes: NDArray[Any], given: Mapping[str, Any], biases: Numbers) -> Table:
    """Compute the scores of a problem and their exponentials."""
    whole = np.rint(codes.astype(np.float64) * 64).astype(np.int64)
    products = whole @ whole.T
    with localcontext(prec=_DIGITS):
        depth = Decimal(codes.shape[1])
        factor = 1 / depth.sqrt() if given.get("scale") is None else _exact(given["scale"])
        scores = [
            [
                [
                    _cap(factor * int(product) / (2 * 64 * 64), given.get("softcap")) + _exact(bias)
                    for bias in biases
                ]
                for product in row
            ]
            for row in products
        ]
        shift = [float(max(score for row in rows for score in row)) for rows in scores]
        lowest = min(
            score - _exact(top)
            for rows, top in zip(scores, shift, strict=True)
            for row in rows
            for score in row
        )
        if lowest < _DEEPEST:
            raise ValueError(f"scores: expected to differ by less than 600 in a row, got {-lowest:.0f}")
        found = _split(
            [
                [[(score - _exact(top)).exp() for score in row] for row in rows]
                for rows, top in zip(scores, shift, strict=True)
            ]
        )
        return Table(np.array(shift), np.array(scores, dtype=np.float64), found)


def _cap(score: Decimal, softcap: float | None) -> Decimal:
    if softcap is None:
        return score
    # 2 / (1 + exp(-2x)) - 1, with an argument that is not positive.
    cap = _exact(softcap)
    small = (-2 * abs(score) / cap).exp()
    return (cap * (1 - small) / (1 + small)).copy_sign(score)


def _exact(number: Any) -> Decimal:
    return Decimal(float(number))


def _split(found: Any) -> Split:
    """Split nested lists of decimal numbers."""
    exact = np.array(found, dtype=object)
    first = np.array([float(x // Decimal(_QUANTUM)) * _QUANTUM for x in exact.flat]).reshape(exact.shape)
    rest = np.array([float(x - Decimal(y)) for x, y in zip(exact.flat, first.flat, strict=True)])
    return Split(first, rest.reshape(exact.shape))
