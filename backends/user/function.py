"""Somebody's own backends: a function, a `Backend`, or what an ``attnspec.toml`` says."""

import importlib
import re
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from attnspec.backends.backend import DTYPES, Backend, check_backend, check_signature
from attnspec.backends.errors import BackendError
from attnspec.backends.user.convention import Convention, adapted

#: Libraries whose arrays and dtypes are known here, by the name to ask for them.
HOSTS = ("numpy", "torch", "jax", "strict", "dask")


@dataclass(frozen=True)
class Wishes:
    """What is said of a function beside its name.

    Attributes
    ----------
    array : str
        The library that it runs on: one of `HOSTS`, or a module with ``asarray``.
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


def wishes_of(name: str, options: Mapping[str, str]) -> Wishes:
    """Read what stands behind the name of a backend.

    Raises
    ------
    BackendError
        When it is not known.

    Examples
    --------
    >>> from attnspec.backends.user.function import wishes_of
    >>> wishes_of("m:f", {"array": "torch", "dtype": "float16,float32"}).dtypes
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
    return Wishes(options.get("array", ""), options.get("device", ""), dtypes)


def load_own(name: str, place: str, wishes: Wishes, seconds: float) -> Backend:
    """Load what ``module:attribute`` names.

    Parameters
    ----------
    name : str
        By which the backend was asked for.
    place : str
        Where it is, ``module:attribute``.
    wishes : Wishes
    seconds : float
        How long the import may take.

    Raises
    ------
    BackendError
        When there is none, or it cannot be used.
    """
    module, found = find(name, place, seconds)
    if isinstance(found, Backend):
        check_backend(name, found)
        # The name by which it was asked for stands in every result.
        own = replace(found, name=name, **wishes.fields)
        own = replace(own, dtypes=wishes.dtypes or own.dtypes, device=wishes.device or own.device)
        check_backend(name, own)
        check_device(own)
        return own
    library = wishes.array or _library_of(module)
    host = _host(name, library)
    if wishes.convention is not None:
        if not callable(found):
            check_signature(name, found)
        found = adapted(name, found, wishes.convention, host.xp)
    check_signature(name, found)
    # What a function takes besides cannot be seen; NumPy code is rarely written for half precision.
    dtypes = wishes.dtypes or (host.dtypes if library in ("torch", "jax") else ("float32", "float64"))
    fields = dict(wishes.fields)
    backend = Backend(
        name, host.library, host.version, host.xp, found, dtypes, device=wishes.device, **fields
    )
    check_backend(name, backend)
    check_device(backend)
    return backend


def check_device(backend: Backend) -> None:
    """Refuse a device that the library does not have.

    Raises
    ------
    BackendError
        With the first line of what the library says.
    """
    try:
        backend.to_library(np.ones(1, backend.dtypes[0]))
    except Exception as error:  # whatever a library raises
        lines = str(error).splitlines() or [type(error).__name__]
        raise BackendError(
            f"backend {backend.name}: expected {backend.library} to take {backend.dtypes[0]} "
            f"on device {backend.device or 'default'}, got {lines[0]}"
        ) from error


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
        except BaseException as error:  # noqa: BLE001 - whatever somebody's module raises, SystemExit too
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


def _library_of(module: Any) -> str:
    """Tell the array library that a module imports."""
    imported = {getattr(thing, "__name__", "").partition(".")[0] for thing in vars(module).values()}
    imported |= {
        getattr(thing, "__module__", "").partition(".")[0]
        for thing in vars(module).values()
        if callable(thing)
    }
    return next((library for library in ("torch", "jax") if library in imported), "numpy")


def _host(name: str, library: str) -> Backend:
    """Give the portable backend of a library, for its namespace and dtypes; of any other what there is."""
    try:
        if library in HOSTS:
            make: Callable[[], Backend] = importlib.import_module(
                f"attnspec.backends.{library}_backend"
            ).portable_backend
            return make()
        xp = importlib.import_module(library)
    except ModuleNotFoundError as error:
        hint = f"; pip install 'attnspec[{library}]'" if library in HOSTS else ""
        raise BackendError(
            f"backend {name}: array: expected {error.name} to be installed, got none{hint}"
        ) from error
    version = str(getattr(xp, "__version__", ""))
    return Backend(name, library, version, xp, lambda query, key, value: (query, key, value))
