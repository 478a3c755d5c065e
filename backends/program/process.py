"""A process with line input and output, which may crash, hang or print anything."""

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from attnspec.backends.errors import BackendError, Broken, Late

#: Maximum number of bytes in one line of an answer.
LONGEST_LINE = 1 << 20
#: Maximum number of queued lines, and of bytes of standard error that are kept.
_MOST_LINES, _MOST_NOISE = 100, 1 << 16
#: Seconds after which it is seen that the process has ended.
_LOOK = 1.0
#: Seconds to wait for the process to end after the last message.
_STOP_LIMIT = 5.0


class Process:
    """A running program with line input and output."""

    def __init__(
        self,
        command: Sequence[str],
        folder: Path | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        leads: bool = False,
        supervised: bool = False,
        echo: bool = False,
    ) -> None:
        self._leads = leads
        self._supervised = supervised
        self._echo = echo
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the command is the user's
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=folder,
                env=environment,
                # `stop` ends the process and all that it has started. The program of a backend has its own
                # process group, but stays in the session of the judging process, and ends with it.
                start_new_session=leads,
                process_group=None if leads else 0,
            )
        except (OSError, ValueError) as error:
            raise BackendError(
                f"program: expected {command[0]} to be an executable program, got {error}"
            ) from error
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self._noise = b""
        self._readers = [
            threading.Thread(target=self._read_lines, args=(self._process.stdout,), daemon=True),
            threading.Thread(target=self._read_noise, args=(self._process.stderr,), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def send(self, line: str) -> None:
        """Write a line to its standard input; `receive` reports if the process has ended."""
        assert self._process.stdin is not None  # noqa: S101 - for the type checker: it is a pipe
        with contextlib.suppress(OSError):
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()

    def receive(self, seconds: float) -> str:
        """Read the next line of its standard output."""
        deadline = time.monotonic() + seconds
        ended = False
        while True:
            try:
                line = self._lines.get(timeout=min(_LOOK, max(0.0, deadline - time.monotonic())))
                break
            except queue.Empty:
                late = time.monotonic() >= deadline
                if ended or (late and not self.running):
                    raise Broken(f"{self.end()} before it answered{self.noise()}") from None
                if late:
                    raise Late(f"gave no answer in {seconds:g} s{self.noise()}") from None
                # What it has started may hold its output open. Its last lines may still be on their way.
                ended = not self.running
        if line is None:
            raise Broken(f"{self.end()} before it answered{self.noise()}")
        if not line.endswith(b"\n"):
            long = f"a line longer than {LONGEST_LINE} bytes"
            got = long if len(line) >= LONGEST_LINE else f"{_start(line)} without a newline"
            raise Broken(f"gave an incomplete answer: got {got}, and {self.end()}{self.noise()}")
        try:
            return line.decode().strip()
        except UnicodeDecodeError:
            raise Broken(f"answered with invalid UTF-8: got {_start(line)}{self.noise()}") from None

    @property
    def number(self) -> int:
        """Its number in the system."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    @property
    def errors(self) -> str:
        """The end of what it wrote to standard error."""
        self._readers[1].join(0.2 if self._process.poll() is not None else 0)
        return self._noise.decode(errors="replace")

    def tell_where(self, seconds: float) -> None:
        """Make a Python process write its stack to standard error, if it has registered a handler."""
        if hasattr(signal, "SIGUSR1"):
            with contextlib.suppress(OSError):
                self._process.send_signal(signal.SIGUSR1)
            time.sleep(seconds)

    def noise(self) -> str:
        """Quote the end of its standard error, for a message."""
        lines = self.errors.strip().splitlines()[-5:]
        return (
            "; its standard error ends:\n" + "\n".join(f"    {line[:200]}" for line in lines) if lines else ""
        )

    def stop(self, line: str = "") -> str:
        """Send a last line, then end it; return how it ended, empty if with status 0."""
        if line:
            self.send(line)
        with contextlib.suppress(OSError):
            assert self._process.stdin is not None  # noqa: S101 - for the type checker: it is a pipe
            self._process.stdin.close()
        if self._supervised:  # it ends all that was left behind, then itself
            self._process.terminate()
        try:
            status = self._process.wait(_STOP_LIMIT if line or self._supervised else 0)
        except subprocess.TimeoutExpired:
            status = None
        # End the processes that it has started, too.
        if self._leads:
            for member in _session(self._process.pid):
                with contextlib.suppress(OSError):
                    os.kill(member, signal.SIGKILL)
        with contextlib.suppress(OSError):
            if hasattr(os, "killpg"):
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()
        self._process.wait()
        for reader, pipe in zip(self._readers, (self._process.stdout, self._process.stderr), strict=True):
            reader.join(1.0)
            if pipe is not None and not reader.is_alive():
                pipe.close()
        if status is None:
            return f"did not end within {_STOP_LIMIT:g} s after stop"
        return end_of_process(status) if status else ""

    def end(self) -> str:
        """Return how it ended, or that it closed its standard output."""
        try:
            return end_of_process(self._process.wait(1.0))
        except subprocess.TimeoutExpired:
            return "closed its standard output"

    def _read_lines(self, pipe: IO[bytes]) -> None:
        """Queue the lines that it writes; drop lines when the queue is full."""
        while line := pipe.readline(LONGEST_LINE):
            if self._lines.qsize() < _MOST_LINES:
                self._lines.put(line)
        self._lines.put(None)

    def _read_noise(self, pipe: IO[bytes]) -> None:
        while some := os.read(pipe.fileno(), 65536):
            self._noise = (self._noise + some)[-_MOST_NOISE:]
            if self._echo:
                sys.stderr.buffer.write(some)
                sys.stderr.flush()


def _session(leader: int) -> list[int]:
    """List the processes of a session, on systems with /proc, including other process groups."""
    members = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError):
            # The fields after the name in brackets are state, parent, group and session.
            if stat.read_text(errors="replace").rpartition(")")[2].split()[3] == str(leader):
                members.append(int(stat.parent.name))
    return members


def end_of_process(status: int) -> str:
    """Say how a process ended, from its exit status, or from minus the number of the signal."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"


def _start(line: bytes) -> str:
    text = repr(line.strip()[:80])[1:]
    return text + ("..." if len(line) > 80 else "")
