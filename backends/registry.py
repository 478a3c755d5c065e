"""Load backends by name: adapters, entry points of packages, functions, programs, folders."""

import os
import re
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from importlib import import_module
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

from attnspec import OPERATIONS
from attnspec.backends.backend import Backend, for_release, gradients_of, with_declarations_noted
from attnspec.backends.check import check_backend, check_device
from attnspec.backends.errors import BackendError
from attnspec.backends.library import LIBRARIES, load_library
from attnspec.backends.names import (
    ADAPTERS,
    ALIASES,
    GROUP,
    OFFLINE,
    PORTABLE,
    PROGRAM,
    SEPARATE,
    UNTRUSTED,
    entry_points_of_packages,
    environment_of,
    expand,
    is_folder,
    own_options,
    split_options,
)
from attnspec.backends.ranks.load import load_ranks
from attnspec.backends.user.configuration import configuration_of
from attnspec.backends.user.function import load_configuration, load_function, with_settings
from attnspec.backends.user.settings import settings_of_options
from attnspec.backends.user.signature import note_unknown_parameters
from attnspec.operations.operation import primal
from attnspec.reference import functions


def load(name: str) -> Backend:
    """Load a backend: one of `NAMES`, an entry point of a package, or ``module:function``.

    Declarations for other releases of its library than the installed one are left out, with a note. The
    environment variables among the options of the name are set in this process.

    Parameters
    ----------
    name : str
        The object at ``module:function`` or ``./file.py:function`` is a function with canonical
        names or a `Backend`. Modules may be in the current folder. If a configuration in the
        current folder or its parents is of that function, it applies.

    Raises
    ------
    BackendError
        If the name is unknown, a library or a compiler is missing, an import fails, or the object
        cannot be called as attention.

    Examples
    --------
    >>> from attnspec.backends import load
    >>> load("numpy-portable").library
    'numpy'
    """
    os.environ.update(environment_of(name))
    return note_unknown_parameters(with_declarations_noted(for_release(_load(name))))


def _load(name: str) -> Backend:
    if (apart := _load_apart(name)) is not None:
        return apart
    place, options = split_options(name)
    place = ALIASES.get(place, place)
    settings = settings_of_options(name, options)
    if is_folder(place):
        (name,) = expand(name)
    if place in LIBRARIES:
        names = expand(place)
        if len(names) > 1:
            raise BackendError(f"backend {name}: expected the name of one backend, got {', '.join(names)}")
        (place,) = names
    configuration = configuration_of(place)
    if configuration is not None:
        return load_configuration(name, configuration, settings)
    if place in PORTABLE or place in ADAPTERS or place in SEPARATE:
        ours = _load_ours(place)
        dtypes, device = settings.dtypes or ours.dtypes, settings.device or ours.device
        backend = replace(ours, name=name, dtypes=dtypes, device=device)
        if settings.device:
            check_device(backend)
        return backend
    (single,) = expand(place)
    if ":" in single:
        return load_function(name, single, settings)
    return with_settings(name, _load_registered(single), settings)


def _load_apart(name: str) -> Backend | None:
    """Load a backend whose code does not run in this process. Return None for another one."""
    if (ranks := load_ranks(name)) is not None:
        check_backend(name, ranks)
        return ranks
    if name.startswith(PROGRAM):
        return _load_program(name)
    if name.startswith(OFFLINE):
        return _load_recorded(name)
    if name.startswith(UNTRUSTED):
        from attnspec.backends.untrusted.backend import untrusted_backend

        return untrusted_backend(name)
    return None


def _load_ours(name: str) -> Backend:
    library, place = ADAPTERS.get(name) or SEPARATE.get(name) or (PORTABLE[name], "")
    try:
        if not place:
            return _portable(name, library)
        module, function = place.split(":")
        make: Callable[[], Backend] = getattr(import_module(f"attnspec.backends.adapters.{module}"), function)
        return make()
    except ModuleNotFoundError as error:
        raise BackendError(
            f"backend {name}: expected {error.name} to be installed, got none; "
            + (f"nox -s 'libraries({library})'" if name in SEPARATE else f"pip install 'attnspec[{library}]'")
        ) from error


def _portable(name: str, library_name: str) -> Backend:
    """Make a backend of the reference, through the Array API of a library."""
    library = load_library(library_name)
    library.prepare_eager()
    known = functions(compiler=library.compile, constant=library.constant)
    offered = {
        operation: function
        for operation, function in known.items()
        if operation not in library.lacks
        and (operation == primal(operation) or library.differentiate is None)
    }
    for operation in known.keys() - offered.keys() - {*library.lacks}:
        vjp = gradients_of(known[primal(operation)], library, operation)
        if vjp is not None and "return_d_scale" in OPERATIONS[operation].options:
            offered[operation] = _with_scale(vjp, known[operation])
    run = offered.pop("attention")
    backend = Backend(name, library, run, library.dtypes, offered)
    return replace(backend, deviations=library.deviations, versions=library.releases)


def _with_scale(vjp: Callable[..., Any], formulas: Callable[..., Any]) -> Callable[..., Any]:
    """Add the gradient of the scale by the formulas of the reference to those that the library computes."""
    known, name = signature(vjp), "return_d_scale"

    @wraps(vjp)
    def run(*arrays: Any, return_d_scale: bool = False, **options: Any) -> Any:
        results = vjp(*arrays, **options)
        if not return_d_scale:
            return results
        return (*results, formulas(*arrays, **options, **{name: return_d_scale})[-1])

    asked = Parameter(name, Parameter.KEYWORD_ONLY, default=False)
    run.__signature__ = known.replace(parameters=[*known.parameters.values(), asked])  # type: ignore[attr-defined] # read by inspect
    return run


def _load_registered(name: str) -> Backend:
    """Load the entry point of a package; any error is a BackendError of that name."""
    entries = entry_points_of_packages()[name]
    packages = [entry.dist.name if entry.dist else "an unknown package" for entry in entries]
    places = [f"{entry.value} of {package}" for entry, package in zip(entries, packages, strict=True)]
    origins = " and ".join(sorted(places))
    place = f"backend {name}: entry point {GROUP}: {origins}"
    if len(entries) > 1:
        raise BackendError(f"{place}: expected one entry point of this name, got {len(entries)}")
    try:
        loaded = entries[0].load()
        made = loaded if isinstance(loaded, Backend) else loaded()
    except BaseException as error:  # a package may raise anything, such as SystemExit
        lines = str(error).splitlines() or [""]
        raise BackendError(
            f"{place}: expected a Backend or a function that returns one, "
            f"got {type(error).__name__}: {lines[0]}"
        ) from error
    if not isinstance(made, Backend):
        raise BackendError(
            f"{place}: expected a Backend or a function that returns one, got {type(made).__name__}"
        )
    return made


def _load_program(name: str) -> Backend:
    from attnspec.backends.program.program import CALL_LIMIT, program_backend

    command, options = split_options(name.removeprefix(PROGRAM))
    limit, options = options.pop("call_limit", str(CALL_LIMIT)), own_options(options)
    dtypes = settings_of_options(name, {key: options.pop(key) for key in ("dtype",) if key in options}).dtypes
    if options or not re.fullmatch(r"[0-9]+(\.[0-9]+)?", limit):
        raise BackendError(
            f"backend {name}: expected only the options call_limit=SECONDS and dtype, got {name}"
        )
    backend = program_backend(name, command, seconds=float(limit))
    absent = sorted(set(dtypes) - set(backend.dtypes))
    if absent:
        offered = ", ".join(backend.dtypes)
        raise BackendError(f"backend {name}: dtype: expected some of {offered}, got {', '.join(absent)}")
    backend = replace(backend, dtypes=dtypes or backend.dtypes)
    check_backend(name, backend)
    return backend


def _load_recorded(name: str) -> Backend:
    from attnspec.backends.program.answers import recorded_backend

    backend = recorded_backend(name, Path(name.removeprefix(OFFLINE)))
    check_backend(name, backend)
    return backend
