"""Finds the reasons for which a call would be refused."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from attnspec.dtypes import FORMATS, numbers_of
from attnspec.operations import OPERATIONS, Argument
from attnspec.operations.letters import value_of
from attnspec.sizes import Arguments, Sizes, bound, is_array

#: What an argument must be, in words.
WORDS: Mapping[str, str] = MappingProxyType(
    {
        "floating": "floating-point numbers",
        "lse": "floating-point numbers",
        "boolean": "booleans",
        "integer": "integers",
        "array": "an array",
        "integers": "an integer or integers",
        "number": "a finite number",
        "flag": "True or False",
        "window": "two, each None or an integer from 0",
    }
)


def misfits(operation: str, arguments: Arguments) -> list[str]:
    """List the reasons to refuse a call, with a line for each argument at fault.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.fitting import misfits
    >>> misfits("split_heads", {"features": np.ones((3, 8)), "heads": 3})
    ['argument features: expected shape (N, 3*D), got (3, 8)']
    >>> misfits("split_heads", {"features": np.ones((3, 8), int), "heads": 2})
    ['argument features: expected floating-point numbers, got int64']
    """
    known = OPERATIONS[operation].arguments
    # None means not given, but a flag must not be None.
    given = {
        name: x
        for name, x in arguments.items()
        if name in known and not (x is None and known[name].kind != "flag")
    }
    found, problems = bound(operation, given)
    leading = next((x for x in given.values() if is_array(x)), None)
    return [
        *(problem for name, x in given.items() for problem in _of_dtype(known[name], x, leading)),
        *problems,
        *(problem for name, x in given.items() for problem in _of_form(known[name], x, found)),
        *(
            f"argument {name}: got {given[name]} without {other}"
            for name in given
            for other in known[name].needs
            if other not in given and (is_array(given[name]) or given[name] != known[name].default)
        ),
        *(
            f"argument {name}: got {name} and {other}, which exclude each other"
            for name in given
            for other in known[name].excludes
            if other in given
        ),
    ]


def _of_dtype(argument: Argument, x: Any, leading: Any) -> Iterator[str]:
    if not is_array(x) or not argument.shape:
        return
    wanted = "floating" if argument.numbers == "lse" else argument.numbers
    if numbers_of(x) != wanted:
        yield f"argument {argument.name}: expected {WORDS[argument.numbers]}, got {x.dtype}"
        return
    of = FORMATS.get(str(leading.dtype))
    if argument.numbers == "lse" and of is not None and str(x.dtype) not in of.accepted_of_lse:
        yield f"argument {argument.name}: expected dtype {' or '.join(of.accepted_of_lse)}, got {x.dtype}"
    if "mixed" in argument.refusals and x.dtype != leading.dtype:
        yield f"argument {argument.name}: expected dtype {leading.dtype} as in the first array, got {x.dtype}"


def _of_form(argument: Argument, x: Any, found: Sizes) -> Iterator[str]:
    """Find faults of arguments that are not arrays, and of the numbers of arrays with bounds."""
    expected = _expected(argument, found)
    if argument.kind == "window":
        fits = is_window(x)
    elif argument.kind == "word":
        fits = x in argument.words
    elif argument.kind == "flag":
        fits = isinstance(x, bool)
    elif is_array(x) and argument.sums:
        counts = x.reshape(-1).tolist()
        fits = min(counts, default=0) >= 0 and sum(counts) == value_of(argument.sums, found.letters)
    elif is_array(x):
        fits = argument.shape != () and (
            argument.bounds is None or all(_within(argument, n, found) for n in x.reshape(-1).tolist())
        )
        fits = fits and (not argument.ascending or _ascends(argument, x.reshape(-1).tolist()))
    elif argument.kind == "array":
        fits = False
    elif argument.kind == "number":
        fits = _is_number(x) and abs(x) <= FORMATS["float64"].largest and _within(argument, x, found)
    else:
        fits = type(x) is int and _within(argument, x, found)
    if not fits:
        yield f"argument {argument.name}: expected {expected}, got {x}"


def _expected(argument: Argument, found: Sizes) -> str:
    if argument.kind == "word":
        return " or ".join(argument.words)
    if argument.sums:
        return f"integers from 0 that add up to {value_of(argument.sums, found.letters)}"
    words = WORDS[argument.kind] if argument.kind != "integer" else "an integer"
    if argument.ascending:
        words = "integers that begin at the least and do not decrease,"
    if argument.bounds is None or argument.kind == "window":
        return words
    most = value_of(str(argument.bounds.most), found.letters)
    beside = "" if most is None else f", which is {most}"
    return f"{words} {argument.bounds}{beside}"


def _ascends(argument: Argument, numbers: list[int]) -> bool:
    least = argument.bounds.least if argument.bounds else 0
    return numbers[:1] == [least] and numbers == sorted(numbers)


def _within(argument: Argument, number: float, found: Sizes) -> bool:
    bounds = argument.bounds
    if bounds is None:
        return True
    most = value_of(bounds.most, found.letters) if isinstance(bounds.most, str) else bounds.most
    enough = number > bounds.least if bounds.above else number >= bounds.least
    too_much = most is not None and (number >= most if bounds.below else number > most)
    return enough and not too_much and (bounds.step == 1 or number % bounds.step == 0)


def is_window(x: Any) -> bool:
    """Whether something is a pair of bounds, each None or an integer from 0.

    Examples
    --------
    >>> from attnspec.fitting import is_window
    >>> is_window((2, None)), is_window((2,)), is_window((-1, 0))
    (True, False, False)
    """
    if not isinstance(x, tuple | list) or len(x) != 2:
        return False
    return all(side is None or (type(side) is int and side >= 0) for side in x)


def _is_number(x: Any) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool)
