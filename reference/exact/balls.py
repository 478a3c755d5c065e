"""Ball arithmetic with a precision that increases until every element rounds to one number."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import inf, ldexp

import numpy as np
from flint import arb, ctx, fmpq
from numpy.typing import NDArray

from attnspec.dtypes import FORMATS

#: Working precisions in bits, tried in turn. The last ones settle a sum that only weights of 1e-4000 separate
#: from the middle between two numbers. Gradients that sum over several queries can be such sums.
PRECISIONS = (128, 256, 512, 1024, 2048, 4096, 16384, 65536)


class OracleError(ArithmeticError):
    """The oracle cannot settle a case, or the case has no exact value."""


@dataclass(frozen=True)
class Settled:
    """Elements that are rounded once, and their proof."""

    #: Each is the number nearest to the exact value in the requested format, ties to even.
    values: NDArray[np.float64]
    bits: int  # the working precision that settled the last of them
    #: The radius of every ball was at most two to this power. None if every element was exact.
    radius: int | None


def settle(
    shape: tuple[int, ...],
    balls_at: Callable[[], list[arb]],
    exactly: Callable[[int], fmpq | None],
    dtype: str,
) -> Settled:
    """Increase the precision until every element rounds to one number."""
    values: list[float | None] = [None] * int(np.prod(shape))
    radius: int | None = None
    bits = PRECISIONS[0]
    for bits in PRECISIONS:
        with ctx.workprec(bits):
            balls = balls_at()
            for index in (i for i, value in enumerate(values) if value is None):
                values[index] = _nearest(balls[index], dtype)
                if values[index] is not None:
                    radius = _larger(radius, balls[index])
                elif (rational := exactly(index)) is not None:
                    values[index] = nearest(Fraction(int(rational.p), int(rational.q)), dtype)
        if None not in values:
            return Settled(np.array(values, dtype=np.float64).reshape(shape), bits, radius)
    place = np.unravel_index(values.index(None), shape)
    raise OracleError(f"element {tuple(map(int, place))}: expected to settle, got no end at {bits} bits")


def nearest(number: Fraction, dtype: str) -> float:
    """Round an exact number once to a format, ties to even."""
    result = FORMATS[dtype]
    size = abs(number)
    if size == 0:
        return 0.0
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** exponent > size:  # the difference of the bit lengths may be one too large
        exponent -= 1
    spacing = max(2 * Fraction(result.unit) * Fraction(2) ** exponent, Fraction(result.subnormal))
    rounded = round(number / spacing) * spacing  # Python rounds halves to even
    if abs(rounded) > Fraction(result.largest):
        return float("inf") if number > 0 else float("-inf")
    return float(rounded) + 0.0


def _nearest(ball: arb, dtype: str) -> float | None:
    """Round both ends of a ball, and return the number if they agree."""
    if not ball.is_finite():
        return None
    low, high = (_nearest_dyadic(end, dtype) for end in (ball.lower(), ball.upper()))
    return low + 0.0 if low == high else None


def _nearest_dyadic(end: arb, dtype: str) -> float:
    """Round as `nearest` does, in integers: most elements come by here."""
    mantissa, exponent = (int(x) for x in end.mid().man_exp())
    result = FORMATS[dtype]
    length = mantissa.bit_length()
    spacing = max(length + exponent, result.exponents[0] + 1) - result.digits
    shift = spacing - exponent
    if shift > length + 1:
        return 0.0
    if shift > 0:
        mantissa, rest = divmod(mantissa, 1 << shift)
        half = 1 << (shift - 1)
        mantissa += rest > half or (rest == half and mantissa & 1)
        exponent = spacing
    if mantissa.bit_length() + exponent > 1024 or abs(rounded := ldexp(mantissa, exponent)) > result.largest:
        return inf if mantissa > 0 else -inf
    return rounded


def _larger(radius: int | None, ball: arb) -> int | None:
    """Find the smallest power of two, in steps of 32, that bounds both."""
    mantissa, exponent = (int(x) for x in ball.rad().mid().man_exp())
    if mantissa == 0:
        return radius
    bound = -32 * (-(mantissa.bit_length() + exponent) // 32)
    return bound if radius is None else max(radius, bound)
