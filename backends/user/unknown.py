"""Find the parameters of a user's function that are not in the specification, and report them.

No case passes a parameter that is not understood. A function with only such parameters would
pass without being tested, so the run must not ignore them silently.
"""

import functools
import inspect
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from attnspec import OPERATIONS
from attnspec.backends.backend import Backend
from attnspec.operations.aliases import NO_COUNTERPART, meant, meant_in

_STARS: dict[Any, str] = {inspect.Parameter.VAR_KEYWORD: "**", inspect.Parameter.VAR_POSITIONAL: "*"}


def not_understood(
    function: Callable[..., Any], operation: str = "attention", mapped: Collection[str] = ()
) -> tuple[str, ...]:
    """List the parameters that are not in the specification.

    Names that begin with an underscore and names that `functools.partial` has bound are left out.

    Examples
    --------
    >>> from attnspec.backends.user.unknown import not_understood
    >>> not_understood(lambda query, key, value, causal=False, **more: query)
    ('causal', '**more')
    """
    known = {*OPERATIONS[operation].arrays, *OPERATIONS[operation].offers, *mapped}
    bound = function.keywords if isinstance(function, functools.partial) else {}
    return tuple(
        _STARS.get(one.kind, "") + one.name
        for one in inspect.signature(function).parameters.values()
        if one.name not in known and one.name not in bound and not one.name.startswith("_")
    )


def looked_through(backend: Backend) -> Backend:
    """Record in a backend the parameters that are not understood, except those in `ignore`.

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
    """Describe the parameters that are not understood and what to write; empty if there are none.

    If this is not empty, the run must fail.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from attnspec.backends import load
    >>> from attnspec.backends.user.unknown import unknown_arguments
    >>> mine = replace(load("numpy-portable"), not_understood=("causal", "attn_mask"))
    >>> print(unknown_arguments(mine))  # doctest: +NORMALIZE_WHITESPACE
    not understood: causal (is_causal?), attn_mask (mask or bias?); no case tests this.
    Map each to a canonical name, such as is_causal = "causal" under [backend.names] in attnspec.toml,
    or ignore it: ignore = ["causal", "attn_mask"]
    """
    names = backend.not_understood
    if not names:
        return ""
    guesses = {name: meant(name) for name in names}
    said = ", ".join(f"{name} ({_hint(name)})" if _hint(name) else name for name in names)
    example = next((f'{ours[0]} = "{name}"' for name, ours in guesses.items() if ours), 'OURS = "YOURS"')
    written = ", ".join(f'"{name.rpartition(" ")[2]}"' for name in names)
    return (
        f"not understood: {said}; no case tests this. Map each to a canonical name, "
        f"such as {example} under [backend.names] in attnspec.toml, "
        f"or ignore it: ignore = [{written}]"
    )


def _hint(name: str) -> str:
    """Suggest the meaning of a parameter."""
    if name.startswith("*"):
        return "the signature does not show what it takes: list it in names"
    if ": " in name:  # of a companion
        return f"{' or '.join(found)}?" if (found := meant_in(*name.split(": "))) else ""
    return f"{' or '.join(found)}?" if (found := meant(name)) else NO_COUNTERPART.get(name, "")
