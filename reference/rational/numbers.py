"""Exact numbers of the second oracle: matrices of integers over a power of two.

A binary floating-point number is an integer over a power of two. With one power for a whole
matrix, dot products are sums of products of integers, which are exact and fast. NaN and infinity
stay floats. They follow the rules of IEEE 754, in which only the sign of a finite operand
matters.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from operator import mul
from typing import Any

import numpy as np

#: An integer, or a float if it is NaN or infinite.
Entry = int | float
#: Rational, decimal, or a float if it is NaN or infinite.
Number = Fraction | Decimal | float


@dataclass(frozen=True)
class Matrix:
    """Rows of integers that count units of ``2 ** -exponent``. `finite` means that no entry is a float."""

    rows: list[list[Entry]]
    depth: int
    exponent: int
    finite: bool

    def columns(self, start: int, stop: int) -> "Matrix":
        """Return a block of consecutive columns."""
        return Matrix([row[start:stop] for row in self.rows], stop - start, self.exponent, self.finite)


def exact(array: Any) -> Matrix:
    """Convert an array of two axes of any floating-point dtype, without rounding."""
    array = np.asarray(array)
    rows = array.astype(np.float64).tolist()
    ratios = [[x.as_integer_ratio() if math.isfinite(x) else (x, 1) for x in row] for row in rows]
    unit = max((denominator for row in ratios for _, denominator in row), default=1)
    counts = [[x if isinstance(x, float) else x * (unit // d) for x, d in row] for row in ratios]
    finite = not any(isinstance(x, float) for row in counts for x in row)
    return Matrix(counts, array.shape[-1], unit.bit_length() - 1, finite)


def sign(entry: Number) -> float:
    """Return the sign of a finite number; return NaN and infinity unchanged."""
    if isinstance(entry, float) and not math.isfinite(entry):
        return entry
    return float((entry > 0) - (entry < 0))


def dot(left: Sequence[Entry], right: Sequence[Entry], *, finite: bool) -> Entry:
    """Sum products. `finite` means that no entry is a float."""
    total: Entry
    if finite or not any(isinstance(x, float) for x in (*left, *right)):
        total = sum(map(mul, left, right))
    else:
        pairs = zip(left, right, strict=True)
        total = sum(sign(x) * sign(y) for x, y in pairs if isinstance(x, float) or isinstance(y, float))
    return total


def quotient(numerator: int, denominator: int) -> float:
    """Divide by a positive number and round once. A result above the largest float is infinity."""
    try:
        return numerator / denominator
    except OverflowError:
        return math.inf if numerator > 0 else -math.inf


def rounded(number: Number) -> float:
    """Round to the nearest float."""
    if isinstance(number, Fraction):
        return quotient(number.numerator, number.denominator)
    return float(number)


def decimal(number: Number) -> Decimal:
    """Round a finite number to the precision of the context."""
    if isinstance(number, Fraction):
        return Decimal(number.numerator) / Decimal(number.denominator)
    return +Decimal(number)


def combined(numbers: Sequence[Number], factors: Sequence[Entry], exponent: int, added: float) -> Number:
    """Sum numbers times integers of units ``2 ** -exponent``. The sum is exact if all are rational."""
    pairs = list(zip(numbers, factors, strict=True))
    special = [sign(x) * sign(y) for x, y in pairs if isinstance(x, float) or isinstance(y, float)]
    if special or not math.isfinite(added):
        return sum(special) + sign(added)
    if all(isinstance(x, Fraction) for x in numbers):
        total = sum((Fraction(x) * int(y) for x, y in pairs), Fraction(0))
        return total / (1 << exponent) + Fraction(added)
    return sum((decimal(x) * int(y) for x, y in pairs), Decimal(0)) / (1 << exponent) + Decimal(added)
