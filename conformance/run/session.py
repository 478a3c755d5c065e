"""The suite under pytest: an item for each case and backend, judged in a process for each backend."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from attnspec import SpecError, __version__
from attnspec.backends import BackendError, expand
from attnspec.conformance.attribution.levels import check_required, rule_results, rules_of
from attnspec.conformance.attribution.report import Report
from attnspec.conformance.results import Footer, Header, Run, gathered
from attnspec.conformance.run.plugin import SUITE
from attnspec.conformance.run.pool import lost
from attnspec.conformance.run.selection import Selection
from attnspec.conformance.run.worker import Gone, Loaded, Planned, Worker
from attnspec.conformance.verdict import Verdict, from_json, shown, to_json

#: The property of an item's report that holds its verdict, also from an xdist worker.
_PROPERTY = "attnspec.verdict"


class Suite(pytest.Directory):
    """The folder of the suite: its items are the cases, not tests in files."""

    session_: "Session"

    def collect(self) -> Iterator["CaseItem"]:
        """Make an item for each case and backend."""
        for name in self.session_.names:
            for case in self.session_.plans[name]:
                yield CaseItem.from_parent(self, name=f"{case.name}[{name}]", backend=name, case=case)


class Failed(Exception):  # noqa: N818 - it carries a verdict
    """A backend does not conform in a case."""


class CaseItem(pytest.Item):
    """One case or relation on one backend."""

    def __init__(self, *, backend: str, case: Planned, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.backend = backend
        self.case = case
        self.extra_keyword_matches.update((*case.rules, case.group, case.dtype))

    def runtest(self) -> None:
        """Judge the case."""
        suite = self.parent
        assert isinstance(suite, Suite)  # noqa: S101 - for the type checker: it makes the items
        verdict = suite.session_.judged(self.backend, self.case)
        self.user_properties.append((_PROPERTY, to_json(verdict)))
        if verdict.bad and suite.session_.is_outside(verdict):
            from attnspec.conformance.render.text import verdict_line

            pytest.xfail(f"outside of the level: {verdict_line(verdict)}")
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


class Session:
    """The state of a run under pytest."""

    def __init__(self, config: pytest.Config) -> None:
        option = config.getoption
        self.config = config
        self.required = option("--require")
        self.workers: dict[str, Worker] = {}
        #: The backends whose process has ended in a call.
        self.ended: set[str] = set()
        if not option("--backend"):
            raise pytest.UsageError("--backend: expected the name of a backend, got nothing")
        try:
            self.selection = _selected(config)
            check_required(self.required, self.selection.part, self.selection.level)
            level = self.required or self.selection.level
            self.counted = frozenset(rules_of(level) if level else ())
            self.names = list(dict.fromkeys(name for given in option("--backend") for name in expand(given)))
            self.loaded = {name: self._load(name) for name in self.names}
            limits = dict.fromkeys(one.fits for one in self.loaded.values())
            planned = {fits: self._planned(fits) for fits in limits}
            self.plans = {name: planned[one.fits] for name, one in self.loaded.items()}
        except (BackendError, SpecError) as error:
            raise pytest.UsageError(str(error)) from None
        self.runs: dict[str, Run] = {}

    def _load(self, name: str) -> Loaded:
        """Load a backend in a new process, which then judges it."""
        self.workers[name] = Worker(self.selection, copies=name in self.ended)
        return self.workers[name].load(name)

    def _planned(self, fits: str) -> tuple[Planned, ...]:
        """Plan the cases for backends with constraints, in a process that has loaded no backend."""
        planner = Worker(self.selection)
        try:
            return planner.plan(replace(self.selection, fits=fits))
        finally:
            planner.stop()

    def is_outside(self, verdict: Verdict) -> bool:
        """Whether a verdict concerns no rule of the level that is required or selected."""
        return bool(self.counted) and self.counted.isdisjoint(rule_results(verdict))

    @property
    def controls(self) -> bool:
        """Whether this process is not an xdist worker."""
        return not hasattr(self.config, "workerinput")

    def judged(self, name: str, case: Planned) -> Verdict:
        """Judge a case; if its process has ended, the next ones are judged in copies of another."""
        if name not in self.workers:
            self._load(name)
        worker = self.workers[name]
        worker.ask(case)
        try:
            return worker.verdict(self.config.getoption("--time-limit"))
        except Gone as gone:
            self.ended.add(name)
            if not worker.running:
                del self.workers[name]
            return lost(name, case, gone, worker.returns)

    def pytest_collect_directory(self, path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        """Collect the folder of the suite as the suite."""
        if path != SUITE:
            return None
        suite: Suite = Suite.from_parent(parent, path=path)
        suite.session_ = self
        return suite

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Load the backends before the first item; with xdist this process runs no items."""
        items = [item for item in session.items if isinstance(item, CaseItem)]
        selection = self.selection if len(items) == sum(map(len, self.plans.values())) else _CHOSEN
        for name in self.names if self.controls else ():
            cases = tuple(item.case.name for item in items if item.backend == name)
            own = self.selection
            header = Header(__version__, selection.part, own.seed, cases, selection.level, own.choice)
            run = self.runs[name] = Run(header)
            run.add(self.loaded[name].subject)

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
                    self.runs[verdict.backend].add(verdict)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run that has judged less than its plan, or has not shown every declaration."""
        for name, run in self.runs.items():
            stopped = (
                session.shouldfail or session.shouldstop or session.exitstatus > pytest.ExitCode.TESTS_FAILED
            )
            if run.header.part in ("whole", "level") and not stopped:
                if name not in self.workers:  # the last case ended its process
                    self._load(name)
                for verdict in self.workers[name].not_shown(shown(run.verdicts)):
                    if self.selection.shows(verdict.rule):
                        run.add(verdict)
            run.add(Footer(len(run.verdicts)))
        if self.runs and session.exitstatus == pytest.ExitCode.OK and self.report.outcome.status:
            session.exitstatus = self.report.outcome.status
        for worker in self.workers.values():
            worker.stop()

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print failures by rule and the table."""
        from attnspec.conformance.render.screen import screen

        if self.runs:
            terminalreporter.write(screen(self.report, color=terminalreporter.hasmarkup))

    @property
    def report(self) -> Report:
        """The report on the runs."""
        return Report(gathered(self.runs.values()), required=self.required or "")


def _selected(config: pytest.Config) -> Selection:
    """Read the selection from the options."""
    option = config.getoption
    level, rules = option("--level"), tuple(option("--rule"))
    if level and rules:
        raise SpecError("--level: expected either --level or --rule, got both")
    rules = rules_of(level) if level else rules
    return Selection(
        option("--quick"), rules, tuple(option("--case")), level=level or "", seed=option("--seed")
    )


#: The selection of a run in which pytest has deselected cases.
_CHOSEN = Selection(match=("-k",))
