"""NumPy: the portable source, and the reference as a backend among others."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import array_api_compat.numpy as xp
import numpy as np

from attnspec import reference
from attnspec.backends.backend import DTYPES, Backend
from attnspec.backends.portable import COMPANIONS, attention
from attnspec.reference.rounding import WORKING


def portable_backend() -> Backend:
    """Run the portable source on NumPy."""
    return Backend("numpy-portable", "numpy", np.__version__, xp, attention, DTYPES, COMPANIONS)


def reference_backend() -> Backend:
    """Judge the NumPy reference like any other implementation.

    It is run in the dtype of its inputs, as NUM-1 has it.
    """
    companions = {
        name: _at_dtype_of_input(getattr(reference, name))
        for name in ("projection", "scores", "self_attention")
    }
    run = _at_dtype_of_input(reference.attention)
    return Backend("numpy-reference", "numpy", np.__version__, xp, run, DTYPES, companions)


def _at_dtype_of_input(function: Callable[..., Any]) -> Callable[..., Any]:
    """Have the reference work as NUM-2 and NUM-5 ask for the dtype of its first array, and round once."""

    @wraps(function)  # keeps the signature, which is the list of capabilities
    def run(first: Any, *rest: Any, **options: Any) -> Any:
        dtype = np.asarray(first).dtype
        result = function(first, *rest, dtype=WORKING.get(dtype.name, dtype), **options)
        return (
            tuple(part.astype(dtype) for part in result)
            if isinstance(result, tuple)
            else result.astype(dtype)
        )

    return run
