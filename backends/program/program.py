"""A backend that runs a program in any language, over the protocol of ``conformance/protocol.md``."""

import atexit
import contextlib
import os
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from attnspec import OPERATIONS
from attnspec.backends.backend import Backend, no_attention
from attnspec.backends.errors import BackendError, Broken, Late
from attnspec.backends.library.library import array_api_library
from attnspec.backends.program.process import Process
from attnspec.backends.program.protocol import (
    HELLO,
    STOP,
    Handshake,
    as_function,
    fingerprint,
    parse_handshake,
    read_answer,
    write_call,
)
from attnspec.reference.numpy_namespace import xp

#: Time limits in seconds: of one call, and of the start of the program.
CALL_LIMIT, START_LIMIT = 20.0, 60.0
#: Number of calls without an answer in time after which the program is not called again.
_MOST_HANGS = 5


def program_backend(
    name: str, command: str, *, seconds: float = CALL_LIMIT, folder: Path | None = None
) -> Backend:
    """Start a program, and make a backend from its handshake."""
    program = Program(name, words_of(name, command), seconds, folder)
    atexit.register(program.close)
    said = program.handshake
    numbers = count(1)
    functions = {
        operation: as_function(
            operation, options, program.run, numbers if operation in said.captures else None
        )
        for operation, options in said.operations.items()
    }
    attention = functions.pop("attention", no_attention)
    library = array_api_library("program", f"{said.name} {said.version}".strip() or "program", xp)
    declared: dict[str, Any] = {"dialect": said.dialect, "claims": said.claims, "notes": said.notes}
    # The protocol has one call at a time.
    return Backend(name, library, attention, said.dtypes, functions, **declared, concurrent=False)


def words_of(name: str, command: str) -> list[str]:
    """Split a command into words."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise BackendError(f"backend {name}: expected a command, got {command!r} ({error})") from error
    if not words:
        raise BackendError(f"backend {name}: expected a command, got none")
    return words


class Program:
    """A program that is restarted after an error."""

    def __init__(self, name: str, words: list[str], seconds: float, place: Path | None = None) -> None:
        self._words, self._seconds, self._name, self._place = words, seconds, name, place
        self._process: Process | None = None
        self._folder = Path(tempfile.mkdtemp(prefix="attnspec-"))
        self._number = 0
        #: Calls that had no answer in time; they are not repeated.
        self._hung: dict[tuple[str, ...], str] = {}
        try:
            self._start()
        except Broken as broken:
            self.close()
            raise BackendError(
                f"backend {name}: hello: expected an answer, but the program {broken}"
            ) from broken
        except BackendError:
            self.close()
            raise

    def run(
        self, operation: str, arguments: Mapping[str, Any], captured: int = 0
    ) -> NDArray[Any] | tuple[NDArray[Any], ...]:
        """Make one call."""
        _empty(self._folder)  # no result may be left from an earlier call
        self._number += 1
        line = write_call(self._number, operation, arguments, self._folder, str(self._folder), captured)
        want = OPERATIONS[operation].wanted(arguments)
        call = (fingerprint(line, self._folder), *want)
        if call in self._hung:
            raise Broken(self._hung[call])
        if len(self._hung) >= _MOST_HANGS:
            raise Broken(f"is not called again: {len(self._hung)} calls had no answer in {self._seconds:g} s")
        try:
            process = self._process or self._start()
            process.send(line)
            parts = read_answer(process.receive(self._seconds), self._number, want, self._folder)
        except BackendError as error:
            raise Broken(f"could not be restarted: {error}") from error
        except Broken as broken:
            if isinstance(broken, Late):
                self._hung[call] = str(broken)
            self._discard()
            raise
        return parts if len(parts) > 1 else parts[0]

    def close(self) -> str:
        """Stop the program; return how it ended, empty if with status 0."""
        process, self._process = self._process, None
        ended = process.stop(STOP) if process is not None else ""
        shutil.rmtree(self._folder, ignore_errors=True)
        return ended

    def _start(self) -> Process:
        environment = {**os.environ, "ATTNSPEC_FOLDER": str(self._folder)}
        process = Process(self._words, self._place, environment=environment)
        try:
            process.send(HELLO)
            self.handshake: Handshake = parse_handshake(self._name, process.receive(START_LIMIT))
        except BaseException:
            process.stop()
            raise
        self._process = process
        return process

    def _discard(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.stop()


def _empty(folder: Path) -> None:
    """Remove what is in a folder, or make it.

    The folder itself must not be made anew: a confined program is permitted to use this one.
    """
    if folder.is_symlink() or not folder.is_dir():
        folder.unlink(missing_ok=True)
        folder.mkdir()
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                path.unlink()
