"""Run the suite on several backends in turn, and write the results to a file as they come in."""

import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TextIO

from attnspec import __version__
from attnspec.backends.errors import BackendError
from attnspec.conformance.attribution.causes import never_returns
from attnspec.conformance.attribution.finding import Diagnosis, cases_to_diagnose
from attnspec.conformance.attribution.report import Outcome
from attnspec.conformance.outside import plain
from attnspec.conformance.results import Footer, Header, Results, Run, Subject, gathered, line
from attnspec.conformance.run.pool import Event, Pool
from attnspec.conformance.run.progress import Progress
from attnspec.conformance.run.selection import Selection
from attnspec.conformance.run.worker import Gone, Worker
from attnspec.conformance.verdict import Verdict

#: Time limit of a diagnosis in seconds.
_DIAGNOSIS_LIMIT = 30.0


class Interrupted(BaseException):
    """The run was interrupted by a signal.

    Attributes
    ----------
    signal : int
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = number


@dataclass(frozen=True)
class Ran:
    """The outcome of the runs.

    Attributes
    ----------
    results : Results
    diagnoses : mapping of str to Diagnosis
        The diagnosis of each backend that has one.
    signal : int
        The signal that ended the run early, or 0.
    problem : str
        The reason if the file of results is incomplete. Empty if it is complete.
    """

    results: Results
    diagnoses: Mapping[str, Diagnosis]
    signal: int = 0
    problem: str = ""


def run_all(
    names: Sequence[str],
    selection: Selection,
    *,
    jobs: int = 1,
    seconds: float = 300.0,
    echo: bool = False,
    path: Path | None = None,
    fails: Callable[[Verdict], bool] = lambda verdict: verdict.bad,
    stop: bool = False,
    known: Iterable[Verdict] = (),
) -> Ran:
    """Run the suite on backends.

    If a run ends early, the verdicts up to then are returned, and are in the file.
    """
    known = tuple(known)
    runs: list[Run] = []
    diagnoses: dict[str, Diagnosis] = {}
    number = 0
    lines = Lines(path)
    try:
        with _told_to_end():
            for name in dict.fromkeys(names):
                before = {one.case: one for one in known if one.backend == name}
                with Pool(name, selection, jobs, seconds, echo, before) as pool:
                    run = _one(pool, runs, lines.write, fails if stop else lambda _: False)
                    returned = any(fails(one) and not one.ended for one in run.verdicts)
                    if returned and not never_returns(run.verdicts):
                        told = [one for one in run.verdicts if not one.bad or fails(one)]
                        diagnosis = pool.diagnose(cases_to_diagnose(told), _DIAGNOSIS_LIMIT)
                        if diagnosis:
                            diagnoses[name] = diagnosis
    except Interrupted as interrupted:
        number = interrupted.signal
    finally:
        for event in _not_reached(known, selection, runs):
            lines.write(event)
        lines.close()
    return Ran(gathered(runs), diagnoses, number, lines.problem)


def search_all(
    names: Sequence[str], number: int, seed: int | None, folder: Path, tell: Callable[[str], object]
) -> Outcome:
    """Search for failing calls of backends, each in its own process, and report them."""
    outcomes = [Outcome.GOOD]
    for name in dict.fromkeys(names):
        worker = Worker(Selection(seed=seed))
        try:
            worker.load(name)
            good, text = worker.search(number, folder)
            tell(text)
            outcomes.append(Outcome.GOOD if good else Outcome.FAILS)
        except BackendError as error:
            tell(plain(f"error: {error}"))
            outcomes.append(Outcome.NOT_LOADED)
        except Gone as gone:
            place = f", at {gone.raised.file}, line {gone.raised.line}" if gone.raised else ""
            tell(plain(f"error: {name}: the search did not finish: {gone}{place}"))
            outcomes.append(Outcome.NOT_WHOLE)
        finally:
            worker.stop()
    return max(outcomes, key=lambda one: one.status)


def _one(pool: Pool, runs: list[Run], write: Callable[[Event], None], stop: Callable[[Verdict], bool]) -> Run:
    """Run the suite on one backend, and add the run to `runs` at its start."""
    progress = Progress(plain(pool.name), 0)
    try:
        for event in pool.run(stop):
            write(event)
            if isinstance(event, Header):
                runs.append(Run(event, [Subject(pool.name, "", "")]))
                progress.planned = len(event.cases)
            else:
                runs[-1].add(event)
            if isinstance(event, Verdict):
                progress.add(failing=event.bad)
    finally:
        progress.end()
    return runs[-1]


def _not_reached(known: Iterable[Verdict], selection: Selection, runs: Iterable[Run]) -> Iterator[Event]:
    """Yield the verdicts of an earlier run that this run did not repeat, as runs that were cut off."""
    told = {(one.backend, one.case) for run in runs for one in run.verdicts}
    left = [one for one in known if (one.backend, one.case) not in told]
    for name in dict.fromkeys(one.backend for one in left):
        own = [one for one in left if one.backend == name]
        cases = tuple(one.case for one in own)
        yield Header(__version__, selection.part, selection.seed, cases, selection.level, selection.choice)
        yield Subject(name, "", "")
        yield from own


class Lines:
    """A file of results, written line by line, so that an interrupted run loses nothing.

    The file is opened at the first write. If a write fails, the run continues.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.problem = ""
        self._file: TextIO | None = None

    def write(self, event: Event) -> None:
        """Write one event."""
        if self.path is None or self.problem:
            return
        try:
            self._file = self._file or self.path.open("w", encoding="utf-8", buffering=1)
            self._file.write(line(_KINDS[type(event)], event))
        except OSError as error:
            self.problem = f"--results: {error}"

    def close(self) -> None:
        """Close it."""
        with suppress(OSError):
            if self._file is not None:
                self._file.close()


_KINDS = {Header: "header", Subject: "subject", Verdict: "verdict", Footer: "footer"}


@contextmanager
def _told_to_end() -> Iterator[None]:
    """Raise `Interrupted` at the first signal that asks the process to end."""

    def interrupt(number: int, _: FrameType | None) -> None:
        for one in _SIGNALS:
            signal.signal(one, signal.SIG_IGN)
        raise Interrupted(number)

    before = {number: signal.signal(number, interrupt) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_SIGNALS = (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else ()))
