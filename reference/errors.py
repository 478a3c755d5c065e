"""Checks of arguments and their error messages: the chapter `errors`."""

import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_array_api_obj

from attnspec.dtypes import FORMATS, name_of
from attnspec.operations import LETTERS, OPERATIONS, Argument, Operation
from attnspec.operations.letters import value_of
from attnspec.reference.call import Arguments, Array, Call, step
from attnspec.sizes import bound

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


def need_kind(name: str, good: Any, expected: str, given: Any, rule: str) -> None:
    """Raise an error unless an argument is as expected, and describe it only then: checks are many."""
    if not good:
        need(name, good, expected, describe(given), rule)


def describe(given: Any) -> str:
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
    need_kind(name, is_number(given), "a finite number", given, rule)
    return float(given)


def whole(name: str, given: Any, least: int, rule: str, kind: str = "") -> int:
    """Return an integer that is at least `least`. Another kind may have another rule."""
    for good, own in ((is_integer(given), kind or rule), (is_integer(given) and given >= least, rule)):
        need_kind(name, good, f"a whole number of {least} or more", given, own)
    return int(given)


def flag(name: str, given: Any) -> bool:
    """Return True or False, so that a mask passed by mistake is not taken for true (ERR-3)."""
    need_kind(name, isinstance(given, bool | np.bool_), "True or False", given, "ERR-3")
    return bool(given)


def array(call: Call, name: str, given: Any, rule: str) -> Array:
    """Return an array of the library in use."""
    need_kind(name, is_array_api_obj(given), "an array", given, rule)
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
    return broadcastable(name, given, full, rule)


def broadcastable(name: str, given: Array, full: Shape, rule: str) -> Array:
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
    need_kind(name, is_array_api_obj(given), f"integers of shape {batch}, or one", given, rule)
    array(call, name, given, rule)
    need(name, dtype_name(given).startswith(("int", "uint")), "integers", given.dtype, rule)
    if not given.shape and call.steps.compiler is not None:
        return given  # made above, of the integer that an operation was given that calls this one
    if not given.shape and batch:
        return int(given)  # an array without axes is the integer that it holds
    need(name, tuple(given.shape) == batch, f"shape {batch}", tuple(given.shape), rule)
    return call.xp.astype(given, call.xp.int64)


def within(call: Call, name: str, given: int | Array, least: int, most: int, rule: str) -> None:
    """Refuse integers outside inclusive bounds. This reads the values of arrays."""
    expected = f"{least} to {most}"
    if isinstance(given, int):
        need(name, least <= given <= most, expected, given, rule)
    elif 0 not in given.shape:
        wide = call.xp.astype(given, call.xp.int64)  # PyTorch has no minimum of unsigned integers
        lowest, highest = int(call.xp.min(wide)), int(call.xp.max(wide))
        if lowest < 0 and dtype_name(given) == "uint64":
            highest = lowest + 2**64
        need(name, least <= lowest and highest <= most, expected, f"{lowest} to {highest}", rule)


@step
def check_declared(call: Call, operation: str, arguments: Arguments) -> Arguments:
    """Check the arguments of an operation that has no other checks, against its declaration (ERR-16).

    The numbers and windows among the options of attention are left to attention.
    """
    form = OPERATIONS[operation]
    declared = [(form.arguments[name], x) for name, x in arguments.items()]
    known = [(each, x) for each, x in declared if x is not None or each.default is not None]
    arrays: dict[str, Array] = {}
    for argument, x in known:
        if argument.shape and not (argument.kind == "integers" and is_integer(x)):
            rule = argument.refusals.get("dtype", "ERR-16")
            arrays[argument.name] = array(call, argument.name, x, rule)
            _check_numbers(call, argument, x, arguments[form.arrays[0]])
        else:
            _check_form(argument, x)
            if x == argument.default:
                continue
        _check_beside(form, argument, arguments)
    only_shapes = {name: np.broadcast_to(np.zeros(()), x.shape) for name, x in arrays.items()}
    sizes, problems = bound(operation, only_shapes | {each.name: x for each, x in known if each.binds})
    for problem in problems:
        said = problem.removeprefix("argument ")
        argument = form.arguments[said.partition(":")[0]]
        rule = _rule_of_shape(argument, arrays[argument.name], sizes.letters)
        raise ArgumentError(f"{said} [{rule}]")
    for argument, x in known:
        if argument.bounds and argument.shape:
            most = argument.bounds.most
            size = value_of(most, sizes.letters) if isinstance(most, str) else most
            if size is not None:
                _check_bounds(call, argument, x, size - argument.bounds.below)
    return arguments


def _rule_of_shape(argument: Argument, x: Array, letters: Mapping[str, int]) -> str:
    """Return the rule that refuses the shape of an array. Its axes, heads or depth may have another rule."""
    if "axes" in argument.refusals and x.ndim < 2 < len(argument.shape):
        return argument.refusals["axes"]
    for letter in argument.shape:
        place = argument.axis(letter)
        empty = LETTERS[letter].empty if letter in LETTERS else ""
        if empty and place is not None and x.ndim >= -place and x.shape[place] == 0:
            return empty
    place, heads = argument.axis("Hkv"), letters.get("Hkv")
    known = "Hkv" in argument.refusals and place is not None and x.ndim == len(argument.shape)
    if known and (x.shape[place] != heads or not heads or letters.get("Hq", 0) % heads):
        return argument.refusals["Hkv"]
    return argument.refusals.get("shape", "ERR-16")


def _check_form(argument: Argument, x: Any) -> None:
    """Check an argument that is not an array."""
    name, rule = argument.name, argument.refusals.get("form", "ERR-16")
    if argument.kind == "integer":
        whole(name, x, argument.bounds.least if argument.bounds else -_LARGEST, rule)
    elif argument.kind == "word":
        need(name, x in argument.words, " or ".join(map(repr, argument.words)), repr(x), rule)
    elif argument.kind == "flag":
        flag(name, x)


def _check_beside(form: Operation, argument: Argument, arguments: Arguments) -> None:
    """Check that what an argument needs is given, and that what it excludes is not."""
    rule = argument.refusals.get("alone", "ERR-16")
    for other in argument.needs:
        absent, both = arguments[other] is None, argument.name in form.arguments[other].needs
        need(other, not (absent and both), f"an array, as {argument.name} is given", None, rule)
        need(argument.name, not absent, f"none without {other}", "one", rule)
    for other in argument.excludes:
        given = arguments[other]
        known = form.arguments[other].default
        default = given is None if known is None else is_integer(given) and given == known
        need_kind(argument.name, default, f"no {other} beside it", given, rule)


def _check_numbers(call: Call, argument: Argument, x: Array, leading: Array) -> None:
    """Check the dtype of an array."""
    name, rule = argument.name, argument.refusals.get("dtype", "ERR-16")
    if argument.numbers == "integer":
        need(name, dtype_name(x).startswith(("int", "uint")), "integers", dtype_name(x), rule)
    elif argument.numbers == "boolean":
        need(name, x.dtype == call.xp.bool, "bool", dtype_name(x), rule)
    else:
        need(name, dtype_name(x) in FORMATS, "floating-point numbers", dtype_name(x), rule)
        expected = f"dtype {dtype_name(leading)} as in the first array"
        fits = "mixed" not in argument.refusals or x.dtype == leading.dtype
        need(name, fits, expected, dtype_name(x), argument.refusals.get("mixed", rule))


def _check_bounds(call: Call, argument: Argument, x: Any, most: int) -> None:
    """Check the numbers of integers. Boundaries begin at the least and do not decrease (PACK-6)."""
    assert argument.bounds is not None  # noqa: S101 - for the type checker: chosen by it
    least, rule = argument.bounds.least, argument.refusals["bounds"]
    within(call, argument.name, x, least, most, rule)
    if argument.ascending:
        need(argument.name, int(x[0]) == least, f"{least} as the first boundary", int(x[0]), rule)
        starts = call.xp.astype(x, call.xp.int64)
        falls = bool(call.xp.any(starts[1:] < starts[:-1]))
        need(argument.name, not falls, "boundaries that do not decrease", "some that do", rule)
    if argument.covers:
        need(argument.name, int(x[-1]) == most, f"{most} as the last boundary", int(x[-1]), rule)
