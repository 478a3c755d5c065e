"""The operations on everything that NumPy converts to arrays, in one precision."""

from typing import Any

import array_api_compat.numpy as xp
import ml_dtypes  # noqa: F401 - makes "bfloat16" a name that NumPy knows
import numpy as np

from attnspec import OPERATIONS
from attnspec.dtypes import FORMATS
from attnspec.reference.call import Call, Step, Steps
from attnspec.reference.errors import ArgumentError

_KINDS = {name: one.kind for form in OPERATIONS.values() for name, one in form.arguments.items()}
#: Arguments that are never arrays: numbers, flags, words and pairs of numbers.
_PLAIN = frozenset(name for name, kind in _KINDS.items() if kind not in ("array", "integers"))
#: Arguments that are one integer or an array of integers.
_PER_ENTRY = frozenset(name for name, kind in _KINDS.items() if kind == "integers")


def evaluate(operation: Step, given: dict[str, Any]) -> Any:
    """Run an operation on NumPy arrays or nested lists.

    Examples
    --------
    >>> from attnspec.reference.evaluate import evaluate
    >>> evaluate(lambda call, features: features + 1, {"features": [1.0], "dtype": "float32"})
    array([2.], dtype=float32)
    """
    dtype = np.dtype(given["dtype"])
    own = (getattr(thing, "dtype", None) for thing in given.values())
    leading = next((each for each in own if str(each) in FORMATS), dtype)
    arguments = {name: _taken(name, thing, leading) for name, thing in given.items() if name != "dtype"}
    with np.errstate(all="ignore"):  # NUM-11 to NUM-14 define non-finite results
        return operation(Call(Steps(), xp, dtype), **arguments)


def _taken(name: str, given: Any, leading: Any) -> Any:
    """Convert an argument to an array. A list, which has no dtype, takes the dtype of the others."""
    if given is None or name in _PLAIN or (name in _PER_ENTRY and not isinstance(given, list | tuple)):
        return given
    try:
        array = np.array(given)  # a copy, so that a result never shares memory with an input (NUM-4)
    except ValueError as error:  # ragged nested lists
        raise ArgumentError(f"{name}: expected an array, got {type(given).__name__} ({error})") from error
    return array.astype(leading) if array.dtype.kind == "f" and not hasattr(given, "dtype") else array
