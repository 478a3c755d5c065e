"""Backends from a user's object: a function, an object with a `forward`, or a `Backend`."""

import inspect
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from attnspec.backends.backend import Backend, for_release, no_attention
from attnspec.backends.check import check_backend, check_device
from attnspec.backends.errors import BackendError
from attnspec.backends.library import LIBRARIES, library_of, load_library
from attnspec.backends.library.library import Library
from attnspec.backends.user.adapter import adapt, options_in_every_call
from attnspec.backends.user.companion import adapt_companion
from attnspec.backends.user.configuration import read_configuration
from attnspec.backends.user.convention import Convention
from attnspec.backends.user.dropout import DROPOUT, dropout_names, without_dropout, without_names
from attnspec.backends.user.modules import check_module
from attnspec.backends.user.own_values import with_own_values
from attnspec.backends.user.place import find, put_on_path
from attnspec.backends.user.settings import Settings, settings_of_keywords, settings_of_table
from attnspec.backends.user.signature import (
    check_companion,
    check_form,
    check_is_attention,
    check_signature,
    note_unknown_parameters,
    operation_by_name,
    signature_of,
    unknown_parameters,
    without_ignored,
)
from attnspec.backends.user.trials import numbers_in_every_call

_Function = TypeVar("_Function", bound=Callable[..., Any])


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
    settings = settings_of_keywords(f"backend {own}", own, said)
    module = sys.modules.get(getattr(function, "__module__", "") or "")
    library = library_of(module) if module else "numpy"
    return note_unknown_parameters(for_release(backend_of(own, function, settings, library)))


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

    def mark(function: _Function) -> _Function:
        name = getattr(function, "__name__", type(function).__name__)
        settings = settings_of_keywords(f"@implementation of {name}", name, said)
        function.__attnspec__ = settings  # type: ignore[attr-defined]
        return function

    return mark


def load_function(name: str, place: str, settings: Settings) -> Backend:
    """Load the backend at ``module:attribute``."""
    module, target = find(name, place)
    return backend_of(name, target, settings, library_of(module), attribute_of(place))


def load_configuration(name: str, path: Path, settings: Settings) -> Backend:
    """Make the backend that a configuration describes; `settings` take precedence over its keys."""
    table = read_configuration(name, path)
    if "program" in table:
        return _load_program(name, path, table)
    put_on_path(path.parent)
    of_table = settings_of_table(f"backend {name}: {path.name}", name, table)
    return load_function(name, table["function"], settings.over(of_table))


def _load_program(name: str, path: Path, table: dict[str, Any]) -> Backend:
    from attnspec.backends.program.program import CALL_LIMIT, program_backend

    other = set(table) - {"program", "call_limit"}
    if other:
        raise BackendError(
            f"backend {name}: {path.name}: expected only call_limit beside program, "
            f"got {', '.join(sorted(other))}; a program declares the rest in its handshake"
        )
    seconds = float(table.get("call_limit", CALL_LIMIT))
    backend = program_backend(name, table["program"], seconds=seconds, folder=path.parent)
    check_backend(name, backend)
    return backend


def attribute_of(place: str) -> str:
    """Return the last name of a place, such as ``attention`` of ``./kernels.py:flash.attention``."""
    return re.split("[:.]", place)[-1]


def backend_of(name: str, target: Any, settings: Settings, library: str, attribute: str = "") -> Backend:
    """Make a backend from a user's object."""
    if isinstance(target, Backend):
        return with_settings(name, target, settings)
    settings = settings.over(getattr(target, "__attnspec__", Settings()))
    runs_on = _library(name, settings.array or library)
    if not hasattr(target, "lower"):  # a function that JAX compiles as a whole is compiled as it is
        runs_on.prepare_eager()
    ignore, function = settings.fields.get("ignore", ()), as_function(name, target)
    if acting := [f"{said}: {advice}" for advice, said in numbers_in_every_call(function, ignore).items()]:
        notes = (*settings.fields.get("notes", ()), *acting)
        settings = replace(settings, fields={**settings.fields, "notes": notes})
    described = settings.convention or Convention()
    function = without_ignored(function, ignore)
    function = with_own_values(name, function, described.inverse, described.fixed)
    if settings.conversion is not None:
        runs_on = settings.conversion.library_over(name, runs_on)
        function = settings.conversion.wrap(function)
    attribute = attribute or getattr(target, "__name__", "")
    operation = settings.operation or operation_by_name(attribute, function)
    if operation not in ("", "attention"):
        left: tuple[str, ...] = ()
        own = dropout_names(name, function, described)
        plain = no_attention
        if operation == DROPOUT and own:
            plain = without_dropout(function, own)
            if settings.convention is not None:
                plain = adapt(name, plain, without_names(settings.convention), runs_on.xp)
        if (convention := settings.convention) is not None:
            mapped = (*convention.names.values(), *convention.others)
            left = tuple(f"{operation}: {x}" for x in unknown_parameters(function, operation, mapped))
            function = adapt_companion(name, operation, function, convention, runs_on.xp)
        check_companion(name, operation, function)
        alone = Backend(
            name,
            runs_on,
            plain,
            dtypes=runs_on.default_dtypes,
            companions={operation: function},
            not_understood=left,
        )
        return with_settings(name, alone, settings)
    settings = _of_each_query(settings, described)
    unknown: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    if (convention := settings.convention) is not None:
        native, function = function, adapt(name, function, convention, runs_on.xp)
        given = options_in_every_call(name, native, convention)
        unknown = unknown_parameters(native, mapped=(*convention.names.values(), *convention.others))
    else:
        check_is_attention(name, function)
        check_form(name, function)
    check_signature(name, function)
    # The signature does not show the dtypes; NumPy code rarely supports half precision.
    backend = Backend(name, runs_on, function, runs_on.default_dtypes, given=given, not_understood=unknown)
    return with_settings(name, backend, settings)


def _of_each_query(settings: Settings, convention: Convention) -> Settings:
    """Let calls of attention have several queries, for each of which a function of one is called."""
    if not convention.one_query:
        return settings
    limits = replace(settings.fields["constraints"], one_query=False)
    return replace(settings, fields={**settings.fields, "constraints": limits})


def as_function(name: str, target: Any) -> Callable[..., Any]:
    """Return the function that calls an object; a module has the signature of its `forward`."""
    check_module(name, target)
    if inspect.isclass(target):
        instance, methods = target.__name__.lower(), dict(inspect.getmembers(target, inspect.isfunction))
        advice = f"create an instance, {instance} = {target.__name__}(...), and name it: :{instance}"
        if not any("__call__" in vars(base) for base in target.__mro__):
            public = ", ".join(x for x in methods if not x.startswith("_")) or "none"
            advice = (
                f"its instances cannot be called (methods: {public}); judge a function that makes one in "
                "each call and calls these (of_a_cache in TEN_MINUTES.md, under Other conventions)"
            )
        raise BackendError(f"backend {name}: expected a function, got the class {target.__name__}; {advice}")
    if not callable(target):
        raise BackendError(f"backend {name}: expected a function or a Backend, got {type(target).__name__}")
    if applied := _apply_of(target):
        return applied
    if inspect.isroutine(target) or not hasattr(target, "forward"):
        signature_of(name, target)
        return target  # type: ignore[no-any-return]

    def run(*arrays: Any, **options: Any) -> Any:  # not `forward` itself: that would skip the hooks
        return target(*arrays, **options)

    run.__wrapped__ = target.forward  # type: ignore[attr-defined] # reports show where it is defined
    run.__signature__ = inspect.signature(target.forward)  # type: ignore[attr-defined] # read by inspect
    return run


def _apply_of(target: Any) -> Callable[..., Any] | None:
    """Return the function that applies an `autograd.Function`, with the signature of its `forward`."""
    torch, of = sys.modules.get("torch"), getattr(target, "__self__", None)
    if torch is None or not inspect.isclass(of) or not issubclass(of, torch.autograd.Function):
        return None
    made: Any = of
    parameters = [*inspect.signature(made.forward).parameters.values()]
    has_context = made.setup_context is torch.autograd.Function.setup_context
    signature = inspect.Signature(parameters[has_context:])

    def run(*arrays: Any, **options: Any) -> Any:  # `apply` takes no keywords
        call = signature.bind(*arrays, **options)
        call.apply_defaults()
        return target(*call.args)

    run.__wrapped__ = made.forward  # type: ignore[attr-defined] # reports show where it is defined
    run.__signature__ = signature  # type: ignore[attr-defined] # read by inspect
    return run


def with_settings(name: str, backend: Backend, settings: Settings) -> Backend:
    """Apply the requested name and the settings to a backend."""
    check_backend(name, backend)
    more = settings.fields.get("companions")
    companions = {"companions": {**backend.companions, **more}} if more else {}
    changed = replace(
        backend,
        name=name,
        dtypes=settings.dtypes or backend.dtypes,
        device=settings.device or backend.device,
        **{**settings.fields, **companions},
    )
    check_backend(name, changed)
    check_device(changed)
    return _adapt_to_constraints(name, changed)


def _adapt_to_constraints(name: str, backend: Backend) -> Backend:
    """Adapt calls to the axes, the constant options and the given options of a backend."""
    if hasattr(backend.attention, "convention") or backend.function("attention") is None:
        return backend
    convention = Convention(axes=backend.constraints.axes, always=backend.constraints.always)
    given = options_in_every_call(name, backend.attention, convention)
    if convention == Convention() and not given:
        return backend
    unknown = (*backend.not_understood, *unknown_parameters(backend.attention))
    attention = adapt(name, backend.attention, convention, backend.xp)
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
