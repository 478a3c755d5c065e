"""Array libraries, one file each, loaded on demand."""

import sys
import tomllib
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from attnspec.dtypes import DTYPES

if TYPE_CHECKING:
    from attnspec.backends.library.library import Library

#: What is known of each library, array libraries and others.
TABLE: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    tomllib.loads((Path(__file__).parents[1] / "libraries.toml").read_text(encoding="utf-8"))
)
#: The package of each array library, by name. The first is the default.
LIBRARIES = MappingProxyType(
    {name: str(facts["package"]) for name, facts in TABLE.items() if "package" in facts}
)


def array_properties(name: str) -> dict[str, Any]:
    """Return what can be said of the arrays of a library without loading it: fields of its `Library`."""
    facts = TABLE.get(name, {})
    dtypes = DTYPES if facts.get("half") else ("float32", "float64")
    return {"strides": facts.get("strides", "none"), "default_dtypes": dtypes}


def load_library(name: str) -> "Library":
    """Load a library: one of `LIBRARIES`, or any module that has ``asarray``.

    Raises
    ------
    ModuleNotFoundError
        If it is not installed.

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
    """Return the library that a module imports, or that the objects in it come from.

    If it imports none, not even NumPy, this is what the modules of its functions and classes import, except
    those of attnspec, which take arrays of any library.
    """
    default, *others = LIBRARIES
    used = imported_by(module)
    if not used & set(LIBRARIES.values()):
        owners = {getattr(value, "__module__", "") for value in vars(module).values() if callable(value)}
        known = [name for name in owners & {*sys.modules} if not name.startswith("attnspec.")]
        used = set().union(*(imported_by(sys.modules[name]) for name in known))
        if default in used:  # it may take arrays of either
            return default
    return next((name for name in others if LIBRARIES[name] in used), default)


def imported_by(module: Any) -> set[str]:
    """Return the names of the packages that a module imports, or that the objects in it come from."""
    things = vars(module).values()
    names = [getattr(value, "__name__", "") for value in things]
    names += [getattr(value, "__module__", "") for value in things if callable(value)]
    return {str(name).partition(".")[0] for name in names}


def release() -> None:
    """Clear the caches of each loaded library."""
    for name in LIBRARIES:
        module = sys.modules.get(f"{__name__}.{name}")
        if module is not None:
            module.LIBRARY.release()
