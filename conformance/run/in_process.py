"""Judges a function in this process, for closures and parametrised tests.

A crash or a hang of the function ends or blocks this process. ``attnspec check`` uses separate processes.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnspec import SpecError, __version__
from attnspec.backends.user.function import describe
from attnspec.conformance.judge.deviation import not_shown
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.results import Footer, Header, Run, gathered
from attnspec.conformance.run.child import judged, subject_of
from attnspec.conformance.run.selection import Selection
from attnspec.conformance.suite import items
from attnspec.conformance.verdict import shown

if TYPE_CHECKING:
    from attnspec.conformance.attribution.report import Report


@dataclass(frozen=True)
class Judged:
    """The result of judging a function.

    Attributes
    ----------
    report : Report
        The report of the run.
    """

    report: "Report"

    @property
    def good(self) -> bool:
        """Whether it was judged without a failure."""
        return self.report.good

    @property
    def text(self) -> str:
        """The output of `attnspec check`: failures, the table, the levels."""
        from attnspec.conformance.render.screen import screen

        return screen(self.report)

    def __bool__(self) -> bool:
        return self.good

    def __str__(self) -> str:
        return self.text


def check(
    function: Any,
    *,
    name: str = "",
    quick: bool = False,
    rules: Collection[str] = (),
    cases: Collection[str] = (),
    seed: int | None = None,
    **said: Any,
) -> Judged:
    """Judge a function, a callable object, or a `Backend`.

    Parameters
    ----------
    function : callable or Backend
    name : str, optional
        The name in the report, by default that of the function.
    quick : bool, optional
        Run only a fixed part of the suite that touches every rule.
    rules, cases : collection of str, optional
        Run only cases of these rules, or only these cases, by id or name.
    seed : int, optional
        Draw other problems than the fixed ones.
    **said
        The keys of an ``attnspec.toml`` that describe a function: names, layout, dtypes and others.

    Raises
    ------
    BackendError
        If it cannot be called as attention, or a key is unknown.
    SpecError
        If there is no such case.

    Examples
    --------
    >>> from attnspec import reference
    >>> from attnspec.conformance import check
    >>> def kernel(q, k, v):
    ...     return reference.attention(q, k, v, dtype=q.dtype)
    >>> check(kernel, names={"query": "q", "key": "k", "value": "v"}, rules=["SCORE-2"]).good
    True
    """
    from attnspec.conformance.attribution.report import Report

    backend = describe(function, name=name, **said)
    chosen = Selection(quick, tuple(rules), tuple(cases), seed=seed)
    asked = [*items(quick=quick, rules=rules, names=cases, seed=seed, constraints=backend.constraints)]
    named = {name for item in asked for name in (item.id, item.name)}
    if unknown := [one for one in cases if one not in named and not rules]:
        raise SpecError(f"cases: expected ids such as masking-empty-last, got {', '.join(unknown)}")
    run = Run(Header(__version__, chosen.part, seed, tuple(item.name for item in asked)))
    run.add(subject_of(backend.name, backend))
    for item in asked:
        # The same as in a separate process, except that an interrupt ends the run.
        run.add(judged(backend, item, judge))
        backend.array_library.release()
    for verdict in not_shown(backend, shown(run.verdicts)) if chosen.part == "whole" else ():
        run.add(verdict)
    run.add(Footer(len(run.verdicts)))
    return Judged(Report(gathered([run])))
