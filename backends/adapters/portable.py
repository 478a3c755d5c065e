"""The reference as a backend, through the Array API of any library."""

from attnspec.backends.backend import Backend
from attnspec.backends.library import load_library
from attnspec.operations.gradients import primal
from attnspec.reference import functions


def portable_backend(name: str) -> Backend:
    """Make the backend from its name, ``LIBRARY-portable``.

    Examples
    --------
    >>> from attnspec.backends.adapters.portable import portable_backend
    >>> sorted(portable_backend("numpy-portable").companions)[:2]
    ['alibi_bias', 'append_cache']
    """
    library = load_library(name.removesuffix("-portable"))
    library.prepare_eager()
    offered = {
        operation: function
        for operation, function in functions(compiler=library.compile, constant=library.constant).items()
        if operation not in library.lacks
        and (operation == primal(operation) or library.differentiate is None)
    }
    return Backend(name, library, offered.pop("attention"), library.dtypes, offered)
