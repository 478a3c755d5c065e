"""Control a process that judges the cases of a backend."""

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
from attnspec.conformance.attribution.finding import Diagnosis
from attnspec.conformance.judge.failure import OURS, Place, own_place
from attnspec.conformance.results import Subject
from attnspec.conformance.run.selection import Selection
from attnspec.conformance.verdict import Raise, Verdict, from_json

#: Time limits in seconds of the plan and of the import of a backend. PyTorch takes about ten.
PLAN_LIMIT, IMPORT_LIMIT = 120.0, 120.0
#: Time limit of a search in seconds.
SEARCH_LIMIT = 3600.0
#: Seconds to wait for the stack of a process that hangs.
_TRACE_LIMIT = 0.5
#: A line of a stack, in the format of `faulthandler`.
_FRAME = re.compile(r'^  File "(.*)", line ([0-9]+) in (.*)$', re.MULTILINE)


@dataclass(frozen=True)
class Planned:
    """A case in the plan of a run."""

    name: str
    group: str
    rules: tuple[str, ...]
    dtype: str
    refusal: bool = False


@dataclass(frozen=True)
class Loaded:
    """A loaded backend.

    Attributes
    ----------
    subject : Subject
    compiles : bool
        Whether its library compiles for each dtype.
    fits : str
        The suffix of its constraints; empty without constraints.
    """

    subject: Subject
    compiles: bool
    fits: str


class Gone(Broken):
    """The process ended, or was killed, before it answered.

    Attributes
    ----------
    raised : Raise or None
        The place in the code, if it is known.
    hung : bool
        Whether it was killed because it gave no answer in time.
    """

    def __init__(self, message: str, raised: Raise | None, *, hung: bool) -> None:
        super().__init__(message)
        self.raised = raised
        self.hung = hung


class InternalError(BackendError):
    """The judge raised an exception that the implementation did not cause."""


def _below(frames: list[Place]) -> list[Place]:
    """Drop the outer frames, of the standard library that starts the process."""
    judging = [number for number, place in enumerate(frames) if place[0].startswith(OURS)]
    return frames[judging[0] :] if judging else frames


def _place_of(errors: str) -> Raise | None:
    """Return the place of the last stack in what a process wrote to standard error."""
    # A stack starts with its innermost line.
    stack = _FRAME.findall(errors.rpartition("most recent call first")[2])
    frames = [(file, int(number), function) for file, number, function in reversed(stack)]
    return Raise("", "", *own_place(_below(frames))) if frames else None


class Worker:
    """A process of `attnspec.conformance.run.child`.

    Attributes
    ----------
    returns : tuple of str
        The outputs of attention that the backend can return, once it is loaded.
    """

    def __init__(
        self, selection: Selection, *, threads: int = 0, echo: bool = False, copies: bool = False
    ) -> None:
        told = json.dumps([copies, selection.seed, *selection.files])
        # -P: a module in the current folder must not hide one of the standard library.
        command = [sys.executable, "-P", "-m", "attnspec.conformance.run.child", told]
        # OpenBLAS and PyTorch read this variable, too.
        environment = {"OMP_NUM_THREADS": str(threads), **os.environ} if threads else None
        self._process = Process(command, environment=environment, leads=True, echo=echo)
        self._asked: deque[str] = deque()
        self.returns: tuple[str, ...] = ()

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.running

    @property
    def idle(self) -> bool:
        """Whether it is running and has answered all requests."""
        return self._process.running and not self._asked

    def plan(self, selection: Selection) -> tuple[Planned, ...]:
        """Request the selected cases."""
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
        """Load the backend, and describe it."""
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

    def limit(self, seconds: float, octets: float, each: float) -> None:
        """Set the limits of the sizes."""
        self._send("limit", seconds=seconds, octets=octets, each=each)

    def ask(self, case: Planned) -> None:
        """Request a verdict, for which `verdict` waits; several requests may be pending."""
        self._asked.append(case.name)
        self._send("judge", name=case.name, group=case.group)

    def verdict(self, seconds: float) -> Verdict:
        """Wait for the next verdict."""
        try:
            kind, thing = self._receive(seconds)
        except (InternalError, Gone):
            self._asked.popleft()
            raise
        expected = self._asked.popleft()
        if kind != "verdict" or thing.get("case") != expected:
            self.stop()  # a child process of it may have answered
            raise Gone("its process answered to another question", None, hung=False)
        try:
            return from_json(thing)
        except (TypeError, ValueError):
            self.stop()
            raise Gone("its process wrote what is no verdict", None, hung=False) from None

    def not_shown(self, shown: set[str]) -> list[Verdict]:
        """Request an error for each declaration that was not shown."""
        self._send("not_shown", shown=sorted(shown))
        return [from_json(entry) for entry in self._receive(IMPORT_LIMIT)[1]]

    def diagnose(self, failed: Iterable[tuple[str, str]], seconds: float) -> Diagnosis | None:
        """Request the gallery entries with the same results as the backend."""
        self._send("diagnose", failed=list(failed))
        kind, thing = self._receive(seconds)
        return Diagnosis.from_json(thing) if kind == "diagnosis" and thing else None

    def search(self, number: int, folder: Path) -> tuple[bool, str]:
        """Request a search; return whether nothing was found, and the text of the result."""
        self._send("search", number=number, folder=str(folder))
        _, thing = self._receive(SEARCH_LIMIT)
        return thing["good"], thing["text"]

    def stop(self) -> None:
        """End the process and all that it has started."""
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
            stack = self._process.errors
            self.stop()
            raise Gone(how, _place_of(stack), hung=hung) from None
        try:
            ((kind, thing),) = json.loads(line).items()
        except (ValueError, AttributeError):
            self.stop()
            raise Gone("its process wrote what is no verdict", None, hung=False) from None
        if kind == "ended":  # a copy of it
            raise Gone(f"its process {thing['how']}", _place_of(thing["stack"]), hung=False)
        if kind == "internal":
            raise InternalError(f"internal error of attnspec, {thing}")
        return kind, thing
