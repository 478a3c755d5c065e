"""Backends from a user's object: a function, an object with a `forward`, or a `Backend`."""

import inspect
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from attnspec.backends.backend import Backend
from attnspec.backends.check import check_backend, check_device, check_signature, signature_of
from attnspec.backends.errors import BackendError
from attnspec.backends.library import LIBRARIES, library_of, load_library
from attnspec.backends.library.library import Library
from attnspec.backends.user.adapted import adapted, always_given, others_of
from attnspec.backends.user.alone import check_companion, check_not_alone, named_operation
from attnspec.backends.user.convention import Convention
from attnspec.backends.user.conversion import converted
from attnspec.backends.user.place import find
from attnspec.backends.user.settings import Settings
from attnspec.backends.user.unknown import not_understood


def load_user(name: str, place: str, settings: Settings) -> Backend:
    """Load the backend at ``module:attribute``."""
    module, found = find(name, place)
    return backend_of(name, found, settings, library_of(module), attribute_of(place))


def attribute_of(place: str) -> str:
    """Return the last name of a place.

    Examples
    --------
    >>> from attnspec.backends.user.function import attribute_of
    >>> attribute_of("./kernels.py:flash.attention")
    'attention'
    """
    return re.split("[:.]", place)[-1]


def backend_of(name: str, found: Any, settings: Settings, library: str, attribute: str = "") -> Backend:
    """Make a backend from a user's object."""
    if isinstance(found, Backend):
        return with_settings(name, found, settings)
    settings = settings.over(getattr(found, "__attnspec__", Settings()))
    runs_on = _library(name, settings.array or library)
    function = as_function(name, found)
    if settings.conversion is not None:
        runs_on = settings.conversion.library_over(name, runs_on)
        function = converted(function, settings.conversion)
    attribute = attribute or getattr(found, "__name__", "")
    operation = settings.operation or named_operation(attribute, function)
    if operation not in ("", "attention"):
        check_companion(name, operation, function, settings.convention)
        alone = Backend(name, runs_on, dtypes=runs_on.default_dtypes, companions={operation: function})
        return with_settings(name, alone, settings)
    unknown: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    if settings.convention is not None:
        native, function = function, adapted(name, function, settings.convention, runs_on.xp)
        given = always_given(name, native, settings.convention)
        known = (*settings.convention.names.values(), *others_of(settings.convention))
        unknown = not_understood(native, mapped=known)
    if settings.convention is None:
        check_not_alone(name, function)
    check_signature(name, function)
    # The signature does not show the dtypes; NumPy code rarely supports half precision.
    backend = Backend(name, runs_on, function, runs_on.default_dtypes, given=given, not_understood=unknown)
    return with_settings(name, backend, settings)


def as_function(name: str, found: Any) -> Callable[..., Any]:
    """Return the function that calls an object; a module has the signature of its `forward`."""
    if inspect.isclass(found):
        one = found.__name__.lower()
        raise BackendError(
            f"backend {name}: expected a function, got the class {found.__name__}; "
            f"create an instance, {one} = {found.__name__}(...), and name it: :{one}"
        )
    if not callable(found):
        raise BackendError(f"backend {name}: expected a function or a Backend, got {type(found).__name__}")
    if inspect.isroutine(found) or not hasattr(found, "forward"):
        signature_of(name, found)
        return found  # type: ignore[no-any-return]

    def run(*arrays: Any, **options: Any) -> Any:  # not `forward` itself: that would skip the hooks
        return found(*arrays, **options)

    run.__wrapped__ = found.forward  # type: ignore[attr-defined] # reports show where it is defined
    run.__signature__ = inspect.signature(found.forward)  # type: ignore[attr-defined] # read by inspect
    return run


def with_settings(name: str, backend: Backend, settings: Settings) -> Backend:
    """Apply the requested name and the settings to a backend."""
    check_backend(name, backend)
    more = settings.fields.get("companions")
    alone = {} if backend.function("attention") is not None else backend.companions
    companions = {"companions": {**alone, **more}} if more else {}
    told = replace(
        backend,
        name=name,
        dtypes=settings.dtypes or backend.dtypes,
        device=settings.device or backend.device,
        **{**settings.fields, **companions},
    )
    check_backend(name, told)
    check_device(told)
    return _brought_up(name, told)


def _brought_up(name: str, backend: Backend) -> Backend:
    """Adapt calls to the axes, the constant options and the given options of a backend."""
    if hasattr(backend.attention, "convention") or backend.function("attention") is None:
        return backend
    convention = Convention(axes=backend.constraints.axes, always=backend.constraints.always)
    given = always_given(name, backend.attention, convention)
    if convention == Convention() and not given:
        return backend
    unknown = (*backend.not_understood, *not_understood(backend.attention))
    attention = adapted(name, backend.attention, convention, backend.xp)
    given = tuple(dict.fromkeys((*backend.given, *given)))
    return replace(backend, attention=attention, given=given, not_understood=tuple(dict.fromkeys(unknown)))


def _library(name: str, library: str) -> Library:
    try:
        return load_library(library)
    except ModuleNotFoundError as error:
        hint = f"; pip install 'attnspec[{library}]'" if library in LIBRARIES else ""
        raise BackendError(
            f"backend {name}: array: expected {error.name} to be installed, got none{hint}"
        ) from error
