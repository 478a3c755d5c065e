"""A decorator with the keys of an ``attnspec.toml``."""

from collections.abc import Callable
from typing import Any, TypeVar

from attnspec.backends.user.keys import OF_FUNCTIONS, check_keys, settings_of_table, written

_Function = TypeVar("_Function", bound=Callable[..., Any])


def implementation(**said: Any) -> Callable[[_Function], _Function]:
    """Describe how a function is called and what it takes, without changing it.

    Parameters
    ----------
    **said
        The keys of an ``attnspec.toml`` that describe a function (``conformance/configuration.md``).
        Where the file names a function, as in ``companions``, the function itself can be given.

    Raises
    ------
    BackendError
        If a key is unknown or has a value of the wrong type.

    Examples
    --------
    >>> from attnspec.backends import implementation
    >>> @implementation(names={"query": "q", "key": "k", "value": "v"}, layout="BSHD", depths=[64])
    ... def kernel(q, k, v):
    ...     return q
    >>> kernel.__name__
    'kernel'
    """
    plain = written(said)

    def mark(function: _Function) -> _Function:
        name = getattr(function, "__name__", type(function).__name__)
        where = f"@implementation of {name}"
        check_keys(where, plain, OF_FUNCTIONS)
        function.__attnspec__ = settings_of_table(where, name, plain)  # type: ignore[attr-defined]
        return function

    return mark
