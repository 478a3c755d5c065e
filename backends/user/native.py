"""The names that a function has for the canonical arguments."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attnspec import OPERATIONS
from attnspec.backends.errors import BackendError
from attnspec.operations.aliases import meant

_OPERATION = OPERATIONS["attention"]
_STARS = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def check_names(name: str, names: Mapping[str, str]) -> None:
    """Refuse unknown canonical names, and mappings in the wrong direction."""
    known = (*_OPERATION.arrays, *_OPERATION.options)
    wrong = [canonical for canonical in names if canonical not in known]
    turned = [one for one in wrong if names[one] in known]
    if turned:
        raise BackendError(
            f'backend {name}: names: expected ours = "yours", got {turned[0]} = "{names[turned[0]]}"; '
            f'write {names[turned[0]]} = "{turned[0]}"'
        )
    if wrong or not all(isinstance(native, str) for native in names.values()):
        guesses = [f"{one} ({' or '.join(meant(one))}?)" if meant(one) else one for one in wrong]
        raise BackendError(
            f"backend {name}: names: expected canonical names ({', '.join(known)}), "
            f"got {', '.join(guesses) or dict(names)}"
        )


def native_names(
    name: str, function: Callable[..., Any], names: Mapping[str, str], others: Sequence[str] = ()
) -> dict[str, str]:
    """Map each canonical argument that a function has to the function's name for it."""
    parameters = inspect.signature(function).parameters
    takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    native = {one: names.get(one, one) for one in (*_OPERATION.arrays, *_OPERATION.options)}
    absent = [] if takes_any else [own for own in (*names.values(), *others) if own not in parameters]
    absent += [
        own for one in _OPERATION.arrays if (own := native[one]) not in parameters and one not in names
    ]
    if absent:
        wanted = ", ".join(dict.fromkeys(absent))
        raise BackendError(
            f"backend {name}: expected a function with {wanted}, got {_listed(parameters)}"
            + what_to_write(name, list(parameters), names)
        )
    native = {one: own for one, own in native.items() if own in parameters or one in names}
    for one, own in native.items():
        other = next(key for key, value in native.items() if value == own)
        if other != one and {other, one} != {"mask", "bias"}:
            raise BackendError(
                f"backend {name}: names: expected a different parameter for each argument, "
                f"got {own} for {other} and {one}"
            )
    required = [own for own in _required(function) if own not in (*native.values(), *others)]
    if required:
        own = next((one for one in required if one.strip("_") in _OPERATION.arguments), required[0])
        ours = own.strip("_") if own.strip("_") in _OPERATION.arguments else "value"
        raise BackendError(
            f"backend {name}: expected only canonical arguments to be required, got {', '.join(required)}; "
            f'name the argument that it is, as in names = {{ {ours} = "{own}" }}, '
            "add a default, or bind it with functools.partial"
        )
    return native


def given_by_default(
    function: Callable[..., Any], native: Mapping[str, str], given: Sequence[str]
) -> tuple[str, ...]:
    """Return the options to pass in every call: those in `given` and those without a default."""
    required = _required(function)
    return tuple(
        option
        for option, own in native.items()
        if option not in _OPERATION.arrays and (option in given or own in required)
    )


def what_to_write(name: str, parameters: Sequence[str], names: Mapping[str, str] | None = None) -> str:
    """Suggest an ``attnspec.toml`` for arrays with other names; empty if they cannot be guessed.

    Examples
    --------
    >>> from attnspec.backends.user.native import what_to_write
    >>> print(what_to_write("my:kernel", ["q", "k", "v", "causal"]))
    ; write this in attnspec.toml, or run `attnspec init my:kernel`:
    [backend]
    function = "my:kernel"
    [backend.names]
    query = "q"
    key = "k"
    value = "v"
    """
    told = dict(names or {})
    left = [one for one in parameters if one not in _OPERATION.arguments and one not in told.values()]
    for array in (one for one in _OPERATION.arrays if one not in parameters and one not in told):
        own = next((one for one in left if array in meant(one)), left[0] if left else "")
        if not own:
            return ""
        left.remove(own)
        told[array] = own
    lines = [f'{canonical} = "{own}"' for canonical, own in told.items()]
    place = name.partition("?")[0]
    head = f"; write this in attnspec.toml, or run `attnspec init {place}`:"
    return "\n".join((head, "[backend]", f'function = "{place}"', "[backend.names]", *lines))


def _required(function: Callable[..., Any]) -> list[str]:
    return [
        one.name
        for one in inspect.signature(function).parameters.values()
        if one.default is one.empty and one.kind not in _STARS
    ]


def _listed(parameters: Mapping[str, Any]) -> str:
    return ", ".join(parameters) or "no arguments"
