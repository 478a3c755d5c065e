"""Codes of the second oracle: numbers of a format are counted up from 0, in steps that double."""

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.reference.rational.attention import attention
from attnspec.reference.rational.numbers import rounded

Arguments = Mapping[str, Any]
Arrays = dict[str, NDArray[np.float64]]

#: The smallest positive number, how many numbers lie between two powers of 2, and how many codes are numbers.
_LADDERS = {"e4m3fn": (Fraction(1, 512), 8, 127), "e5m2": (Fraction(1, 65536), 4, 124)}


@cache
def _ladder(encoding: str) -> tuple[Any, ...]:
    """List the numbers of the codes from 0 to 255, as fractions where they are finite and not 0."""
    step, count, finite = _LADDERS[encoding]
    numbers: list[Any] = [Fraction(0)]
    while len(numbers) < finite:
        if len(numbers) > 2 * count and len(numbers) % count == 1:
            step *= 2
        numbers.append(numbers[-1] + step)
    numbers += [math.inf] * (encoding == "e5m2")
    numbers += [math.nan] * (128 - len(numbers))
    return (*numbers, *(-number for number in numbers))


def _all(arguments: Arguments, of: str) -> NDArray[Any]:
    """Decode every code into a fraction or a float."""
    codes = np.asarray(arguments[f"{of}codes"])
    encoding = arguments.get("encoding") or "int8"
    numbers = np.empty(codes.shape, dtype=object)
    for place, code in np.ndenumerate(codes):
        numbers[place] = Fraction(int(code)) if encoding == "int8" else _ladder(encoding)[int(code) & 255]
    for name, apply in (("zero_points", _less), ("scales", _times)):
        other = arguments.get(f"{of}{name}")
        if other is not None:
            whole = _repeated(np.asarray(other), codes.shape)
            for place in np.ndindex(*codes.shape):
                numbers[place] = apply(numbers[place], whole[place])
    return numbers


def _repeated(array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    array = array.reshape((1,) * (len(shape) - array.ndim) + array.shape)
    for axis, size in enumerate(shape):
        if array.shape[axis] > 1 or size == 0:
            array = np.repeat(array, size // max(array.shape[axis], 1), axis=axis)
    return np.broadcast_to(array, shape)


def _less(number: Any, other: Any) -> Any:
    return number - int(other)


def _times(number: Any, other: Any) -> Any:
    scale = float(other)
    return number * (Fraction(scale) if math.isfinite(scale) and isinstance(number, Fraction) else scale)


def _floats(numbers: NDArray[Any]) -> NDArray[np.float64]:
    values = [rounded(x) if isinstance(x, Fraction) else x for x in numbers.reshape(-1)]
    return np.array(values, dtype=np.float64).reshape(numbers.shape)


def dequantize(arguments: Arguments) -> Arrays:
    """Decode every code."""
    return {"dequantized": _floats(_all(arguments, ""))}


def dequantize_blocks(arguments: Arguments) -> Arrays:
    """Unpack every block."""
    scales, packed = np.asarray(arguments["scales"]), np.asarray(arguments["packed"])
    found = np.empty((*scales.shape, 32), dtype=object)
    for place, factor in np.ndenumerate(scales):
        block = [int(byte) & 255 for byte in packed[place]]
        if (arguments.get("blocks") or "q8_0") == "q8_0":
            numbers = [byte - 2 * (byte & 128) for byte in block]
        else:
            numbers = [(byte & 15) - 8 for byte in block] + [(byte >> 4) - 8 for byte in block]
        found[place] = [_times(Fraction(number), factor) for number in numbers]
    return {"dequantized": _floats(found.reshape(*scales.shape[:-1], -1))}


def quantized_attention(arguments: Arguments, dialect: Mapping[str, str]) -> Arrays:
    """Attend with what is decoded of queries, keys and values."""
    names = [name for name in ("query", "key", "value") if f"{name}_codes" in arguments]
    decoded = {name: _floats(_all(arguments, f"{name}_")) for name in names}
    return attention({**arguments, **decoded}, dialect)
