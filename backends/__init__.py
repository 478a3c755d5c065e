"""Implementations of the standard, each brought to the one signature.

Adapters translate names and layouts and never repair a result. Importing this loads
names and errors; what needs an array library is loaded when it is asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from attnspec.backends.errors import BackendError, Broken, Unsupported
from attnspec.backends.names import NAMES, expand

if TYPE_CHECKING:
    from attnspec.backends.backend import DTYPES, Backend, Deviation
    from attnspec.backends.registry import load

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


def __getattr__(name: str) -> object:
    """Load the rest late: the command line needs names alone."""
    if name in __all__:
        module = "registry" if name == "load" else "backend"
        return getattr(import_module(f"attnspec.backends.{module}"), name)
    raise AttributeError(f"module 'attnspec.backends' has no attribute {name!r}")
