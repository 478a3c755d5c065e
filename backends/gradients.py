"""Gradients of a backend by the automatic differentiation of its library."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from inspect import Parameter, signature
from typing import Any

from attnspec import OPERATIONS
from attnspec.backends.library.library import Library

#: What is differentiated, and the operation that the gradients are those of.
VJP_OF = "attention"
_VJP = OPERATIONS["attention_vjp"]


def gradients_of(function: Callable[..., Any], library: Library) -> Callable[..., Any] | None:
    """Make the function `attention_vjp` of a function `attention`; None if the library cannot differentiate.

    Parameters
    ----------
    function : callable
        Attention, with canonical names.
    library : Library

    Returns
    -------
    callable or None
        Its signature has the options of the function, and ``d_lse`` if the function returns the lse.

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
        return _gradients_of(function, library)
    except TypeError:  # a callable object may not be hashable
        return _gradients_of.__wrapped__(function, library)


@lru_cache(maxsize=64)
def _gradients_of(function: Callable[..., Any], library: Library) -> Callable[..., Any]:
    known = signature(function).parameters

    def attention_vjp(*arrays: Any, d_lse: Any = None, **options: Any) -> tuple[Any, ...]:
        *given, d_output = arrays
        named = dict(zip(OPERATIONS[VJP_OF].arrays, given, strict=True))
        every = named | {name: thing for name, thing in options.items() if thing is not None}
        of = [one.of for one in _VJP.results if one.of in every]
        fixed = {name: thing for name, thing in every.items() if name not in of}
        if d_lse is not None:
            fixed["return_lse"] = True

        def run(*differentiated: Any) -> Any:
            call = {**fixed, **dict(zip(of, differentiated, strict=True))}
            positional = [call.pop(name) for name in OPERATIONS[VJP_OF].arrays]
            return function(*positional, **call)

        cotangents = [d_output] if d_lse is None else [d_output, d_lse]
        return _differentiated(library, run, [every[name] for name in of], cotangents)

    names = [*_VJP.arrays, *(name for name in _VJP.options if name in known or _asks(name, known))]
    parameters = [
        Parameter(name, Parameter.POSITIONAL_OR_KEYWORD)
        if name in _VJP.arrays
        else Parameter(name, Parameter.KEYWORD_ONLY, default=_VJP.arguments[name].default)
        for name in names
    ]
    attention_vjp.__signature__ = signature(function).replace(parameters=parameters)  # type: ignore[attr-defined] # read by inspect
    return attention_vjp


def _asks(name: str, known: Any) -> bool:
    """Whether a name is the cotangent of an output that the function returns if asked."""
    return name.startswith("d_") and f"return_{name.removeprefix('d_')}" in known


def _differentiated(
    library: Library, run: Callable[..., Any], arrays: Sequence[Any], cotangents: Sequence[Any]
) -> tuple[Any, ...]:
    assert library.differentiate is not None  # noqa: S101 - for the type checker: asked for before
    return tuple(library.differentiate(run, arrays, cotangents))
