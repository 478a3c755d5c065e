"""Reads files that others wrote: regular ones of a limited size, whose objects hold each key once."""

import json
import os
import stat
import tomllib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: The most bytes that are read of a file.
MOST = 2**28
#: The most bytes of a file of TOML, whose parser is slow.
_MOST_OF_TOML = 2**23


def read_bytes(path: Path, most: int = MOST) -> bytes:
    """Return the bytes of a regular file. Opening a pipe does not wait for its writer."""
    place = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(place, "rb") as file:
        status = os.fstat(place)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{path}: expected a regular file, got a folder, a pipe or a device")
        if status.st_size > most or len(data := file.read(most + 1)) > most:
            raise OSError(f"{path}: expected at most {most} bytes, got more")
    return data


def read_text(path: Path, most: int = MOST) -> str:
    """Return the text of a regular file in UTF-8."""
    return read_bytes(path, most).decode("utf-8").replace("\r\n", "\n")


def parse_json(text: str, *, constant: Callable[[str], Any] | None = None) -> Any:
    """Parse JSON. A key that occurs twice and nesting that is too deep are a `ValueError`.

    `constant` makes a value of NaN and infinities, as in `json.loads`.
    """
    try:
        return json.loads(text, object_pairs_hook=_object_of, parse_constant=constant)
    except RecursionError:
        raise ValueError("expected less nesting") from None


def parse_toml(path: Path) -> dict[str, Any]:
    """Parse a file of TOML. Nesting that is too deep is a `ValueError`."""
    try:
        return tomllib.loads(read_text(path, _MOST_OF_TOML))
    except RecursionError:
        raise ValueError("expected less nesting") from None


def _object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of its pairs, in which no key may occur twice."""
    result = dict(pairs)
    if len(result) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"expected each key of an object once, got {twice[:80]!r} again")
    return result
