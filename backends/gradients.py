"""Gradients of a backend by the automatic differentiation of its library."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from inspect import Parameter, signature
from typing import Any

from attnspec import OPERATIONS
from attnspec.backends.library.library import Library
from attnspec.operations import Argument
from attnspec.operations.gradients import primal


def gradients_of(
    function: Callable[..., Any], library: Library, operation: str = "attention_vjp"
) -> Callable[..., Any] | None:
    """Make the function that computes the gradients of another; None if the library cannot differentiate.

    Examples
    --------
    >>> from attnspec.backends import load, load_library
    >>> from attnspec.backends.gradients import gradients_of
    >>> gradients_of(load("numpy-portable").attention, load_library("numpy")) is None
    True
    """
    if library.differentiate is None:
        return None
    try:
        return _gradients_of(function, library, operation)
    except TypeError:  # a callable object may not be hashable
        return _gradients_of.__wrapped__(function, library, operation)


@lru_cache(maxsize=64)
def _gradients_of(function: Callable[..., Any], library: Library, operation: str) -> Callable[..., Any]:
    known = signature(function).parameters
    form, whole = OPERATIONS[operation], OPERATIONS[primal(operation)]

    def vjp(*arrays: Any, d_lse: Any = None, **options: Any) -> Any:
        *given, d_first = arrays
        named = dict(zip(whole.arrays, given, strict=True))
        every = named | {name: thing for name, thing in options.items() if thing is not None}
        of = [one.of for one in form.results if one.of in every]
        fixed = {name: thing for name, thing in every.items() if name not in of}
        if d_lse is not None:
            fixed["return_lse"] = True

        def run(*differentiated: Any) -> Any:
            call = {**fixed, **dict(zip(of, differentiated, strict=True))}
            positional = [call.pop(name) for name in whole.arrays]
            return function(*positional, **call)

        cotangents = [d_first] if d_lse is None else [d_first, d_lse]
        found = _differentiated(library, run, [every[name] for name in of], cotangents)
        return found if len(found) > 1 else found[0]

    names = [*form.arrays, *(name for name in form.options if name in known or _asks(name, known))]
    parameters = [
        Parameter(name, Parameter.POSITIONAL_OR_KEYWORD)
        if name in form.arrays
        else Parameter(name, Parameter.KEYWORD_ONLY, default=_default(form.arguments[name]))
        for name in names
    ]
    vjp.__name__ = vjp.__qualname__ = operation
    vjp.__wrapped__ = function  # type: ignore[attr-defined] # reports show where it is defined
    vjp.__signature__ = signature(function).replace(parameters=parameters)  # type: ignore[attr-defined] # read by inspect
    return vjp


def _default(argument: Argument) -> Any:
    return Parameter.empty if argument.required else argument.default


def _asks(name: str, known: Any) -> bool:
    """Whether a name is the cotangent of an output that the function returns if asked."""
    return name.startswith("d_") and f"return_{name.removeprefix('d_')}" in known


def _differentiated(
    library: Library, run: Callable[..., Any], arrays: Sequence[Any], cotangents: Sequence[Any]
) -> tuple[Any, ...]:
    assert library.differentiate is not None  # noqa: S101 - for the type checker: asked for before
    return tuple(library.differentiate(run, arrays, cotangents))
