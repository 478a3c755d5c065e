"""Functions that the decimal module lacks: tanh, cosine and sine, at the precision of the context."""

from decimal import Decimal, getcontext, localcontext
from functools import cache

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
