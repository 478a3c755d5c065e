"""Array libraries, one file each. None is loaded before it is asked for."""

import sys
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnspec.backends.library.library import Library

#: The libraries that have a file here, by name, and the package that each is. The first is the one taken
#: where nothing tells.
LIBRARIES = MappingProxyType(
    {"numpy": "numpy", "strict": "array_api_strict", "torch": "torch", "jax": "jax", "dask": "dask"}
)


def load_library(name: str) -> "Library":
    """Load a library: one of `LIBRARIES`, or any module that has ``asarray``.

    Raises
    ------
    ModuleNotFoundError
        When it is not installed.

    Examples
    --------
    >>> from attnspec.backends import load_library
    >>> load_library("numpy").default_dtypes
    ('float32', 'float64')
    """
    if name not in LIBRARIES:
        from attnspec.backends.library.library import array_api_library

        xp = import_module(name)
        return array_api_library(name, str(getattr(xp, "__version__", "")), xp)
    library: Library = import_module(f"attnspec.backends.library.{name}").LIBRARY
    return library


def library_of(module: Any) -> str:
    """Name the library that a module computes with: the one that it imports, or has things from.

    Examples
    --------
    >>> import statistics
    >>> from attnspec.backends.library import library_of
    >>> library_of(statistics)
    'numpy'
    """
    things = vars(module).values()
    names = [getattr(thing, "__name__", "") for thing in things]
    names += [getattr(thing, "__module__", "") for thing in things if callable(thing)]
    used = {str(name).partition(".")[0] for name in names}
    default, *others = LIBRARIES
    return next((name for name in others if LIBRARIES[name] in used), default)


def release() -> None:
    """Have each library that is loaded let go of what it keeps of the calls before."""
    for name in LIBRARIES:
        module = sys.modules.get(f"{__name__}.{name}")
        if module is not None:
            module.LIBRARY.release()
