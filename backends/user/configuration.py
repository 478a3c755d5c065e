"""A backend as a file says: ``attnspec.toml`` in a folder."""

import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attnspec import OPERATIONS
from attnspec.backends.backend import Backend
from attnspec.backends.check import check_backend
from attnspec.backends.deviation import Deviation
from attnspec.backends.errors import BackendError
from attnspec.backends.names import FILE
from attnspec.backends.user.convention import Convention
from attnspec.backends.user.function import Settings, find, load_user

_KEYS: dict[str, type | tuple[type, ...]] = {
    "function": str,
    "program": str,
    "call_limit": (int, float),
    "array": str,
    "device": str,
    "dtypes": list,
    "layout": str,
    "mask": str,
    "axes": int,
    "returns": list,
    "accuracy": str,
    "names": dict,
    "dialect": dict,
    "companions": dict,
    "deviations": list,
    "versions": str,
    "ignore": list,
}
_OF_PROGRAM = {"program", "call_limit"}


def configured_backend(name: str, folder: Path, seconds: float) -> Backend:
    """Make the backend that an ``attnspec.toml`` describes.

    Parameters
    ----------
    name : str
        By which it was asked for.
    folder : Path
        Where the file is; modules are looked for there, and a program is run there.
    seconds : float
        How long an import may take.

    Raises
    ------
    BackendError
        When the file cannot be read, a key in it is not known, or what it says is not so.
    """
    table = _read(name, folder / FILE)
    if ("function" in table) == ("program" in table):
        raise BackendError(
            f"backend {name}: {FILE}: expected either function or program, got neither or both"
        )
    if "program" in table:
        return _program(name, folder, table)
    here = str(folder.resolve())
    if here not in sys.path:
        sys.path.insert(0, here)
    convention = Convention(
        names=table.get("names", {}),
        layout=table.get("layout", "BHSD"),
        mask=table.get("mask", "attend"),
        axes=table.get("axes"),
        returns=tuple(table.get("returns", ())),
    )
    fields: dict[str, Any] = {
        "companions": _companions(name, table.get("companions", {}), seconds),
        "dialect": table.get("dialect", {}),
        "deviations": tuple(_deviation(name, entry) for entry in table.get("deviations", ())),
        "ignore": tuple(table.get("ignore", ())),
    }
    fields |= {key: table[key] for key in ("accuracy", "versions") if key in table}
    settings = Settings(
        table.get("array", ""),
        table.get("device", ""),
        tuple(table.get("dtypes", ())),
        None if convention == Convention() else convention,
        fields,
    )
    return load_user(name, table["function"], settings, seconds)


def _read(name: str, path: Path) -> dict[str, Any]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BackendError(f"backend {name}: expected {path} to be TOML, got {error}") from error
    table = document.get("backend")
    if not isinstance(table, dict) or set(document) != {"backend"}:
        raise BackendError(f"backend {name}: {FILE}: expected one table [backend], got {', '.join(document)}")
    for key, thing in table.items():
        if key not in _KEYS:
            raise BackendError(f"backend {name}: {FILE}: got {key!r}, expected some of {', '.join(_KEYS)}")
        if not isinstance(thing, _KEYS[key]):
            kind = getattr(_KEYS[key], "__name__", "number")
            raise BackendError(f"backend {name}: {FILE}: {key}: expected a {kind}, got {thing!r}")
    return table


def _program(name: str, folder: Path, table: Mapping[str, Any]) -> Backend:
    from attnspec.backends.program.program import CALL_LIMIT, program_backend

    other = set(table) - _OF_PROGRAM
    if other:
        raise BackendError(
            f"backend {name}: {FILE}: got {', '.join(sorted(other))}, "
            "expected a program to say the rest itself"
        )
    seconds = float(table.get("call_limit", CALL_LIMIT))
    backend = program_backend(name, table["program"], seconds=seconds, folder=folder)
    check_backend(name, backend)
    return backend


def _companions(name: str, table: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    for operation in table:
        if operation not in OPERATIONS:
            raise BackendError(
                f"backend {name}: {FILE}: companions: got {operation!r}, "
                f"expected some of {', '.join(OPERATIONS)}"
            )
    return {operation: find(name, str(place), seconds)[1] for operation, place in table.items()}


def _deviation(name: str, entry: Any) -> Deviation:
    known = {"rules", "reason", "source", "dtypes", "outputs", "versions", "groups"}
    if not isinstance(entry, dict) or not {"rules", "reason", "source"} <= set(entry) <= known:
        raise BackendError(
            f"backend {name}: {FILE}: deviations: expected rules, reason, source and perhaps "
            f"dtypes, outputs, versions, groups, got {entry!r}"
        )
    settled: dict[str, Any] = {
        key: tuple(thing) if isinstance(thing, list) else thing for key, thing in entry.items()
    }
    return Deviation(**settled)
