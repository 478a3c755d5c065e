"""Quotients of two numbers that are each the sum of two floats."""

from attnspec.reference.codebook.exponentials import Numbers

_SPLITTER = 2.0**27 + 1


def quotient(first: Numbers, rest: Numbers, by: Numbers, by_rest: Numbers) -> Numbers:
    """Return ``(first + rest) / (by + by_rest)``, with an error of slightly more than half a unit at most.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.reference.codebook.quotient import quotient
    >>> two, small = np.array([2.0]), np.array([2.0**-60])
    >>> quotient(two, small, np.array([3.0]), small).tolist()
    [0.6666666666666666]
    """
    whole, low = _sum(first, rest)
    divisor, divisor_low = _sum(by, by_rest)
    found: Numbers = whole / divisor
    product, product_low = _product(found, divisor)
    left = (whole - product) - product_low + low - found * divisor_low
    return found + left / divisor


def _sum(x: Numbers, y: Numbers) -> tuple[Numbers, Numbers]:
    """Return the rounded sum and its rounding error (Knuth)."""
    total = x + y
    other = total - x
    return total, (x - (total - other)) + (y - other)


def _product(x: Numbers, y: Numbers) -> tuple[Numbers, Numbers]:
    """Return the rounded product and its rounding error (Dekker)."""
    product = x * y
    (high, low), (other, other_low) = _halves(x), _halves(y)
    return product, ((high * other - product) + high * other_low + low * other) + low * other_low


def _halves(x: Numbers) -> tuple[Numbers, Numbers]:
    large = _SPLITTER * x
    high = large - (large - x)
    return high, x - high
