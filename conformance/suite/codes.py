"""Codes and scales of generated cases of the chapter `quantization`."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: The positive codes that are drawn: numbers from about 1/64 to 2, and now and then a subnormal one.
_COMMON: Mapping[str, tuple[int, int]] = MappingProxyType({"e4m3fn": (0x08, 0x40), "e5m2": (0x24, 0x40)})
#: The first code with all exponent bits 0 and the last one.
_SUBNORMAL: Mapping[str, tuple[int, int]] = MappingProxyType({"e4m3fn": (0x01, 0x07), "e5m2": (0x01, 0x03)})
#: Codes of the largest finite number.
LARGEST: Mapping[str, int] = MappingProxyType({"int8": 127, "e4m3fn": 0x7E, "e5m2": 0x7B})


def drawn_codes(random: np.random.Generator, encoding: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Draw finite codes of both signs.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.conformance.suite.codes import drawn_codes
    >>> drawn_codes(np.random.default_rng(1), "int8", (2, 2)).dtype.name
    'int8'
    """
    if encoding == "int8":
        return random.integers(-128, 128, shape).astype(np.int8)
    low, high = _COMMON[encoding]
    codes = random.integers(low, high + 1, shape)
    tiny = random.integers(*_SUBNORMAL[encoding], shape)
    codes = np.where(random.random(shape) < 0.1, tiny, codes)
    return (codes + 128 * random.integers(0, 2, shape)).astype(np.uint8)


def drawn_scales(
    random: np.random.Generator, encoding: str, shape: tuple[int, ...], dtype: str
) -> NDArray[Any]:
    """Draw scales of few digits, by which numbers of codes become numbers of about 1.

    Every dtype holds them, and float64 holds their products with codes.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.conformance.suite.codes import drawn_scales
    >>> bool((drawn_scales(np.random.default_rng(1), "e5m2", (2, 1), "float16") >= 0.25).all())
    True
    """
    unit = 2.0**-8 if encoding == "int8" else 0.25
    return (random.choice([1, 2, 3, 5, 7], shape) * unit).astype(dtype)
