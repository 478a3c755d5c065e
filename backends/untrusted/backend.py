"""A backend of a function that is not trusted. No code of the user is imported in this process."""

import atexit
import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from attnspec.backends.backend import Backend
from attnspec.backends.check import check_backend
from attnspec.backends.errors import BackendError
from attnspec.backends.library import array_properties
from attnspec.backends.library.library import array_api_library
from attnspec.backends.names import PROGRAM, UNTRUSTED, split_options
from attnspec.backends.program.program import CALL_LIMIT as PROGRAM_LIMIT
from attnspec.backends.program.program import program_backend
from attnspec.backends.untrusted.confine import can_confine
from attnspec.backends.untrusted.hidden import close_memory
from attnspec.backends.untrusted.remote import CALL_LIMIT, Remote
from attnspec.backends.user.configuration import FILE, configuration_of, read_configuration
from attnspec.backends.user.function import attribute_of, backend_of
from attnspec.backends.user.settings import settings_of_options, settings_of_table
from attnspec.reference.numpy_namespace import xp

#: Keys whose values are functions of the user, which would run in this process.
_OF_FUNCTIONS = ("to_library", "to_numpy", "companions")


def untrusted_backend(name: str) -> Backend:
    """Start a process for a function, and make a backend from its signature and its configuration."""
    place, options = split_options(name.removeprefix(UNTRUSTED))
    if place.startswith(PROGRAM):
        return _program(name, place.removeprefix(PROGRAM), options)
    limit = float(options.pop("call_limit", CALL_LIMIT))
    settings = settings_of_options(name, options)
    path = configuration_of(place)
    folder = Path.cwd()
    if path is not None:
        table = read_configuration(name, path)
        _check(name, table)
        settings = settings.over(settings_of_table(f"backend {name}: {path.name}", name, table))
        place, folder = table["function"], path.parent
    if ":" not in place:
        raise BackendError(
            f"backend {name}: expected module:function, ./file.py:function or a folder with {FILE}, "
            f"got {place!r}; other backends are part of attnspec or import it"
        )
    remote = Remote(name, place, settings.array, settings.device, folder, seconds=limit)
    atexit.register(remote.close)
    close_memory()
    # Its arrays are those of NumPy here; the other process makes those of the library.
    properties = array_properties(remote.library)
    own = array_api_library(remote.library, remote.version, xp, strides=properties["strides"])
    of_numpy = replace(settings, array="numpy", device="")
    backend = backend_of(name, remote.function(), of_numpy, "numpy", attribute_of(place))
    dtypes = settings.dtypes or properties["default_dtypes"]
    note = f"untrusted: confined by {' and '.join(remote.confined)}"
    # One process makes one call at a time.
    return replace(backend, array_library=own, dtypes=dtypes, concurrent=False, notes=(*backend.notes, note))


def _program(name: str, command: str, options: dict[str, str]) -> Backend:
    """Start a program that is confined by the operating system."""
    limit = float(options.pop("call_limit", PROGRAM_LIMIT))
    dtypes = settings_of_options(name, options).dtypes
    close_memory()
    words = [sys.executable, "-P", "-s", "-m", "attnspec.backends.untrusted.hidden", *shlex.split(command)]
    backend = program_backend(name, shlex.join(words), seconds=limit)
    backend = replace(
        backend, dtypes=tuple(dtype for dtype in backend.dtypes if not dtypes or dtype in dtypes)
    )
    check_backend(name, backend)
    confined = can_confine()
    note = (
        "untrusted: confined by Landlock"
        if confined
        else "untrusted: not confined, because this system cannot"
    )
    return replace(backend, notes=(*backend.notes, note))


def _check(name: str, table: Mapping[str, Any]) -> None:
    """Refuse keys that need code of the user in this process."""
    keys = [key for key in _OF_FUNCTIONS if key in table]
    if keys or "program" in table:
        raise BackendError(
            f"backend {name}: {', '.join(keys) or 'program'}: expected no such key with --untrusted, "
            + ("which runs code of yours in the judge" if keys else "use --untrusted --program")
        )
