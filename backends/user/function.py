"""Backends of users: a function, or a `Backend`, behind ``module:attribute``."""

import importlib
import re
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from attnspec.backends.backend import Backend
from attnspec.backends.check import check_backend, check_device, check_signature
from attnspec.backends.errors import BackendError
from attnspec.backends.library import LIBRARIES, library_of, load_library
from attnspec.backends.library.library import Library
from attnspec.backends.user.convention import Convention, adapted
from attnspec.backends.user.unknown import not_understood
from attnspec.dtypes import DTYPES


@dataclass(frozen=True)
class Settings:
    """What is said of a function beside its name.

    Attributes
    ----------
    array : str
        The library that it runs on: one of `LIBRARIES`, or a module with ``asarray``.
    device : str
        Where its arrays are put, as the library names it.
    dtypes : tuple of str
        Those to judge it in.
    convention : Convention or None
        Its names and layout.
    fields : mapping
        More fields of its `Backend`.
    """

    array: str = ""
    device: str = ""
    dtypes: tuple[str, ...] = ()
    convention: Convention | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)


def settings_of(name: str, options: Mapping[str, str]) -> Settings:
    """Read what stands behind the name of a backend.

    Raises
    ------
    BackendError
        When it is not known.

    Examples
    --------
    >>> from attnspec.backends.user.function import settings_of
    >>> settings_of("m:f", {"array": "torch", "dtype": "float16,float32"}).dtypes
    ('float16', 'float32')
    """
    unknown = set(options) - {"array", "device", "dtype"}
    if unknown:
        raise BackendError(
            f"backend {name}: expected the options array, device, dtype, got {', '.join(unknown)}"
        )
    dtypes = tuple(options["dtype"].split(",")) if "dtype" in options else ()
    if not set(dtypes) <= set(DTYPES):
        raise BackendError(
            f"backend {name}: dtype: expected some of {', '.join(DTYPES)}, got {options['dtype']}"
        )
    return Settings(options.get("array", ""), options.get("device", ""), dtypes)


def load_user(name: str, place: str, settings: Settings, seconds: float) -> Backend:
    """Load what ``module:attribute`` names.

    Parameters
    ----------
    name : str
        By which the backend was asked for.
    place : str
        Where it is, ``module:attribute``.
    settings : Settings
    seconds : float
        How long the import may take.

    Raises
    ------
    BackendError
        When there is none, or it cannot be used.
    """
    module, found = find(name, place, seconds)
    if isinstance(found, Backend):
        return with_settings(name, found, settings)
    library = _library(name, settings.array or library_of(module))
    unknown: tuple[str, ...] = ()
    if settings.convention is not None:
        if not callable(found):
            check_signature(name, found)
        native, found = found, adapted(name, found, settings.convention, library.xp)
        unknown = not_understood(native, mapped=settings.convention.names.values())
    check_signature(name, found)
    # What a function takes besides cannot be seen; NumPy code is rarely written for half precision.
    backend = Backend(name, library, found, library.default_dtypes, not_understood=unknown)
    return with_settings(name, backend, settings)


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
    return told


def find(name: str, place: str, seconds: float) -> tuple[Any, Any]:
    """Import a module and take what is asked for out of it.

    Raises
    ------
    BackendError
        When there is no such module or name in it, or the import fails or does not end.
    """
    module, _, attribute = place.partition(":")
    if not re.fullmatch(r"\w+(\.\w+)*", module) or not re.fullmatch(r"\w+(\.\w+)*", attribute):
        raise BackendError(f"backend: got {place!r}, expected module:function")
    found = _imported(name, module, seconds)
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise BackendError(f"backend {name}: expected {attribute} in {module}, got no such name")
        found = getattr(found, part)
    return sys.modules[module], found


def _imported(name: str, module: str, seconds: float) -> Any:
    """Import a module in a thread of its own, so that an import that hangs can be left behind."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    outcome: list[Any] = []

    def attempt() -> None:
        try:
            outcome.append(importlib.import_module(module))
        except BaseException as error:  # noqa: BLE001 - whatever a user's module raises, SystemExit too
            outcome.append(error)

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(seconds)
    if not outcome:
        raise BackendError(f"backend {name}: expected {module} to be imported in {seconds:g} s, got no end")
    if isinstance(outcome[0], ModuleNotFoundError) and outcome[0].name == module.partition(".")[0]:
        raise BackendError(
            f"backend {name}: expected a module {module}, got none in this folder or installed"
        )
    if isinstance(outcome[0], BaseException):
        kind = type(outcome[0]).__name__
        raise BackendError(f"backend {name}: importing {module} raised {kind}: {outcome[0]}") from outcome[0]
    return outcome[0]


def _library(name: str, library: str) -> Library:
    try:
        return load_library(library)
    except ModuleNotFoundError as error:
        hint = f"; pip install 'attnspec[{library}]'" if library in LIBRARIES else ""
        raise BackendError(
            f"backend {name}: array: expected {error.name} to be installed, got none{hint}"
        ) from error
