"""Makes a `Backend` of a function with the keys of an ``attnspec.toml``."""

import sys
from typing import Any

from attnspec.backends.backend import Backend, for_release
from attnspec.backends.library import library_of
from attnspec.backends.user.function import backend_of
from attnspec.backends.user.keys import OF_FUNCTIONS, check_keys, settings_of_table, written
from attnspec.backends.user.unknown import looked_through


def describe(function: Any, *, name: str = "", **said: Any) -> Backend:
    """Make a `Backend` of a function, of a callable object, or of another `Backend`.

    Parameters
    ----------
    function : callable or Backend
    name : str, optional
        The name in the report, by default that of the function.
    **said
        The keys of an ``attnspec.toml`` that describe a function, as in `implementation`.

    Raises
    ------
    BackendError
        If it cannot be called as attention, or a key is unknown.

    Examples
    --------
    >>> from attnspec.backends import describe
    >>> def kernel(q, k, v, heads):  # (B, S, H D)
    ...     ...
    >>> backend = describe(
    ...     kernel,
    ...     names={"query": "q", "key": "k", "value": "v"},
    ...     layout="BS(HD)",
    ...     sizes={"query_heads": "heads"},
    ... )
    >>> backend.name, backend.not_understood
    ('kernel', ())
    """
    called = getattr(function, "name" if isinstance(function, Backend) else "__name__", "")
    own = name or str(called) or type(function).__name__
    where, table = f"backend {own}", written(said)
    check_keys(where, table, OF_FUNCTIONS)
    module = sys.modules.get(getattr(function, "__module__", "") or "")
    library = library_of(module) if module else "numpy"
    made = backend_of(own, function, settings_of_table(where, own, table), library)
    return looked_through(for_release(made))
