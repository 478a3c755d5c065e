"""Calls that fit, made from the data on operations: what a malformed call changes."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from attnspec import OPERATIONS
from attnspec.operations import Argument
from attnspec.sizes import Sizes, shape_of

#: Two batch entries of two heads, three queries and five keys of depth 4. As many heads of keys as of
#: queries, and values as deep as keys: who has neither grouped heads nor other depths is asked all the same.
SIZES: Mapping[str, int] = MappingProxyType(
    {"Hq": 2, "Hkv": 2, "H": 2, "L": 3, "S": 5, "D": 4, "Dv": 4, "E": 2, "E'": 2, "F": 3}
    | {"N": 1, "M": 1, "C": 4, "P": 2, "K": 3, "T": 2}
)
BATCHES = (2,)

_DTYPES = MappingProxyType({"floating": "float64", "lse": "float64", "boolean": "bool", "integer": "int64"})


def fitting(operation: str, sizes: Mapping[str, int] = SIZES) -> dict[str, Any]:
    """Make a call that fits: all arrays, and no more than has to be given.

    Parameters
    ----------
    operation : str
    sizes : mapping of str to int, optional
        By letter, where they are not those of `SIZES`.

    Examples
    --------
    >>> from attnspec.conformance.suite.malformed.fitting import fitting
    >>> call = fitting("append_cache")
    >>> call["cache"].shape, call["new"].shape, call["lengths"]
    ((2, 2, 4, 4), (2, 2, 1, 4), 0)
    """
    known = OPERATIONS[operation].arguments
    return {name: value_for(operation, one, sizes) for name, one in known.items() if one.required}


def value_for(
    operation: str, argument: Argument, sizes: Mapping[str, int] = SIZES, *, whole: bool = False
) -> Any:
    """Make a value that fits for an argument; of an array all numbers are 1, and 0 where they are integers.

    Parameters
    ----------
    operation : str
    argument : Argument
    sizes : mapping of str to int, optional
        By letter, where they are not those of `SIZES`.
    whole : bool, optional
        Whether an array has all axes that it may have; one that broadcasts has two else.
    """
    otherwise = OPERATIONS[operation].otherwise
    own = {letter: size for letter, size in sizes.items() if size != SIZES.get(letter)}
    letters = {**SIZES, **own}
    letters = {**letters, **{letter: letters[other] for letter, (_, other) in otherwise.items()}, **own}
    least = argument.bounds.least if argument.bounds else 0
    if argument.kind == "array":
        shape = shape_of(argument.shape, Sizes(letters, BATCHES))
        part = shape[-2:] if argument.broadcasts and not whole else shape
        return np.full(part, argument.numbers != "integer", _DTYPES[argument.numbers])
    if argument.binds:
        return letters[argument.binds]
    by_kind = {"integers": least, "integer": least, "number": 0.5, "flag": True, "window": (1, 0)}
    return argument.words[0] if argument.kind == "word" else by_kind[argument.kind]
