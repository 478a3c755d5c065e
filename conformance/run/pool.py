"""Run the suite on one backend: plan the cases, judge them in processes, and yield the verdicts."""

import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Self

from attnspec import SpecError, __version__
from attnspec.backends.errors import BackendError
from attnspec.conformance.attribution.finding import Diagnosis
from attnspec.conformance.judge.output_rules import of_outputs
from attnspec.conformance.results import Footer, Header, Subject
from attnspec.conformance.run.selection import Selection
from attnspec.conformance.run.worker import Gone, InternalError, Planned, Worker
from attnspec.conformance.sizes.limits import memory
from attnspec.conformance.traits import ARBITRARY, REFUSED, RELATED
from attnspec.conformance.verdict import Verdict, shown

#: Number of cases requested ahead, so that a process does not wait for the next request.
_AHEAD = 4
#: Number of crashes after which a run is abandoned. Crashes of copies count only while no call has returned.
MOST_ENDS = 200
#: A run is abandoned after this number of hangs; after up to ten times as many that take less time than this.
MOST_HANGS, HANG_LIMIT = 3, 900.0
#: Calls whose verdict in a fresh process would say nothing: the judged rows are other ones there.
_NOT_ALONE = {RELATED, REFUSED, ARBITRARY}
#: Number of failures, of different groups, that a fresh process repeats.
_MOST_ALONE = 3

Event = Header | Subject | Verdict | Footer


@dataclass
class Pool:
    """The processes of a run."""

    name: str
    selection: Selection
    jobs: int = 1
    seconds: float = 300.0
    echo: bool = False
    known: Mapping[str, Verdict] = field(default_factory=dict)
    _workers: list[Worker] = field(default_factory=list)
    _found: "queue.Queue[Verdict | str | None]" = field(default_factory=queue.Queue)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _ends: int = 0
    _hangs: int = 0
    _starts: int = 0
    _returned: bool = False
    _stopped: bool = False
    _other: Worker | None = None
    _groups: set[str] = field(default_factory=set)
    _internal: list[str] = field(default_factory=list)
    _started: float = field(default_factory=time.monotonic)

    def run(self, stop: Callable[[Verdict], bool] = lambda _: False) -> Iterator[Event]:
        """Judge, and yield the header with the plan, the subject, each verdict, and the footer.

        If there is no footer, the run was interrupted.
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
        verdicts = [self.known[case.name] for case in plan if case.name in self.known]
        yield from verdicts
        left = tuple(case for case in plan if case.name not in self.known)
        for found in self._judge(first, left, together=loaded.compiles):
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

    def diagnose(self, failed: Iterable[tuple[str, str]], seconds: float) -> Diagnosis | None:
        """Find the gallery entries with the same results as the backend; None if none is found in time."""
        with suppress(BackendError, Gone):
            return self._any().diagnose(failed, seconds)
        return None

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
        """Yield the verdicts as they come in, or the reason that no more will come."""
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
        """Judge cases in one process until none are left; replace the process when it ends."""
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
                    worker = self._start(copies=self._has_ended)
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
        """Wait for a verdict. Return the process if it still runs, and the reason to start no other."""
        try:
            verdict = worker.verdict(self.seconds)
            self._returned |= verdict.status != "unsupported" and not verdict.refusal
            self._found.put(verdict)
        except InternalError as error:  # the case has no verdict
            self._internal.append(str(error))
        except Gone as gone:
            self._found.put(lost(self.name, case, gone, worker.returns))
            problem = self._too_many(gone, survived=worker.running)
            return worker if worker.running else None, problem
        return worker, ""

    def _compared(self, verdict: Verdict) -> Verdict:
        """Repeat one of the first failures in a fresh process, where it may pass."""
        again = Planned(verdict.case, verdict.group, verdict.rules, verdict.dtype)
        asked = verdict.status == "fail" and verdict.repeatable and _NOT_ALONE.isdisjoint(verdict.traits)
        if not asked or len(self._groups) >= _MOST_ALONE or again.group in self._groups:
            return verdict
        self._groups.add(again.group)
        try:
            if self._other is None:
                self._other = self._start()
                self._other.load(self.name)
            for _ in range(2):  # an unrepeatable failure may pass once by chance
                self._other.ask(again)
                repeated = self._other.verdict(self.seconds)
                if repeated.bad or repeated.code == "left out":
                    return verdict
        except (BackendError, Gone):
            self._groups.update(map(str, range(_MOST_ALONE)))  # repeat no other failure
            return verdict
        return replace(verdict, alone=False)

    def _next(self, own: deque[Planned], queues: list[deque[Planned]]) -> Planned | None:
        """Take the next case of a queue; if it is empty, the last case of the longest queue."""
        with self._lock:
            if own:
                return own.popleft()
            longest = max(queues, key=len)
            return longest.pop() if longest else None

    @property
    def _has_ended(self) -> bool:
        """Whether a process has ended in a call, or was ended. The next ones make calls in copies."""
        return bool(self._ends or self._hangs)

    def _too_many(self, gone: Gone, *, survived: bool) -> str:
        """Count an end, and return the reason to abandon the run; empty if it goes on."""
        with self._lock:
            self._ends += not gone.hung
            self._starts += not gone.hung and not survived
            self._hangs += gone.hung
        most = min(max(MOST_HANGS, int(HANG_LIMIT // self.seconds)), 10 * MOST_HANGS)
        if self._hangs >= most:
            return f"abandoned after {self._hangs} cases that did not end"
        if self._starts >= MOST_ENDS or (self._ends >= MOST_ENDS and not self._returned):
            returned = "" if self._returned else ", and no call returned"
            return f"abandoned after its process ended {self._ends} times{returned}"
        return ""

    def _start(self, *, copies: bool = False) -> Worker:
        """Start a process; `copies` is for one that replaces a process that has ended."""
        worker = Worker(self.selection, threads=_share(self.jobs), echo=self.echo, copies=copies)
        if self.selection.sizes:
            left = self.selection.within - (time.monotonic() - self._started)
            octets = self.selection.memory * 2**30 or memory() / 2
            worker.limit(max(left, 0.0), octets / self.jobs, self.seconds)
        with self._lock:
            self._workers.append(worker)
        return worker

    def _not_shown(self, verdicts: list[Verdict]) -> list[Verdict]:
        """Make an error for each declaration that the run must show, and that no case has shown."""
        if self.selection.part not in ("whole", "level"):
            return []
        missing = self._any().not_shown(shown(verdicts))
        return [one for one in missing if self.selection.shows(one.rule)]

    def _header(self, plan: tuple[Planned, ...]) -> Header:
        cases = tuple(case.name for case in plan)
        chosen = self.selection
        return Header(__version__, chosen.part, chosen.seed, cases, level=chosen.level, choice=chosen.choice)

    def _any(self) -> Worker:
        """Return an idle process that has loaded the backend, or start one."""
        for worker in self._workers:
            if worker.idle:
                return worker
        worker = self._start()
        worker.load(self.name)
        return worker


def _queues(plan: tuple[Planned, ...], jobs: int, *, together: bool) -> list[deque[Planned]]:
    """Distribute the cases over the processes.

    A group stays in one process. If the library compiles for each dtype, a dtype does instead.
    """
    keys = dict.fromkeys(case.dtype if together else (case.group or case.name) for case in plan)
    place = {key: number % jobs for number, key in enumerate(keys)}
    queues: list[deque[Planned]] = [deque() for _ in range(min(jobs, max(1, len(keys))))]
    for case in plan:
        queues[place[case.dtype if together else (case.group or case.name)]].append(case)
    return queues


def _share(jobs: int) -> int:
    """Return the number of threads for each process; 0 lets the libraries choose.

    With more threads than cores, a run on PyTorch took six times as long.
    """
    return max(1, (os.cpu_count() or 1) // jobs) if jobs > 1 else 0


def lost(backend: str, case: Planned, gone: Gone, returns: tuple[str, ...]) -> Verdict:
    """Make the verdict on the case that was being judged when its process ended."""
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
        code="hung" if gone.hung else "ended",
        refusal=case.refusal,
    )
