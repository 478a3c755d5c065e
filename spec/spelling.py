"""Numbers that JSON has no spelling for, and their names."""

import math
from collections.abc import Mapping
from types import MappingProxyType

#: JSON has no spelling for these numbers; the vectors have.
SPELLINGS: Mapping[str, float] = MappingProxyType(
    {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
)


def spell(number: float) -> float | str:
    """Spell a number as a vector file does: as it is, or by name where JSON has no spelling.

    Examples
    --------
    >>> from attnspec.spelling import spell
    >>> spell(1.5), spell(float("-inf"))
    (1.5, '-Infinity')
    """
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
