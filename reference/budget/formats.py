"""Floating-point formats, and the one rounding of a result."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Accuracy = Literal["full", "cast", "storage"]
Budget = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Format:
    """A binary floating-point format.

    Attributes
    ----------
    unit : float
        Unit roundoff: half the distance from 1 to the next number.
    normal : float
        Smallest positive normal number.
    subnormal : float
        Smallest positive number.
    largest : float
        Largest finite number.
    """

    unit: float
    normal: float
    subnormal: float
    largest: float


def _format(digits: int, least: int, most: int) -> Format:
    """Describe the format of so many binary digits, with exponents of 2 from `least` to `most`."""
    unit = 2.0**-digits
    return Format(unit, 2.0**least, 2.0 ** (least - digits + 1), (2 - 2 * unit) * 2.0**most)


#: Digits, then the exponents of the smallest normal and of the largest number: IEEE 754, and bfloat16.
FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        "float16": _format(11, -14, 15),
        "bfloat16": _format(8, -126, 127),
        "float32": _format(24, -126, 127),
        "float64": _format(53, -1022, 1023),
    }
)

#: The precision in which inputs of a dtype are computed, at least.
WORKING: Mapping[str, str] = MappingProxyType(
    {"float16": "float32", "bfloat16": "float32", "float32": "float32", "float64": "float64"}
)


def rounded(value: Budget, error: Budget, storage: Format) -> Budget:
    """Add the one rounding of the result: relative, or half the spacing of the subnormals."""
    with np.errstate(invalid="ignore"):  # inf - inf: such places are compared as patterns, not by budget
        final = np.maximum(storage.unit * (np.abs(value) + error), storage.subnormal / 2)
        return np.where(
            np.isfinite(value), error + np.where(value == 0, np.where(error == 0, 0, final), final), 0
        )
