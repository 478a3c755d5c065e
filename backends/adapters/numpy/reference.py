"""The NumPy reference as a backend among others."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from attnspec import OPERATIONS, reference
from attnspec.backends.backend import Backend
from attnspec.backends.library import load_library
from attnspec.reference.budget.budget import WORKING


def reference_backend() -> Backend:
    """Judge the NumPy reference like any other implementation.

    It is run in the dtype of its inputs, as NUM-1 has it.
    """
    companions = {
        name: _at_dtype_of_input(name, getattr(reference, name)) for name in OPERATIONS if name != "attention"
    }
    run = _at_dtype_of_input("attention", reference.attention)
    library = load_library("numpy")
    return Backend("numpy-reference", library, run, library.dtypes, companions)


def _at_dtype_of_input(operation: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Have the reference work as NUM-2 and NUM-5 ask for the dtype of its first array, and round once."""
    first_output, *others = OPERATIONS[operation].outputs

    @wraps(function)  # keeps the signature, which is the list of capabilities
    def run(first: Any, *rest: Any, **options: Any) -> Any:
        name = getattr(getattr(first, "dtype", None), "name", "")
        if name not in WORKING:
            return function(first, *rest, **options)  # for the reference to refuse
        wanted = [first_output, *(output for output in others if options.get(f"return_{output}") is True)]
        result = function(first, *rest, dtype=WORKING[name], **options)
        parts = result if isinstance(result, tuple) else (result,)
        # All but the lse, which no storage dtype holds well enough (NUM-7).
        rounded = tuple(
            part.astype(WORKING[name] if output == "lse" else first.dtype)
            for output, part in zip(wanted, parts, strict=True)
        )
        return rounded if isinstance(result, tuple) else rounded[0]

    return run
