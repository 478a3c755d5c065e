"""Control a process that judges the cases of a backend."""

import json
import os
import re
import sys
from collections import deque
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from attnspec import SpecError
from attnspec.backends.errors import BackendError, Broken, Late
from attnspec.backends.names import WORKER, environment_of
from attnspec.backends.program.process import Process
from attnspec.conformance.attribution.finding import Diagnosis
from attnspec.conformance.judge.failure import OURS, Place, own_place
from attnspec.conformance.results import Subject
from attnspec.conformance.run.events import Loaded, Offer
from attnspec.conformance.run.plan import Outline, Selection
from attnspec.conformance.verdict import Raise, Verdict, from_json

#: Time limits in seconds of the plan and of the import of a backend. PyTorch takes about ten.
PLAN_LIMIT, IMPORT_LIMIT = 120.0, 120.0
#: Time limit of a diagnosis in seconds, after which its process is ended.
DIAGNOSIS_LIMIT = 120.0
#: Time limit of a search in seconds.
SEARCH_LIMIT = 3600.0
#: Seconds to wait for the stack of a process that hangs.
_TRACE_LIMIT = 0.5
#: How many threads multiply matrices, by library.
_OF_PRODUCTS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
#: A line of a stack, in the format of `faulthandler`.
_FRAME = re.compile(r'^  File "(.*)", line ([0-9]+) in (.*)$', re.MULTILINE)


class Ended(Broken):
    """The process ended, or was killed, before it answered."""

    def __init__(self, message: str, raised: Raise | None, *, hung: bool) -> None:
        super().__init__(message)
        self.raised = raised  # the place in the code, if it is known
        self.hung = hung  # whether it was killed because it gave no answer in time


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
    """A process of `attnspec.conformance.run.child`."""

    def __init__(
        self,
        selection: Selection,
        name: str = "",
        number: int = 0,
        *,
        threads: int = 0,
        echo: bool = False,
        copies: bool = False,
    ) -> None:
        settings = json.dumps([copies, selection.sizes, selection.seed, *selection.files])
        # -P: a module in the current folder must not hide one of the standard library.
        command = [sys.executable, "-P", "-m", "attnspec.conformance.run.child", settings]
        # Threads of matrix products take turns on small matrices. What the user has set is kept.
        pinned = dict.fromkeys(_OF_PRODUCTS, "1")
        # OpenBLAS and PyTorch read this variable, too.
        pinned |= {"OMP_NUM_THREADS": str(threads)} if threads else {}
        environment = {**pinned, **os.environ, WORKER: str(number), **environment_of(name, number)}
        self._process = Process(command, environment=environment, leads=True, echo=echo)
        self._waiting: deque[Outline] = deque()
        self._is_loading = False
        self.returns: tuple[str, ...] = ()  # of attention, once the backend is loaded

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process.running

    @property
    def is_idle(self) -> bool:
        """Whether it is running and has answered all requests."""
        return self._process.running and not self._waiting

    def plan(self, selection: Selection) -> tuple[Outline, ...]:
        """Request the selected cases."""
        self._send("plan", selection=asdict(selection))
        plan: list[Outline] = []
        while True:
            kind, thing = self._receive(PLAN_LIMIT)
            if kind == "problem":
                raise SpecError(thing)
            if kind == "plan":
                return tuple(plan)
            plan += [Outline(name, group, tuple(rules), *rest) for name, group, rules, *rest in thing]

    @property
    def is_loading(self) -> bool:
        """Whether it was asked to load a backend."""
        return self._is_loading

    def request_load(self, name: str) -> None:
        """Request that the backend is loaded, for which `load` waits."""
        self._is_loading = True
        self._send("load", name=name)

    def load(self, name: str) -> Loaded:
        """Load the backend, and describe it."""
        if not self._is_loading:
            self.request_load(name)
        try:
            kind, thing = self._receive(IMPORT_LIMIT)
        except Ended as end:
            how = f"no end in {IMPORT_LIMIT:g} s" if end.hung else str(end)
            raise BackendError(f"backend {name}: expected it to be imported, got {how}") from end
        if kind == "problem":
            raise BackendError(thing)
        self.returns = tuple(thing["returns"])
        offer = Offer(**thing["offer"]) if thing["offer"] else None
        return Loaded(Subject(**thing["subject"]), thing["compiles"], thing["fits"], offer)

    def limit(self, seconds: float, octets: float, each: float) -> None:
        """Set the limits of the sizes."""
        self._send("limit", seconds=seconds, octets=octets, each=each)

    def request(self, case: Outline) -> None:
        """Request a verdict, for which `verdict` waits; several requests may be pending."""
        self._waiting.append(case)
        self._send("judge", name=case.name, group=case.group, described=bool(case.calls))

    def verdict(self, seconds: float) -> Verdict:
        """Wait for the next verdict."""
        try:
            kind, thing = self._receive(seconds)
        except (InternalError, Ended):
            self._waiting.popleft()
            raise
        case = self._waiting.popleft()
        if kind == "problem":
            raise InternalError(
                f"internal error of attnspec, not of the implementation: {case.name}: {thing}"
            )
        if kind != "verdict" or thing.get("case") != case.name:
            self.stop()  # a child process of it may have answered
            raise Ended("its process answered to another question", None, hung=False)
        try:
            verdict = from_json(thing)
            if not case.calls:
                return verdict
            return replace(verdict, traits=case.traits, numbers=case.numbers, sizes=case.sizes)
        except (TypeError, ValueError):
            self.stop()
            raise Ended("its process wrote what is no verdict", None, hung=False) from None

    def missing(self, shown: set[str]) -> list[Verdict]:
        """Request an error for each declaration that was not shown."""
        self._send("missing", shown=sorted(shown))
        return [from_json(entry) for entry in self._receive(IMPORT_LIMIT)[1]]

    def diagnose(self, cases: Iterable[tuple[str, str]], seconds: float | None) -> Diagnosis | None:
        """Request the gallery entries with the same results as the backend; None if there are none.

        It is searched for some seconds. Without a limit, every call tells.
        """
        self._send("diagnose", cases=list(cases), seconds=seconds)
        kind, thing = self._receive(DIAGNOSIS_LIMIT)
        return Diagnosis.from_json(thing) if kind == "diagnosis" and thing else None

    def probe(self, cases: Iterable[tuple[str, str]], seconds: float) -> str:
        """Request on which sizes it depends whether calls like some cases fail; empty if none shows it."""
        self._send("probe", cases=list(cases), seconds=seconds)
        kind, thing = self._receive(DIAGNOSIS_LIMIT)
        return str(thing) if kind == "probe" else ""

    def search(self, number: int, folder: Path) -> tuple[Verdict | None, list[str]]:
        """Request a search; return the verdict on a wrong call that was found, and the call in words."""
        self._send("search", number=number, folder=str(folder))
        _, thing = self._receive(SEARCH_LIMIT)
        if "problem" in thing:
            raise BackendError(thing["problem"])
        return thing["verdict"] and from_json(thing["verdict"]), thing["call"]

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
            how = f"did not end in {seconds:g} s" if hung else f"its process {self._process.end()}"
            stack = self._process.errors
            self.stop()
            raise Ended(how, _place_of(stack), hung=hung) from None
        try:
            ((kind, thing),) = json.loads(line).items()
        except (ValueError, AttributeError):
            self.stop()
            raise Ended("its process wrote what is no verdict", None, hung=False) from None
        if kind == "ended":  # a copy of it
            raise Ended(f"its process {thing['how']}", _place_of(thing["stack"]), hung=False)
        if kind == "lost":
            self.stop()
            raise Ended(f"the call left its device unusable: {thing}", None, hung=False)
        if kind == "internal":
            raise InternalError(f"internal error of attnspec, {thing}")
        return kind, thing
