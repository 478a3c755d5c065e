"""Describe a function as an ``attnspec.toml``, for ``attnspec init``."""

from importlib import metadata
from types import ModuleType

from attnspec.backends.backend import Backend
from attnspec.backends.errors import BackendError
from attnspec.backends.library import LIBRARIES, imported_by, library_of, load_library
from attnspec.backends.user.function import as_function
from attnspec.backends.user.place import find
from attnspec.backends.user.probe import probe
from attnspec.backends.user.written import as_toml


def described(place: str, array: str = "") -> str:
    """Infer how a function is called, and return the text of an ``attnspec.toml``."""
    module, found = find(place, place)
    if isinstance(found, Backend):
        raise BackendError(
            f"backend {place}: expected a function, got a Backend, which needs no attnspec.toml"
        )
    function = as_function(place, found)
    library = load_library(array or library_of(module))
    backend = Backend(place, library, function, library.default_dtypes)
    return as_toml(place, library.name, probe(backend, function), package_of(module, library.name))


def package_of(module: ModuleType, array: str) -> str:
    """Return the installed package whose version applies to a module; empty if that of its arrays does.

    This is the package of the module. If it is in none, and takes NumPy arrays, it is the one package that
    the module imports.

    Examples
    --------
    >>> import click.testing
    >>> from attnspec.backends.user.found import package_of
    >>> package_of(click.testing, "numpy")
    'click'
    """
    packages = metadata.packages_distributions()
    known = {"attnspec", "ml_dtypes", *LIBRARIES.values()}
    own = module.__name__.partition(".")[0]
    if own in packages:
        return "" if own in known else packages[own][0]
    imported = sorted({name for name in imported_by(module) if name in packages} - known)
    return packages[imported[0]][0] if array == "numpy" and len(imported) == 1 else ""
