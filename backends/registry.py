"""The backends by name, and somebody's own: ``module:function``, ``program:COMMAND``."""

import importlib
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from attnspec.backends.backend import Backend, check_backend
from attnspec.backends.errors import BackendError
from attnspec.backends.names import APART, KNOWN, OFFLINE, PROGRAM, expand, is_folder, split_options
from attnspec.backends.user.configuration import configured_backend
from attnspec.backends.user.function import check_device, load_own, wishes_of

#: Seconds that the import of a module may take. PyTorch, cold, takes some ten here.
IMPORT_LIMIT = 120.0


def load(name: str, *, seconds: float = IMPORT_LIMIT) -> Backend:
    """Load a backend: one of `NAMES`, or ``module:function``.

    Parameters
    ----------
    name : str
        The object behind ``module:function`` is a function with canonical names,
        or a `Backend`. The current folder is searched first.
    seconds : float, optional
        How long the import may take.

    Raises
    ------
    BackendError
        When the name is unknown, a library or a compiler is missing, an import fails or does
        not end, or what is found cannot be called as attention.

    Examples
    --------
    >>> from attnspec.backends import load
    >>> load("numpy-portable").library
    'numpy'
    """
    if name.startswith(PROGRAM):
        return _load_program(name)
    if name.startswith(OFFLINE):
        return _load_recorded(name)
    place, options = split_options(name)
    wishes = wishes_of(name, options)
    if is_folder(place):
        return configured_backend(name, Path(place), seconds)
    if place in KNOWN or place in APART:
        known = _load_known(place)
        known = replace(known, dtypes=wishes.dtypes or known.dtypes, device=wishes.device, name=name)
        if wishes.device:
            check_device(known)
        return known
    (single,) = expand(place)
    return load_own(name, single, wishes, seconds)


def _load_known(name: str) -> Backend:
    library, place = (KNOWN | APART)[name]
    module, function = place.split(":")
    try:
        make: Callable[[], Backend] = getattr(
            importlib.import_module(f"attnspec.backends.{module}"), function
        )
        return make()
    except ModuleNotFoundError as error:
        raise BackendError(
            f"backend {name}: expected {error.name} to be installed, got none; "
            f"pip install 'attnspec[{library}]'"
        ) from error


def _load_program(name: str) -> Backend:
    from attnspec.backends.program.program import CALL_LIMIT, program_backend

    command, options = split_options(name.removeprefix(PROGRAM))
    limit = options.pop("call_limit", str(CALL_LIMIT))
    if options or not re.fullmatch(r"[0-9]+(\.[0-9]+)?", limit):
        raise BackendError(f"backend {name}: expected no option but call_limit=SECONDS")
    backend = program_backend(name, command, seconds=float(limit))
    check_backend(name, backend)
    return backend


def _load_recorded(name: str) -> Backend:
    from attnspec.backends.program.answers import recorded_backend

    backend = recorded_backend(name, Path(name.removeprefix(OFFLINE)))
    check_backend(name, backend)
    return backend
