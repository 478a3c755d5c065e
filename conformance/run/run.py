"""Run the suite on several backends in turn, show the progress, and write the results as they come in.

The progress is on one line of a terminal, or on occasional lines of a log. It does not say how much time is
left. The last cases take a hundred times as long as the first, and many of them may be unsupported, so no
estimate from the judged cases holds.
"""

import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TextIO

from attnspec import __version__
from attnspec.conformance.attribution.exceptions import never_returns
from attnspec.conformance.attribution.finding import Diagnosis
from attnspec.conformance.attribution.precision import is_slight
from attnspec.conformance.attribution.sample import FEWEST_CASES, cases_to_diagnose, cases_to_probe
from attnspec.conformance.outside import plain
from attnspec.conformance.results import Footer, Header, Results, Run, Subject, gather, line
from attnspec.conformance.run.events import Event, events
from attnspec.conformance.run.plan import Selection
from attnspec.conformance.run.pool import Pool
from attnspec.conformance.verdict import Verdict

#: Seconds between updates, on a terminal and in a log.
_ON_TERMINAL, _IN_LOG = 0.2, 30.0
#: A first failure that says little waits for so many failures, or seconds.
_ENOUGH, _WAIT = 5, 2.0
#: Maximum length of a name, so that the numbers after it fit on the line.
_MOST = 30


@dataclass
class Progress:
    """The progress of one run."""

    name: str
    planned: int
    judged: int = 0
    failing: int = 0
    _started: float = field(default_factory=time.monotonic)
    _said: float = field(default_factory=time.monotonic)
    _shown: int = 0

    def add(self, *, failing: bool) -> None:
        """Count a verdict, and show the progress if an update is due."""
        self.judged += 1
        self.failing += failing
        now = time.monotonic()
        terminal = sys.stderr.isatty()
        if now - self._said < (_ON_TERMINAL if terminal else _IN_LOG):
            return
        self._said = now
        if terminal:
            self._show(self.text(now - self._started)[: shutil.get_terminal_size().columns - 1])
        else:
            sys.stderr.write(self.text(now - self._started) + "\n")
            sys.stderr.flush()

    def text(self, seconds: float) -> str:
        """Return the text of the progress after some seconds."""
        name = " ".join(self.name.split())
        name = name if len(name) <= _MOST else f"{name[: _MOST - 3]}..."
        failing = f", {self.failing} failing" if self.failing else ""
        passed = f"{seconds / 60:.0f} min" if seconds >= 100 else f"{seconds:.0f} s"
        return f"{name}: {self.judged} of {self.planned} cases judged{failing}, after {passed}"

    def end(self) -> None:
        """Clear the line of a terminal, if there is one."""
        if self._shown:
            self._show("")
            sys.stderr.write("\r")
            sys.stderr.flush()

    def _show(self, text: str) -> None:
        """Overwrite the previous line, which may have been longer."""
        sys.stderr.write(f"\r{text:{self._shown}}")
        sys.stderr.flush()
        self._shown = len(text)


#: The seconds of a process in which all entries are compared with a cause, if this is not asked for.
DIAGNOSIS_SECONDS = 1.0
#: The time of probes in seconds, without and with `explain`.
PROBE_SECONDS = (1.0, 20.0)


class Interrupted(BaseException):
    """The run was interrupted by a signal."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = number


@dataclass(frozen=True)
class Runs:
    """What the runs gave."""

    results: Results
    diagnoses: Mapping[str, Mapping[str, Diagnosis]]  # by backend and by the rule of the cause
    probes: Mapping[str, Mapping[str, str]]  # what probes show, by the same
    signal: int = 0  # the signal that ended the run early, or 0
    #: The reason if the file of results is incomplete. Empty if it is complete.
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
    explain: bool = False,
    show: Callable[[Verdict], None] = lambda _: None,
) -> Runs:
    """Run the suite on backends, and show the first failure of each at once.

    If a run ends early, the verdicts up to then are returned, and are in the file. A diagnosis
    compares likely entries of the gallery, and all others for a second, unless `explain` allows more.
    """
    known = tuple(known)
    runs: list[Run] = []
    diagnoses: dict[str, Mapping[str, Diagnosis]] = {}
    probes: dict[str, Mapping[str, str]] = {}
    number = 0
    lines = Lines(path)
    try:
        with _interruptible():
            for name in dict.fromkeys(names):
                before = {verdict.case: verdict for verdict in known if verdict.backend == name}
                with Pool(name, selection, jobs, seconds, echo) as pool:
                    stops = fails if stop else lambda _: False
                    run = _run(pool, runs, lines.write, before, stops, _First(fails, show))
                    if of_causes := _diagnose(
                        pool, run.verdicts, fails, None if explain else DIAGNOSIS_SECONDS
                    ):
                        diagnoses[name] = of_causes
                    probes[name] = _probe(pool, run.verdicts, fails, of_causes, explain=explain)
    except Interrupted as interrupted:
        number = interrupted.signal
    finally:
        for event in _not_reached(known, selection, runs):
            lines.write(event)
        lines.close()
    return Runs(gather(runs), diagnoses, probes, number, lines.problem)


def _diagnose(
    pool: Pool, verdicts: Sequence[Verdict], fails: Callable[[Verdict], bool], seconds: float | None
) -> dict[str, Diagnosis]:
    """Find the gallery entries that the causes of a backend resemble, each with the rule of the cause.

    There are none if all failures are known or no call returns.
    """
    returned = any(fails(verdict) and not verdict.ended for verdict in verdicts)
    if len(verdicts) < FEWEST_CASES or not returned or never_returns(verdicts):
        return {}
    telling = [verdict for verdict in verdicts if not verdict.bad or fails(verdict)]
    samples = cases_to_diagnose(telling, many=seconds is None)
    diagnoses = {rule: pool.diagnose(cases, seconds) for rule, cases in samples}
    return {rule: diagnosis for rule, diagnosis in diagnoses.items() if diagnosis}


def _probe(
    pool: Pool,
    verdicts: Sequence[Verdict],
    fails: Callable[[Verdict], bool],
    diagnoses: Mapping[str, Diagnosis],
    *,
    explain: bool,
) -> dict[str, str]:
    """Probe the first cause, with its rule, unless a diagnosis explains it."""
    telling = [verdict for verdict in verdicts if not verdict.bad or fails(verdict)]
    rule, cases = cases_to_probe(telling)
    if not cases or (rule in diagnoses and diagnoses[rule].failing > 1 and not diagnoses[rule].path):
        return {}
    return {rule: pool.probe(cases, PROBE_SECONDS[explain])}


@dataclass
class _First:
    """The first failure of a run, which is shown when it is found.

    As the report begins with a wrong value, an exception and an error of few budgets wait for one: until the
    end of the run, until there are some failures, or for some seconds.
    """

    fails: Callable[[Verdict], bool]
    show: Callable[[Verdict], None]
    _seen: list[Verdict] = field(default_factory=list)
    _until: float = 0.0
    _shown: bool = False

    def add(self, verdict: Verdict, before: Callable[[], None]) -> None:
        """Show a failure if one is due, after a function is called."""
        if self._shown:
            return
        plain_value = verdict.difference is not None and not is_slight(verdict)
        if self.fails(verdict):
            self._until = self._until if self._seen else time.monotonic() + _WAIT
            self._seen.insert(0 if plain_value else len(self._seen), verdict)
        due = plain_value or len(self._seen) >= _ENOUGH or time.monotonic() > self._until
        if self._seen and due:
            before()
            self.end()

    def end(self) -> None:
        """Show the first failure, unless one was shown."""
        if self._seen and not self._shown:
            self._shown = True
            self.show(self._seen[0])


def _run(
    pool: Pool,
    runs: list[Run],
    write: Callable[[Event], None],
    known: Mapping[str, Verdict],
    stop: Callable[[Verdict], bool],
    first: "_First",
) -> Run:
    """Run the suite on one backend, and add the run to `runs` at its start."""
    progress = Progress(plain(pool.name), 0)
    try:
        for event in events(pool, pool.selection, known, stop):
            write(event)
            if isinstance(event, Header):
                runs.append(Run(event, [Subject(pool.name, "", "")]))
                progress.planned = len(event.cases)
            runs[-1].add(event)
            if isinstance(event, Verdict):
                first.add(event, progress.end)
                progress.add(failing=first.fails(event))
    finally:
        progress.end()
        first.end()
    return runs[-1]


def _not_reached(known: Iterable[Verdict], selection: Selection, runs: Iterable[Run]) -> Iterator[Event]:
    """Yield the verdicts of an earlier run that this run did not repeat, as runs that were cut off."""
    reached = {(verdict.backend, verdict.case) for run in runs for verdict in run.verdicts}
    left = [verdict for verdict in known if (verdict.backend, verdict.case) not in reached]
    for name in dict.fromkeys(verdict.backend for verdict in left):
        own = [verdict for verdict in left if verdict.backend == name]
        cases = tuple(verdict.case for verdict in own)
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
def _interruptible() -> Iterator[None]:
    """Raise `Interrupted` at the first signal that asks the process to end."""

    def interrupt(number: int, _: FrameType | None) -> None:
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        raise Interrupted(number)

    before = {number: signal.signal(number, interrupt) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_SIGNALS = (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else ()))
