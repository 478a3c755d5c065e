"""The one source in Array API calls, as a backend on any library."""

from collections.abc import Callable, Mapping
from typing import Any

from attnspec.backends.backend import Backend
from attnspec.backends.library import load_library
from attnspec.backends.library.library import Library


def portable_backend(name: str) -> Backend:
    """Run it on the library that its name begins with.

    Examples
    --------
    >>> from attnspec.backends.adapters.portable import portable_backend
    >>> sorted(portable_backend("numpy-portable").companions)[:2]
    ['alibi_bias', 'append_cache']
    """
    library = load_library(name.removesuffix("-portable"))
    library.prepare_eager()
    functions = {
        operation: function
        for operation, function in portable_functions(library).items()
        if operation not in library.lacks
    }
    return Backend(name, library, functions.pop("attention"), library.dtypes, functions)


def portable_functions(library: Library) -> Mapping[str, Callable[..., Any]]:
    """Give the source by operation, its parts compiled where the library compiles."""
    from attnspec.backends.portable.operations import COMPANIONS, attention
    from attnspec.backends.portable.parts import compile_parts

    if library.compile is not None:
        compile_parts(library.xp, library.compile)
    return {"attention": attention, **COMPANIONS}
