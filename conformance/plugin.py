"""The pytest plugin: ``--backend``, the parameter of that name, verdicts and the table.

It is read at every start of pytest wherever attnspec is installed, so everything
heavy is imported when the suite is run and not before.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

    from attnspec.backends import Backend
    from attnspec.conformance.verdict import Results, Subject, Verdict

_SUITE = Path(__file__).resolve().parent
#: Under this name a test's verdict travels in its report, from an xdist worker too.
_PROPERTY = "attnspec.verdict"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options of the suite."""
    group = parser.getgroup("attnspec", "attention conformance")
    group.addoption(
        "--backend",
        action="append",
        default=[],
        metavar="NAME",
        help="what to judge: a name, a library or module:function; may be repeated (default: numpy)",
    )
    group.addoption("--results", metavar="FILE", default=None, help="write the verdicts to FILE as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Register what keeps the state of a run."""
    config.addinivalue_line(
        "markers",
        "rule(*ids, variants): the rules of attnspec that a test bears on, and variants it verifies",
    )
    wanted = config.getoption("--backend")
    run = Run(config, tuple(wanted) or ("numpy",))
    if wanted:
        run.check_names()
    config.pluginmanager.register(run, "attnspec-run")


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
        self._loaded: list[tuple[Subject, Backend | None]] | None = None

    def check_names(self) -> list[str]:
        """Turn what was asked for into names of backends.

        Raises
        ------
        pytest.UsageError
            When something goes by no such name.
        """
        from attnspec.backends.backend import BackendError
        from attnspec.backends.registry import expand

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
            for name in self.check_names():
                try:
                    backend = load(name)
                except BackendError as error:
                    self._loaded.append((Subject(name, "", "", str(error)), None))
                else:
                    self._loaded.append((Subject(name, backend.library, backend.version), backend))
        return self._loaded

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run each test of the suite on each backend that can be used."""
        if "backend" in metafunc.fixturenames and _of_suite(metafunc.definition):
            backends = [backend for _, backend in self.loaded if backend is not None]
            metafunc.parametrize("backend", backends, ids=[backend.name for backend in backends])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Turn the outcome of a test of the suite into a verdict, and its traceback into the finding."""
        report = yield
        if not _of_suite(item) or (report.when != "call" and not report.failed):
            return report
        from attnspec.conformance.outcome import outcome

        verdict = outcome(item, report, call.excinfo.value if call.excinfo else None)
        if verdict is None:
            return report
        if verdict.status == "unsupported" and not report.skipped:
            report.outcome = "skipped"
            report.longrepr = (str(item.path), item.location[1] or 0, verdict.message)
        elif verdict.status in ("fail", "error"):
            report.longrepr = verdict.message
        report.user_properties.append((_PROPERTY, vars(verdict)))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect the verdicts, those of xdist workers among them."""
        from attnspec.conformance.verdict import Verdict

        for name, entry in report.user_properties:
            if name == _PROPERTY and isinstance(entry, dict):
                self.verdicts.append(Verdict(**{**entry, "rules": tuple(entry["rules"])}))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Save the results, and let a backend that cannot be used fail the run."""
        if not self.ran or hasattr(self.config, "workerinput"):
            return
        from attnspec import __version__
        from attnspec.conformance.verdict import write

        if path := self.config.getoption("--results"):
            write(self.results, Path(path), __version__)
        if any(backend is None for _, backend in self.loaded):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the table, and a line for each backend that cannot be used."""
        if not self.ran:
            return
        from attnspec.conformance.summary import render

        markup = terminalreporter.hasmarkup
        terminalreporter.write(render(self.results, color=markup))

    @property
    def ran(self) -> bool:
        """Whether any test of the suite was asked for in this run."""
        return bool(self.verdicts) or self._loaded is not None

    @property
    def results(self) -> Results:
        """What is known so far."""
        from attnspec.conformance.verdict import Results

        return Results(tuple(subject for subject, _ in self.loaded), tuple(self.verdicts))


def _of_suite(node: pytest.Item | pytest.Function) -> bool:
    return node.path.resolve().parent == _SUITE
