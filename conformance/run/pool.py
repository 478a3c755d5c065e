"""Judges the cases of one backend in other processes, several at once, and replaces those that end."""

import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Self

from attnspec import SpecError
from attnspec.backends.errors import BackendError
from attnspec.conformance.attribution.finding import Diagnosis
from attnspec.conformance.run.events import Abandoned, Loaded
from attnspec.conformance.run.plan import Outline, Selection, is_indexed, plan_of
from attnspec.conformance.run.worker import Ended, InternalError, Worker
from attnspec.conformance.traits import ARBITRARY, REFUSED, RELATED
from attnspec.conformance.verdict import Verdict, rules_with_outputs

#: Number of cases requested ahead, so that a process does not wait for the next request.
_AHEAD = 4
#: Number of crashes after which a run is abandoned. Crashes of copies count only while no call has returned.
MOST_CRASHES = 200
#: A run is abandoned after this number of hangs; after up to ten times as many that take less time than this.
MOST_HANGS, HANG_LIMIT = 3, 900.0
#: A run is abandoned after failing cases took this time in all, or that of as many hangs.
SLOW_LIMIT = 900.0
#: Calls whose verdict in a fresh process would say nothing: the judged rows are other ones there.
_NOT_ALONE = {RELATED, REFUSED, ARBITRARY}
#: Number of failures, of different groups, that a fresh process repeats.
_MOST_ALONE = 3
#: The largest number of earlier calls that are made again: the last ones before the call that fails.
_MOST_EARLIER = 400
#: Seconds after which no further process is started.
_MOST_OF_SEARCH = 60.0
#: The places of the numbers of queries and of keys among the sizes of a call.
_QUERIES_AND_KEYS = slice(3, 5)

#: Makes calls in a new process and then the failing one. Returns its verdict.
Trial = Callable[[Sequence[Outline]], Verdict]


@dataclass
class Pool:
    """The processes of a run, where the cases of one backend are judged."""

    name: str
    selection: Selection
    jobs: int = 1
    seconds: float = 300.0
    echo: bool = False
    _workers: list[Worker] = field(default_factory=list)
    _verdicts: "queue.Queue[Verdict | Abandoned | None]" = field(default_factory=queue.Queue)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _crashes: int = 0
    _hangs: int = 0
    _restarts: int = 0
    _failing: float = 0.0
    _has_returned: bool = False
    _is_stopped: bool = False
    _fresh: Worker | None = None
    _repeated: set[str] = field(default_factory=set)
    _done: list[Outline] = field(default_factory=list)
    _is_found: bool = False
    _internal: list[str] = field(default_factory=list)
    _began: float = field(default_factory=time.monotonic)
    _loaded: Loaded | None = None

    def __enter__(self) -> Self:
        worker = self._start()
        if is_indexed(self.selection):
            worker.request_load(self.name)  # while this process plans
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def plan(self, selection: Selection) -> tuple[Outline, ...]:
        """Plan here if the index has the cases, otherwise in a process that has not loaded the backend."""
        plan = self._plan(selection)
        if not plan:
            raise SpecError("case: expected some that fit what was asked for, got none")
        return plan

    def _plan(self, selection: Selection) -> tuple[Outline, ...]:
        if is_indexed(selection):
            return plan_of(selection)
        if not self._workers[0].is_loading:
            return self._workers[0].plan(selection)
        planner = self._start()
        try:
            return planner.plan(selection)
        finally:
            planner.stop()

    def load(self) -> Loaded:
        """Load the backend in the first process."""
        self._loaded = self._workers[0].load(self.name)
        return self._loaded

    def judge(self, plan: tuple[Outline, ...]) -> Iterator[Verdict]:
        """Judge cases, and yield the verdicts as they come in."""
        queues = _queues(plan, self.jobs, together=bool(self._loaded and self._loaded.compiles))
        threads = [
            threading.Thread(target=self._drive, args=(number, queues, worker), daemon=True)
            for number, worker in zip_longest(range(len(queues)), self._workers[:1])
        ]
        for thread in threads:
            thread.start()
        running = len(threads)
        while running:
            verdict = self._verdicts.get()
            if isinstance(verdict, Abandoned):
                raise verdict
            if verdict is None:
                running -= 1
            else:
                # A single case was the first one of its process, which is as good as a fresh one.
                yield self._compare(verdict) if len(plan) > 1 else verdict
                if verdict.status not in ("unsupported", "error"):
                    case = Outline(verdict.case, verdict.group, verdict.rules, verdict.dtype)
                    self._done.append(case._replace(sizes=verdict.sizes))
        if self._internal:
            more = f" (and {len(self._internal) - 1} more)" if self._internal[1:] else ""
            raise Abandoned(f"{self._internal[0]}{more}")

    def missing(self, shown: set[str]) -> list[Verdict]:
        """Make an error for each declaration that was not shown."""
        try:
            return self._idle().missing(shown)
        except (BackendError, Ended) as error:
            raise Abandoned(f"what it declares was not judged: {error}") from error

    def diagnose(self, cases: Iterable[tuple[str, str]], seconds: float | None) -> Diagnosis | None:
        """Find the gallery entries with the same results as the backend; None if none is found in time."""
        with suppress(BackendError, Ended):
            return self._idle().diagnose(cases, seconds)
        return None

    def probe(self, cases: Iterable[tuple[str, str]], seconds: float) -> str:
        """Say on which sizes it depends whether calls like some cases fail; empty if that is not found."""
        with suppress(BackendError, Ended):
            return self._idle().probe(cases, seconds)
        return ""

    def stop(self) -> None:
        """End all processes."""
        with self._lock:
            self._is_stopped = True
            workers = list(self._workers)
        for worker in workers:
            worker.stop()

    def _drive(self, number: int, queues: list[deque[Outline]], worker: Worker | None) -> None:
        """Judge cases in one process until none are left; replace the process when it ends."""
        waiting: deque[Outline] = deque()
        try:
            while not self._is_stopped:
                while len(waiting) < _AHEAD and (case := self._next(queues[number], queues)) is not None:
                    waiting.append(case)
                    if worker is not None:
                        worker.request(case)
                if not waiting:
                    return
                if worker is None:
                    worker = self._start(number, copies=bool(self._crashes or self._hangs))
                    worker.load(self.name)
                    for case in waiting:
                        worker.request(case)
                worker = self._receive(worker, waiting[0])
                waiting.popleft()
        except Abandoned as reason:
            self._verdicts.put(reason)
        except BackendError as error:  # it could be loaded before
            self._verdicts.put(Abandoned(str(error)))
        finally:
            self._verdicts.put(None)

    def _receive(self, worker: Worker, case: Outline) -> Worker | None:
        """Wait for a verdict. Return the process if it still runs."""
        began = time.monotonic()
        try:
            verdict = worker.verdict(self.seconds)
            self._has_returned |= verdict.status != "unsupported" and not verdict.refusal
            self._verdicts.put(verdict)
            self._count_time(verdict, time.monotonic() - began)
        except InternalError as error:  # the case has no verdict
            self._internal.append(str(error))
        except Ended as end:
            self._verdicts.put(verdict_of_end(self.name, case, end, worker.returns))
            self._count(end, survived=worker.is_running)
        else:
            return worker  # if it has ended since, the next verdict says how
        return worker if worker.is_running else None

    def _compare(self, verdict: Verdict) -> Verdict:
        """Repeat one of the first failures in a fresh process, where it may pass."""
        again = Outline(verdict.case, verdict.group, verdict.rules, verdict.dtype)
        may_pass = verdict.status == "fail" and verdict.repeatable and _NOT_ALONE.isdisjoint(verdict.traits)
        if not may_pass or len(self._repeated) >= _MOST_ALONE or again.group in self._repeated:
            return verdict
        self._repeated.add(again.group)
        try:
            if self._fresh is None:
                self._fresh = self._start()
                self._fresh.load(self.name)
            for _ in range(2):  # an unrepeatable failure may pass once by chance
                self._fresh.request(again)
                repeated = self._fresh.verdict(self.seconds)
                if repeated.bad or repeated.code == "left out":
                    return verdict
        except (BackendError, Ended):
            self._repeated.update(map(str, range(_MOST_ALONE)))  # repeat no other failure
            return verdict
        return self._with_earlier(replace(verdict, alone=False), again)

    def _with_earlier(self, verdict: Verdict, again: Outline) -> Verdict:
        """Add one earlier call after which it fails, and what it returns then, if that is found soon."""
        if self.selection.sizes or self._is_found:
            return verdict

        def trial(calls: Sequence[Outline]) -> Verdict:
            worker = self._start()
            worker.load(self.name)
            try:
                for case in (*calls, again):
                    worker.request(case)
                return [worker.verdict(self.seconds) for _ in (*calls, again)][-1]
            finally:
                worker.stop()

        with suppress(BackendError, Ended):
            if found := earlier_call(trial, self._done, verdict):
                self._is_found = True
                after, failing = found
                return replace(verdict, after=after, difference=failing.difference)
        return verdict

    def _next(self, own: deque[Outline], queues: list[deque[Outline]]) -> Outline | None:
        """Take the next case of a queue; if it is empty, the last case of the longest queue."""
        with self._lock:
            if own:
                return own.popleft()
            longest = max(queues, key=len)
            return longest.pop() if longest else None

    def _count(self, end: Ended, *, survived: bool) -> None:
        """Count the end of a process, and abandon the run after too many."""
        with self._lock:
            self._crashes += not end.hung
            self._restarts += not end.hung and not survived
            self._hangs += end.hung
        most = min(max(MOST_HANGS, int(HANG_LIMIT // self.seconds)), 10 * MOST_HANGS)
        if self._hangs >= most:
            raise Abandoned(f"abandoned after {self._hangs} cases that did not end")
        if self._restarts >= MOST_CRASHES or (self._crashes >= MOST_CRASHES and not self._has_returned):
            returned = "" if self._has_returned else ", and no call returned"
            raise Abandoned(f"abandoned after its process ended {self._crashes} times{returned}")

    def _count_time(self, verdict: Verdict, seconds: float) -> None:
        """Count the time of failing cases by the clock of this process; abandon the run after too much."""
        with self._lock:
            self._failing += seconds if verdict.bad else 0.0
        most = max(SLOW_LIMIT, MOST_HANGS * self.seconds)
        if self._failing > most:
            raise Abandoned(f"abandoned after failing cases took {most:g} s")

    def _start(self, number: int = 0, *, copies: bool = False) -> Worker:
        """Start a process; `copies` is for one that replaces a process that has ended."""
        threads = _threads(self.jobs)
        worker = Worker(self.selection, self.name, number, threads=threads, echo=self.echo, copies=copies)
        if self.selection.sizes:
            from attnspec.conformance.sizes.limits import memory

            left = self.selection.within - (time.monotonic() - self._began)
            octets = self.selection.memory * 2**30 or memory() / 2
            worker.limit(max(left, 0.0), octets / self.jobs, self.seconds)
        with self._lock:
            self._workers.append(worker)
        return worker

    def _idle(self) -> Worker:
        """Return an idle process that has loaded the backend, or start one."""
        for worker in self._workers:
            if worker.is_idle:
                return worker
        worker = self._start()
        worker.load(self.name)
        return worker


def _queues(plan: tuple[Outline, ...], jobs: int, *, together: bool) -> list[deque[Outline]]:
    """Distribute the cases over the processes.

    A group stays in one process. If the library compiles for each dtype, a dtype does instead.
    """
    keys = dict.fromkeys(case.dtype if together else (case.group or case.name) for case in plan)
    place = {key: number % jobs for number, key in enumerate(keys)}
    queues: list[deque[Outline]] = [deque() for _ in range(min(jobs, max(1, len(keys))))]
    for case in plan:
        queues[place[case.dtype if together else (case.group or case.name)]].append(case)
    return queues


def _threads(jobs: int) -> int:
    """Return the number of threads for each process; 0 lets the libraries choose.

    With more threads than cores, a run on PyTorch took six times as long.
    """
    return max(1, (os.cpu_count() or 1) // jobs) if jobs > 1 else 0


def verdict_of_end(backend: str, case: Outline, end: Ended, returns: tuple[str, ...]) -> Verdict:
    """Make the verdict on the case that was being judged when its process ended."""
    return Verdict(
        backend,
        case.name,
        case.group,
        rules_with_outputs(case.rules, returns),
        "error",
        case.dtype,
        rule=case.rules[0],
        reason=str(end),
        raised=end.raised,
        refusal=case.refusal,
        code="hung" if end.hung else "ended",
    )


def earlier_call(trial: Trial, done: Sequence[Outline], failing: Verdict) -> tuple[str, Verdict] | None:
    """Return the name of one earlier call after which a call fails, and how it fails then.

    What is remembered often has the sizes of the call, so calls of as many queries and keys come first.
    Halves are tried by turns. If only several calls together make it fail, none is found.
    """
    began = time.monotonic()
    own = failing.sizes[_QUERIES_AND_KEYS]
    alike = [case for case in done if case.sizes[_QUERIES_AND_KEYS] == own]
    for calls in (alike, done):
        part, found = [*calls[-_MOST_EARLIER:]], None
        halves = [part]
        while halves and time.monotonic() - began < _MOST_OF_SEARCH:
            half = halves.pop()
            if half and (verdict := trial(half)).status == "fail" and verdict.difference:
                part, found = half, verdict
                middle = len(half) // 2
                halves = [half[:middle], half[middle:]] if middle else []
        if found and len(part) == 1:
            return part[0].name, found
    return None
