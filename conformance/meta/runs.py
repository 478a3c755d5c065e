"""The tests of the suite as things that can be run on one backend after the other, in one process."""

import contextlib
import io
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from attnspec import Case
from attnspec.backends import DTYPES, Backend
from attnspec.conformance.gallery.entry import PLACE
from attnspec.conformance.verdict import NOT_SHOWN, UNMET, Verdict

_SUITE = Path(__file__).resolve().parent.parent
#: The backend that the suite is collected with; every other one of the gallery is put in its place.
_COLLECTED = f"{PLACE}:plain"


@dataclass(frozen=True)
class Test:
    """One test of the suite, with its parameters but for the backend.

    Attributes
    ----------
    name : str
        File, function and parameters.
    function : callable
    parameters : mapping of str to object
    rules : tuple of str
        On which it bears.
    item : pytest.Function
        As pytest has collected it.
    """

    __test__ = False  # no test of ours, whatever it is called

    name: str
    function: Callable[..., None]
    parameters: Mapping[str, Any]
    rules: tuple[str, ...]
    item: pytest.Function

    @property
    def case(self) -> Case | None:
        """The golden vector that it is about, if it is."""
        return self.parameters.get("case")

    @cached_property
    def cost(self) -> tuple[int, int, int, str]:
        """By which tests are ordered: golden vectors by their size and dtype, then tests, then properties."""
        if self.case is not None:
            size = sum(np.size(thing) for thing in self.case.arguments.values())
            return 0, size, DTYPES.index(self.parameters.get("dtype", DTYPES[0])), self.name
        return 1 + hasattr(self.function, "hypothesis"), 0, 0, self.name


@dataclass(frozen=True)
class Run:
    """What came of one test on one backend.

    Attributes
    ----------
    test : str
    verdict : Verdict
    seconds : float
    unsound : str
        What went wrong in the test itself, which says nothing of the backend.
    """

    test: str
    verdict: Verdict
    seconds: float
    unsound: str = ""

    @property
    def broken(self) -> tuple[str, ...]:
        """Rules that the backend does not hold, of whatever level."""
        verdict = self.verdict
        if self.unsound or verdict.status == "pass":
            return ()
        if verdict.status in ("fail", "error"):
            return verdict.rules
        return verdict.rules if verdict.message.startswith((UNMET, NOT_SHOWN)) else ()


def collect(*, quick: bool = False) -> tuple[Test, ...]:
    """Collect the suite, by pytest and in its order.

    Parameters
    ----------
    quick : bool, optional
        The part of it that ``--quick`` leaves. A process can collect only one of the two.
    """
    items: list[pytest.Function] = []
    words = [
        "--pyargs",
        "attnspec.conformance",
        "--collect-only",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:terminal",
    ]
    words += ["-c", str(_SUITE / "pytest.ini"), "--rootdir", str(_SUITE), "--no-table", "--assert=plain"]
    words += [f"--backend={_COLLECTED}", *(["--quick"] if quick else [])]
    plugin = SimpleNamespace(pytest_collection_finish=lambda session: items.extend(session.items))
    status = pytest.main(words, plugins=[plugin])
    # A run that judges nothing fails, and this one only collects.
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) or not items:
        raise RuntimeError(f"suite: expected to be collected, got status {status}")
    return tuple(_test(item) for item in items)


def run(test: Test, backend: Backend) -> Run:
    """Run one test on one backend, and say what the suite would say."""
    from attnspec.conformance.judge.failure import Raised
    from attnspec.conformance.outcome import outcome

    parameters = {**test.parameters, "backend": backend}
    recorded: list[tuple[str, object]] = []
    given = dict(parameters)
    if "record_property" in test.item.fixturenames:
        given["record_property"] = lambda name, thing: recorded.append((name, thing))
    error: BaseException | None = None
    started = time.perf_counter()
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            test.function(**given)
    except KeyboardInterrupt:
        raise
    except BaseException as raised:  # noqa: BLE001 - what a backend raises is what it is judged by
        error = raised
    seconds = time.perf_counter() - started
    item = SimpleNamespace(
        callspec=SimpleNamespace(params=parameters),
        name=test.name,
        originalname=test.item.originalname,
        get_closest_marker=test.item.get_closest_marker,
    )
    report = SimpleNamespace(skipped=isinstance(error, pytest.skip.Exception), user_properties=recorded)
    verdict = outcome(cast("pytest.Item", item), cast("pytest.TestReport", report), error)
    if verdict is None:
        raise AssertionError(f"{test.name}: expected a verdict, got none")
    raised_outside = verdict.status == "error" and not isinstance(error, Raised)
    return Run(test.name, verdict, seconds, verdict.message if raised_outside else "")


def _test(item: pytest.Function) -> Test:
    parameters = {name: thing for name, thing in item.callspec.params.items() if name != "backend"}
    marker = item.get_closest_marker("rule")
    case = cast("Case | None", parameters.get("case"))
    marked: tuple[str, ...] = marker.args if marker else ()
    rules = case.rules if case is not None and item.originalname == "test_golden" else marked
    # Parameters stand in brackets, divided by dashes, the backend first or alone.
    name = item.name.replace(f"[{_COLLECTED}-", "[").replace(f"[{_COLLECTED}]", "")
    return Test(f"{item.path.stem}::{name}", item.obj, parameters, rules, item)
