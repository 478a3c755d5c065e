"""Backends of users: a function, an object with a `forward`, or a `Backend`."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from attnspec.backends.backend import Backend
from attnspec.backends.check import check_backend, check_device, check_signature
from attnspec.backends.errors import BackendError
from attnspec.backends.library import LIBRARIES, library_of, load_library
from attnspec.backends.library.library import Library
from attnspec.backends.user.convention import Convention, adapted, always_given
from attnspec.backends.user.place import find
from attnspec.backends.user.settings import Settings
from attnspec.backends.user.unknown import not_understood


def load_user(name: str, place: str, settings: Settings) -> Backend:
    """Load what ``module:attribute`` names.

    Parameters
    ----------
    name : str
        By which the backend was asked for.
    place : str
        Where it is, ``module:attribute`` or ``./file.py:attribute``.
    settings : Settings

    Raises
    ------
    BackendError
        When there is none, or it cannot be used.
    """
    module, found = find(name, place)
    return backend_of(name, found, settings, library_of(module))


def backend_of(name: str, found: Any, settings: Settings, library: str) -> Backend:
    """Make a backend of a user's object.

    Parameters
    ----------
    name : str
    found : object
        A function, an object that is called as one, or a `Backend`.
    settings : Settings
    library : str
        That it runs on, where the settings do not say it.

    Raises
    ------
    BackendError
        When it cannot be used.
    """
    if isinstance(found, Backend):
        return with_settings(name, found, settings)
    settings = settings.over(getattr(found, "__attnspec__", Settings()))
    runs_on = _library(name, settings.array or library)
    function = as_function(name, found)
    unknown: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    if settings.convention is not None:
        native, function = function, adapted(name, function, settings.convention, runs_on.xp)
        given = always_given(name, native, settings.convention)
        unknown = not_understood(native, mapped=settings.convention.names.values())
    check_signature(name, function)
    # What a function takes besides cannot be seen; NumPy code is rarely written for half precision.
    backend = Backend(name, runs_on, function, runs_on.default_dtypes, given=given, not_understood=unknown)
    return with_settings(name, backend, settings)


def as_function(name: str, found: Any) -> Callable[..., Any]:
    """Take an object for the function that it is called as: a module of a neural network by its `forward`.

    Raises
    ------
    BackendError
        When it is none, saying what to write.
    """
    if inspect.isclass(found):
        one = found.__name__.lower()
        raise BackendError(
            f"backend {name}: expected a function, got the class {found.__name__}; "
            f"make one, {one} = {found.__name__}(...), and ask for :{one}"
        )
    if not callable(found):
        raise BackendError(f"backend {name}: expected a function or a Backend, got {type(found).__name__}")
    if inspect.isroutine(found) or not hasattr(found, "forward"):
        return found  # type: ignore[no-any-return]

    def run(*arrays: Any, **options: Any) -> Any:  # called as a whole: its hooks are a part of it
        return found(*arrays, **options)

    run.__signature__ = inspect.signature(found.forward)  # type: ignore[attr-defined] # what inspect looks for
    return run


def with_settings(name: str, backend: Backend, settings: Settings) -> Backend:
    """Give a backend the name by which it was asked for, which stands in results, and what is said of it.

    Raises
    ------
    BackendError
        When that cannot be used.
    """
    check_backend(name, backend)
    told = replace(
        backend,
        name=name,
        dtypes=settings.dtypes or backend.dtypes,
        device=settings.device or backend.device,
        **settings.fields,
    )
    check_backend(name, told)
    check_device(told)
    return _brought_up(name, told)


def _brought_up(name: str, backend: Backend) -> Backend:
    """Have calls brought up to the axes, free of the options, and with those, that a backend asks for."""
    if hasattr(backend.attention, "convention"):
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
