"""The keys that describe a function, in an ``attnspec.toml`` or in a decorator."""

from collections.abc import Callable, Mapping
from typing import Any

from attnspec import OPERATIONS
from attnspec.backends.constraints import Constraints
from attnspec.backends.deviation import Deviation
from attnspec.backends.errors import BackendError
from attnspec.backends.user.convention import Convention
from attnspec.backends.user.conversion import conversion_of
from attnspec.backends.user.place import find, near
from attnspec.backends.user.settings import Settings

#: Key to the type of its value, and the words for it in messages.
_STRING, _LIST, _TABLE = (str, "a string"), (list, "a list"), (dict, "a table")
KEYS: Mapping[str, tuple[Any, str]] = {
    "function": _STRING,
    "program": _STRING,
    "call_limit": ((int, float), "a number"),
    "operation": _STRING,
    "array": _STRING,
    "library": _STRING,
    "to_library": (object, "a function, or a string such as module:function"),
    "to_numpy": (object, "a function, or a string such as module:function"),
    "device": _STRING,
    "dtypes": _LIST,
    "layout": _STRING,
    "mask": _STRING,
    "axes": (int, "3 or 4"),
    "loop": (bool, "true or false"),
    "mask_axes": (int, "an integer"),
    "sizes": _TABLE,
    "past": (list, "a list of two parameters"),
    "depths": (list, "a list of integers"),
    "multiple": ((int, list), "an integer or a list of two integers"),
    "heads": _STRING,
    "value_depth": _STRING,
    "bias_dtype": _STRING,
    "always": _TABLE,
    "given": (list, "a list of options"),
    "returns": _LIST,
    "accuracy": _STRING,
    "profile": _STRING,
    "names": _TABLE,
    "ignore": _LIST,
    "dialect": _TABLE,
    "companions": _TABLE,
    "deviations": _LIST,
    "claims": (list, "a list of rules"),
    "concurrent": (bool, "true or false"),
    "versions": _STRING,
}
#: The keys that a decorator may have.
OF_FUNCTIONS = tuple(key for key in KEYS if key not in ("function", "program", "call_limit"))


def check_keys(where: str, table: Mapping[str, Any], known: tuple[str, ...] = tuple(KEYS)) -> None:
    """Refuse unknown keys and values of the wrong type.

    Examples
    --------
    >>> from attnspec.backends.user.keys import check_keys
    >>> check_keys("attnspec.toml", {"layuot": "BSHD"})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    attnspec.backends.errors.BackendError: attnspec.toml: expected some of ..., got 'layuot' (layout?)
    """
    for key, thing in table.items():
        if key not in known:
            raise BackendError(f"{where}: expected some of {', '.join(known)}, got {key!r}{near(key, known)}")
        kind, words = KEYS[key]
        if not isinstance(thing, kind) or (isinstance(thing, bool) and kind is not bool):
            raise BackendError(f"{where}: {key}: expected {words}, got {thing!r}")


def written(said: Mapping[str, Any]) -> dict[str, Any]:
    """Convert keys given in Python to those of a file, which has lists for tuples and sets."""
    return {key: list(thing) if isinstance(thing, tuple | set) else thing for key, thing in said.items()}


def settings_of_table(where: str, name: str, table: Mapping[str, Any]) -> Settings:
    """Make settings from the keys that describe a function."""
    convention = Convention(
        names=table.get("names", {}),
        layout=table.get("layout", "BHSD"),
        mask=table.get("mask", "attend"),
        axes=table.get("axes"),
        loop=table.get("loop", False),
        sizes=table.get("sizes", {}),
        mask_axes=table.get("mask_axes"),
        past=tuple(table.get("past", ())),
        returns=tuple(table.get("returns", ())),
        always=table.get("always", {}),
        given=tuple(table.get("given", ())),
    )
    as_it_is = ("accuracy", "profile", "versions", "dialect", "concurrent")
    fields: dict[str, Any] = {key: table[key] for key in as_it_is if key in table}
    fields |= {key: tuple(table[key]) for key in ("ignore", "claims") if key in table}
    if "companions" in table:
        fields["companions"] = _companions(where, name, table["companions"])
    if "deviations" in table:
        fields["deviations"] = tuple(_deviation(where, entry) for entry in table["deviations"])
    constraints = constraints_of(where, table)
    if constraints != Constraints():
        fields["constraints"] = constraints
    return Settings(
        table.get("array", ""),
        table.get("device", ""),
        tuple(table.get("dtypes", ())),
        None if convention == Convention() else convention,
        fields,
        conversion_of(name, table),
        _operation(where, table),
    )


def constraints_of(where: str, table: Mapping[str, Any]) -> Constraints:
    """Read the constraints on calls.

    Examples
    --------
    >>> from attnspec.backends.user.keys import constraints_of
    >>> constraints_of("attnspec.toml", {"depths": [64], "multiple": 16}).multiple
    (16, 16)
    """
    multiple = table.get("multiple", 1)
    both = [multiple, multiple] if isinstance(multiple, int) else list(multiple)
    for key, numbers in (("depths", table.get("depths", ())), ("multiple", both)):
        if not all(type(number) is int and number > 0 for number in numbers):
            raise BackendError(f"{where}: {key}: expected positive integers, got {table[key]!r}")
    if len(both) != 2:
        raise BackendError(f"{where}: multiple: expected one integer or two, got {multiple!r}")
    return Constraints(
        axes=None if table.get("loop") else table.get("axes"),
        depths=tuple(table.get("depths", ())),
        multiple=(both[0], both[1]),
        heads=table.get("heads", "grouped"),
        always=dict(table.get("always", {})),
        value_depth=table.get("value_depth", "any"),
        bias_dtype=table.get("bias_dtype", "any"),
    )


def _operation(where: str, table: Mapping[str, Any]) -> str:
    operation = str(table.get("operation", ""))
    if operation and operation not in OPERATIONS:
        raise BackendError(
            f"{where}: operation: expected one of {', '.join(OPERATIONS)}, got {operation!r}"
            + near(operation, OPERATIONS)
        )
    return operation


def _companions(where: str, name: str, table: Mapping[str, Any]) -> dict[str, Callable[..., Any]]:
    """Import the companions; a decorator gives them as functions."""
    for operation in table:
        if operation not in OPERATIONS or operation == "attention":
            known = tuple(one for one in OPERATIONS if one != "attention")
            raise BackendError(
                f"{where}: companions: expected some of {', '.join(known)}, "
                f"got {operation!r}{near(operation, known)}"
            )
    return {
        operation: place if callable(place) else find(name, str(place))[1]
        for operation, place in table.items()
    }


def _deviation(where: str, entry: Any) -> Deviation:
    known = {"rules", "reason", "source", "dtypes", "outputs", "versions", "groups", "within"}
    if isinstance(entry, Deviation):
        return entry
    if not isinstance(entry, dict) or not {"rules", "reason", "source"} <= set(entry) <= known:
        raise BackendError(
            f"{where}: deviations: expected rules, reason, source and optionally "
            f"dtypes, outputs, versions, groups, within, got {entry!r}"
        )
    settled: dict[str, Any] = {
        key: tuple(thing) if isinstance(thing, list) else thing for key, thing in entry.items()
    }
    return Deviation(**settled)
