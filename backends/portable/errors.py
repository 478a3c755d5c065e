"""What the portable source refuses, and how it says so: the chapter `errors`."""

import math
from numbers import Integral, Real
from typing import Any

from array_api_compat import array_namespace, device, is_array_api_obj

from attnspec.dtypes import DTYPES

FLOATING = DTYPES
#: Integers of a larger size could overflow where positions are added.
_LARGEST = 2**62


def check(name: str, good: Any, expected: str, got: Any, rule: str) -> None:
    """Raise an error that names argument, expected, got and rule unless all is good (ERR-12)."""
    if not good:
        raise ValueError(f"{name}: expected {expected}, got {got} [{rule}]")


def dtype_name(array: Any) -> str:
    """Return the bare name of an array's dtype: libraries print theirs with a prefix."""
    return str(array.dtype).rpartition(".")[2]


def describe(given: Any) -> str:
    """Describe what was given for an error, in one line."""
    if is_array_api_obj(given):
        return f"{dtype_name(given)} of shape {tuple(given.shape)}"
    return repr(given) if isinstance(given, str | Real | None) else type(given).__name__


def namespace(rule: str, **arrays: Any) -> Any:
    """Return the array namespace of the first argument; the others have to be of the same."""
    name, array = next(iter(arrays.items()))
    check(name, is_array_api_obj(array), "an array", describe(array), rule)
    xp = array_namespace(array)
    for name, array in arrays.items():
        check_array(xp, name, array, rule)
    return xp


def check_array(xp: Any, name: str, array: Any, rule: str) -> None:
    """Refuse what is no array of the library in use."""
    check(name, is_array_api_obj(array), "an array", describe(array), rule)
    own = array_namespace(array)
    check(name, own is xp, f"an array of {xp.__name__}", f"one of {own.__name__}", rule)


def check_floating(rule: str, **arrays: Any) -> None:
    """Refuse arrays of integers, booleans or complex numbers."""
    for name, array in arrays.items():
        good = dtype_name(array) in FLOATING
        check(name, good, f"floating-point numbers, one of {', '.join(FLOATING)}", array.dtype, rule)


def check_dtypes(**arrays: Any) -> None:
    """Refuse arrays that are not floating-point, or not of the dtype of the first (ERR-1, ERR-2)."""
    check_floating("ERR-2", **arrays)
    (first, array), *others = arrays.items()
    for name, other in others:
        same = other.dtype == array.dtype
        check(name, same, f"dtype {dtype_name(array)} as of {first}", dtype_name(other), "ERR-1")


def working(array: Any) -> Any:
    """Bring half precision to float32 (NUM-5); float32 and float64 stay what they are."""
    xp = array_namespace(array)
    return xp.astype(array, xp.float32) if dtype_name(array).endswith("float16") else array


def check_broadcast(name: str, array: Any, full: tuple[int, ...], rule: str) -> None:
    """Refuse an array that does not broadcast to the scores' shape, trailing axes aligned."""
    shape = tuple(array.shape)
    trailing = full[len(full) - len(shape) :]
    pairs = zip(shape, trailing, strict=False)
    fits = len(shape) <= len(full) and all(own in (1, size) for own, size in pairs)
    check(name, fits, f"a shape that broadcasts to {full}", shape, rule)


def check_flags(**flags: Any) -> None:
    """Refuse anything but True and False: a number, a string or an array is a slip here."""
    for name, flag in flags.items():
        check(name, isinstance(flag, bool), "True or False", describe(flag), "ERR-3")


def boolean(xp: Any, name: str, mask: Any, full: tuple[int, ...], rule: str) -> Any:
    """Return a boolean mask that broadcasts to the scores (ERR-4)."""
    check_array(xp, name, mask, "ERR-4")
    check(name, mask.dtype == xp.bool, "booleans", mask.dtype, "ERR-4")
    check_broadcast(name, mask, full, rule)
    return mask


def number(name: str, given: Any, expected: str, rule: str) -> float:
    """Return a finite real number; booleans, strings and arrays are none."""
    good = isinstance(given, Real) and given is not True and given is not False
    check(name, good, expected, describe(given), rule)
    try:
        value = float(given)
    except OverflowError:  # an integer past the largest float
        value = math.inf
    check(name, math.isfinite(value), expected, value, rule)
    return value


def is_integer(given: Any) -> bool:
    """Whether this is one integer; NumPy's scalars are integers too, and True is none."""
    return isinstance(given, Integral) and given is not True and given is not False


def integer(name: str, given: Any, least: int, rule: str) -> int:
    """Return a Python integer that is not below `least`."""
    check(name, is_integer(given) and given >= least, f"an integer of {least} or more", describe(given), rule)
    return int(given)


def integers(
    xp: Any,
    name: str,
    given: Any,
    outer: tuple[int, ...],
    rule: str,
    bounds: tuple[int, int] | None = None,
    bounds_rule: str = "ERR-9",
) -> Any:
    """Return one integer, or an int64 array with one for each entry of the axes `outer` (ERR-8)."""
    expected = f"an integer, or integers of shape {outer}"
    if is_integer(given):
        single = int(given)
        low, high = bounds or (-_LARGEST, _LARGEST)
        check(name, low <= single <= high, f"{low} to {high}", single, bounds_rule if bounds else rule)
        return single
    check(name, is_array_api_obj(given), expected, describe(given), rule)
    check_array(xp, name, given, rule)
    kind = dtype_name(given).startswith(("int", "uint"))
    check(name, kind and tuple(given.shape) == outer, expected, describe(given), rule)
    array = xp.astype(given, xp.int64)
    if bounds:
        check_bounds(xp, name, array, bounds, bounds_rule)
    return array


def check_bounds(xp: Any, name: str, array: Any, bounds: tuple[int, int], rule: str) -> None:
    """Refuse integers outside of the bounds, both included: this looks at the numbers."""
    if 0 in array.shape:
        return  # nothing to take a minimum of
    least, largest = int(xp.min(array)), int(xp.max(array))
    good = bounds[0] <= least and largest <= bounds[1]
    check(name, good, f"{bounds[0]} to {bounds[1]}", f"{least} to {largest}", rule)


def count(xp: Any, size: int, like: Any) -> Any:
    """Return 0, 1, ... below `size`, where the array `like` is."""
    return xp.arange(size, dtype=xp.int64, device=device(like))
