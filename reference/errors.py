"""Checks of arguments and their error messages: the chapter `errors`."""

import math
from numbers import Integral, Real
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_array_api_obj

from attnspec.dtypes import FORMATS, name_of
from attnspec.reference.call import Array, Call

#: Larger integers could overflow when positions are added.
_LARGEST = 2**62
Shape = tuple[int, ...]


class ArgumentError(ValueError):
    """An argument is refused.

    The message names the argument, what the call expected, what it got, and the rule.
    """


def need(name: str, good: Any, expected: str, got: Any, rule: str) -> None:
    """Raise an error unless an argument is as expected (ERR-12)."""
    if not good:
        raise ArgumentError(f"{name}: expected {expected}, got {got} [{rule}]")


def described(given: Any) -> str:
    """Describe an argument in one line."""
    if is_array_api_obj(given):
        return f"{dtype_name(given)} of shape {tuple(given.shape)}"
    return repr(given) if isinstance(given, str | Real | None) else type(given).__name__


def dtype_name(array: Array) -> str:
    """Return the name of an array's dtype without the prefix that some libraries print."""
    return name_of(array.dtype).rpartition(".")[2]


def is_number(given: Any) -> bool:
    """Whether this is a finite real number. Booleans and arrays are not numbers."""
    if not isinstance(given, Real) or given is True or given is False:
        return False
    try:
        return math.isfinite(given)
    except OverflowError:  # an integer above the largest float
        return False


def is_integer(given: Any) -> bool:
    """Whether this is one integer. NumPy's integer scalars are integers, booleans are not."""
    return isinstance(given, Integral) and given is not True and given is not False


def number(name: str, given: Any, rule: str) -> float:
    """Return a finite real number."""
    need(name, is_number(given), "a finite number", described(given), rule)
    return float(given)


def whole(name: str, given: Any, least: int, rule: str) -> int:
    """Return an integer that is at least `least`."""
    good = is_integer(given) and given >= least
    need(name, good, f"a whole number of {least} or more", described(given), rule)
    return int(given)


def flag(name: str, given: Any) -> bool:
    """Return True or False, so that a mask passed by mistake is not taken for true (ERR-3)."""
    need(name, isinstance(given, bool | np.bool_), "True or False", described(given), "ERR-3")
    return bool(given)


def array(call: Call, name: str, given: Any, rule: str) -> Array:
    """Return an array of the library in use."""
    need(name, is_array_api_obj(given), "an array", described(given), rule)
    own = array_namespace(given)
    need(name, own is call.xp, f"an array of {call.xp.__name__}", f"one of {own.__name__}", rule)
    return given


def real(call: Call, name: str, given: Any, rule: str) -> Array:
    """Return an array of floating-point numbers (ERR-2).

    Integers are refused. The scale would otherwise convert them to floats without notice.
    """
    array(call, name, given, rule)
    good = dtype_name(given) in FORMATS
    need(name, good, "floating-point numbers", given.dtype, "ERR-2")
    return given


def same_dtype(call: Call, **arrays: Any) -> None:
    """Refuse arrays that are not floating-point or whose dtype differs from the first (ERR-1, ERR-2)."""
    for name, given in arrays.items():
        real(call, name, given, "ERR-2")
    (first, leading), *rest = arrays.items()
    for name, given in rest:
        expected = f"dtype {dtype_name(leading)} as in {first}"
        need(name, given.dtype == leading.dtype, expected, dtype_name(given), "ERR-1")


def check_lse_dtype(call: Call, name: str, given: Any, like: Array, rule: str = "NUM-7") -> None:
    """Require an array of a dtype that an lse has where the inputs have that of `like` (NUM-7)."""
    precise = FORMATS[dtype_name(like)].accepted_of_lse
    got = dtype_name(array(call, name, given, "ERR-2"))
    need(name, got in precise, " or ".join(precise), got, rule)


def booleans(call: Call, name: str, given: Any, full: Shape, rule: str) -> Array:
    """Return booleans that broadcast to the scores. Numbers are refused because they are ambiguous."""
    array(call, name, given, "ERR-4")
    got = f"{given.dtype}; an additive mask is a bias"
    need(name, given.dtype == call.xp.bool, "bool", got, "ERR-4")
    return fitting(name, given, full, rule)


def fitting(name: str, given: Array, full: Shape, rule: str) -> Array:
    """Return an array that broadcasts to the shape of the scores, trailing axes aligned."""
    shape = tuple(given.shape)
    need(name, broadcasts(shape, full), f"a shape that broadcasts to {full}", shape, rule)
    return given


def broadcasts(shape: Shape, full: Shape) -> bool:
    """Whether each trailing axis is equal or 1, and there are no further axes."""
    pairs = zip(reversed(shape), reversed(full), strict=False)
    return len(shape) <= len(full) and all(own in (1, other) for own, other in pairs)


def integers(call: Call, name: str, given: Any, batch: Shape, rule: str) -> int | Array:
    """Return one integer, or an array with one for each batch entry (ERR-8)."""
    if is_integer(given):
        need(name, -_LARGEST <= given <= _LARGEST, f"{-_LARGEST} to {_LARGEST}", given, rule)
        # A compiled part is compiled again for each new Python integer, but not for an array.
        return int(given) if call.steps.compiler is None else call.xp.asarray(int(given))
    need(name, is_array_api_obj(given), f"integers of shape {batch}, or one", described(given), rule)
    array(call, name, given, rule)
    need(name, dtype_name(given).startswith(("int", "uint")), "integers", given.dtype, rule)
    if not given.shape and call.steps.compiler is not None:
        return given  # made above, of the integer that an operation was given that calls this one
    need(name, tuple(given.shape) == batch, f"shape {batch}", tuple(given.shape), rule)
    return call.xp.astype(given, call.xp.int64)


def within(call: Call, name: str, given: int | Array, least: int, most: int, rule: str) -> None:
    """Refuse integers outside inclusive bounds. This reads the values of arrays."""
    expected = f"{least} to {most}"
    if isinstance(given, int):
        need(name, least <= given <= most, expected, given, rule)
    elif 0 not in given.shape:
        lowest, highest = int(call.xp.min(given)), int(call.xp.max(given))
        need(name, least <= lowest and highest <= most, expected, f"{lowest} to {highest}", rule)
