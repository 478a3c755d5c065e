"""Backends from a file: ``attnspec.toml``, or ``[tool.attnspec]`` in ``pyproject.toml``."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnspec.backends.errors import BackendError

if TYPE_CHECKING:
    from attnspec.backends.backend import Backend
    from attnspec.backends.user.settings import Settings

#: The file that makes a folder a backend.
FILE = "attnspec.toml"
#: The file that may have a table for a backend.
PROJECT = "pyproject.toml"
_PART = re.compile(r"^\s*\[tool\.attnspec\b", re.MULTILINE)


def find_configuration(folder: Path) -> Path | None:
    """Find the configuration in a folder or in its nearest parent that has one.

    Examples
    --------
    >>> from pathlib import Path
    >>> from attnspec.backends.user.configuration import find_configuration
    >>> find_configuration(Path("/")) is None
    True
    """
    here = folder.resolve()
    return next((found for one in (here, *here.parents) if (found := configuration_in(one))), None)


def configuration_in(folder: Path) -> Path | None:
    """Return the configuration in a folder itself, or None."""
    if (folder / FILE).is_file():
        return folder / FILE
    project = folder / PROJECT
    if project.is_file() and _PART.search(project.read_text(encoding="utf-8", errors="replace")):
        return project
    return None


def configured_function(folder: Path) -> str:
    """Return the function of the configuration that `find_configuration` finds, or an empty string.

    It is the name of the backend, under which `load` finds it with its configuration.
    """
    path = find_configuration(folder)
    return str(_table(str(folder), path).get("function", "")) if path else ""


def configured_backend(name: str, path: Path, over: "Settings | None" = None) -> "Backend":
    """Make the backend that a configuration describes."""
    from attnspec.backends.user.function import load_user
    from attnspec.backends.user.keys import settings_of_table
    from attnspec.backends.user.place import put_on_path
    from attnspec.backends.user.settings import Settings

    table = read_configuration(name, path)
    if "program" in table:
        return _program(name, path, table)
    put_on_path(path.parent)
    settings = settings_of_table(f"backend {name}: {path.name}", name, table)
    return load_user(name, table["function"], (over or Settings()).over(settings))


def read_configuration(name: str, path: Path) -> dict[str, Any]:
    """Read the table of a configuration, and check its keys and the types of its values."""
    from attnspec.backends.user.keys import check_keys

    table = _table(name, path)
    check_keys(f"backend {name}: {path.name}", table)
    if ("function" in table) == ("program" in table):
        raise BackendError(
            f"backend {name}: {path.name}: expected either function or program, "
            f"got {'both' if 'function' in table else 'neither'}"
        )
    return table


def _table(name: str, path: Path) -> dict[str, Any]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BackendError(f"backend {name}: expected {path} to be TOML, got {error}") from error
    before = "" if path.name == FILE else "tool.attnspec."
    if before:
        document = document["tool"]["attnspec"]
    table = document.get("backend")
    if not isinstance(table, dict) or set(document) != {"backend"}:
        raise BackendError(
            f"backend {name}: {path.name}: expected one table [{before}backend], "
            f"got {', '.join(document) or 'none'}"
        )
    return table


def _program(name: str, path: Path, table: Mapping[str, Any]) -> "Backend":
    from attnspec.backends.check import check_backend
    from attnspec.backends.program.program import CALL_LIMIT, program_backend

    other = set(table) - {"program", "call_limit"}
    if other:
        raise BackendError(
            f"backend {name}: {path.name}: expected only call_limit beside program, "
            f"got {', '.join(sorted(other))}; a program declares the rest in its handshake"
        )
    seconds = float(table.get("call_limit", CALL_LIMIT))
    backend = program_backend(name, table["program"], seconds=seconds, folder=path.parent)
    check_backend(name, backend)
    return backend
