"""Processes of functions that are not trusted: nothing outlives them, and they leave nothing to others."""

import os
import shutil
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from test_untrusted import CHEATS, EACH, NEEDS_LANDLOCK, ONE, written

from attnspec.backends import Broken
from attnspec.backends.program.process import Process
from attnspec.backends.untrusted.remote import _SOURCES, Refused


def test_a_process_ends_with_its_judge(here):
    place = written(here, "def attention(query, key, value):\n    return value + 1\n")
    script = (
        "import sys\nfrom pathlib import Path\nfrom attnspec.backends.untrusted.remote import Remote\n"
        f"remote = Remote('own', {place!r}, '', '', Path.cwd())\n"
        "print(remote._process._process.pid, flush=True)\nsys.stdin.read()\n"
    )
    judge_ = Process([sys.executable, "-P", "-c", script], leads=True)
    number = int(judge_.receive(120))
    assert Path(f"/proc/{number}").exists() or sys.platform != "linux"
    judge_.stop()
    assert waits_for(lambda: not Path(f"/proc/{number}").exists())


OTHERS = [cheat.name for cheat in EACH if cheat.file == "others.py"]


def found_by_the_next(name, folder, answers, *, system):
    """Whether a second process, beside the first one, is right with what that one has left."""
    first, second = (answers(f"{folder}/others.py:{name}", system=system) for _ in range(2))
    arrays = {name: np.ones((4, 2)) for name in ONE}
    results = []
    for remote in (first, second):
        with suppress(Refused):
            results.append(remote.run(arrays, {}))
        time.sleep(0.1)  # until a process that it leaves does its work
    return any(result.any() for result in results)


@NEEDS_LANDLOCK
@pytest.mark.parametrize("name", OTHERS)
def test_nothing_that_a_process_leaves_is_found_by_another(name, tmp_path, answers):
    shutil.copytree(CHEATS, tmp_path / "cheats")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "cheats").rglob("*")}
    assert not found_by_the_next(name, tmp_path / "cheats", answers, system=True)
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "cheats").rglob("*")}


def test_some_is_found_where_the_system_does_not_keep_processes_apart(tmp_path, answers):
    """So that the test above could fail."""
    shutil.copytree(CHEATS, tmp_path / "cheats")
    assert found_by_the_next("by_file", tmp_path / "cheats", answers, system=False)
    assert found_by_the_next("by_shared_memory", tmp_path / "cheats", answers, system=False)


@pytest.mark.parametrize("apart", [True, False], ids=["namespaces", "supervision"])
def test_nothing_outlives_its_process(apart, here, monkeypatch, answers):
    if not apart:
        sources = [source.replace("if _libc().unshare(_APART):", "if True:") for source in _SOURCES]
        monkeypatch.setattr("attnspec.backends.untrusted.remote._SOURCES", sources)
    mark = f"{uuid.uuid4()}"
    place = written(
        here,
        "def attention(query, key, value):\n"
        "    import os, time\n"
        "    if os.fork():\n        return value + 1\n"
        "    os.setsid()\n"
        "    if os.fork():\n        os._exit(0)\n"
        "    os.closerange(0, 100)\n"
        f"    os.execlp('python3', 'python3', '-c', 'import time; time.sleep(600)', {mark!r})\n",
    )
    remote = answers(place)
    assert remote.run(ONE, {})[0, 0] == 1
    assert waits_for(lambda: running(mark)), "it has left a process"
    remote.close()
    assert waits_for(lambda: not running(mark))


def running(mark):
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(mark.encode() in path.read_bytes())
    return any(found)


def waits_for(holds):
    """Whether something comes to hold, on the slowest machine too."""
    for _ in range(10_000):
        if holds():
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("earlier[0] *= 2", "changed query after an earlier call"),
        ("earlier[2].fill(2)", "changed value after an earlier call"),
    ],
)
def test_an_argument_that_changes_after_the_call_is_found(body, message, here, answers):
    place = written(
        here,
        "earlier = []\n\ndef attention(query, key, value):\n"
        f"    if earlier:\n        {body}\n"
        "    earlier.extend((query, key, value))\n    return value + 1\n",
    )
    remote = answers(place)
    remote.run(ONE, {})
    with pytest.raises(Broken, match=message):
        remote.run(ONE, {})


_LOOKING = """import gc, json, sys

importing = sys._getframe()

def attention(query, key, value):
    own = ("server", "confine", "caller")
    found = [x.__name__ for x in object.__subclasses__() if getattr(x, "__module__", "") in own]
    found += [name for name in own if name in sys.modules]
    found += [name for name in vars(sys.modules["__main__"]) if name[0] != "_"]
    frame = sys._getframe() if "kept" in globals() else importing
    while frame:
        names = (*frame.f_locals, *frame.f_globals)
        found += [name for name in names if name in ("last", "mapped", "_answer")]
        for thing in frame.f_locals.values():
            found += [name for name in getattr(thing, "__globals__", ()) if name == "_answer"]
        frame = frame.f_back
    kept = globals().setdefault("kept", value + 0)
    if found:
        raise ValueError(f"found {found}")
    kept[...] = value + len(query)
    return kept
"""


_REPLACING = """import sys

kept = np.zeros((2, 3))

def attention(query, key, value):
    for parts in sys.last:
        parts[:] = [(part.copy(), array.copy()) for part, array in parts]
    kept[...] = value + 1
    return kept
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory of other processes can be read on Linux only")
def test_a_result_lies_with_the_judge_whatever_is_replaced_in_the_process(here, monkeypatch, answers):
    """Even where the function holds what the process keeps of its results."""
    line = "    last: list[list[Any]] = [[]]\n"
    sources = [x.replace(line, f"{line}    __import__('sys').last = last\n") for x in _SOURCES]
    assert sources != _SOURCES
    monkeypatch.setattr("attnspec.backends.untrusted.remote._SOURCES", sources)
    place = written(here, _REPLACING)
    blind, remote = answers(place), answers(place)
    os.close(blind._memory)
    blind._memory = None
    other = {name: array + 1 for name, array in ONE.items()}
    for each in (blind, remote):
        assert each.run(ONE, {}).tolist() == (ONE["value"] + 1).tolist()
    blind.run(other, {})  # what it keeps lies in its own process
    with pytest.raises(Broken, match="changed the result of an earlier call"):
        remote.run(other, {})


def test_what_is_compared_cannot_be_reached_from_the_function(here, answers):
    """Neither by classes, nor modules, nor frames; so one buffer for all calls is found."""
    remote = answers(written(here, _LOOKING))
    assert remote.run(ONE, {}).tolist() == (ONE["value"] + 2).tolist()
    with pytest.raises(Broken, match="changed the result of an earlier call"):
        remote.run({name: array + 1 for name, array in ONE.items()}, {})
