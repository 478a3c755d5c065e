"""Answer requests in a copy of this process. After a crash, the next copy needs no import.

The process loads the backend and never calls it. It forks a copy, which makes the calls until it ends; the
process reports how, and forks the next. A copy of a process with threads or an open device may hang, so this
is done only where the import of the backend has left neither.
"""

import faulthandler
import gc
import os
import select
import signal
import sys
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NoReturn

from attnspec.backends.program.process import end_of_process

#: Devices that every process may have open.
_ORDINARY = ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts/", "shm/")
#: Milliseconds to wait for the end of a copy that has closed its pipe.
_END_LIMIT = 1000

#: Writes the answer to a request on a pipe.
Put = Callable[[bytes, int], None]


def threads() -> int:
    """Return the number of threads of this process; -1 where it is not known."""
    try:
        return len([*Path("/proc/self/task").iterdir()])
    except OSError:
        return -1


def can_be_copied(before: int) -> bool:
    """Whether a copy of this process can make calls: on Linux, without new threads and devices."""
    if sys.platform != "linux" or threads() != before or _devices():
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
        os.close(os.memfd_create("stack"))
    except OSError:
        return False
    return True


def _devices() -> list[str]:
    """List the devices that this process has open, such as those of a GPU."""
    found = []
    for number in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found.append(str(number.readlink()))
    return [path for path in found if path.startswith("/dev/") and not path[5:].startswith(_ORDINARY)]


def serve_in_copies(
    requests: BinaryIO,
    answers: int,
    put: Put,
    ended: Callable[[str, str], None],
    prepare: Callable[[bytes], None],
) -> NoReturn:
    """Answer requests until there are no more, then end this process."""
    copy: Copy | None = None
    current: list[int] = []

    def forward(number: int, _: object) -> None:
        for pid in current:
            with suppress(OSError):
                os.kill(pid, number)

    faulthandler.unregister(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, forward)  # asks for the stack of a call that hangs
    for line in requests:
        with suppress(Exception):  # the copy says it
            prepare(line)
        if copy is None:
            copy = start(requests, answers, put)
            current[:] = [copy.pid]
        answer = copy.answer(line, requests)
        if answer:
            write_all(answers, answer)
        else:
            current.clear()
            ended(copy.end_and_describe(), copy.stack())
            copy = None
    if copy is not None:
        copy.end()
    os._exit(0)


@dataclass
class Copy:
    """A running copy."""

    pid: int
    pidfd: int
    down: int
    up: int
    trace: int

    def answer(self, line: bytes, requests: BinaryIO) -> bytes:
        """Pass on a request, and return the answer; empty if the copy ends first."""
        with suppress(BrokenPipeError):
            write_all(self.down, line)
        poll = select.poll()
        poll.register(self.up, select.POLLIN)
        poll.register(self.pidfd, select.POLLIN)
        poll.register(requests, 0)  # only its end
        got = b""
        while not got.endswith(b"\n"):
            ready = dict(poll.poll())
            if requests.fileno() in ready:
                self.end()
                os._exit(0)
            if self.up not in ready:
                return b""
            if not (some := os.read(self.up, 65536)):
                poll.unregister(self.up)
                poll.poll(_END_LIMIT)
                return b""
            got += some
        return got

    def end_and_describe(self) -> str:
        """End it, and return how it ended; free its files."""
        with suppress(OSError):
            # One that ended by itself is only waited for.
            os.kill(self.pid, 0 if select.select([self.pidfd], [], [], 0)[0] else signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        with suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)  # what it has started
        for number in (self.pidfd, self.down, self.up):
            os.close(number)
        return end_of_process(status)

    def stack(self) -> str:
        """Return the stack that it wrote as it crashed, and show it on standard error; empty if none."""
        found = os.pread(self.trace, 1 << 16, 0)
        os.close(self.trace)
        with suppress(OSError):
            write_all(2, found)
        return found.decode(errors="replace")

    def end(self) -> None:
        """End it and what it has started."""
        with suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)


def start(requests: BinaryIO, answers: int, put: Put) -> Copy:
    """Fork a copy that answers what it is sent."""
    (read, down), (up, write) = os.pipe(), os.pipe()
    trace = os.memfd_create("stack")
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # the import may have closed it
            stream.flush()
    gc.freeze()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX and Python 3.12 warn of threads; there are no new ones
        pid = os.fork()
    if pid == 0:
        for number in (down, up, answers):
            os.close(number)
        requests.close()
        _work(os.fdopen(read, "rb"), write, trace, put)
    with suppress(OSError):  # the copy does the same; the first of the two succeeds
        os.setpgid(pid, pid)
    os.close(read)
    os.close(write)
    return Copy(pid, os.pidfd_open(pid), down, up, trace)


def _work(lines: Iterable[bytes], write: int, trace: int, put: Put) -> NoReturn:
    """Answer until the pipe is closed."""
    status = 1
    try:
        with suppress(OSError):
            os.setpgid(0, 0)
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
        faulthandler.enable(file=trace, all_threads=False)
        faulthandler.register(signal.SIGUSR1, file=2, all_threads=False)
        for line in lines:
            put(line, write)
        status = 0
    finally:
        os._exit(status)


def write_all(pipe: int, line: bytes) -> None:
    """Write a whole line."""
    left = memoryview(line)
    while left:
        left = left[os.write(pipe, left) :]
