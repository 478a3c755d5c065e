"""The pytest plugin: ``--backend``, the parameter of that name, verdicts and the table.

It is read at every start of pytest wherever attnspec is installed, so it declares
its options only when the suite is what is run, and imports what is heavy only then.
"""

from __future__ import annotations

import faulthandler
import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

    from attnspec.backends import Backend
    from attnspec.conformance.verdict import Footer, Header, Results, Subject, Verdict

_SUITE = Path(__file__).resolve().parent
#: Under this name a test's verdict travels in its report, from an xdist worker too.
_PROPERTY = "attnspec.verdict"
#: Options by which only a part of the suite runs.
_CHOICES = ("keyword", "markexpr", "deselect", "quick", "rule", "case")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser, args: list[str]
) -> None:
    """Declare the options, unless other tests are run: they may have a ``--backend`` of their own."""
    if any(_names_suite(word) for word in args):
        early_config.stash[_ours] = True
        group = parser.getgroup("attnspec", "attention conformance")
        group.addoption(
            "--backend",
            action="append",
            default=[],
            metavar="NAME",
            help="what to judge: a name, a library or module:function; may be repeated (default: numpy)",
        )
        group.addoption(
            "--quick", action="store_true", help="a fixed part of the suite that touches every rule"
        )
        group.addoption(
            "--rule", action="append", default=[], metavar="ID", help="only tests that bear on this rule"
        )
        group.addoption("--case", action="append", default=[], metavar="ID", help="only this golden vector")
        group.addoption(
            "--seed", type=int, metavar="N", help="other examples of each property (default: a fixed choice)"
        )
        group.addoption("--results", metavar="FILE", help="write the verdicts to FILE as JSON lines")
        group.addoption(
            "--resume", action="store_true", help="go on after a crash: leave out what FILE has a verdict on"
        )
        group.addoption("--running", metavar="FILE", help="keep in FILE which test is under way")
        group.addoption(
            "--no-table", action="store_true", help="leave failures and table to who reads the results"
        )
        group.addoption(
            "--time-limit", type=float, default=300.0, metavar="SECONDS", help="for one test (300)"
        )


def pytest_configure(config: pytest.Config) -> None:
    """Register what keeps the state of a run."""
    config.addinivalue_line(
        "markers", "rule(*ids, variants): attnspec rules and variants that a test bears on"
    )
    if config.stash.get(_ours, False):
        run = Run(config, tuple(config.getoption("--backend")) or ("numpy",))
        run.check_names()
        run.check_ids()
        _choose_extent(quick=config.getoption("--quick"))
        config.pluginmanager.register(run, "attnspec-run")


_ours = pytest.StashKey[bool]()


class Run:
    """One run of the suite: the backends, and the verdicts as they come in.

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
        self._before = self._found_before()
        self._loaded: list[tuple[Subject, Backend | None]] | None = None

    def check_names(self) -> list[str]:
        """Turn what was asked for into names of backends.

        Raises
        ------
        pytest.UsageError
            When something goes by no such name.
        """
        from attnspec.backends.errors import BackendError
        from attnspec.backends.names import expand

        try:
            return list(dict.fromkeys(name for given in self.wanted for name in expand(given)))
        except BackendError as error:
            raise pytest.UsageError(str(error)) from None

    @property
    def loaded(self) -> list[tuple[Subject, Backend | None]]:
        """Each backend asked for; None, with the problem, for one that cannot be used."""
        from attnspec.backends import BackendError, load
        from attnspec.conformance.verdict import Subject

        if self._loaded is None:
            self._loaded = []
            if not self._before:
                self._write("header", self.header)
            for name in self.check_names():
                try:
                    backend = load(name)
                except BackendError as error:
                    self._loaded.append((Subject(name, "", "", str(error)), None))
                else:
                    self._loaded.append((Subject(name, backend.library, backend.version), backend))
                if not self._before:
                    self._write("subject", self._loaded[-1][0])
        return self._loaded

    def pytest_sessionstart(self) -> None:
        """Load the backends before any verdict comes in: with xdist nothing else asks for them here."""
        self.loaded  # noqa: B018 - read for what it does

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run each test of the suite on each backend that can be used."""
        if "backend" in metafunc.fixturenames and _of_suite(metafunc.definition):
            backends = [backend for _, backend in self.loaded if backend is not None]
            metafunc.parametrize("backend", backends, ids=[backend.name for backend in backends])

    def check_ids(self) -> None:
        """Refuse ids that the standard does not have: they would select nothing.

        Raises
        ------
        pytest.UsageError
            Naming the option, what it got and what was expected.
        """
        from attnspec import SpecError, find_case, find_rule

        try:
            for rule_id in self.config.getoption("--rule"):
                find_rule(rule_id)
            for case_id in self.config.getoption("--case"):
                find_case(case_id)
        except SpecError as error:
            raise pytest.UsageError(str(error)) from None

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out what was not asked for, and give the properties their seed."""
        import hypothesis

        from attnspec.conformance.selection import is_selected

        wanted = {"quick": config.getoption("--quick")}
        wanted |= {"rules": config.getoption("--rule"), "cases": config.getoption("--case")}
        ours = [item for item in items if isinstance(item, pytest.Function) and _of_suite(item)]
        left_out = {item for item in ours if not is_selected(item, **wanted)}
        left_out |= {item for item in ours if item.name in self._before}
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=list(left_out))
        seed = config.getoption("--seed")
        if seed is not None:
            for function in {item.function for item in ours if hasattr(item.function, "hypothesis")}:
                hypothesis.seed(seed)(function)

    def pytest_report_header(self) -> str:
        """Say which part is run, so that it can be run again."""
        seed = self.config.getoption("--seed")
        part = "quick part" if self.config.getoption("--quick") else "whole suite"
        return f"attnspec: {part}, seed {'fixed' if seed is None else seed}"

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        """End the process when a test does not end: nothing gentler stops a kernel that hangs.

        After it, let go of what JAX keeps of it.
        """
        from attnspec.backends.library.jax_compilation import release_sources
        from attnspec.conformance.judge import deviations

        deviations.begin(item.name)
        self._tell_running(item)
        faulthandler.dump_traceback_later(self.config.getoption("--time-limit"), exit=True)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
            release_sources()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Turn the outcome of a test of the suite into a verdict, and its traceback into the finding."""
        report = yield
        if not _of_suite(item) or (report.when != "call" and not report.failed):
            return report
        from attnspec.conformance.outcome import outcome

        report.sections.clear()  # what a kernel prints is not what it is judged by, and can be megabytes
        verdict = outcome(item, report, call.excinfo.value if call.excinfo else None)
        if verdict is None:
            return report
        if verdict.status == "deviation":
            report.outcome, report.longrepr = "passed", None  # a SHOULD that is not met fails no run
        elif verdict.status == "unsupported" and not report.skipped:
            report.outcome = "skipped"
            report.longrepr = (str(item.path), item.location[1] or 0, verdict.message)
        elif verdict.status in ("fail", "error"):
            report.longrepr = verdict.message
        report.user_properties.append((_PROPERTY, vars(verdict)))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect the verdicts, those of xdist workers among them."""
        from attnspec.conformance.verdict import Verdict, verdict_of

        for name, entry in report.user_properties:
            if name == _PROPERTY and isinstance(entry, dict):
                self._take(verdict_of(entry))
        if str(report.when) == "???" and report.failed:  # how xdist reports a worker that is gone
            test = report.nodeid.partition("::")[2]
            names = [subject.name for subject, _ in self.loaded if f"[{subject.name}" in test]
            message = f"{max(names, key=len)} ended the process\nin {test}"
            self._take(Verdict(max(names, key=len), (), test, "error", message))

    def _take(self, verdict: Verdict) -> None:
        self.verdicts.append(verdict)
        self._write("verdict", verdict)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """End the results, and let a backend that was not judged fail the run."""
        if not hasattr(self.config, "workerinput"):
            from attnspec.conformance.verdict import Footer

            self._require_shown(session)
            judged = {verdict.backend for verdict in self.verdicts if verdict.status != "unsupported"}
            if any(subject.name not in judged for subject, _ in self.loaded):
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
            self._write("footer", Footer(len(self._before) + len(self.verdicts)))

    def _require_shown(self, session: pytest.Session) -> None:
        """After a whole run, make an error of each declared deviation that no test has shown."""
        from attnspec.conformance.judge.deviations import not_shown

        stopped = (
            session.shouldfail or session.shouldstop or session.exitstatus > pytest.ExitCode.TESTS_FAILED
        )
        chosen = any(getattr(self.config.option, name, None) for name in _CHOICES)
        if stopped or chosen or not _whole(self.config.args):
            return
        for verdict in not_shown(self.loaded, self.verdicts):
            self._take(verdict)
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print failures by rule, the table, and a line for each backend that cannot be used."""
        from attnspec.conformance.report.report import Report
        from attnspec.conformance.report.table import render

        if not self.config.getoption("--no-table"):
            report = Report(self.results)
            terminalreporter.write(render(report.results, color=terminalreporter.hasmarkup))
            for subject in report.results.subjects:
                terminalreporter.write_line(f"{subject.name}: {report.levels(subject)}")

    @property
    def results(self) -> Results:
        """What is known so far."""
        from attnspec.conformance.verdict import Results

        subjects = tuple(subject for subject, _ in self.loaded)
        return Results(subjects, tuple(self.verdicts), (self.header,))

    def _found_before(self) -> set[str]:
        """Name the tests that a run before this one has a verdict on, where this one goes on after it."""
        if not self.config.getoption("--resume"):
            return set()
        from attnspec.conformance.verdict import read

        return {verdict.test for verdict in read([Path(self.config.getoption("--results"))]).verdicts}

    @property
    def header(self) -> Header:
        """What is run: the version, which part, the seed."""
        from attnspec import __version__
        from attnspec.conformance.verdict import Header

        options = self.config.option
        chosen = any(getattr(options, name, None) for name in _CHOICES if name != "quick")
        part = "chosen" if chosen or not _whole(self.config.args) else "quick" if options.quick else "whole"
        return Header(__version__, part, options.seed)

    def _tell_running(self, item: pytest.Item) -> None:
        """Leave word of the test under way, for whoever finds this process gone."""
        path = self.config.getoption("--running")
        if path and not hasattr(self.config, "workerinput"):
            from attnspec.conformance.outcome import rules_of

            Path(path).write_text(json.dumps([item.name, rules_of(item)]), encoding="utf-8")

    def _write(self, kind: str, thing: Header | Subject | Verdict | Footer) -> None:
        """Add a line to the results at once, so that a crash loses nothing that was found before."""
        path = self.config.getoption("--results")
        if path and not hasattr(self.config, "workerinput"):
            from attnspec.conformance.verdict import line

            with Path(path).open("a", encoding="utf-8") as file:
                file.write(line(kind, thing))


def _choose_extent(*, quick: bool) -> None:
    from attnspec.conformance.extent import choose

    choose(quick=quick)


def _names_suite(word: str) -> bool:
    if word.startswith("attnspec.conformance"):
        return True
    path = Path(word.partition("::")[0])
    return not word.startswith("-") and path.exists() and _SUITE in (path.resolve(), *path.resolve().parents)


def _whole(args: list[str]) -> bool:
    """Whether the suite is asked for as a whole."""
    return any(word == "attnspec.conformance" or Path(word).resolve() == _SUITE for word in args)


def _of_suite(node: pytest.Item | pytest.Function) -> bool:
    return _is_in_suite(node.path)


@cache
def _is_in_suite(path: Path) -> bool:
    """Whether a file is one of the suite's; there are few files, and thousands of tests."""
    return path.resolve().parent == _SUITE
