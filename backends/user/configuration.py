"""Configurations of backends, ``attnspec.toml`` or ``[tool.attnspec]`` in ``pyproject.toml``, and their keys.

This module imports little, because every command looks for a configuration.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attnspec.backends.errors import BackendError
from attnspec.backends.user.place import near
from attnspec.reading import parse_toml, read_bytes

#: The file that makes a folder a backend.
FILE = "attnspec.toml"
#: The file that may have a table for a backend.
PROJECT = "pyproject.toml"
#: The options of the name of a backend, and what the name of an environment variable among them is.
OPTIONS = ("array", "device", "dtype", "ranks", "call_limit")
VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")
_PART = re.compile(r"^\s*\[tool\.attnspec\b", re.MULTILINE)
#: Key to the type of its value, and the words for it in messages.
_STRING, _LIST, _TABLE = (str, "a string"), (list, "a list"), (dict, "a table")
KEYS: Mapping[str, tuple[Any, str]] = {
    "function": _STRING,
    "program": _STRING,
    "call_limit": ((int, float), "a number"),
    "ranks": ((int, list), "an integer or a list of integers"),
    "operation": _STRING,
    "array": _STRING,
    "library": _STRING,
    "to_library": (object, "a function, or a string such as module:function"),
    "to_numpy": (object, "a function, or a string such as module:function"),
    "device": _STRING,
    "dtypes": _LIST,
    "layout": _STRING,
    "output_layout": _STRING,
    "lse_layout": _STRING,
    "mask": _STRING,
    "axes": (int, "3 or 4"),
    "loop": (bool, "true or false"),
    "mask_of_entries": (bool, "true or false"),
    "mask_axes": (int, "an integer"),
    "least_mask_axes": (int, "an integer"),
    "mask_pairs": (bool, "true or false"),
    "mask_of_keys": ((bool, str), 'true, false or "also"'),
    "sizes": _TABLE,
    "open_side": (int, "an integer"),
    "window": _STRING,
    "per_entry": (bool, "true or false"),
    "one_query": ((bool, str), 'true, false or "axis"'),
    "at_length": (bool, "true or false"),
    "writes": (bool, "true or false"),
    "slopes": _STRING,
    "signed_slopes": (bool, "true or false"),
    "scales": _STRING,
    "encoding": _STRING,
    "codes": _STRING,
    "integers": _STRING,
    "shapes": _TABLE,
    "lists": _STRING,
    "inverse": (list, "a list of parameters"),
    "fixed": _TABLE,
    "past": (list, "a list of two parameters"),
    "module": _STRING,
    "takes_none": (list, "a list of parameters"),
    "causal_in_mask": (bool, "true or false"),
    "depths": (list, "a list of integers"),
    "multiple": ((int, list), "an integer or a list of two integers"),
    "lengths": _STRING,
    "heads": _STRING,
    "value_depth": _STRING,
    "one_width": (bool, "true or false"),
    "bias_dtype": _STRING,
    "requires": _LIST,
    "always": _TABLE,
    "given": (list, "a list of options"),
    "returns": _LIST,
    "accuracy": _STRING,
    "profile": _STRING,
    "names": _TABLE,
    "ignore": _LIST,
    "guesses": _LIST,
    "dialect": _TABLE,
    "companions": _TABLE,
    "deviations": _LIST,
    "claims": (list, "a list of rules"),
    "concurrent": (bool, "true or false"),
    "versions": _STRING,
}
#: The keys that describe a function, which a decorator may have.
FUNCTION_KEYS = tuple(key for key in KEYS if key not in ("function", "program", "call_limit", "ranks"))


def find_configuration(folder: Path) -> Path | None:
    """Find the configuration in a folder or in its nearest parent that has one."""
    here = folder.resolve()
    return next((path for place in (here, *here.parents) if (path := configuration_in(place))), None)


def configuration_in(folder: Path) -> Path | None:
    """Return the configuration in a folder itself, or None."""
    if (folder / FILE).is_file():
        return folder / FILE
    project = folder / PROJECT
    return project if project.is_file() and _PART.search(_text_of(project)) else None


def _text_of(project: Path) -> str:
    try:
        return read_bytes(project).decode(errors="replace")
    except OSError as error:
        raise BackendError(f"expected {project} to be TOML, got {error}") from error


def configuration_of(place: str) -> Path | None:
    """Find the configuration of a folder, or that of ``module:function`` if it is found from here."""
    if (path := configuration_in(Path(place))) is not None:
        return path
    own, place = (x.removeprefix("./") for x in (function_of_configuration(Path.cwd()), place))
    here = ":" in place and own == place
    return find_configuration(Path.cwd()) if here else None


def function_of_configuration(folder: Path) -> str:
    """Return the function of the configuration that `find_configuration` finds, or an empty string.

    It is the name of the backend, under which `load` finds it with its configuration.
    """
    path = find_configuration(folder)
    return str(_document(str(folder), path).get("backend", {}).get("function", "")) if path else ""


def read_matrix(path: Path) -> dict[str, list[str]] | None:
    """Read the backends and the options of which a configuration asks for each combination; None for none."""
    matrix = _document(str(path), path).get("matrix")
    if matrix is None:
        return None
    where, known = f"{path}: matrix", ("backend", *OPTIONS)
    if not isinstance(matrix, dict):
        raise BackendError(f"{where}: expected a table, got {matrix!r}")
    lists = {key: [value] if isinstance(value, str) else value for key, value in matrix.items()}
    for key, words in lists.items():
        if key not in known and not VARIABLE.fullmatch(key):
            raise BackendError(
                f"{where}: expected {', '.join(known)} or a variable such as BLOCK_SIZE, "
                f"got {key!r}{near(key, known)}"
            )
        if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
            raise BackendError(f"{where}: {key}: expected a string or a list of strings, got {matrix[key]!r}")
    return lists


def read_configuration(name: str, path: Path) -> dict[str, Any]:
    """Read the table of a configuration, and check its keys and the types of its values."""
    table = read_table(name, path)
    check_keys(f"backend {name}: {path.name}", table)
    if ("function" in table) == ("program" in table):
        raise BackendError(
            f"backend {name}: {path.name}: expected either function or program, "
            f"got {'both' if 'function' in table else 'neither'}"
        )
    return table


def check_keys(where: str, table: Mapping[str, Any], known: tuple[str, ...] = tuple(KEYS)) -> None:
    """Refuse unknown keys and values of the wrong type."""
    for key, value in table.items():
        if key not in known:
            raise BackendError(f"{where}: expected some of {', '.join(known)}, got {key!r}{near(key, known)}")
        kind, words = KEYS[key]
        flag = kind is object or bool in (kind if isinstance(kind, tuple) else (kind,))
        if not isinstance(value, kind) or (isinstance(value, bool) and not flag):
            raise BackendError(f"{where}: {key}: expected {words}, got {value!r}")


def _document(name: str, path: Path) -> dict[str, Any]:
    try:
        document = parse_toml(path)
    except (OSError, ValueError) as error:
        raise BackendError(f"backend {name}: expected {path} to be TOML, got {error}") from error
    own: dict[str, Any] = document["tool"]["attnspec"] if path.name == PROJECT else document
    return own


def read_table(name: str, path: Path) -> dict[str, Any]:
    """Read the table of a backend in a configuration, without a check of its keys."""
    document = _document(name, path)
    before = "tool.attnspec." if path.name == PROJECT else ""
    table = document.get("backend")
    if not isinstance(table, dict) or not {*document} <= {"backend", "matrix"}:
        raise BackendError(
            f"backend {name}: {path.name}: expected one table [{before}backend], "
            f"got {', '.join(document) or 'none'}"
        )
    return table
