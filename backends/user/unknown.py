"""Parameters of a user's function that the standard does not have: found, and never dropped in silence.

A signature is a list of capabilities. A name that is not understood would be a capability
that nobody asks for, and a function with such names alone would pass without being judged.
"""

import functools
import inspect
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from attnspec import OPERATIONS
from attnspec.backends.backend import Backend
from attnspec.operations.aliases import NO_COUNTERPART, meant

_STARS: dict[Any, str] = {inspect.Parameter.VAR_KEYWORD: "**", inspect.Parameter.VAR_POSITIONAL: "*"}


def not_understood(
    function: Callable[..., Any], operation: str = "attention", mapped: Collection[str] = ()
) -> tuple[str, ...]:
    """Name the parameters that are none of the standard's.

    Names that begin with an underscore are the function's own, and what
    `functools.partial` has bound by name is said already.

    Parameters
    ----------
    function : callable
    operation : str
    mapped : collection of str
        Names of the function's that stand for canonical ones.

    Examples
    --------
    >>> from attnspec.backends.user.unknown import not_understood
    >>> not_understood(lambda query, key, value, causal=False, **more: query)
    ('causal', '**more')
    """
    known = {*OPERATIONS[operation].arguments, *mapped}
    bound = function.keywords if isinstance(function, functools.partial) else {}
    return tuple(
        _STARS.get(one.kind, "") + one.name
        for one in inspect.signature(function).parameters.values()
        if one.name not in known and one.name not in bound and not one.name.startswith("_")
    )


def looked_through(backend: Backend) -> Backend:
    """Add to a backend what is not understood of its functions, less what it says is to be ignored.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from attnspec.backends import load
    >>> from attnspec.backends.user.unknown import looked_through
    >>> mine = replace(load("numpy-portable"), attention=lambda query, key, value, causal=False: query)
    >>> looked_through(mine).not_understood
    ('causal',)
    """
    found = [*backend.not_understood, *not_understood(backend.attention)]
    for operation, function in backend.companions.items():
        found += [f"{operation}: {name}" for name in not_understood(function, operation)]
    ignored = {name.strip("*") for name in backend.ignore}
    left = [name for name in dict.fromkeys(found) if name.rpartition(" ")[2].strip("*") not in ignored]
    return replace(backend, not_understood=tuple(left))


def unknown_arguments(backend: Backend) -> str:
    """Say which parameters are not understood, what they may be, and what to write; empty for none.

    A run of a backend of which this says something has to fail.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from attnspec.backends import load
    >>> from attnspec.backends.user.unknown import unknown_arguments
    >>> mine = replace(load("numpy-portable"), not_understood=("causal", "attn_mask"))
    >>> print(unknown_arguments(mine))  # doctest: +NORMALIZE_WHITESPACE
    not understood: causal (is_causal?), attn_mask (mask or bias?); nothing of it is judged.
    Give the standard's names, say is_causal = "causal" under [backend.names] of attnspec.toml,
    or let it alone on purpose: ignore = ["causal", "attn_mask"]
    """
    names = backend.not_understood
    if not names:
        return ""
    guesses = {name: meant(name) for name in names}
    said = ", ".join(f"{name} ({_hint(name)})" if _hint(name) else name for name in names)
    example = next((f'{ours[0]} = "{name}"' for name, ours in guesses.items() if ours), 'OURS = "YOURS"')
    written = ", ".join(f'"{name.rpartition(" ")[2]}"' for name in names)
    return (
        f"not understood: {said}; nothing of it is judged. Give the standard's names, "
        f"say {example} under [backend.names] of attnspec.toml, "
        f"or let it alone on purpose: ignore = [{written}]"
    )


def _hint(name: str) -> str:
    """Say what a parameter may be."""
    if name.startswith("*"):
        return "what it takes cannot be seen: name it"
    if ": " in name:  # of a companion
        return ""
    return f"{' or '.join(found)}?" if (found := meant(name)) else NO_COUNTERPART.get(name, "")
