"""Exact numbers of the second oracle, and the functions that the decimal module lacks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, getcontext, localcontext
from fractions import Fraction
from functools import cache
from operator import mul
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    """Convert an array of two axes of any floating-point dtype, or of fractions, without rounding."""
    array = np.asarray(array)
    rows = widened(array).tolist()
    ratios = [[(x, 1) if is_special(x) else x.as_integer_ratio() for x in row] for row in rows]
    unit = max((denominator for row in ratios for _, denominator in row), default=1)
    counts = [[x if isinstance(x, float) else x * (unit // d) for x, d in row] for row in ratios]
    finite = not any(isinstance(x, float) for row in counts for x in row)
    return Matrix(counts, array.shape[-1], unit.bit_length() - 1, finite)


def widened(array: Any) -> NDArray[Any]:
    """Return an array in float64, or as it is if it holds fractions, as decoded numbers do."""
    own: NDArray[Any] = np.asarray(array)
    return own if own.dtype == object else own.astype(np.float64)


def is_special(number: Number) -> bool:
    """Whether a number is NaN or infinite. Fractions and integers, however large, are neither."""
    return isinstance(number, float) and not math.isfinite(number)


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


def to_float(number: Number) -> float:
    """Round to the nearest float."""
    if isinstance(number, Fraction):
        return quotient(number.numerator, number.denominator)
    return float(number)


def decimal(number: Number) -> Decimal:
    """Round a finite number to the precision of the context."""
    if isinstance(number, Fraction):
        return Decimal(number.numerator) / Decimal(number.denominator)
    return +Decimal(number)


def combine(numbers: Sequence[Number], factors: Sequence[Entry], exponent: int, added: float) -> Number:
    """Sum numbers times integers of units ``2 ** -exponent``. The sum is exact if all are rational."""
    pairs = list(zip(numbers, factors, strict=True))
    special = [sign(x) * sign(y) for x, y in pairs if isinstance(x, float) or isinstance(y, float)]
    if special or not math.isfinite(added):
        return sum(special) + sign(added)
    if all(isinstance(x, Fraction) for x in numbers):
        total = sum((Fraction(x) * int(y) for x, y in pairs), Fraction(0))
        return total / (1 << exponent) + Fraction(added)
    terms = [decimal(x) * int(y) for x, y in pairs]
    added_up = sum(terms, Decimal(0))
    if abs(added_up) < max(map(abs, terms), default=Decimal(0)).scaleb(-_CANCELLED):
        added_up = Decimal(0)  # what is left are roundings of terms that cancel
    return added_up / (1 << exponent) + Decimal(added)


#: The digits that terms must lose so that their sum is 0, of the 60 that they have.
_CANCELLED = 50
#: Additional digits, so that the last requested digit is correct.
_GUARD = 15


def tanh(x: Decimal) -> Decimal:
    """Compute the hyperbolic tangent, with a small relative error for small arguments too."""
    with localcontext() as context:
        context.prec += _GUARD
        if not x:
            return Decimal(0)
        # 1 - exp(-2 |x|) loses as many digits as the argument has zeros after its decimal point.
        lost = max(0, -x.adjusted())
        if lost > context.prec:
            return +x  # the next term, x ** 3 / 3, is below every digit
        context.prec += lost
        small = (-2 * abs(x)).exp()
        return ((1 - small) / (1 + small)).copy_sign(x)


def cosine_and_sine(angle: Decimal) -> tuple[Decimal, Decimal]:
    """Compute the cosine and the sine of an angle of any size."""
    digits = getcontext().prec + _GUARD
    with localcontext() as context:
        # Subtracting multiples of a quarter turn loses the digits before the decimal point.
        context.prec = digits + max(0, angle.adjusted() + 1)
        quarter = pi(context.prec) / 2
        turns = (angle / quarter).to_integral_value()
        rest = angle - turns * quarter
        context.prec = digits
        cosine, sine = _series(rest, digits)
    return ((cosine, sine), (-sine, cosine), (-cosine, -sine), (sine, -cosine))[int(turns) % 4]


def _series(x: Decimal, digits: int) -> tuple[Decimal, Decimal]:
    """Sum the terms of the exponential series by their index modulo four."""
    sums = [Decimal(1), x, Decimal(0), Decimal(0)]
    term, n = x, 1
    while term and term.adjusted() > -digits - _GUARD:
        n += 1
        term = term * x / n
        sums[n % 4] += term
    return sums[0] - sums[2], sums[1] - sums[3]


@cache
def pi(digits: int) -> Decimal:
    """Compute pi by Machin's formula: ``pi / 4 = 4 arctan(1 / 5) - arctan(1 / 239)``."""
    with localcontext() as context:
        context.prec = digits + _GUARD
        return 4 * (4 * _arctangent_of_inverse(5) - _arctangent_of_inverse(239))


def _arctangent_of_inverse(n: int) -> Decimal:
    power, k = 1 / Decimal(n), 0
    total = Decimal(0)
    while power.adjusted() > -getcontext().prec - 1:
        total += (-power if k % 2 else power) / (2 * k + 1)
        power /= n * n
        k += 1
    return total
