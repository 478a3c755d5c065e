"""The suite under pytest: an item for each case and backend, judged in a process for each backend."""

import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from attnspec import SpecError
from attnspec.backends import BackendError, expand
from attnspec.conformance.attribution.levels import VALUES, check_required, rule_results, rules_of
from attnspec.conformance.attribution.report import Report
from attnspec.conformance.results import Header, Results, Run, gather
from attnspec.conformance.run import SUITE
from attnspec.conformance.run.events import Event, Loaded, Offer, events
from attnspec.conformance.run.plan import Outline, Selection, is_indexed, plan_of
from attnspec.conformance.run.pool import verdict_of_end
from attnspec.conformance.run.worker import Ended, Worker
from attnspec.conformance.verdict import Verdict, from_json, to_json

#: The property of an item's report that holds its verdict, also from an xdist worker.
_PROPERTY = "attnspec.verdict"


class Suite(pytest.Directory):
    """The folder of the suite: its items are the cases, not tests in files."""

    session_: "Session"

    def collect(self) -> Iterator["CaseItem"]:
        """Make an item for each case and backend."""
        for name, plan in self.session_.plans.items():
            for case in plan:
                yield CaseItem.from_parent(self, name=f"{case.name}[{name}]", backend=name, case=case)


class Failed(Exception):  # noqa: N818 - it carries a verdict
    """A backend does not conform in a case."""


class CaseItem(pytest.Item):
    """One case or relation on one backend."""

    def __init__(self, *, backend: str, case: Outline, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.backend = backend
        self.case = case
        self.extra_keyword_matches.update((*case.rules, case.group, case.dtype))

    def runtest(self) -> None:
        """Judge the case."""
        suite = self.parent
        assert isinstance(suite, Suite)  # noqa: S101 - for the type checker: it makes the items
        verdict = suite.session_.items[self.backend].verdict(self.case)
        self.user_properties.append((_PROPERTY, to_json(verdict)))
        if verdict.bad and (why := suite.session_.why_not_counted(verdict)):
            from attnspec.conformance.render.text import verdict_line

            pytest.xfail(f"{why}: {verdict_line(verdict)}")
        if verdict.bad:
            raise Failed(verdict)
        if verdict.status == "unsupported":
            pytest.skip(verdict.reason or f"{verdict.rule} is not shown")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Print the verdict, or the traceback of an error in this package."""
        if isinstance(excinfo.value, Failed):
            from attnspec.conformance.render.text import verdict_text

            return verdict_text(excinfo.value.args[0])
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return the location of the item, which is not in a file."""
        return SUITE, None, self.name


@dataclass
class Items:
    """The items of one backend: where its cases are judged, one at a time, as pytest asks for them."""

    name: str
    selection: Selection
    seconds: float
    #: The verdicts that came in, also from xdist workers, and were not taken yet.
    verdicts: deque[Verdict] = field(default_factory=deque)
    #: The cases that pytest has selected. None before it has.
    cases: tuple[Outline, ...] | None = None
    #: Whether pytest has selected every case of the plan, and judged the last one.
    is_whole: bool = True
    _worker: Worker | None = None
    _has_ended: bool = False
    _loaded: Loaded | None = None
    _offer: Offer | None = None

    def plan(self, selection: Selection) -> tuple[Outline, ...]:
        """Plan the selected cases in this process, or in one that has loaded no backend."""
        if self.cases is not None:
            return self.cases
        if is_indexed(selection):
            return plan_of(selection)
        planner = Worker(self.selection, self.name)
        try:
            return planner.plan(selection)
        finally:
            planner.stop()

    def load(self) -> Loaded:
        """Load the backend in a new process, which then judges it, unless that is done."""
        if self._loaded is None:
            loaded = self._start().load(self.name)
            self._offer = loaded.offer
            # Every item has its own verdict, also on a case that the backend does not offer.
            self._loaded = replace(loaded, offer=None)
        return self._loaded

    def _start(self) -> Worker:
        """Start a process. The calls after one that ended its process are made in copies of another."""
        number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
        self._worker = Worker(self.selection, self.name, number, copies=self._has_ended)
        return self._worker

    def verdict(self, case: Outline) -> Verdict:
        """Judge a case."""
        if self._offer is not None and (verdict := self._offer.verdict(case)):
            return verdict
        worker = self._running()
        worker.request(case)
        try:
            return worker.verdict(self.seconds)
        except Ended as end:
            self._has_ended = True
            return verdict_of_end(self.name, case, end, worker.returns)

    def _running(self) -> Worker:
        """Return a process that has loaded the backend."""
        if self._worker is None or not self._worker.is_running:
            self._start().load(self.name)
        assert self._worker is not None  # noqa: S101 - for the type checker: it has just been started
        return self._worker

    def judge(self, plan: tuple[Outline, ...]) -> Iterator[Verdict]:
        """Yield the verdicts that came in."""
        del plan  # pytest keeps it
        while self.verdicts:
            yield self.verdicts.popleft()

    def missing(self, shown: set[str]) -> list[Verdict]:
        """Make an error for each declaration that was not shown."""
        return self._running().missing(shown) if self.is_whole else []

    def stop(self) -> None:
        """End the process."""
        if self._worker is not None:
            self._worker.stop()


class Session:
    """The state of a run under pytest."""

    def __init__(self, config: pytest.Config) -> None:
        option = config.getoption
        self.config = config
        self.required = option("--require")
        # Processes that judge import what this one would.
        own = (*map(str, config.getini("pythonpath")), os.environ.get("PYTHONPATH"))
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, own))
        if not option("--backend"):
            raise pytest.UsageError("--backend: expected the name of a backend, got nothing")
        try:
            self.selection = _selection(config)
            check_required(self.required, self.selection.part, self.selection.level)
            level = self.report_of(Results((), ())).level or self.selection.level
            self.counted = frozenset(rules_of(level) if level else ())
            names = dict.fromkeys(name for given in option("--backend") for name in expand(given))
            seconds = option("--time-limit")
            self.items = {name: Items(name, self.selection, seconds) for name in names}
            self.plans = self._plans()
        except (BackendError, SpecError) as error:
            raise pytest.UsageError(str(error)) from None
        self.runs: dict[str, Run] = {}
        self._events: dict[str, Iterator[Event]] = {}

    def _plans(self) -> dict[str, tuple[Outline, ...]]:
        """Plan the cases of each backend. Those with equal constraints share a plan."""
        plans: dict[str, tuple[Outline, ...]] = {}
        for items in self.items.values():
            fits = items.load().fits
            if fits not in plans:
                plans[fits] = items.plan(replace(self.selection, fits=fits))
        return {name: plans[items.load().fits] for name, items in self.items.items()}

    def why_not_counted(self, verdict: Verdict) -> str:
        """Return why a failure does not count: its rule is outside of the level, or the call is accepted."""
        if self.counted and self.counted.isdisjoint(rule_results(verdict)):
            return "outside of the level"
        return "refusals are not required" if self.report_of(Results((), ())).waives(verdict) else ""

    @property
    def controls(self) -> bool:
        """Whether this process is not an xdist worker."""
        return not hasattr(self.config, "workerinput")

    def pytest_collect_directory(self, path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        """Collect the folder of the suite as the suite."""
        if path != SUITE:
            return None
        suite: Suite = Suite.from_parent(parent, path=path)
        suite.session_ = self
        return suite

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Load the backends before the first item; with xdist this process runs no items."""
        chosen = [item for item in session.items if isinstance(item, CaseItem)]
        is_whole = len(chosen) == sum(map(len, self.plans.values()))
        for name, items in self.items.items() if self.controls else ():
            items.is_whole = is_whole
            items.cases = tuple(item.case for item in chosen if item.backend == name)
            self._events[name] = events(items, self.selection)
            header, subject = islice(self._events[name], 2)
            assert isinstance(header, Header)  # noqa: S101 - for the type checker: it is the first
            self.runs[name] = Run(header if is_whole else replace(header, part="chosen", level=""))
            self.runs[name].add(subject)

    def pytest_report_header(self) -> str:
        """Print the part and the seed, so that the run can be repeated."""
        seed = "fixed" if self.selection.seed is None else self.selection.seed
        return f"attnspec: {self.selection.part}, seed {seed}"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect the verdicts, including those of xdist workers."""
        if report.when == "call":
            for name, entry in report.user_properties:
                if name == _PROPERTY and isinstance(entry, dict):
                    verdict = from_json(entry)
                    self.items[verdict.backend].verdicts.append(verdict)
                    self.runs[verdict.backend].add(next(self._events[verdict.backend]))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run that has judged less than its plan, or has not shown every declaration."""
        if session.config.option.collectonly:  # nothing was to be judged
            self.runs.clear()
        stopped = (
            session.shouldfail or session.shouldstop or session.exitstatus > pytest.ExitCode.TESTS_FAILED
        )
        for name, run in self.runs.items():
            self.items[name].is_whole &= not stopped
            for event in self._events[name]:
                run.add(event)
        if self.runs and session.exitstatus == pytest.ExitCode.OK and self.report.outcome.status:
            session.exitstatus = self.report.outcome.status
        for items in self.items.values():
            items.stop()

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print failures by rule and the table."""
        from attnspec.conformance.render.screen import screen

        if self.runs:
            terminalreporter.write(screen(self.report, color=terminalreporter.hasmarkup))

    @property
    def report(self) -> Report:
        """The report on the runs."""
        return self.report_of(gather(self.runs.values()))

    def report_of(self, results: Results) -> Report:
        """Report on results by what the options require."""
        return Report(results, required=self.required or VALUES)


def _selection(config: pytest.Config) -> Selection:
    """Read the selection from the options."""
    option = config.getoption
    level, rules = option("--level"), tuple(option("--rule"))
    if level and rules:
        raise SpecError("--level: expected either --level or --rule, got both")
    rules = rules_of(level) if level else rules
    return Selection(
        option("--quick"), rules, tuple(option("--case")), level=level or "", seed=option("--seed")
    )
