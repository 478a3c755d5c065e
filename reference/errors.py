"""What a call is refused for, and how that is said: the chapter `errors`."""

import math
from functools import lru_cache
from numbers import Integral, Real
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_array_api_obj

from attnspec.reference.budget.formats import FORMATS
from attnspec.reference.call import Array, Call

#: Integers of a larger size could overflow where positions are added.
_LARGEST = 2**62
Shape = tuple[int, ...]


class ArgumentError(ValueError):
    """An argument that cannot be used.

    The message names the argument, what was expected, what was got and the rule.
    """


def need(name: str, good: Any, expected: str, got: Any, rule: str) -> None:
    """Refuse an argument that is not as expected (ERR-12).

    Examples
    --------
    >>> from attnspec.reference.errors import need
    >>> need("key", 8 == 7, "depth 8 as in query", 7, "SHAPE-6")
    Traceback (most recent call last):
        ...
    attnspec.reference.errors.ArgumentError: key: expected depth 8 as in query, got 7 [SHAPE-6]
    """
    if not good:
        raise ArgumentError(f"{name}: expected {expected}, got {got} [{rule}]")


def described(given: Any) -> str:
    """Say in one line what was given."""
    if is_array_api_obj(given):
        return f"{dtype_name(given)} of shape {tuple(given.shape)}"
    return repr(given) if isinstance(given, str | Real | None) else type(given).__name__


def dtype_name(array: Array) -> str:
    """Return the bare name of an array's dtype: libraries print theirs with a prefix."""
    return _bare_name(array.dtype)


# Typed, so that dtypes of two libraries are never compared: array-api-strict's warn of that.
@lru_cache(maxsize=64, typed=True)
def _bare_name(dtype: Any) -> str:
    return str(dtype).rpartition(".")[2]


def is_number(given: Any) -> bool:
    """Whether this is a finite real number; a boolean is none, nor is an array."""
    if not isinstance(given, Real) or given is True or given is False:
        return False
    try:
        return math.isfinite(given)
    except OverflowError:  # an integer past the largest float
        return False


def is_integer(given: Any) -> bool:
    """Whether this is one integer; NumPy's scalars are integers too, and True is none."""
    return isinstance(given, Integral) and given is not True and given is not False


def number(name: str, given: Any, rule: str) -> float:
    """Take a finite real number.

    Examples
    --------
    >>> from attnspec.reference.errors import number
    >>> number("scale", True, "ERR-6")
    Traceback (most recent call last):
        ...
    attnspec.reference.errors.ArgumentError: scale: expected a finite number, got True [ERR-6]
    """
    need(name, is_number(given), "a finite number", described(given), rule)
    return float(given)


def whole(name: str, given: Any, least: int, rule: str) -> int:
    """Take an integer that is not below `least`."""
    good = is_integer(given) and given >= least
    need(name, good, f"a whole number of {least} or more", described(given), rule)
    return int(given)


def flag(name: str, given: Any) -> bool:
    """Take True or False: a mask passed by mistake would be taken for true (ERR-3)."""
    need(name, isinstance(given, bool | np.bool_), "True or False", described(given), "ERR-3")
    return bool(given)


def array(call: Call, name: str, given: Any, rule: str) -> Array:
    """Take an array, and of the library in use."""
    need(name, is_array_api_obj(given), "an array", described(given), rule)
    own = array_namespace(given)
    need(name, own is call.xp, f"an array of {call.xp.__name__}", f"one of {own.__name__}", rule)
    return given


def real(call: Call, name: str, given: Any, rule: str, rule_of_dtype: str = "ERR-2") -> Array:
    """Take an array of floating-point numbers.

    Integers are refused, as a division hidden in the scale would otherwise turn them into floats.
    """
    array(call, name, given, rule)
    good = dtype_name(given) in FORMATS
    need(name, good, "floating-point numbers", given.dtype, rule_of_dtype)
    return given


def same_dtype(call: Call, **arrays: Any) -> None:
    """Refuse arrays that are of no floating-point dtype, or of another than the first (ERR-1, ERR-2)."""
    for name, given in arrays.items():
        real(call, name, given, "ERR-2")
    (first, leading), *rest = arrays.items()
    for name, given in rest:
        expected = f"dtype {dtype_name(leading)} as in {first}"
        need(name, given.dtype == leading.dtype, expected, dtype_name(given), "ERR-1")


def booleans(call: Call, name: str, given: Any, full: Shape, rule: str) -> Array:
    """Take booleans that broadcast to the scores: numbers mean opposite things in different libraries."""
    array(call, name, given, "ERR-4")
    got = f"{given.dtype}; an additive mask is a bias"
    need(name, given.dtype == call.xp.bool, "bool", got, "ERR-4")
    return fitting(name, given, full, rule)


def fitting(name: str, given: Array, full: Shape, rule: str) -> Array:
    """Take an array that broadcasts to the scores' shape, trailing axes aligned."""
    shape = tuple(given.shape)
    need(name, broadcasts(shape, full), f"a shape that broadcasts to {full}", shape, rule)
    return given


def broadcasts(shape: Shape, full: Shape) -> bool:
    """Whether trailing axes are equal or 1, and no axes are left over."""
    pairs = zip(reversed(shape), reversed(full), strict=False)
    return len(shape) <= len(full) and all(own in (1, other) for own, other in pairs)


def integers(call: Call, name: str, given: Any, batch: Shape, rule: str) -> int | Array:
    """Take one integer, or an array of one for each batch entry (ERR-8).

    Examples
    --------
    >>> import array_api_compat.numpy as xp
    >>> from attnspec.reference.errors import integers
    >>> from attnspec.reference.call import Call, Steps
    >>> integers(Call(Steps(), xp, None), "key_lengths", xp.asarray([3, 4]), (3,), "ERR-8")
    Traceback (most recent call last):
        ...
    attnspec.reference.errors.ArgumentError: key_lengths: expected shape (3,), got (2,) [ERR-8]
    """
    if is_integer(given):
        need(name, -_LARGEST <= given <= _LARGEST, f"{-_LARGEST} to {_LARGEST}", given, rule)
        # What is compiled is compiled anew for every other integer.
        return int(given) if call.steps.compiler is None else call.xp.asarray(int(given))
    need(name, is_array_api_obj(given), f"integers of shape {batch}, or one", described(given), rule)
    array(call, name, given, rule)
    need(name, dtype_name(given).startswith(("int", "uint")), "integers", given.dtype, rule)
    need(name, tuple(given.shape) == batch, f"shape {batch}", tuple(given.shape), rule)
    return call.xp.astype(given, call.xp.int64)


def within(call: Call, name: str, given: int | Array, least: int, most: int, rule: str) -> None:
    """Refuse integers outside of bounds, both included; this looks at the numbers."""
    expected = f"{least} to {most}"
    if isinstance(given, int):
        need(name, least <= given <= most, expected, given, rule)
    elif 0 not in given.shape:  # which nothing could be said of
        lowest, highest = int(call.xp.min(given)), int(call.xp.max(given))
        need(name, least <= lowest and highest <= most, expected, f"{lowest} to {highest}", rule)
