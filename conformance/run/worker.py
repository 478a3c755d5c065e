"""A process that judges a backend's cases, as the run sees it: asked, waited for, and ended."""

import json
import os
import re
import sys
from collections import deque
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from attnspec import SpecError
from attnspec.backends.errors import BackendError, Broken, Late
from attnspec.backends.program.process import Process
from attnspec.conformance.judge.failure import OURS, Place, own_place
from attnspec.conformance.results import Subject
from attnspec.conformance.run.selection import Selection
from attnspec.conformance.verdict import Raise, Verdict, from_json

#: Seconds that making the plan, and the import of a backend may take. PyTorch, cold, takes some ten.
PLAN_LIMIT, IMPORT_LIMIT = 120.0, 120.0
#: That a search may take.
SEARCH_LIMIT = 3600.0
#: Seconds in which a process that hangs says where.
_TRACE_LIMIT = 0.5
#: A line of a stack, as `faulthandler` writes it.
_FRAME = re.compile(r'^  File "(.*)", line ([0-9]+) in (.*)$', re.MULTILINE)


@dataclass(frozen=True)
class Planned:
    """A case that a run is to judge."""

    name: str
    group: str
    rules: tuple[str, ...]
    dtype: str
    refusal: bool = False


@dataclass(frozen=True)
class Loaded:
    """A backend that is loaded.

    Attributes
    ----------
    subject : Subject
    compiles : bool
        Whether its library compiles anew for each dtype.
    fits : str
        What its cases have to be drawn to fit; empty where it takes every call.
    """

    subject: Subject
    compiles: bool
    fits: str


class Gone(Broken):
    """The process ended, or was ended, before it answered.

    Attributes
    ----------
    raised : Raise or None
        Where it was, when that is known.
    hung : bool
        Whether it was ended as it gave no answer in time.
    """

    def __init__(self, message: str, raised: Raise | None, *, hung: bool) -> None:
        super().__init__(message)
        self.raised = raised
        self.hung = hung


class InternalError(BackendError):
    """The judge raised, where the implementation had not: that says nothing of it."""


def _below(frames: list[Place]) -> list[Place]:
    """Leave out the calls of the standard library that have started this process."""
    judging = [number for number, place in enumerate(frames) if place[0].startswith(OURS)]
    return frames[judging[0] :] if judging else frames


class Worker:
    """A process of `attnspec.conformance.run.child`.

    Parameters
    ----------
    selection : Selection
    threads : int, optional
        How many threads libraries should use, where the surroundings do not say; 0 leaves it to them.
    echo : bool, optional
        Whether what the backend prints is printed.

    Attributes
    ----------
    returns : tuple of str
        The outputs of attention that the backend returns when asked to, once it is loaded.
    """

    def __init__(self, selection: Selection, *, threads: int = 0, echo: bool = False) -> None:
        told = json.dumps([selection.seed, *selection.files])
        # -P: a module in the current folder is not taken for one of the standard library or of ours.
        command = [sys.executable, "-P", "-m", "attnspec.conformance.run.child", told]
        # OpenMP's variable is read by OpenBLAS and PyTorch, too.
        environment = {"OMP_NUM_THREADS": str(threads), **os.environ} if threads else None
        self._process = Process(command, environment=environment, leads=True, echo=echo)
        self._asked: deque[str] = deque()
        self.returns: tuple[str, ...] = ()

    @property
    def idle(self) -> bool:
        """Whether it runs and has answered all that it was asked."""
        return self._process.running and not self._asked

    def plan(self, selection: Selection) -> tuple[Planned, ...]:
        """Ask which cases are selected.

        Raises
        ------
        SpecError
            When the selection names a rule or case that there is not.
        """
        self._send("plan", selection=asdict(selection))
        found: list[Planned] = []
        while True:
            kind, thing = self._receive(PLAN_LIMIT)
            if kind == "problem":
                raise SpecError(thing)
            if kind == "plan":
                return tuple(found)
            found += [Planned(name, group, tuple(rules), *rest) for name, group, rules, *rest in thing]

    def load(self, name: str) -> Loaded:
        """Have the backend loaded, and tell what it is.

        Raises
        ------
        BackendError
            When it cannot be used.
        """
        self._send("load", name=name)
        try:
            kind, thing = self._receive(IMPORT_LIMIT)
        except Gone as gone:
            how = f"no end in {IMPORT_LIMIT:g} s" if gone.hung else str(gone)
            raise BackendError(f"backend {name}: expected it to be imported, got {how}") from gone
        if kind == "problem":
            raise BackendError(thing)
        self.returns = tuple(thing["returns"])
        return Loaded(Subject(**thing["subject"]), thing["compiles"], thing["fits"])

    def ask(self, case: Planned) -> None:
        """Ask for a verdict, which `verdict` then waits for; several may be asked for at once."""
        self._asked.append(case.name)
        self._send("judge", name=case.name, group=case.group)

    def verdict(self, seconds: float) -> Verdict:
        """Wait for the next verdict.

        Raises
        ------
        Gone
            When there is none in time, or the process ended.
        InternalError
            When the judge failed.
        """
        try:
            kind, thing = self._receive(seconds)
        except InternalError:
            self._asked.popleft()
            raise
        expected = self._asked.popleft()
        if kind != "verdict" or thing.get("case") != expected:
            self.stop()  # what it has started may answer in its place
            raise Gone("its process answered to another question", None, hung=False)
        try:
            return from_json(thing)
        except (TypeError, ValueError):
            self.stop()
            raise Gone("its process wrote what is no verdict", None, hung=False) from None

    def not_shown(self, shown: set[str]) -> list[Verdict]:
        """Ask for an error for each thing that is declared and was not shown."""
        self._send("not_shown", shown=sorted(shown))
        return [from_json(entry) for entry in self._receive(IMPORT_LIMIT)[1]]

    def diagnose(self, failed: Iterable[tuple[str, str]], seconds: float) -> str:
        """Ask what of the gallery gives what the backend gives; empty where nothing does."""
        self._send("diagnose", failed=list(failed))
        kind, thing = self._receive(seconds)
        return str(thing) if kind == "diagnosis" else ""

    def search(self, number: int, folder: Path) -> tuple[bool, str]:
        """Have it search; tell whether nothing was found, and what there is to say.

        Raises
        ------
        Gone
            When the process ended, or a call did not end.
        """
        self._send("search", number=number, folder=str(folder))
        _, thing = self._receive(SEARCH_LIMIT)
        return thing["good"], thing["text"]

    def stop(self) -> None:
        """End the process, and all that it has started."""
        self._process.stop()

    def _send(self, do: str, **rest: Any) -> None:
        self._process.send(json.dumps({"do": do, **rest}))

    def _receive(self, seconds: float) -> tuple[str, Any]:
        try:
            line = self._process.receive(seconds)
        except Broken as broken:
            hung = isinstance(broken, Late)
            if hung:
                self._process.tell_where(_TRACE_LIMIT)
            how = f"did not end in {seconds:g} s" if hung else f"its process {self._process.ended()}"
            # Of several stacks the last; a stack begins with its innermost line.
            stack = _FRAME.findall(self._process.errors.rpartition("most recent call first")[2])
            self.stop()
            frames = [(file, int(number), function) for file, number, function in reversed(stack)]
            raised = Raise("", "", *own_place(_below(frames))) if frames else None
            raise Gone(how, raised, hung=hung) from None
        try:
            ((kind, thing),) = json.loads(line).items()
        except (ValueError, AttributeError):
            self.stop()
            raise Gone("its process wrote what is no verdict", None, hung=False) from None
        if kind == "internal":
            raise InternalError(f"internal error of attnspec, {thing}")
        return kind, thing
