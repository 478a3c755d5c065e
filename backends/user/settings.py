"""The settings of a backend, from the options of its name or from the keys of a configuration."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import numpy as np

from attnspec import OPERATIONS
from attnspec.backends.captured import pass_on
from attnspec.backends.constraints import Constraints
from attnspec.backends.deviation import Deviation
from attnspec.backends.errors import BackendError, Broken, ConversionError, Unsupported
from attnspec.backends.library.library import Library
from attnspec.backends.names import own_options
from attnspec.backends.outcome import OUTCOMES, Outcome
from attnspec.backends.user.configuration import FUNCTION_KEYS, check_keys
from attnspec.backends.user.convention import OTHER, Convention
from attnspec.backends.user.lists import has_square_blocks
from attnspec.backends.user.place import find, near
from attnspec.backends.user.scales import FLAT
from attnspec.backends.user.signature import without_ignored
from attnspec.dtypes import DTYPES
from attnspec.operations.aliases import NO_COUNTERPART, NO_RESULT


@dataclass(frozen=True)
class Conversion:
    """How the arrays of a function are made from NumPy arrays, and made into NumPy arrays.

    Names and layouts are translated on NumPy arrays, so the library needs no operation for it.
    """

    #: The installed package of the library, for its name and version. Empty for that of the arrays.
    library: str = ""
    #: Takes a NumPy array and returns an array of the library. None if it takes NumPy arrays.
    to_library: Callable[[Any], Any] | None = None
    #: Takes a result and returns an array that NumPy takes. None if NumPy takes the result.
    to_numpy: Callable[[Any], Any] | None = None

    def library_over(self, name: str, runs_on: Library) -> Library:
        """Give an array library the name and the version of this library."""
        if (self.to_library or self.to_numpy) and runs_on.name != "numpy":
            raise BackendError(
                f"backend {name}: to_library: expected array = numpy beside it, got {runs_on.name}"
            )
        if not self.library:
            return runs_on
        from importlib import metadata  # it takes long to import

        try:
            return replace(runs_on, name=self.library, version=metadata.version(self.library))
        except metadata.PackageNotFoundError as error:
            raise BackendError(
                f"backend {name}: library: expected an installed package, got {self.library!r}"
            ) from error

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function, so that it takes and returns NumPy arrays."""
        signature = inspect.signature(function)
        own = list(signature.parameters)

        def there(name: str, value: Any) -> Any:
            if self.to_library is None or not isinstance(value, np.ndarray):
                return value
            return _convert("to_library", name, self.to_library, value)

        def back(result: Any) -> Any:
            if self.to_numpy is None or result is None:
                return result
            return _convert("to_numpy", "the result", self.to_numpy, result)

        def run(*arrays: Any, **options: Any) -> Any:
            given = {name: there(name, value) for name, value in options.items()}
            named = (*own, *[f"argument {number}" for number in range(len(own), len(arrays))])
            returned = function(*map(there, named, arrays), **given)
            return tuple(map(back, returned)) if isinstance(returned, tuple) else back(returned)

        run.__wrapped__ = function  # type: ignore[attr-defined] # reports show where it is defined
        run.__signature__ = signature  # type: ignore[attr-defined] # read by inspect
        pass_on(run, function, self.wrap)
        return run


def _convert(key: str, of: str, conversion: Callable[[Any], Any], value: Any) -> Any:
    """Convert one value. An exception is that of the conversion, not of the function."""
    try:
        return conversion(value)
    except (KeyboardInterrupt, Unsupported, Broken, NotImplementedError):
        raise
    except BaseException as error:  # whatever a library raises
        raise ConversionError(key, of, conversion, error) from error


@dataclass(frozen=True)
class Settings:
    """Settings of a backend; what is empty is not set."""

    #: The array library: one of `LIBRARIES`, or a module with ``asarray``.
    array: str = ""
    device: str = ""
    dtypes: tuple[str, ...] = ()
    convention: Convention | None = None
    #: Other fields of its `Backend`.
    fields: Mapping[str, Any] = field(default_factory=dict)
    #: How its arrays are made from NumPy arrays, if it takes none of `array`.
    conversion: Conversion | None = None
    operation: str = ""

    def over(self, other: "Settings") -> "Settings":
        """Merge with other settings; these take precedence."""
        return Settings(
            self.array or other.array,
            self.device or other.device,
            self.dtypes or other.dtypes,
            self.convention or other.convention,
            {**other.fields, **self.fields},
            self.conversion or other.conversion,
            self.operation or other.operation,
        )


def settings_of_options(name: str, options: Mapping[str, str]) -> Settings:
    """Read the options after the name of a backend."""
    unknown = set(own_options(options)) - {"array", "device", "dtype"}
    if unknown:
        raise BackendError(
            f"backend {name}: expected the options array, device, dtype, got {', '.join(unknown)}"
        )
    dtypes = tuple(options["dtype"].split(",")) if "dtype" in options else ()
    if not set(dtypes) <= set(DTYPES):
        raise BackendError(
            f"backend {name}: dtype: expected some of {', '.join(DTYPES)}, got {options['dtype']}"
        )
    return Settings(options.get("array", ""), options.get("device", ""), dtypes)


def settings_of_keywords(where: str, name: str, keywords: Mapping[str, Any]) -> Settings:
    """Make settings from keys that are given in Python, where a file has lists for tuples and sets."""
    table = {key: list(value) if isinstance(value, tuple | set) else value for key, value in keywords.items()}
    check_keys(where, table, FUNCTION_KEYS)
    return settings_of_table(where, name, table)


def settings_of_table(where: str, name: str, table: Mapping[str, Any]) -> Settings:
    """Make settings from the keys that describe a function."""
    ignore = tuple(table.get("ignore", ()))
    convention = Convention(
        names={ours: own for ours, own in table.get("names", {}).items() if own not in ignore},
        layout=table.get("layout", "BHSD"),
        output_layout=table.get("output_layout", ""),
        lse_layout=table.get("lse_layout", ""),
        mask=table.get("mask", "attend"),
        axes=table.get("axes"),
        loop=table.get("loop", False),
        sizes=table.get("sizes", {}),
        mask_axes=table.get("mask_axes"),
        least_mask_axes=table.get("least_mask_axes"),
        mask_of_entries=table.get("mask_of_entries", False),
        mask_pairs=table.get("mask_pairs", False),
        mask_of_keys=table.get("mask_of_keys", False),
        past=tuple(table.get("past", ())),
        returns=tuple(table.get("returns", ())),
        always=table.get("always", {}),
        given=tuple(table.get("given", ())),
        takes_none=tuple(table.get("takes_none", ())),
        module=table.get("module", ""),
        causal_in_mask=table.get("causal_in_mask", False),
        inverse=tuple(table.get("inverse", ())),
        fixed=table.get("fixed", {}),
        open_side=table.get("open_side"),
        window=table.get("window", "sides"),
        per_entry=table.get("per_entry", False),
        one_query=table.get("one_query", False),
        at_length=table.get("at_length", False),
        writes=table.get("writes", False),
        slopes=table.get("slopes", ""),
        signed_slopes=table.get("signed_slopes", False),
        scales=table.get("scales", ""),
        encoding=table.get("encoding", ""),
        codes=table.get("codes", ""),
        integers=table.get("integers", ""),
        shapes=table.get("shapes", {}),
        lists=table.get("lists", ""),
        from_end=_is_from_end(table),
    )
    as_it_is = ("accuracy", "profile", "versions", "dialect", "concurrent")
    fields: dict[str, Any] = {key: table[key] for key in as_it_is if key in table}
    fields |= {key: tuple(table[key]) for key in ("ignore", "claims") if key in table}
    notes = {
        "a guess, which no call confirmed": table.get("guesses", ()),
        "not tested, because it is ignored": [
            own for own in ignore if NO_COUNTERPART.get(own.lower()) != NO_RESULT
        ],
        "not tested, because each call passes it": [f"{own} = {x!r}" for own, x in convention.fixed.items()],
        f"results that are not judged, because `returns` has {OTHER} for them": [
            number for number, name in enumerate(convention.returns, 1) if name == OTHER
        ],
    }
    if any(notes.values()):
        lines = (f"{note}: {', '.join(map(str, about))}" for note, about in notes.items() if about)
        fields["notes"] = tuple(lines)
    if "companions" in table:
        fields["companions"] = _companions(where, name, table["companions"], ignore)
    if "deviations" in table:
        fields["deviations"] = deviations_of(where, name, table)
    constraints = _constraints(where, table)
    if constraints != Constraints():
        fields["constraints"] = constraints
    return Settings(
        table.get("array", ""),
        table.get("device", ""),
        tuple(table.get("dtypes", ())),
        None if convention == Convention() else convention,
        fields,
        _conversion(name, table),
        _operation(where, table),
    )


#: The sides of a window that is one number.
_ONE_NUMBER: Mapping[str, Literal["both", "left"]] = {"both": "both", "left": "left", "keys": "left"}


def _constraints(where: str, table: Mapping[str, Any]) -> Constraints:
    multiple = table.get("multiple", 1)
    both = [multiple, multiple] if isinstance(multiple, int) else list(multiple)
    for key, numbers in (("depths", table.get("depths", ())), ("multiple", both)):
        if not all(type(number) is int and number > 0 for number in numbers):
            raise BackendError(f"{where}: {key}: expected positive integers, got {table[key]!r}")
    pairs = (("query", "key"), ("query_starts", "key_starts"))
    joined = min(len({table.get("names", {}).get(name, name) for name in pair}) for pair in pairs)
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
        one_query=bool(table.get("one_query", False)),
        lengths="equal" if joined == 1 else table.get("lengths", "any"),
        slopes=_slopes(table),
        scales=_scales(table),
        encoding=table.get("encoding", ""),
        one_width=bool(table.get("one_width", False)),
        square_blocks=has_square_blocks(table.get("names", {})),
        lists="key" if "Hkv" in table.get("lists", "") else "",
        window=_ONE_NUMBER.get(table.get("window", ""), "sides"),
        requires=tuple(table.get("requires", ())),
    )


def _scales(table: Mapping[str, Any]) -> Any:
    """Return what has a scale of its own, without the axes of its array."""
    return FLAT.get(table.get("scales", ""), table.get("scales", ""))


def _slopes(table: Mapping[str, Any]) -> Any:
    """Return from where slopes count distances, and whether these are signed; empty without slopes."""
    side = "end" if _is_from_end(table) else "start"
    return "" if "slopes" not in table else f"signed.{side}" if table.get("signed_slopes") else side


def _is_from_end(table: Mapping[str, Any]) -> bool:
    """Whether the last query is at the last key, by the dialect of causality."""
    return "bottom-right" in table.get("dialect", {}).values()


def _conversion(name: str, table: Mapping[str, Any]) -> Conversion | None:
    """Read the keys about conversions; None if there are none."""
    if not {"library", "to_library", "to_numpy"} & set(table):
        return None
    functions = {}
    for key in ("to_library", "to_numpy"):
        if key in table:
            functions[key] = find(name, table[key])[1] if isinstance(table[key], str) else table[key]
            if not callable(functions[key]):
                kind = type(functions[key]).__name__
                raise BackendError(f"backend {name}: {key}: expected a function, got {kind}")
    return Conversion(table.get("library", ""), **functions)


def _operation(where: str, table: Mapping[str, Any]) -> str:
    operation = str(table.get("operation", ""))
    if operation and operation not in OPERATIONS:
        raise BackendError(
            f"{where}: operation: expected one of {', '.join(OPERATIONS)}, got {operation!r}"
            + near(operation, OPERATIONS)
        )
    return operation


def _companions(
    where: str, name: str, table: Mapping[str, Any], ignore: tuple[str, ...]
) -> dict[str, Callable[..., Any]]:
    """Import the companions; a decorator gives them as functions."""
    known = tuple(operation for operation in OPERATIONS if operation != "attention")
    for operation in table:
        if operation not in known:
            raise BackendError(
                f"{where}: companions: expected some of {', '.join(known)}, "
                f"got {operation!r}{near(operation, known)}"
            )
    return {
        operation: without_ignored(place if callable(place) else find(name, str(place))[1], ignore)
        for operation, place in table.items()
    }


def deviations_of(where: str, name: str, table: Mapping[str, Any]) -> tuple[Deviation, ...]:
    """Read the declared deviations of a table."""
    return tuple(_deviation(where, name, entry) for entry in table.get("deviations", ()))


def _deviation(where: str, name: str, entry: Any) -> Deviation:
    known = {"rules", "reason", "source", "outcome", "dtypes", "outputs", "versions", "groups"}
    if isinstance(entry, Deviation):
        return entry
    if not isinstance(entry, dict) or not {"rules", "reason", "source", "outcome"} <= set(entry) <= known:
        raise BackendError(
            f"{where}: deviations: expected rules, reason, source, outcome and optionally "
            f"dtypes, outputs, versions, groups, got {entry!r}"
        )
    fields: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()
    }
    if isinstance(fields["outcome"], dict):
        fields["outcome"] = _outcome(where, name, fields["outcome"])
    try:
        return Deviation(**fields)
    except TypeError as error:
        raise BackendError(f"{where}: deviations: {error}") from error


def _outcome(where: str, name: str, table: Mapping[str, Any]) -> Outcome:
    """Make an outcome of a table: its kind and the fields of it, where a function is a place."""
    kinds = {kind.__name__: kind for kind in OUTCOMES}
    kind = kinds.get(table.get("kind", ""))
    given = {key: tuple(x) if isinstance(x, list) else x for key, x in table.items() if key != "kind"}
    given = {key: find(name, str(x))[1] if key in ("change", "where") else x for key, x in given.items()}
    if kind is None or set(given) - {field.name for field in fields(kind)}:
        raise BackendError(
            f"{where}: deviations: outcome: expected a kind, one of {', '.join(kinds)}, and its fields, "
            f"got {table!r}"
        )
    outcome: Outcome = kind(**given)
    return outcome
