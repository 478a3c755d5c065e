"""Names for numbers that JSON cannot represent."""

import math
from collections.abc import Mapping
from types import MappingProxyType

#: The names in golden vectors.
SPELLINGS: Mapping[str, float] = MappingProxyType(
    {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
)


def spell(number: float) -> float | str:
    """Return a number, or its name if JSON cannot represent it.

    Examples
    --------
    >>> from attnspec.spelling import spell
    >>> spell(1.5), spell(float("-inf"))
    (1.5, '-Infinity')
    """
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
