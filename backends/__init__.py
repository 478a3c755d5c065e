"""Implementations of the specification, each with the canonical signature.

Adapters translate names and layouts and never change a result. Importing this package loads
names and errors only; array libraries are loaded on demand.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from attnspec.backends.errors import BackendError, Broken, Unsupported
from attnspec.backends.library import load_library
from attnspec.backends.names import NAMES, expand
from attnspec.dtypes import DTYPES

if TYPE_CHECKING:
    from attnspec.backends.backend import Backend
    from attnspec.backends.constraints import Constraints
    from attnspec.backends.deviation import Deviation
    from attnspec.backends.library.library import Library
    from attnspec.backends.registry import load
    from attnspec.backends.user.function import describe, implementation

__all__ = [
    "DTYPES",
    "NAMES",
    "Backend",
    "BackendError",
    "Broken",
    "Constraints",
    "Deviation",
    "Library",
    "Unsupported",
    "describe",
    "expand",
    "implementation",
    "load",
    "load_library",
]

#: Modules of the names that need NumPy.
_LATE = {
    "Library": "library.library",
    "Backend": "backend",
    "Deviation": "deviation",
    "load": "registry",
    "Constraints": "constraints",
    "describe": "user.function",
    "implementation": "user.function",
}


def __getattr__(name: str) -> object:
    """Load these on demand, because most commands need only names."""
    if name in _LATE:
        return getattr(import_module(f"attnspec.backends.{_LATE[name]}"), name)
    raise AttributeError(f"module 'attnspec.backends' has no attribute {name!r}")
