"""What a boolean of an unknown name does: causality, nothing that a small call shows, or something else."""

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from attnspec import OPERATIONS
from attnspec.backends.user.calls import Calls
from attnspec.backends.user.convention import Convention
from attnspec.operations.aliases import NO_COUNTERPART, meant

#: The reason beside causality whose parameter has an unknown name.
BY_CALLS = "its name is unknown, and calls show it: "
RAISES, SAME, CHANGES = "raises an error", "changes nothing in a small call", "changes the result"


class _Calls(Protocol):
    function: Callable[..., Any]


def unknown_flags(function: Callable[..., Any], names: Iterable[str]) -> dict[str, bool]:
    """Map those of some parameters that are booleans of unknown names to what they are not by default."""
    parameters = inspect.signature(function).parameters
    flags = {name for name, argument in OPERATIONS["attention"].arguments.items() if argument.kind == "flag"}
    unknown = (own for own in names if own in parameters and not flags.intersection(meant(own)))
    return {
        own: not parameters[own].default
        for own in unknown
        if type(parameters[own].default) is bool and own.lower() not in NO_COUNTERPART
    }


def flags_of_causality(function: Callable[..., Any]) -> list[str]:
    """Name the flags that are off by default and may be causality, first those that are by their name."""
    parameters = inspect.signature(function).parameters
    named = [own for own, x in parameters.items() if "is_causal" in meant(own) and x.default is not True]
    return named + [own for own, value in unknown_flags(function, parameters).items() if value]


@contextmanager
def with_flag(calls: _Calls, own: str, *, value: bool) -> Iterator[None]:
    """Make calls in which a flag has a value."""
    plain, calls.function = calls.function, partial(calls.function, **{own: value})
    try:
        yield
    finally:
        calls.function = plain


def sentence(effects: dict[str, str]) -> str:
    """Say what flags do, to be read after the reason to ignore them."""
    return "".join(f"; {flag} {effect}" for flag, effect in effects.items())


def infer_flags(
    calls: Calls,
    convention: Convention,
    ignored: Iterable[str],
    meanings: Callable[[Convention, str, tuple[str, ...]], Iterator[Convention]],
) -> tuple[Convention, str]:
    """Take an unknown flag of attention for causality if calls show it, and say what the others do."""
    arrays, effects = calls.drop_batch(convention, calls.arrays), {}
    for own, value in unknown_flags(calls.function, ignored).items():
        causal = _causality(calls, convention, own, meanings, off=value)
        if causal is not None:
            calls.why["is_causal"] = BY_CALLS + calls.why.get("is_causal", "False excludes no key")
            convention = causal
            continue
        plain = calls.run(convention, arrays)
        with with_flag(calls, own, value=value):
            other = calls.run(convention, arrays)
        effects[f"{own} = {value}"] = _effect(plain, other)
    return convention, sentence(effects)


def _causality(
    calls: Calls,
    convention: Convention,
    own: str,
    meanings: Callable[[Convention, str, tuple[str, ...]], Iterator[Convention]],
    *,
    off: bool,
) -> Convention | None:
    """Return a convention in which a flag, off by default or on, is causality; None if no call shows it."""
    if "is_causal" in convention.names or convention.one_query:  # one query at the last key shows none
        return None
    if off:
        return None if convention.always else next(meanings(convention, own, ("is_causal",)), None)
    if not calls.base:
        return None
    given = (*convention.given, "is_causal")
    named = replace(convention, names={**convention.names, "is_causal": own}, always={}, given=given)
    base, calls.base = calls.base, {}
    arrays = calls.drop_batch(convention, calls.arrays)
    if calls.confirms(named, arrays, {}, {}) and calls.confirms(named, arrays, {"is_causal": True}, base):
        calls.why["given"] = "its default is not the specified one"
        calls.why.pop("always", None)
        return named
    calls.base = base
    return None


def _effect(plain: Any, other: Any) -> str:
    """Say what the other value of a flag does, by the results of two calls."""
    if plain is None or other is None:
        return RAISES
    pairs = [(x, other.get(name)) for name, x in plain.items()]
    same = all(
        y is not None and x.shape == y.shape and np.allclose(x, y, 1e-2, 1e-2, equal_nan=True)
        for x, y in pairs
    )
    return SAME if same else CHANGES
