"""The inverse of decoding: numbers as codes with scales, from which they are decoded without an error."""

from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec import OPERATIONS
from attnspec.backends.backend import Backend
from attnspec.backends.errors import Unsupported
from attnspec.operations.quantization import OF_BLOCK, RANGES
from attnspec.reference import dequantize

Numbers = NDArray[np.float64]
#: The encodings of codes that are tried, and the exponents of a number of 2 digits that each of them holds.
ENCODINGS = ("int8", "e4m3fn", "e2m1fn", "e5m2", "e4m3fnuz", "e5m2fnuz")
_SHIFTS = 3
#: The largest number of few digits in its unit, and the exponents of units that are tried.
_MOST, _EXPONENTS = 3, range(9)
#: The granularities of scales that the tokens of all sequences share.
_OF_ALL = ("tensor", "shared", "head")
#: The keys after which scales repeat in another order.
_TILE = 128


def encodings(arrays: Iterable[Any], taken: frozenset[str], number: int, only: str = "") -> tuple[str, ...]:
    """List the encodings that hold some arrays, in an order that a number turns, or the only one."""
    few = all(_in_units(x)[1] for x in arrays)
    if only:
        return (only,) if few else ()
    if "encoding" not in taken or not few:
        return ENCODINGS[:1]
    turn = number % len(ENCODINGS)
    return ENCODINGS[turn:] + ENCODINGS[:turn]


def code(
    backend: Backend, operation: str, given: dict[str, Any], taken: frozenset[str], encoding: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a call with codes in the place of numbers, and the scales that all sequences share."""
    call, shared = dict(given), {"encoding": encoding} if "encoding" in taken else {}
    put = backend.to_library
    for name in OPERATIONS[operation].arrays:
        source = name.removesuffix("_codes")
        if source == name or source not in call:
            continue
        array = backend.to_numpy(call.pop(source))
        units, few, unit = _in_units(array)
        heads = bool({"Hq", "Hkv"}.intersection(OPERATIONS[operation].arguments[name].shape))
        shifts, per_sequence = _shifts(backend.constraints.scales, units, heads=heads, few=few)
        by_number = np.repeat(shifts, units.shape[-1] // shifts.shape[-1], -1) if shifts.ndim > 1 else shifts
        codes = units * 2.0**by_number
        scales = np.ldexp(unit, (encoding == "e2m1fn") - shifts).astype(array.dtype)
        own: dict[str, Any] = {f"{source}_scales": scales}
        if encoding == "int8" and few and f"{source}_zero_points" in taken and units.shape[-2] % 2:
            own[f"{source}_zero_points"] = zero_points = 5 * shifts - 20
            codes = codes + np.broadcast_to(zero_points, by_number.shape)
        missing = [extra for extra in own if extra not in (*taken, *OPERATIONS[operation].arrays)]
        if missing:
            raise Unsupported(f"its function takes no {missing[0]}")
        call[name] = put(_codes(codes, encoding))
        (call if per_sequence else shared).update({extra: put(x) for extra, x in own.items()})
    return call, shared


def _in_units(array: NDArray[Any]) -> tuple[Numbers, bool, float]:
    """Return numbers in the largest unit whose multiples they are, whether they are few, and the unit."""
    wide = np.asarray(array, dtype=np.float64)
    for exponent in _EXPONENTS:
        units = np.ldexp(wide, exponent)
        if np.array_equal(units, np.rint(units)):
            few = bool(np.abs(units).max(initial=0) <= _MOST)
            if few or RANGES["int8"][0] <= units.min() <= units.max() <= -RANGES["int8"][0] - 1:
                return units, few, 2.0**-exponent
    raise Unsupported("its numbers have more digits than codes of 8 bits hold")


def _shifts(granularity: str, units: Numbers, *, heads: bool, few: bool) -> tuple[NDArray[np.int64], bool]:
    """Return exponents of scales, which differ if the numbers are few, and whether each sequence has its own.

    Without a granularity each token has a scale, or each block of its features.
    """
    keys, depth = units.shape[-2:]
    h = np.arange(units.shape[-3])[:, None, None] if heads else np.zeros(1, np.int64)
    if granularity in _OF_ALL:
        shifts = (1 + (0 * h.ravel()[:1] if granularity == "tensor" else h)) % _SHIFTS
    else:
        blocks = depth // OF_BLOCK if not (granularity or depth % OF_BLOCK or keys % 2) else 1
        j = np.arange(keys)[:, None]
        shifts = (h + 7 * j + j // _TILE + np.arange(blocks)) % _SHIFTS
        shifts = np.broadcast_to(shifts, (*units.shape[:-1], blocks))
    return shifts * few, granularity not in _OF_ALL


def _codes(numbers: Numbers, encoding: str) -> NDArray[Any]:
    """Return the codes of numbers that an encoding holds."""
    numbers = numbers / 2 if encoding == "e2m1fn" else numbers
    codes = nearest_codes(numbers, encoding)
    if not np.array_equal(dequantize(np.ones(1), codes, encoding=encoding), numbers):
        raise AssertionError(f"numbers: expected some that {encoding} holds, got others")
    return codes


def nearest_codes(numbers: NDArray[Any], encoding: str) -> NDArray[Any]:
    """Return the codes of the nearest finite numbers of an encoding, and of NaN for NaN, if it has one."""
    values, codes, nan = _table(encoding)
    right = np.clip(np.searchsorted(values, numbers), 1, len(values) - 1)
    nearer = numbers - values[right - 1] < values[right] - numbers
    found: NDArray[Any] = codes[right - nearer]
    return np.where(np.isnan(numbers), nan[0], found) if len(nan) else found


@cache
def _table(encoding: str) -> tuple[Numbers, NDArray[Any], NDArray[Any]]:
    """Return the finite numbers of an encoding in ascending order, their codes, and those of NaN."""
    floating = np.arange(RANGES[encoding][1] + 1, dtype=np.uint8)
    every = np.arange(-128, 128, dtype=np.int8) if encoding == "int8" else floating
    values = dequantize(np.ones(1), every[None], encoding=encoding)[0]
    finite = np.isfinite(values)
    order = np.argsort(values[finite])
    return values[finite][order], every[finite][order], every[np.isnan(values)]
