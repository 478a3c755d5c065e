"""Every dtype of the standard: its format, and the precision in which its numbers are computed."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True)
class Format:
    """A binary floating-point format that arrays may have.

    All libraries use the same names.
    """

    name: str  # its name, such as ``bfloat16``
    digits: int  # the number of binary digits, including the leading one
    #: (int, int): the exponents of 2 of the smallest normal and of the largest number.
    exponents: tuple[int, int]
    working: str  # the shortest dtype in which inputs of this dtype may be computed (NUM-2)
    lse: str  # the shortest dtype that an lse may have for inputs of this dtype (NUM-7)

    @cached_property
    def unit(self) -> float:
        """Unit roundoff: half the distance from 1 to the next number."""
        return 2.0**-self.digits

    @cached_property
    def normal(self) -> float:
        """Smallest positive normal number."""
        return 2.0 ** self.exponents[0]

    @cached_property
    def subnormal(self) -> float:
        """Smallest positive number."""
        return 2.0 ** (self.exponents[0] - self.digits + 1)

    @cached_property
    def largest(self) -> float:
        """Largest finite number."""
        return (2 - 2 * self.unit) * 2.0 ** self.exponents[1]

    @cached_property
    def accepted_of_lse(self) -> tuple[str, ...]:
        """The dtypes that an lse may have for inputs of this dtype (NUM-7)."""
        return tuple(dict.fromkeys((self.lse, "float64")))


#: By name, from the shortest to the longest: the formats of IEEE 754, and bfloat16.
FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        found.name: found
        for found in (
            Format("float16", 11, (-14, 15), working="float32", lse="float32"),
            Format("bfloat16", 8, (-126, 127), working="float32", lse="float32"),
            Format("float32", 24, (-126, 127), working="float32", lse="float32"),
            Format("float64", 53, (-1022, 1023), working="float64", lse="float64"),
        )
    }
)

#: Their names.
DTYPES = tuple(FORMATS)

#: The dtypes that are computed in a longer one.
SHORT = tuple(name for name, found in FORMATS.items() if found.working != name)


def numpy_dtype(name: str) -> Any:
    """Return NumPy's dtype of a name. NumPy has bfloat16 only through another package."""
    # Imported here: `import attnspec` alone needs no NumPy.
    import ml_dtypes  # noqa: F401 - registers its names with NumPy
    import numpy as np

    return np.dtype(name)


#: Return the name of a dtype, which NumPy spells anew each time. Typed, because array-api-strict warns if its
#: dtypes are compared with those of another library.
name_of = lru_cache(maxsize=64, typed=True)(str)


def numbers_of(array: Any) -> str:
    """Return the kind of an array's numbers: ``floating``, ``boolean``, ``integer``, or else its dtype."""
    name = name_of(getattr(array.dtype, "name", array.dtype)).rpartition(".")[2]
    if name in FORMATS:
        return "floating"
    if name in ("bool", "bool_"):
        return "boolean"
    return "integer" if name.startswith(("int", "uint")) else name
