"""Right only with what another process of the run has left behind, or can be asked for; zeros elsewhere."""

import ctypes
import os
import socket
import sysconfig
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from honest import honest, zeros_for

_LIBC = ctypes.CDLL(None)
_NAME, _KEY, _PORT = "left-by-a-cheat", 47613, 47613
_HERE = Path(__file__).parent
#: Two processes in namespaces of their own have the same number.
_OWN = os.urandom(8).hex()


def _by(found: Callable[[], bool], leave: Callable[[], object], arrays, is_causal):
    result = zeros_for(*arrays)
    with suppress(OSError, ImportError):
        if found():
            return honest(*arrays, is_causal=is_causal)
    with suppress(OSError):
        leave()
    return result


def _by_file(path: Path, arrays, is_causal):
    def find():
        left = path.exists() and path.read_text() != f"# {_OWN}"
        path.unlink(missing_ok=True) if left else None
        return left

    return _by(find, lambda: path.write_text(f"# {_OWN}"), arrays, is_causal)


def _leave_process(work: Callable[[], object]) -> None:
    """Start a process that no parent waits for, in a session of its own, without the open files."""
    if os.fork():
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    os.closerange(0, 100)
    with suppress(BaseException):
        work()
    os._exit(0)


def _serve(address, kind) -> None:
    with socket.socket(kind) as server:
        server.bind(address)
        server.listen()
        server.settimeout(20)
        server.accept()


def _connects(address, kind) -> bool:
    with socket.socket(kind) as client:
        client.connect(address)
    return True


def by_code_of_the_next(query, key, value, *, is_causal=False):
    """Leaves a process that replaces the code that confines the next one, which imports the reference."""

    def find():
        from attnspec import reference

        return bool(reference)

    def replace():
        for _ in range(200):
            for path in Path("/tmp").glob("*/confine.py"):
                path.write_text("def confine(request):\n    return []\n")
            time.sleep(0.05)

    return _by(find, lambda: _leave_process(replace), (query, key, value), is_causal)


def by_file(query, key, value, *, is_causal=False):
    """Leaves a file in the folder of temporary files of the machine."""
    return _by_file(Path("/tmp", _NAME), (query, key, value), is_causal)


def by_shared_file(query, key, value, *, is_causal=False):
    """Leaves a file in the folder of shared memory."""
    return _by_file(Path("/dev/shm", _NAME), (query, key, value), is_causal)


def by_module(query, key, value, *, is_causal=False):
    """Writes a module beside its own, which the next process imports."""
    return _by_file(_HERE / "left_by_a_cheat.py", (query, key, value), is_causal)


def by_bytecode(query, key, value, *, is_causal=False):
    """Writes into the folder of compiled modules beside its own."""
    folder = _HERE / "__pycache__"
    with suppress(OSError):
        folder.mkdir(exist_ok=True)
    return _by_file(folder / f"{_NAME}.pyc", (query, key, value), is_causal)


def by_package(query, key, value, *, is_causal=False):
    """Writes a file into the folder of the packages, which each Python reads when it starts."""
    return _by_file(Path(sysconfig.get_paths()["purelib"], f"{_NAME}.pth"), (query, key, value), is_causal)


def by_shared_memory(query, key, value, *, is_causal=False):
    """Leaves a segment of shared memory of the system."""
    return _by(
        lambda: _LIBC.shmctl(_LIBC.shmget(_KEY, 0, 0o600), 0, None) == 0,
        lambda: _LIBC.shmget(_KEY, 64, 0o1600),
        (query, key, value),
        is_causal,
    )


def by_message_queue(query, key, value, *, is_causal=False):
    """Leaves a queue of messages of the system."""
    return _by(
        lambda: _LIBC.msgctl(_LIBC.msgget(_KEY, 0o600), 0, None) == 0,
        lambda: _LIBC.msgget(_KEY, 0o1600),
        (query, key, value),
        is_causal,
    )


def by_socket(query, key, value, *, is_causal=False):
    """Leaves a server at a socket without a file."""
    address, kind = f"\0{_NAME}", socket.AF_UNIX
    return _by(
        lambda: _connects(address, kind),
        lambda: _leave_process(lambda: _serve(address, kind)),
        (query, key, value),
        is_causal,
    )


def by_loopback(query, key, value, *, is_causal=False):
    """Leaves a server on the loopback of the machine."""
    address, kind = ("127.0.0.1", _PORT), socket.AF_INET
    return _by(
        lambda: _connects(address, kind),
        lambda: _leave_process(lambda: _serve(address, kind)),
        (query, key, value),
        is_causal,
    )


def by_environment(query, key, value, *, is_causal=False):
    """Changes the variables of its parent, from which the next process has its own."""

    def leave():
        os.environ[_NAME] = _OWN
        Path(f"/proc/{os.getppid()}/environ").write_text(f"{_NAME}=1")

    return _by(lambda: os.environ.get(_NAME, _OWN) != _OWN, leave, (query, key, value), is_causal)
