"""One run of the suite under pytest: an item for each case and backend, and the verdicts as they come in."""

import faulthandler
import json
from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from attnspec import SpecError, __version__, find_rule
from attnspec.backends import Backend, BackendError, expand, load
from attnspec.conformance.judge.deviation import not_shown
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.results import Footer, Header, Results, Subject, line, read
from attnspec.conformance.run.plugin import SUITE
from attnspec.conformance.suite import items, require
from attnspec.conformance.suite.group import Item
from attnspec.conformance.verdict import Verdict, from_json, to_json

#: Under this name a verdict travels in the report of its item, from an xdist worker too.
_PROPERTY = "attnspec.verdict"
#: Options by which only a part of the suite runs.
_CHOICES = ("keyword", "markexpr", "deselect", "quick", "rule", "case")


class Suite(pytest.Directory):
    """The folder of the suite: its items are the cases, not tests in files."""

    run: "Run"

    def collect(self) -> Iterator["CaseItem"]:
        """Make an item of each case for each backend."""
        for backend in self.run.backends:
            for item in self.run.chosen():
                yield CaseItem.from_parent(
                    self, name=f"{item.name}[{backend.name}]", backend=backend, case=item
                )


class Failed(Exception):  # noqa: N818 - it carries a verdict, and is no error of ours
    """A verdict by which a backend does not conform."""


class CaseItem(pytest.Item):
    """One case or relation on one backend."""

    def __init__(self, *, backend: Backend, case: Item, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.backend = backend
        self.case = case
        self.extra_keyword_matches.update((*case.rules, case.group, case.dtype))
        if hasattr(self.config, "workerinput"):  # of xdist, which knows the marker
            self.add_marker(pytest.mark.xdist_group(case.dtype))

    def runtest(self) -> None:
        """Judge; a failure is repeated once, to tell whether it is one each time."""
        verdict = judge(self.backend, self.case)
        if verdict.bad and judge(self.backend, self.case).status != verdict.status:
            verdict = replace(verdict, repeatable=False)
        self.user_properties.append((_PROPERTY, to_json(verdict)))
        if verdict.bad:
            raise Failed(verdict)
        if verdict.status == "unsupported":
            pytest.skip(verdict.reason or f"{verdict.rule} is not shown")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Write the verdict, or the traceback of an error of ours."""
        if isinstance(excinfo.value, Failed):
            from attnspec.conformance.report.text import said

            return said(excinfo.value.args[0])
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Say where the item stands: in no file."""
        return SUITE, None, self.name


class Run:
    """The state of a run.

    Parameters
    ----------
    config : pytest.Config
    wanted : tuple of str
        What was asked for by ``--backend``.
    """

    def __init__(self, config: pytest.Config, wanted: tuple[str, ...]) -> None:
        self.config = config
        self.wanted = wanted
        self.verdicts: list[Verdict] = []
        self.before = self._judged_before()
        self._loaded: list[tuple[Subject, Backend | None]] | None = None

    def check_options(self) -> None:
        """Refuse names of backends, rules and cases that there are not: they would select nothing.

        Raises
        ------
        pytest.UsageError
            Naming the option, what it got and what was expected.
        """
        try:
            self.names()
            for rule_id in self.config.getoption("--rule"):
                find_rule(rule_id)
            for name in self.config.getoption("--case"):
                require(name, self.config.getoption("--seed"))
        except (BackendError, SpecError) as error:
            raise pytest.UsageError(str(error)) from None

    def keep_dtypes_together(self) -> None:
        """Have each dtype in one process, where a library compiles anew for each: `-n` would do it twice."""
        parallel = getattr(self.config.option, "numprocesses", None)
        if parallel and any(backend.array_library.compile for backend in self.backends):
            self.config.option.dist = "loadgroup"

    def names(self) -> list[str]:
        """Turn what was asked for into names of backends."""
        return list(dict.fromkeys(name for given in self.wanted for name in expand(given)))

    @property
    def backends(self) -> list[Backend]:
        """Those that can be used."""
        return [backend for _, backend in self.loaded if backend is not None]

    @property
    def loaded(self) -> list[tuple[Subject, Backend | None]]:
        """Each backend asked for; None, with the problem, for one that cannot be used."""
        if self._loaded is None:
            self._loaded = []
            if not self.before:
                self._write("header", self.header)
            for name in self.names():
                try:
                    backend = load(name)
                except BackendError as error:
                    self._loaded.append((Subject(name, "", "", str(error)), None))
                else:
                    note = "; ".join(backend.notes)
                    subject = Subject(name, backend.library, backend.version, note=note)
                    self._loaded.append((subject, backend))
                if not self.before:
                    self._write("subject", self._loaded[-1][0])
        return self._loaded

    def chosen(self) -> Iterator[Item]:
        """Yield the cases that were asked for and have no verdict yet."""
        option = self.config.getoption
        found = items(
            quick=option("--quick"), rules=option("--rule"), names=option("--case"), seed=option("--seed")
        )
        return (item for item in found if item.name not in self.before)

    def pytest_collect_directory(self, path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        """Take the folder of the suite for the suite."""
        if path != SUITE:
            return None
        suite: Suite = Suite.from_parent(parent, path=path)
        suite.run = self
        return suite

    def pytest_sessionstart(self) -> None:
        """Load the backends before any verdict comes in: with xdist nothing else asks for them here."""
        self.loaded  # noqa: B018 - read for what it does

    def pytest_report_header(self) -> str:
        """Say which part is run, so that it can be run again."""
        seed = self.config.getoption("--seed")
        part = "quick part" if self.config.getoption("--quick") else "whole suite"
        return f"attnspec: {part}, seed {'fixed' if seed is None else seed}"

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        """End the process when a case does not end: nothing gentler stops a kernel that hangs.

        After it, let go of what the library keeps of it.
        """
        self._tell_running(item)
        faulthandler.dump_traceback_later(self.config.getoption("--time-limit"), exit=True)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
            if isinstance(item, CaseItem):
                item.backend.array_library.release()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Drop what a kernel prints: it is not judged by it, and it can be megabytes."""
        report = yield
        report.sections.clear()
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect the verdicts, those of xdist workers among them."""
        if report.when == "call":
            for name, entry in report.user_properties:
                if name == _PROPERTY and isinstance(entry, dict):
                    self._take(from_json(entry))
        if str(report.when) == "???" and report.failed:  # how xdist reports a worker that is gone
            item = report.nodeid.rpartition("::")[2].rpartition("@")[0] or report.nodeid.rpartition("::")[2]
            case, _, name = item.rstrip("]").partition("[")
            self._take(Verdict(name, case, "", (), "error", reason="ended the process"))

    def _take(self, verdict: Verdict) -> None:
        self.verdicts.append(verdict)
        self._write("verdict", verdict)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """End the results, and let a backend that was not judged fail the run."""
        if hasattr(self.config, "workerinput"):
            return
        self._require_shown(session)
        judged = {verdict.backend for verdict in self.verdicts if verdict.status != "unsupported"}
        if any(subject.name not in judged for subject, _ in self.loaded):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        self._write("footer", Footer(len(self.before) + len(self.verdicts)))

    def _require_shown(self, session: pytest.Session) -> None:
        """After a whole run, make an error of each declared deviation that no case has shown."""
        stopped = (
            session.shouldfail or session.shouldstop or session.exitstatus > pytest.ExitCode.TESTS_FAILED
        )
        if stopped or self.header.part != "whole":
            return
        known = [*self.verdicts, *(self._results_before().verdicts if self.before else ())]
        for verdict in not_shown(self.backends, known):
            self._take(verdict)
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print failures by rule, the table, and a line for each backend that cannot be used."""
        from attnspec.conformance.report.report import Report
        from attnspec.conformance.report.screen import screen

        if not self.config.getoption("--no-table"):
            terminalreporter.write(screen(Report(self.results), color=terminalreporter.hasmarkup))

    @property
    def results(self) -> Results:
        """What is known so far."""
        subjects = tuple(subject for subject, _ in self.loaded)
        return Results(subjects, tuple(self.verdicts), (self.header,))

    @property
    def header(self) -> Header:
        """What is run: the version, which part, the seed."""
        options = self.config.option
        chosen = any(getattr(options, name, None) for name in _CHOICES if name != "quick")
        part = "chosen" if chosen else "quick" if options.quick else "whole"
        return Header(__version__, part, options.seed)

    def _judged_before(self) -> frozenset[str]:
        """Name the cases that a run before this one has a verdict on, where this one goes on after it."""
        if not self.config.getoption("--resume"):
            return frozenset()
        return frozenset(verdict.case for verdict in self._results_before().verdicts)

    def _results_before(self) -> Results:
        return read([Path(self.config.getoption("--results"))])

    def _tell_running(self, item: pytest.Item) -> None:
        """Leave word of the case being judged, for whoever finds this process gone."""
        path = self.config.getoption("--running")
        if path and isinstance(item, CaseItem) and not hasattr(self.config, "workerinput"):
            said = {"case": item.case.name, "group": item.case.group, "rules": item.case.rules}
            Path(path).write_text(json.dumps(said), encoding="utf-8")

    def _write(self, kind: str, thing: Header | Subject | Verdict | Footer) -> None:
        """Add a line to the results at once, so that a crash loses nothing that was found before."""
        path = self.config.getoption("--results")
        if path and not hasattr(self.config, "workerinput"):
            with Path(path).open("a", encoding="utf-8") as file:
                file.write(line(kind, thing))
