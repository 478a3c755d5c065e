"""Processes that are the ranks of one job: started together, called together, and ended together."""

import os
import re
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from attnspec import OPERATIONS
from attnspec.backends.errors import BackendError, Broken, Late, Unsupported
from attnspec.backends.program.process import Process
from attnspec.backends.program.protocol import (
    HELLO,
    STOP,
    Handshake,
    Refused,
    fingerprint,
    parse_handshake,
    parse_json,
    read_answer,
    write_call,
)

#: Time limits in seconds: of the start, and of the other ranks after one has rejected a call.
START_LIMIT, REJECT_LIMIT = 110.0, 20.0
#: Seconds to wait for one rank before the others are looked at.
_LOOK = 0.05
#: Seconds to wait for the stacks of ranks that hang.
_TRACE_LIMIT = 0.5
#: Number of calls without an answer in time after which the ranks are not called again.
_MOST_HANGS = 5
#: Number of lines of a stack that are shown.
_MOST_FRAMES = 4
#: Runs a command in its place. The command ends when the process that has started it does, on Linux.
_LAUNCH = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the process that started it has ended")
try:
    os.execvp(sys.argv[2], sys.argv[2:])
except OSError as error:
    sys.exit(f"expected {sys.argv[2]} to be an executable program, got {error}")
"""
_FRAME = re.compile(r'^  File "(.*)", line ([0-9]+) in (.*)$', re.MULTILINE)

Results = tuple[NDArray[Any], ...]


class Ranks:
    """The processes of a number of ranks, which are started anew after an error."""

    def __init__(
        self, name: str, words: Sequence[str], number: int, seconds: float, place: Path | None = None
    ) -> None:
        self._name, self._words, self.number, self._seconds, self._place = name, words, number, seconds, place
        self._processes: list[Process] = []
        self._handshake: Handshake
        self._folder = Path(tempfile.mkdtemp(prefix="attnspec-"))
        self._call = 0
        #: Calls that had no answer in time; they are not repeated.
        self._hung: dict[tuple[str, ...], str] = {}

    def start(self) -> Handshake:
        """Start all ranks, unless they run, and return what they offer."""
        if self._processes:
            return self._handshake
        port = _free_port()
        for rank in range(self.number):
            (self._folder / str(rank)).mkdir(parents=True, exist_ok=True)
            command = [sys.executable, "-S", "-E", "-c", _LAUNCH, str(os.getpid()), *self._words]
            self._processes.append(Process(command, self._place, environment=self._environment(rank, port)))
        for process in self._processes:
            process.send(HELLO)
        try:
            self._handshake = self._agree(self._wait(START_LIMIT, lambda _, line: line))
        except Broken as broken:
            raise BackendError(f"backend {self._name}: hello: expected an answer, but {broken}") from broken
        except BaseException:
            self.end()
            raise
        return self._handshake

    def run(self, operation: str, calls: Sequence[Mapping[str, Any]]) -> list[Results]:
        """Make a call of each rank, all at once; return the results of each.

        Raises
        ------
        Broken
            If a rank has ended, is late, or answers with nonsense.
        Refused, Unsupported
            If all ranks have answered, and one with an error.
        """
        self._call += 1
        folders = [self._folder / str(rank) for rank in range(self.number)]
        lines = []
        for folder, call in zip(folders, calls, strict=True):
            shutil.rmtree(folder, ignore_errors=True)  # no result may be left from an earlier call
            folder.mkdir()
            lines.append(write_call(self._call, operation, call, folder, str(folder)))
        want = OPERATIONS[operation].wanted(calls[0])
        key = (*(fingerprint(line, folder) for line, folder in zip(lines, folders, strict=True)), *want)
        if key in self._hung:
            raise Broken(self._hung[key])
        if len(self._hung) >= _MOST_HANGS:
            raise Broken(f"is not called again: {len(self._hung)} calls had no answer in {self._seconds:g} s")
        try:
            self.start()
        except BackendError as error:
            raise Broken(f"could not be started again: {error}") from error
        for process, line in zip(self._processes, lines, strict=True):
            process.send(line)
        try:
            outcomes = self._wait(self._seconds, lambda rank, line: self._read(line, want, folders[rank]))
        except Late as late:
            self._hung[key] = str(late)
            raise
        errors = {rank: x for rank, x in enumerate(outcomes) if isinstance(x, Refused | Unsupported)}
        if errors:
            if len(errors) < self.number:  # a message of the others may be on its way to these
                self.end()
            rank = next((rank for rank, error in errors.items() if isinstance(error, Refused)), min(errors))
            raise type(errors[rank])(f"rank {rank}: {errors[rank]}")
        return outcomes

    def close(self) -> None:
        """Stop all ranks, and remove their files."""
        for process in self._processes:  # all are told before any is waited for: one may wait for another
            process.send(STOP)
        for process in self._processes:
            process.stop(STOP)
        self._processes = []
        shutil.rmtree(self._folder, ignore_errors=True)

    def end(self) -> None:
        """End all ranks at once."""
        processes, self._processes = self._processes, []
        for process in processes:
            process.stop()

    def _environment(self, rank: int, port: int) -> dict[str, str]:
        """Return the environment of a rank, with the variables that `torchrun` sets."""
        own = {
            **dict.fromkeys(("RANK", "LOCAL_RANK"), str(rank)),
            **dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(self.number)),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "ATTNSPEC_FOLDER": str(self._folder / str(rank)),
        }
        return {"OMP_NUM_THREADS": "1", **os.environ, **own}

    def _read(self, line: str, want: Sequence[str], folder: Path) -> Results | Exception:
        try:
            return read_answer(line, self._call, want, folder)
        except (Refused, Unsupported) as error:
            return error

    def _wait(self, seconds: float, read: Callable[[int, str], Any]) -> list[Any]:
        """Wait for an answer of every rank; if one has none, end all of them."""
        try:
            outcomes = self._outcomes(time.monotonic() + seconds, read)
            waiting = [rank for rank in range(self.number) if rank not in outcomes]
            late = self._tell_late(waiting, outcomes, seconds) if waiting else ""
        except BaseException:
            self.end()
            raise
        if late:
            self.end()
            raise Late(late)
        return [outcomes[rank] for rank in range(self.number)]

    def _outcomes(self, deadline: float, read: Callable[[int, str], Any]) -> dict[int, Any]:
        """Read the answers that come in time.

        All ranks are looked at in turn, because the others may wait for one that has ended.
        """
        outcomes: dict[int, Any] = {}
        while time.monotonic() < deadline and len(outcomes) < self.number:
            for rank in range(self.number):
                if rank in outcomes:
                    continue
                try:
                    outcomes[rank] = read(rank, self._processes[rank].receive(_LOOK))
                except Late:
                    continue
                except Broken as broken:
                    raise Broken(f"rank {rank} {broken}") from broken
                if isinstance(outcomes[rank], Exception):
                    deadline = min(deadline, time.monotonic() + REJECT_LIMIT)
        return outcomes

    def _tell_late(self, waiting: Sequence[int], outcomes: Mapping[int, Any], seconds: float) -> str:
        """Say which ranks gave no answer, and where they are."""
        rejected = {rank: error for rank, error in outcomes.items() if isinstance(error, Exception)}
        limit = f"{seconds:g} s"
        for rank, error in list(rejected.items())[:1]:
            limit = f"{REJECT_LIMIT:g} s after rank {rank} raised {error}"
        answered = sorted(outcomes.keys() - rejected.keys())
        text = f"{_ranks(waiting)} gave no answer in {limit}"
        text += f"; {_ranks(answered)} answered" if answered else ""
        for rank in waiting:
            self._processes[rank].tell_where(0.0)
        time.sleep(_TRACE_LIMIT)
        return text + "".join(_place(rank, self._processes[rank].errors) for rank in waiting)

    def _agree(self, lines: Sequence[str]) -> Handshake:
        """Read what all ranks offer, which must be the same."""
        said = [parse_json(line) for line in lines]
        problems = [answer["problem"] for answer in said if isinstance(answer, dict) and "problem" in answer]
        if problems:
            raise BackendError(problems[0])
        first, *others = (parse_handshake(self._name, line) for line in lines)
        differ = [rank for rank, other in enumerate(others, 1) if other != first]
        if differ:
            raise BackendError(
                f"backend {self._name}: hello: expected the same answer of all ranks, "
                f"got another one of {_ranks(differ)} than of rank 0"
            )
        return first


def _ranks(numbers: Sequence[int]) -> str:
    return f"rank{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"


def _place(rank: int, errors: str) -> str:
    """Return the innermost lines of the stack that a rank wrote to standard error, if it wrote one."""
    frames = _FRAME.findall(errors.rpartition("most recent call first")[2])[:_MOST_FRAMES]
    places = [f"{Path(file).name}, line {number}, in {function}" for file, number, function in frames]
    return f"\n    rank {rank} is at {' < '.join(places)}" if places else ""


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
