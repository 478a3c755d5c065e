"""Implementations of the standard, each brought to the one signature.

Adapters translate names and layouts and never repair a result.
"""

from attnspec.backends.backend import DTYPES, Backend, BackendError, Broken, Deviation, Unsupported
from attnspec.backends.registry import NAMES, expand, load

__all__ = [
    "DTYPES",
    "NAMES",
    "Backend",
    "BackendError",
    "Broken",
    "Deviation",
    "Unsupported",
    "expand",
    "load",
]
