"""What a function that is not trusted must not see: this package, on disk and in memory.

``python -m attnspec.backends.untrusted.hidden COMMAND`` confines its process and becomes a program. What the
operating system confines stays confined in the program and in all that it starts.
"""

import ctypes
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

import attnspec
from attnspec.backends.untrusted.confine import by_system, end_with_parent

_SET_DUMPABLE = 4
#: The beginnings of environment variables that say that a process belongs to a test.
_TELLING = ("ATTNSPEC", "PYTEST", "COVERAGE", "COV_CORE", "HYPOTHESIS", "NOX", "TOX", "CI")


@cache
def hidden_places() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the folders and the files of this package, wherever links of it lead."""
    top = Path(attnspec.__file__).parent
    paths = {path.resolve() for folder, _, names in os.walk(top) for path in (Path(folder, x) for x in names)}
    files = {path for path in paths if path.is_file()}
    folders = {Path(folder).resolve() for folder, _, _ in os.walk(top)} | {path.parent for path in files}
    # A checkout has the same files in its history.
    history = Path(attnspec.__file__).resolve().parents[1] / ".git"
    if history.is_file():
        with suppress(OSError, ValueError):
            place = history.read_text(encoding="utf-8").partition(": ")[2].strip()
            folders.add(Path(place).resolve().parents[1])
    elif history.is_dir():
        folders.add(history)
    return tuple(map(str, sorted(folders))), tuple(map(str, sorted(files)))


def guarded_places() -> tuple[str, ...]:
    """Return the folders from which Python imports, to which the function must not write."""
    places = (sys.prefix, sys.base_prefix, *(path for path in sys.path if path))
    return tuple(dict.fromkeys(str(Path(path).resolve()) for path in places if Path(path).is_dir()))


def close_memory() -> bool:
    """Forbid other processes of this user to read or write the memory of this one. True if it is done.

    Only Linux offers this.
    """
    return sys.platform == "linux" and bool(ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0) == 0)


def plain_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Remove the variables that say that a process belongs to a test."""
    return {
        name: text
        for name, text in environment.items()
        if name != "_" and not any(name == start or name.startswith(f"{start}_") for start in _TELLING)
    }


def main() -> None:
    """Become the program whose command follows."""
    folders, _ = hidden_places()
    end_with_parent()
    by_system(list(folders), list(guarded_places()))
    os.execvpe(sys.argv[1], sys.argv[1:], plain_environment(os.environ))  # noqa: S606 - the command is the user's


if __name__ == "__main__":
    main()
