"""Codes for the exact oracle: each is decoded as a fraction, by the definition of its format."""

from collections.abc import Mapping
from fractions import Fraction
from math import inf, isfinite, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.reference.exact.attention import evaluate_attention
from attnspec.reference.exact.balls import OracleError, Settled, nearest

#: Bits of the exponent and of the fraction, and the bias of the exponent.
_FORMATS = {"e4m3fn": (4, 3, 7), "e5m2": (5, 2, 15)}


def _number(code: int, encoding: str) -> Fraction | float:
    """Return the number of a code, as a float if it is infinite or NaN."""
    if encoding == "int8":
        return Fraction(code)
    width, digits, bias = _FORMATS[encoding]
    bits = f"{code % 256:08b}"
    sign = -1 if bits[0] == "1" else 1
    exponent, fraction = int(bits[1 : 1 + width], 2), Fraction(int(bits[1 + width :], 2), 2**digits)
    if "0" not in bits[1:]:
        return nan
    if encoding == "e5m2" and "0" not in bits[1 : 1 + width]:
        return sign * inf if fraction == 0 else nan
    if exponent == 0:
        return sign * fraction * Fraction(2) ** (1 - bias)
    return sign * (1 + fraction) * Fraction(2) ** (exponent - bias)


def _entry(array: Any, place: tuple[int, ...], shape: tuple[int, ...]) -> Any:
    """Return the entry for a place of the codes, whose axis is divided into blocks of equal size."""
    own = np.shape(array)
    index = []
    for size, whole, i in zip(reversed(own), reversed(shape), reversed(place), strict=False):
        index.append(i * size // whole)
    return np.asarray(array)[tuple(reversed(index))]


def _product(number: Fraction | float, shift: int, scale: float) -> Fraction | float:
    if isinstance(number, float) or not isfinite(scale):
        return (float(number) - shift) * scale
    return (number - shift) * Fraction(scale)


def _decoded(arguments: Mapping[str, Any], of: str) -> list[Fraction | float]:
    codes = np.asarray(arguments[f"{of}codes"])
    scales = np.asarray(arguments.get(f"{of}scales", 1.0)).astype(np.float64)
    shift = arguments.get(f"{of}zero_points", 0)
    encoding = arguments.get("encoding", "int8")
    return [
        _product(
            _number(int(codes[place]), encoding),
            int(_entry(shift, place, codes.shape)),
            float(_entry(scales, place, codes.shape)),
        )
        for place in np.ndindex(*codes.shape)
    ]


def _rounded(numbers: list[Fraction | float], shape: tuple[int, ...], dtype: str) -> Settled:
    values = [x if isinstance(x, float) else nearest(x, dtype) for x in numbers]
    return Settled(np.array(values, dtype=np.float64).reshape(shape), 53, None)


def dequantize(arguments: Mapping[str, Any], _variant: str | None, dtype: str) -> dict[str, Settled]:
    """Decode every code, and round once."""
    shape = np.shape(arguments["codes"])
    return {"dequantized": _rounded(_decoded(arguments, ""), shape, dtype)}


def dequantize_blocks(arguments: Mapping[str, Any], _variant: str | None, dtype: str) -> dict[str, Settled]:
    """Unpack every block, and round once."""
    scales, packed = np.asarray(arguments["scales"]), np.asarray(arguments["packed"])
    nibbles = arguments.get("blocks", "q8_0") == "q4_0"
    numbers: list[Fraction | float] = []
    for *place, k in np.ndindex(*scales.shape, 32):
        byte = int(packed[(*place, k % 16 if nibbles else k)]) % 256
        if nibbles:
            number = int(f"{byte:08b}"[4:] if k < 16 else f"{byte:08b}"[:4], 2) - 8
        else:
            number = int.from_bytes(bytes([byte]), signed=True)
        numbers.append(_product(Fraction(number), 0, float(scales[tuple(place)])))
    shape = (*scales.shape[:-1], scales.shape[-1] * 32)
    return {"dequantized": _rounded(numbers, shape, dtype)}


def _whole(arguments: Mapping[str, Any], of: str) -> NDArray[np.float64]:
    """Decode into float64, and refuse what it does not hold."""
    numbers = _decoded(arguments, of)
    for number in numbers:
        if isinstance(number, Fraction) and Fraction(float(number)) != number:
            raise OracleError(f"{of}scales: expected products that float64 holds, got others")
    return np.array([float(x) for x in numbers]).reshape(np.shape(arguments[f"{of}codes"]))


def quantized_attention(arguments: Mapping[str, Any], variant: str | None, dtype: str) -> dict[str, Settled]:
    """Attend with what is decoded of queries, keys and values."""
    taken = ("_codes", "_scales", "_zero_points")
    plain = {name: x for name, x in arguments.items() if not name.endswith(taken)}
    if "query_codes" in arguments:
        plain["query"] = _whole(arguments, "query_")
    plain |= {"key": _whole(arguments, "key_"), "value": _whole(arguments, "value_")}
    return evaluate_attention(plain, variant, dtype)
