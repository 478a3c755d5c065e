"""A function that is another operation of the specification than attention, and stands alone."""

import inspect
from collections.abc import Callable
from typing import Any

from attnspec import OPERATIONS
from attnspec.backends.check import signature_of
from attnspec.backends.errors import BackendError
from attnspec.backends.user.convention import Convention
from attnspec.operations import REQUIRED


def named_operation(attribute: str, function: Callable[..., Any]) -> str:
    """Return the operation of which a function has the name and the required arguments, or an empty string.

    Examples
    --------
    >>> from attnspec.backends.user.alone import named_operation
    >>> named_operation("split_heads", lambda features, *, heads: features)
    'split_heads'
    >>> named_operation("packed_attention", lambda query, key, value: query), named_operation("flash", len)
    ('', '')
    """
    if attribute not in OPERATIONS or attribute == "attention":
        return ""
    return "" if _lacking(attribute, function) else attribute


def check_companion(
    name: str, operation: str, function: Callable[..., Any], convention: Convention | None
) -> None:
    """Check a function that is another operation than attention."""
    if convention is not None:
        raise BackendError(
            f"backend {name}: {operation}: expected canonical names and layout, got keys that describe "
            "attention, such as names or layout"
        )
    if lacking := _lacking(operation, function):
        known = ", ".join(signature_of(name, function).parameters) or "no arguments"
        raise BackendError(
            f"backend {name}: operation: expected a function of {operation} with {', '.join(lacking)}, "
            f"got {known}"
        )


def check_not_alone(name: str, function: Callable[..., Any]) -> None:
    """Refuse a function that has the arguments of another operation, and not those of attention."""
    if not _lacking("attention", function):
        return
    fitting = [one for one in OPERATIONS if "attention" in one and not _lacking(one, function)]
    if fitting:
        raise BackendError(
            f"backend {name}: expected attention, got the arguments of {fitting[0]}; name the function "
            f'{fitting[0]}, or write operation = "{fitting[0]}" in attnspec.toml'
        )


def _lacking(operation: str, function: Callable[..., Any]) -> list[str]:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return [*OPERATIONS[operation].arrays]
    arguments = OPERATIONS[operation].arguments.values()
    return [one.name for one in arguments if one.default is REQUIRED and one.name not in parameters]
