"""Describe a function as an ``attnspec.toml``, for ``attnspec init``."""

from attnspec.backends.backend import Backend
from attnspec.backends.errors import BackendError
from attnspec.backends.library import library_of, load_library
from attnspec.backends.user.function import as_function
from attnspec.backends.user.place import find
from attnspec.backends.user.probe import probe
from attnspec.backends.user.written import as_toml


def described(place: str, array: str = "") -> str:
    """Infer how a function is called, and return the text of an ``attnspec.toml``.

    Parameters
    ----------
    place : str
        ``module:function`` or ``./file.py:function``.
    array : str, optional
        The library that it runs on. The default is the library that its module imports.

    Raises
    ------
    BackendError
        If the function cannot be found, or no tried call computes attention.
    """
    module, found = find(place, place)
    if isinstance(found, Backend):
        raise BackendError(
            f"backend {place}: expected a function, got a Backend, which needs no attnspec.toml"
        )
    function = as_function(place, found)
    library = load_library(array or library_of(module))
    backend = Backend(place, library, function, library.default_dtypes)
    return as_toml(place, library.name, probe(backend, function))
