"""Valid calls, made from the declared operations. A malformed call changes one of them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from attnspec import OPERATIONS
from attnspec.operations import Argument
from attnspec.operations.letters import value_of
from attnspec.sizes import Sizes, shape_of

#: Two batch entries of two heads, three queries and five keys of depth 4. Numbers of heads and depths are the
#: same, so that backends without grouped heads or other depths are tested too.
SIZES: Mapping[str, int] = MappingProxyType(
    {"Hq": 2, "Hkv": 2, "H": 2, "L": 3, "S": 5, "D": 4, "Dv": 4, "E": 2, "E'": 2, "F": 3}
    | {"N": 1, "M": 1, "C": 4, "P": 2, "K": 3, "T": 2, "R": 4, "A": 3, "Dc": 5, "Dr": 2}
    | {"G": 2, "Lb": 2, "Sb": 2, "W": 2, "U": 2, "Y": 32}
)
BATCHES = (2,)

_DTYPES = MappingProxyType({"floating": "float64", "lse": "float64", "boolean": "bool", "integer": "int64"})


def fitting(operation: str, sizes: Mapping[str, int] = SIZES) -> dict[str, Any]:
    """Make a valid call with all arrays and all required arguments.

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
    """Make a valid value for an argument. The numbers of an array are 1, or 0 if they are integers."""
    otherwise = OPERATIONS[operation].otherwise
    own = {letter: size for letter, size in sizes.items() if size != SIZES.get(letter)}
    letters = {**SIZES, **own}
    letters = {**letters, **{letter: letters[other] for letter, (_, other) in otherwise.items()}, **own}
    least = argument.bounds.least if argument.bounds else 0
    if argument.kind == "array":
        shape = shape_of(argument.shape, Sizes(letters, BATCHES))
        part = shape[-2:] if argument.broadcasts and not whole else shape
        if argument.sums:  # all of them in the first entry
            return np.eye(1, *part, dtype=np.int64)[0] * (value_of(argument.sums, letters) or 0)
        return np.full(part, argument.numbers != "integer", _DTYPES[argument.numbers])
    if argument.binds:
        return letters[argument.binds]
    by_kind = {"integers": least, "integer": least, "number": 0.5, "flag": True, "window": (1, 0)}
    return argument.words[0] if argument.kind == "word" else by_kind[argument.kind]
