"""Confines this process: what a judge knows cannot be read, imported or changed from here on.

It is copied out of this package to run, and imports the standard library alone.
"""

import ctypes
import os
import stat
import sys
from collections.abc import Callable, Iterable
from typing import Any

#: Numbers of the system calls of Landlock, which are the same on every processor.
_CREATE, _ADD, _RESTRICT = 444, 445, 446
#: Rights: to read a file; to write one; in a folder, to remove and to make files, folders and links.
_READ, _WRITE, _TRUNCATE, _FOLDER = 1 << 2, 1 << 1, 1 << 14, 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8 | 1 << 12
_END_WITH_PARENT, _NO_NEW_PRIVILEGES = 1, 38
#: Events of the interpreter that start a process, act on another one, or reach another machine.
_STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn")
_ACTS = ("os.kill", "os.killpg", "pty.spawn", "socket.connect", "socket.sendto", "socket.sendmsg")
_LOOKS = ("gc.get_objects", "gc.get_referrers", "gc.get_referents")
#: Events with a path first.
_PATHS = ("open", "os.chdir", "os.link", "os.symlink", "os.rename", "os.listdir", "os.scandir", "os.remove")


def confine(request: dict[str, Any]) -> list[str]:
    """Confine this process and all that it starts, and return the names of the means."""
    means = ["audit hook"]
    end_with_parent()
    if request["system"] and by_system(request["folders"], request["guarded"]):
        means.append("Landlock")
    sys.addaudithook(_hook(request["folders"], request["files"], starts=len(means) > 1))
    return means


def end_with_parent() -> None:
    """Let the operating system end this process when the process that started it ends."""
    if sys.platform == "linux":
        _libc().prctl(_END_WITH_PARENT, 9, 0, 0, 0)


def can_confine() -> bool:
    """Whether the operating system has the means to confine a process."""
    return sys.platform == "linux" and bool(_libc().syscall(_CREATE, None, 0, 1) >= 1)


def by_system(hidden: list[str], guarded: list[str]) -> bool:
    """Confine this process by means of the operating system. Only Linux has them; return whether it did."""
    return sys.platform == "linux" and _landlock(hidden, guarded)


def _hook(folders: list[str], files: list[str], *, starts: bool) -> Callable[[str, Any], None]:
    """Make the audit hook. It holds all that it uses, so that nothing of it can be replaced."""
    refused = frozenset((*_ACTS, *_LOOKS, *(() if starts else _STARTS)))
    hides, own, paths, denied = _hiding(folders, files), os.getpid(), frozenset(_PATHS), PermissionError

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


def _hiding(folders: list[str], files: list[str]) -> Callable[[str, Any], bool]:
    """Make a function that says whether a path, or a number of an open file, must not be used."""
    status, is_one, has_folder, decode, own = os.stat, isinstance, stat.S_ISDIR, os.fsdecode, str(os.getpid())
    hidden = frozenset((entry.st_dev, entry.st_ino) for entry in map(os.stat, (*folders, *files)))
    above = frozenset(
        (entry.st_dev, entry.st_ino) for path in folders for entry in map(os.stat, _above(path))
    )
    text, octets, number, separator, failed = str, bytes, int, os.sep, (OSError, ValueError)

    def known(path: Any) -> Any:
        try:
            entry = status(path)
        except failed:
            return (0, 0), False
        return (entry.st_dev, entry.st_ino), has_folder(entry.st_mode)

    def hides(event: str, path: Any) -> bool:
        if is_one(path, number):
            return known(path)[0] in hidden
        path = decode(path) if is_one(path, octets) or hasattr(path, "__fspath__") else path
        if not is_one(path, text):
            return False
        path = text.__str__(path)  # a subclass may have methods of its own
        parts = path.split(separator)
        if parts[:2] == ["", "proc"] and parts[2:3] and parts[2].isdigit() and parts[2] != own:
            return True  # another process
        one, is_folder = known(path)
        # A folder that is opened by number can be used to name what lies below it.
        if one in hidden or (event == "open" and is_folder and one in above):
            return True
        return not is_folder and known(path.rpartition(separator)[0] or ".")[0] in hidden

    return hides


def _above(path: str) -> Iterable[str]:
    while (upper := os.path.dirname(path)) != path:  # noqa: PTH120 - few imports
        yield upper
        path = upper


def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


class _Attributes(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def _landlock(hidden: list[str], guarded: list[str]) -> bool:
    """Forbid this process, and all that it starts, to read some folders, and to write to these and others.

    Landlock knows permissions only, so everything beside these folders is permitted. Processes outside
    cannot be traced, and from version 6 on not be signalled.
    """
    libc = _libc()
    version = libc.syscall(_CREATE, None, 0, 1)
    if version < 1:
        return False
    writing = _WRITE | _FOLDER | (_TRUNCATE if version >= 3 else 0)
    attributes = _Attributes(_READ | writing, 0, 2 if version >= 6 else 0)
    rules = libc.syscall(_CREATE, ctypes.byref(attributes), 24 if version >= 6 else 8, 0)
    if rules < 0:
        return False
    for rights, without in ((_READ, hidden), (writing, [*hidden, *guarded])):
        for path, is_folder in _beside(os.sep, frozenset(without)):
            try:
                place = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:
                continue
            beneath = _Beneath(rights if is_folder else rights & ~_FOLDER, place)
            libc.syscall(_ADD, rules, 1, ctypes.byref(beneath), 0)
            os.close(place)
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    restricted = libc.syscall(_RESTRICT, rules, 0) == 0
    os.close(rules)
    return bool(restricted)


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
