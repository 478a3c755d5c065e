"""A backend with some of its arguments hidden."""

from dataclasses import replace
from functools import wraps
from inspect import signature
from typing import Any

from attnspec.backends import Backend


def without(backend: Backend, *arguments: str) -> Backend:
    """Hide arguments of attention by removing them from the signature, which lists the capabilities.

    Examples
    --------
    >>> from attnspec.backends import load
    >>> from attnspec.conformance.judge.hidden import without
    >>> without(load("numpy-portable"), "return_lse").has("attention", "return_lse")
    False
    """
    function = backend.attention

    @wraps(function)
    def run(*arrays: Any, **options: Any) -> Any:
        return function(*arrays, **options)

    whole = signature(function)
    kept = [parameter for name, parameter in whole.parameters.items() if name not in arguments]
    run.__signature__ = whole.replace(parameters=kept)  # type: ignore[attr-defined] # read by inspect.signature
    return replace(backend, attention=run)
