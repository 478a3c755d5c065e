"""Calls a function of a library without an array namespace: its arrays are made from NumPy arrays."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Any

import numpy as np

from attnspec.backends.errors import BackendError, Broken, ConversionError, Unsupported
from attnspec.backends.library.library import Library
from attnspec.backends.user.place import find


@dataclass(frozen=True)
class Conversion:
    """How the arrays of a function are made from NumPy arrays, and made into NumPy arrays.

    Names and layouts are translated on NumPy arrays, so the library needs no operation for it.

    Attributes
    ----------
    library : str
        The installed package of the library, for its name and version. Empty for that of the arrays.
    to_library : callable or None
        Takes a NumPy array and returns an array of the library. None if it takes NumPy arrays.
    to_numpy : callable or None
        Takes a result and returns an array that NumPy takes. None if NumPy takes the result.
    """

    library: str = ""
    to_library: Callable[[Any], Any] | None = None
    to_numpy: Callable[[Any], Any] | None = None

    def library_over(self, name: str, runs_on: Library) -> Library:
        """Give an array library the name and the version of this library."""
        if (self.to_library or self.to_numpy) and runs_on.name != "numpy":
            raise BackendError(
                f"backend {name}: to_library: expected array = numpy beside it, got {runs_on.name}"
            )
        if not self.library:
            return runs_on
        try:
            return replace(runs_on, name=self.library, version=metadata.version(self.library))
        except metadata.PackageNotFoundError as error:
            raise BackendError(
                f"backend {name}: library: expected an installed package, got {self.library!r}"
            ) from error


def conversion_of(name: str, table: Mapping[str, Any]) -> Conversion | None:
    """Read the keys about conversions; None if there are none."""
    if not {"library", "to_library", "to_numpy"} & set(table):
        return None
    functions = {key: _function(name, key, table[key]) for key in ("to_library", "to_numpy") if key in table}
    return Conversion(table.get("library", ""), **functions)


def converted(function: Callable[..., Any], conversion: Conversion) -> Callable[..., Any]:
    """Wrap a function, so that it takes and returns NumPy arrays.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.backends.user.conversion import Conversion, converted
    >>> def attention(query, key, value):  # of lists
    ...     return [value[0] for _ in query]
    >>> ours = converted(attention, Conversion("", lambda array: array.tolist(), np.asarray))
    >>> ours(np.ones((2, 1)), np.ones((1, 1)), np.full((1, 1), 3.0)).tolist()
    [[3.0], [3.0]]
    """
    signature = inspect.signature(function)
    own = list(signature.parameters)

    def there(name: str, thing: Any) -> Any:
        if conversion.to_library is None or not isinstance(thing, np.ndarray):
            return thing
        return _tried("to_library", name, conversion.to_library, thing)

    def back(result: Any) -> Any:
        return _tried("to_numpy", "the result", conversion.to_numpy or _same, result)

    def run(*arrays: Any, **options: Any) -> Any:
        given = {name: there(name, thing) for name, thing in options.items()}
        named = (*own, *[f"argument {number}" for number in range(len(own), len(arrays))])
        returned = function(*map(there, named, arrays), **given)
        return tuple(map(back, returned)) if isinstance(returned, tuple) else back(returned)

    run.__wrapped__ = function  # type: ignore[attr-defined] # reports show where it is defined
    run.__signature__ = signature  # type: ignore[attr-defined] # read by inspect
    return run


def _tried(key: str, of: str, conversion: Callable[[Any], Any], thing: Any) -> Any:
    """Convert one thing. An exception is that of the conversion, not of the function."""
    try:
        return conversion(thing)
    except (KeyboardInterrupt, Unsupported, Broken, NotImplementedError):
        raise
    except BaseException as error:  # whatever a library raises
        raise ConversionError(key, of, conversion, error) from error


def _same(thing: Any) -> Any:
    return thing


def _function(name: str, key: str, said: Any) -> Callable[[Any], Any]:
    found = find(name, said)[1] if isinstance(said, str) else said
    if not callable(found):
        raise BackendError(f"backend {name}: {key}: expected a function, got {type(found).__name__}")
    return found  # type: ignore[no-any-return]
