"""What a function that is not trusted must not see: this package, on disk and in memory.

``python -m attnspec.backends.untrusted.hidden COMMAND`` confines its process and becomes a program. What the
operating system confines stays confined in the program and in all that it starts.
"""

import ctypes
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

import attnspec
from attnspec.backends.untrusted.confine import by_system, supervise

_SET_DUMPABLE = 4
#: The variable with the folder of the calls, to which a program must write.
FOLDER = "ATTNSPEC_FOLDER"
#: The beginnings of environment variables that say that a process belongs to a test.
_TELLING = ("ATTNSPEC", "PYTEST", "COVERAGE", "COV_CORE", "HYPOTHESIS", "NOX", "TOX", "CI")


@cache
def hidden_places() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the folders and the files of this package, wherever links of it lead."""
    top = Path(attnspec.__file__).parent
    paths = {path.resolve() for folder, _, names in os.walk(top) for path in (Path(folder, x) for x in names)}
    files = {path for path in paths if path.is_file()}
    folders = {Path(folder).resolve() for folder, _, _ in os.walk(top)} | {path.parent for path in files}
    clone = Path(attnspec.__file__).resolve().parents[1]
    values = clone / "conformance" / "suite" / "expected"  # a wheel has a part of them
    if values.is_dir():
        folders.add(values)
        files |= {*values.iterdir()}
    # A checkout has the same files in its history.
    history = clone / ".git"
    if history.is_file():
        with suppress(OSError, ValueError):
            place = history.read_text(encoding="utf-8").partition(": ")[2].strip()
            folders.add(Path(place).resolve().parents[1])
    elif history.is_dir():
        folders.add(history)
    return tuple(map(str, sorted(folders))), tuple(map(str, sorted(files)))


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
    scratch = tempfile.mkdtemp()
    _, own = supervise(lambda: shutil.rmtree(scratch, ignore_errors=True))
    by_system(list(folders), [scratch, *own, *filter(None, [os.environ.get(FOLDER)])])
    environment = plain_environment(os.environ) | {"TMPDIR": scratch}
    os.execvpe(sys.argv[1], sys.argv[1:], environment)  # noqa: S606 - the command is the user's


if __name__ == "__main__":
    main()
