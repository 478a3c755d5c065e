"""Every dtype of the standard: its format, and the precision in which its numbers are computed."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True)
class Format:
    """A binary floating-point format that arrays may have.

    All libraries spell the names alike, so there is one of each.

    Attributes
    ----------
    name : str
        As a library's array has it: ``bfloat16``.
    digits : int
        Binary ones, the leading one included.
    exponents : (int, int)
        Of 2, of the smallest normal and of the largest number.
    working : str
        The dtype in which inputs of this one are computed, at least (NUM-2).
    lse : str
        The dtype in which a log-sum-exp is held where the inputs have this one, at
        least (NUM-7).
    """

    name: str
    digits: int
    exponents: tuple[int, int]
    working: str
    lse: str

    @property
    def unit(self) -> float:
        """Unit roundoff: half the distance from 1 to the next number."""
        return 2.0**-self.digits

    @property
    def normal(self) -> float:
        """Smallest positive normal number."""
        return 2.0 ** self.exponents[0]

    @property
    def subnormal(self) -> float:
        """Smallest positive number."""
        return 2.0 ** (self.exponents[0] - self.digits + 1)

    @property
    def largest(self) -> float:
        """Largest finite number."""
        return (2 - 2 * self.unit) * 2.0 ** self.exponents[1]

    @property
    def accepted_of_lse(self) -> tuple[str, ...]:
        """The dtypes that a log-sum-exp may have where the inputs have this one (NUM-7)."""
        return tuple(dict.fromkeys((self.lse, "float64")))


#: By name, from the shortest to the longest: IEEE 754, and bfloat16.
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

#: Those that are computed in a longer one.
SHORT = tuple(name for name, found in FORMATS.items() if found.working != name)


def numpy_dtype(name: str) -> Any:
    """Give the dtype of that name as NumPy has it, which knows bfloat16 only through another package.

    Examples
    --------
    >>> from attnspec.dtypes import numpy_dtype
    >>> numpy_dtype("bfloat16").itemsize
    2
    """
    # Imported here: `import attnspec` alone needs no NumPy.
    import ml_dtypes  # noqa: F401 - registers its names with NumPy
    import numpy as np

    return np.dtype(name)


def numbers_of(array: Any) -> str:
    """Tell what an array's numbers are: ``floating``, ``boolean``, ``integer``, or else its dtype.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.dtypes import numbers_of
    >>> numbers_of(np.ones(2, "bfloat16")), numbers_of(np.ones(2, bool)), numbers_of(np.ones(2, complex))
    ('floating', 'boolean', 'complex128')
    """
    name = str(getattr(array.dtype, "name", array.dtype)).rpartition(".")[2]
    if name in FORMATS:
        return "floating"
    if name in ("bool", "bool_"):
        return "boolean"
    return "integer" if name.startswith(("int", "uint")) else name
