"""Confines this process: what a judge knows cannot be read, imported or changed from here on.

It runs from its text, not from a file, and imports the standard library alone. What it may write is never
what a later process runs, and no other process of a run sees it.
"""

import ctypes
import os
import resource
import signal
import stat
import struct
import sys
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

#: Numbers of the system calls of Landlock, which are the same on every processor.
_CREATE, _ADD, _RESTRICT = 444, 445, 446
#: Rights: to read a file; to write one; in a folder, to remove and to make what can be in one.
_READ, _WRITE, _TRUNCATE, _FOLDER = 1 << 2, 1 << 1, 1 << 14, sum(1 << bit for bit in range(4, 13))
#: To listen and to connect over TCP; sockets without a file, and signals, of other processes.
_NETWORK, _SCOPED = 3, 3
_END_WITH_PARENT, _NO_NEW_PRIVILEGES, _ADOPT = 1, 38, 36
_SHARED = "/dev/shm"  # noqa: S108 - the place itself is meant
#: Namespaces of mounts, shared memory, users, processes and the network.
_APART = 0x00020000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
#: Events of the interpreter that start a process, act on another one, or reach another machine.
_STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn")
_ACTS = ("os.kill", "os.killpg", "pty.spawn", "socket.connect", "socket.sendto", "socket.sendmsg")
_LOOKS = (
    *("gc.get_objects", "gc.get_referrers", "gc.get_referents"),
    *("sys._current_frames", "sys._current_exceptions"),
)
#: Events with a path first.
_PATHS = ("open", "os.chdir", "os.link", "os.symlink", "os.rename", "os.listdir", "os.scandir", "os.remove")


def confine(request: dict[str, Any]) -> list[str]:
    """Confine this process and all that it starts, and return the names of the means."""
    means = ["audit hook"]
    if request["system"]:
        apart, own = supervise()
        means += [
            *apart,
            *(["Landlock"] if by_system(request["folders"], [*request["writable"], *own]) else []),
        ]
    sys.addaudithook(_hook(request["folders"], request["files"], starts="Landlock" in means))
    return means


def supervise(after: Callable[[], object] = lambda: None) -> tuple[list[str], list[str]]:
    """Go on in a child process, with which all that it starts ends; return the means, and folders of its own.

    Three processes stand above each other where the system has namespaces: this one, which ends as the child
    does; the first process of a namespace, with which the system ends all others in it; and the child, which
    sees no process, network or shared memory of others. Elsewhere this process is told of each process that
    the child leaves behind, and ends it.
    """
    if sys.platform != "linux":
        return [], []
    own: list[str] = []
    _libc().prctl(_END_WITH_PARENT, signal.SIGTERM, 0, 0, 0)
    apart = _unshare()
    ready, tell = os.pipe()
    if not apart:
        _libc().prctl(_ADOPT, 1, 0, 0, 0)
    if outer := os.fork():
        os.close(tell)
        _leave_streams()
        signal.signal(signal.SIGTERM, lambda *_: os.kill(outer, signal.SIGKILL))
        status = os.read(ready, 8) if apart else b""
        ended = os.waitpid(outer, 0)[1]
        _end_all()
        after()
        _end_as(int(status) if status else ended)
    _libc().prctl(_END_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    if apart:
        own = _mount_own()
        if inner := os.fork():  # this is the first process of the namespace
            _leave_streams()
            while True:
                number, status_of = os.waitpid(-1, 0)
                if number == inner:
                    os.write(tell, str(status_of).encode())
                    os._exit(0)
        _libc().prctl(_END_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    os.close(ready)
    os.close(tell)
    return ["namespaces"] if apart else ["supervision"], own


def _unshare() -> bool:
    """Enter namespaces of users, processes, network, shared memory and mounts; their users are the same."""
    user, group = os.getuid(), os.getgid()
    if _libc().unshare(_APART):
        return False
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123 - few imports
            file.write(text)
    return True


def _mount_own() -> list[str]:
    """Mount the processes and the shared memory of the namespace, where the system permits it.

    Return the folder of the latter, if it is its own.
    """
    _libc().mount(b"proc", b"/proc", b"proc", 0, None)
    return [_SHARED] if _libc().mount(b"tmpfs", _SHARED.encode(), b"tmpfs", 0, None) == 0 else []


def _leave_streams() -> None:
    """Let only the child hold the standard streams, whose end tells that it has ended."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    os.close(nothing)


def _end_all() -> None:
    """End all processes that were left to this one, and what they start meanwhile."""
    while True:
        for entry in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - few imports
            try:
                with open(f"/proc/{entry}/stat", "rb") as file:  # noqa: PTH123 - few imports
                    parent = int(file.read().rpartition(b")")[2].split()[1])
                if parent == os.getpid():
                    os.kill(int(entry), signal.SIGKILL)
            except (OSError, ValueError, IndexError):
                continue
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _end_as(status: int) -> NoReturn:
    """End as another process has ended."""
    if os.WIFSIGNALED(status):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(os.WTERMSIG(status), signal.SIG_DFL) if os.WTERMSIG(status) != signal.SIGKILL else None
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status) & 255)


def can_confine() -> bool:
    """Whether the operating system has the means to confine a process."""
    return sys.platform == "linux" and bool(_libc().syscall(_CREATE, None, 0, 1) >= 1)


def by_system(hidden: list[str], writable: list[str]) -> bool:
    """Confine this process by means of the operating system. Only Linux has them; return whether it did."""
    return sys.platform == "linux" and _landlock(hidden, writable)


def _hook(folders: list[str], files: list[str], *, starts: bool) -> Callable[[str, Any], None]:
    """Make the audit hook. It holds all that it uses, so that nothing of it can be replaced."""
    refused = frozenset((*_ACTS, *_LOOKS, *(() if starts else _STARTS)))
    hides, own, paths, denied = _hide(folders, files), os.getpid(), frozenset(_PATHS), PermissionError

    def hook(event: str, given: Any) -> None:
        if event == "import":
            wrong = given[0] == "attnspec" or given[0].startswith("attnspec.")
        elif event in refused:
            wrong = event != "os.kill" or given[0] != own
        else:
            wrong = event in paths and hides(event, given[0])
        if wrong:
            what = given[0] if event in paths or event == "import" else event
            raise denied(f"{what}: refused to a function that is not trusted")

    return hook


def _hide(folders: list[str], files: list[str]) -> Callable[[str, Any], bool]:
    """Make a function that says whether a path, or a number of an open file, must not be used."""
    status, is_one, has_folder, decode, own = os.stat, isinstance, stat.S_ISDIR, os.fsdecode, str(os.getpid())
    hidden = frozenset((entry.st_dev, entry.st_ino) for entry in map(os.stat, (*folders, *files)))
    above = frozenset(
        (entry.st_dev, entry.st_ino) for path in folders for entry in map(os.stat, _above(path))
    )
    text, octets, number, separator, failed = str, bytes, int, os.sep, (OSError, ValueError)

    def identify(path: Any) -> Any:
        try:
            entry = status(path)
        except failed:
            return (0, 0), False
        return (entry.st_dev, entry.st_ino), has_folder(entry.st_mode)

    def hides(event: str, path: Any) -> bool:
        if is_one(path, number):
            return identify(path)[0] in hidden
        path = decode(path) if is_one(path, octets) or hasattr(path, "__fspath__") else path
        if not is_one(path, text):
            return False
        path = text.__str__(path)  # a subclass may have methods of its own
        parts = path.split(separator)
        if parts[:2] == ["", "proc"] and parts[2:3] and parts[2].isdigit() and parts[2] != own:
            return True  # another process
        place, is_folder = identify(path)
        # A folder that is opened by number can be used to name what lies below it.
        if place in hidden or (event == "open" and is_folder and place in above):
            return True
        return not is_folder and identify(path.rpartition(separator)[0] or ".")[0] in hidden

    return hides


def _above(path: str) -> Iterable[str]:
    while (upper := os.path.dirname(path)) != path:  # noqa: PTH120 - few imports
        yield upper
        path = upper


def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def _landlock(hidden: list[str], writable: list[str]) -> bool:
    """Forbid this process, and all that it starts, to read some folders and to write outside of others.

    Landlock knows permissions only, so everything beside the hidden folders may be read. Processes outside
    cannot be traced, and from version 6 on not be signalled.
    """
    libc = _libc()
    version = libc.syscall(_CREATE, None, 0, 1)
    if version < 1:
        return False
    writing = _WRITE | _FOLDER | (_TRUNCATE if version >= 3 else 0)
    handled = (_READ | writing, _NETWORK if version >= 4 else 0, _SCOPED if version >= 6 else 0)
    attributes = struct.pack("=QQQ", *handled)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    rules = libc.syscall(_CREATE, attributes, size, 0)
    if rules < 0:
        return False
    reading = [(path, _READ) for path, _ in _beside(os.sep, frozenset(hidden))]
    files = [(path, writing & ~_FOLDER) for path in _devices()]
    for path, rights in (*reading, *((folder, writing) for folder in writable), *files):
        try:
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        libc.syscall(_ADD, rules, 1, struct.pack("=Qi", rights, place), 0)
        os.close(place)
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    restricted = libc.syscall(_RESTRICT, rules, 0) == 0
    os.close(rules)
    return bool(restricted)


def _devices() -> Iterable[str]:
    """Yield the devices, which a program may write to: the null device, terminals, those of a GPU."""
    for folder, _, names in os.walk("/dev"):
        for path in (os.path.join(folder, name) for name in names):  # noqa: PTH118 - few imports
            if os.path.exists(path) and stat.S_ISCHR(os.stat(path).st_mode):  # noqa: PTH110, PTH116
                yield path


def _beside(folder: str, hidden: frozenset[str]) -> Iterable[tuple[str, bool]]:
    """Yield the largest folders, and files, in a folder that hold nothing hidden."""
    start = folder if folder.endswith(os.sep) else folder + os.sep
    if not any(path.startswith(start) for path in hidden):
        yield folder, True
        return
    try:
        entries = [*os.scandir(folder)]
    except OSError:
        return
    for entry in entries:
        if entry.is_symlink() or entry.path in hidden:
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _beside(entry.path, hidden)
        else:
            yield entry.path, False
