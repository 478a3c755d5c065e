"""NumPy: the portable source, and the reference as a backend among others."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import array_api_compat.numpy as xp
import numpy as np

from attnspec import OPERATIONS, reference
from attnspec.backends.backend import DTYPES, Backend
from attnspec.backends.portable.operations import COMPANIONS, attention
from attnspec.dtypes import FORMATS


def portable_backend() -> Backend:
    """Run the portable source on NumPy."""
    return Backend("numpy-portable", "numpy", np.__version__, xp, attention, DTYPES, COMPANIONS)


def reference_backend() -> Backend:
    """Judge the NumPy reference like any other implementation.

    It is run in the dtype of its inputs, as NUM-1 has it.
    """
    companions = {
        name: _at_dtype_of_input(name, getattr(reference, name)) for name in OPERATIONS if name != "attention"
    }
    run = _at_dtype_of_input("attention", reference.attention)
    return Backend("numpy-reference", "numpy", np.__version__, xp, run, DTYPES, companions)


def _at_dtype_of_input(operation: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Have the reference work as NUM-2 and NUM-5 ask for the dtype of its first array, and round once."""
    first_output, *others = OPERATIONS[operation].outputs

    @wraps(function)  # keeps the signature, which is the list of capabilities
    def run(first: Any, *rest: Any, **options: Any) -> Any:
        name = getattr(getattr(first, "dtype", None), "name", "")
        if name not in FORMATS:
            return function(first, *rest, **options)  # for the reference to refuse
        wanted = [first_output, *(output for output in others if options.get(f"return_{output}") is True)]
        result = function(first, *rest, dtype=FORMATS[name].working, **options)
        parts = result if isinstance(result, tuple) else (result,)
        # All but the lse, which no storage dtype holds well enough (NUM-7).
        rounded = tuple(
            part.astype(FORMATS[name].lse if output == "lse" else first.dtype)
            for output, part in zip(wanted, parts, strict=True)
        )
        return rounded if isinstance(result, tuple) else rounded[0]

    return run
