"""A run of the suite on one backend: a plan, processes that judge it, and what they find as it comes in."""

import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Self

from attnspec import SpecError, __version__
from attnspec.backends.errors import BackendError
from attnspec.conformance.judge.output_rules import of_outputs
from attnspec.conformance.results import Footer, Header, Subject
from attnspec.conformance.run.selection import Selection
from attnspec.conformance.run.worker import Gone, InternalError, Planned, Worker
from attnspec.conformance.traits import REFUSED, RELATED
from attnspec.conformance.verdict import Verdict, shown

#: Cases that a process is asked for at once, so that it need not wait for the next.
_AHEAD = 4
#: Times that a process may end, and that it may have to be ended, before a run is given up.
MOST_ENDS, MOST_HANGS = 200, 3
#: Failures, each of another group, that a process is asked for which has judged nothing before.
_MOST_ALONE = 3

Event = Header | Subject | Verdict | Footer


@dataclass
class Pool:
    """The processes of a run.

    Parameters
    ----------
    name : str
        Of the backend.
    selection : Selection
    jobs : int, optional
        How many processes judge at once.
    seconds : float, optional
        That one case may take.
    echo : bool, optional
        Whether what the backend prints is printed.
    """

    name: str
    selection: Selection
    jobs: int = 1
    seconds: float = 300.0
    echo: bool = False
    _workers: list[Worker] = field(default_factory=list)
    _found: "queue.Queue[Verdict | str | None]" = field(default_factory=queue.Queue)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _ends: int = 0
    _hangs: int = 0
    _stopped: bool = False
    _other: Worker | None = None
    _groups: set[str] = field(default_factory=set)
    _internal: list[str] = field(default_factory=list)

    def run(self, stop: Callable[[Verdict], bool] = lambda _: False) -> Iterator[Event]:
        """Judge, and yield the header with the plan, the subject, each verdict, and the footer.

        Without the footer the run was cut off.

        Parameters
        ----------
        stop : callable, optional
            Whether a verdict ends the run.

        Raises
        ------
        SpecError
            When the selection names a rule or case that there is not.
        """
        first = self._start()
        plan = first.plan(self.selection)
        if not plan:
            raise SpecError("case: expected some that fit what was asked for, got none")
        try:
            loaded = first.load(self.name)
        except BackendError as error:
            yield self._header(plan)
            yield Subject(self.name, "", "", str(error))
            yield Footer(0)
            return
        if loaded.fits:  # planned by a process that has not loaded it
            planner = self._start()
            plan = planner.plan(replace(self.selection, fits=loaded.fits))
            planner.stop()
        yield self._header(plan)
        subject = loaded.subject
        yield subject
        verdicts: list[Verdict] = []
        for found in self._judge(first, plan, together=loaded.compiles):
            problem = found if isinstance(found, str) else ""
            if isinstance(found, Verdict):
                verdicts.append(self._compared(found))
                yield verdicts[-1]
                problem = "stopped at the first failure" if stop(found) else ""
            if problem:
                yield replace(subject, problem=f"backend {self.name}: {problem}")
                return
        if self._internal:
            more = f" (and {len(self._internal) - 1} more)" if self._internal[1:] else ""
            yield replace(subject, problem=f"backend {self.name}: {self._internal[0]}{more}")
            return
        try:
            missing = self._not_shown(verdicts)
        except (BackendError, Gone) as error:
            yield replace(subject, problem=f"backend {self.name}: what it declares was not judged: {error}")
            return
        yield from missing
        yield Footer(len(verdicts) + len(missing))

    def diagnose(self, failed: Iterable[tuple[str, str]], seconds: float) -> str:
        """Say what of the gallery gives what the backend gives; empty where nothing is found, or in time.

        Parameters
        ----------
        failed : iterable of (str, str)
            Name and group of cases that are asked again.
        seconds : float
            That it may take.
        """
        with suppress(BackendError, Gone):
            return self._any().diagnose(failed, seconds)
        return ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End all processes."""
        with self._lock:
            self._stopped = True
            workers = list(self._workers)
        for worker in workers:
            worker.stop()

    def _judge(self, first: Worker, plan: tuple[Planned, ...], *, together: bool) -> Iterator[Verdict | str]:
        """Yield the verdicts as they come in, or why no more will."""
        queues = _queues(plan, self.jobs, together=together)
        threads = [
            threading.Thread(target=self._drive, args=(own, queues, worker), daemon=True)
            for own, worker in zip_longest(queues, [first])
        ]
        for thread in threads:
            thread.start()
        left = len(threads)
        while left:
            found = self._found.get()
            if found is None:
                left -= 1
            else:
                yield found

    def _drive(self, own: deque[Planned], queues: list[deque[Planned]], worker: Worker | None) -> None:
        """Have one process judge what there is to judge; one that has ended is replaced."""
        waiting: deque[Planned] = deque()
        try:
            while not self._stopped:
                while len(waiting) < _AHEAD and (case := self._next(own, queues)) is not None:
                    waiting.append(case)
                    if worker is not None:
                        worker.ask(case)
                if not waiting:
                    return
                if worker is None:
                    worker = self._start()
                    worker.load(self.name)
                    for case in waiting:
                        worker.ask(case)
                worker, problem = self._heard(worker, waiting[0])
                if problem:
                    self._found.put(problem)
                    return
                waiting.popleft()
        except BackendError as error:  # it could be loaded before
            self._found.put(str(error))
        finally:
            self._found.put(None)

    def _heard(self, worker: Worker, case: Planned) -> tuple[Worker | None, str]:
        """Wait for a verdict; give the process, if it is still there, and why no other is to be started."""
        try:
            self._found.put(worker.verdict(self.seconds))
        except InternalError as error:  # the case has no verdict
            self._internal.append(str(error))
        except Gone as gone:
            self._found.put(lost(self.name, case, gone, worker.returns))
            return None, self._too_many(gone)
        return worker, ""

    def _compared(self, verdict: Verdict) -> Verdict:
        """Ask a process that has judged little else for one of the first failures: it may pass there."""
        again = Planned(verdict.case, verdict.group, verdict.rules, verdict.dtype)
        asked = (
            verdict.status == "fail" and verdict.repeatable and {RELATED, REFUSED}.isdisjoint(verdict.traits)
        )
        if not asked or len(self._groups) >= _MOST_ALONE or again.group in self._groups:
            return verdict
        self._groups.add(again.group)
        try:
            if self._other is None:
                self._other = self._start()
                self._other.load(self.name)
            for _ in range(2):  # what is not the same each time may pass once by chance
                self._other.ask(again)
                if self._other.verdict(self.seconds).bad:
                    return verdict
        except (BackendError, Gone):
            self._groups.update(map(str, range(_MOST_ALONE)))  # and no other is asked
            return verdict
        return replace(verdict, alone=False)

    def _next(self, own: deque[Planned], queues: list[deque[Planned]]) -> Planned | None:
        """Take a case of one's own, or of the process that has most left, from the other end."""
        with self._lock:
            if own:
                return own.popleft()
            longest = max(queues, key=len)
            return longest.pop() if longest else None

    def _too_many(self, gone: Gone) -> str:
        with self._lock:
            self._ends += not gone.hung
            self._hangs += gone.hung
        if self._hangs >= MOST_HANGS:
            return f"given up after {self._hangs} cases that did not end"
        return f"given up after its process has ended {self._ends} times" if self._ends >= MOST_ENDS else ""

    def _start(self) -> Worker:
        worker = Worker(self.selection, threads=_share(self.jobs), echo=self.echo)
        with self._lock:
            self._workers.append(worker)
        return worker

    def _not_shown(self, verdicts: list[Verdict]) -> list[Verdict]:
        """After a whole run, make an error of each declared deviation that no case has shown."""
        if self.selection.part != "whole":
            return []
        return self._any().not_shown(shown(verdicts))

    def _header(self, plan: tuple[Planned, ...]) -> Header:
        cases = tuple(case.name for case in plan)
        chosen = self.selection
        return Header(__version__, chosen.part, chosen.seed, cases, level=chosen.level)

    def _any(self) -> Worker:
        """Take a process that has the backend loaded and nothing to do, or start one."""
        for worker in self._workers:
            if worker.idle:
                return worker
        worker = self._start()
        worker.load(self.name)
        return worker


def _queues(plan: tuple[Planned, ...], jobs: int, *, together: bool) -> list[deque[Planned]]:
    """Share out the cases.

    Where a library compiles anew for each dtype, a dtype stays with one process; otherwise a group does.
    """
    keys = dict.fromkeys(case.dtype if together else (case.group or case.name) for case in plan)
    place = {key: number % jobs for number, key in enumerate(keys)}
    queues: list[deque[Planned]] = [deque() for _ in range(min(jobs, max(1, len(keys))))]
    for case in plan:
        queues[place[case.dtype if together else (case.group or case.name)]].append(case)
    return queues


def _share(jobs: int) -> int:
    """Give each of several processes its share of the cores; 0 leaves the number to the libraries.

    Threads of several processes that wait for each other made a run on PyTorch six times as long.
    """
    return max(1, (os.cpu_count() or 1) // jobs) if jobs > 1 else 0


def lost(backend: str, case: Planned, gone: Gone, returns: tuple[str, ...]) -> Verdict:
    """Give a verdict on the case that was being judged when a process ended."""
    return Verdict(
        backend,
        case.name,
        case.group,
        of_outputs(case.rules, returns),
        "error",
        case.dtype,
        rule=case.rules[0],
        reason=str(gone),
        raised=gone.raised,
        refusal=case.refusal,
    )
