"""Judges a function in this process, for closures and parametrised tests.

A crash or a hang of the function ends or blocks this process. ``attnspec check`` uses separate processes.
"""

import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from attnspec import SpecError
from attnspec.backends import Backend
from attnspec.backends.user.function import describe
from attnspec.conformance.claim import class_of
from attnspec.conformance.judge.deviation import not_shown
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.results import Header, Run, gather
from attnspec.conformance.run.cases import Cases
from attnspec.conformance.run.child import describe_loaded, judge_again, with_traits
from attnspec.conformance.run.events import Loaded, events
from attnspec.conformance.run.plan import Outline, Selection, is_indexed, plan_of
from attnspec.conformance.verdict import Verdict

if TYPE_CHECKING:
    from attnspec.conformance.attribution.report import Report


@dataclass(frozen=True)
class Judged:
    """The result of judging a function."""

    report: "Report"  # the report of the run

    @property
    def good(self) -> bool:
        """Whether it was judged without a wrong value; calls that must be rejected may be accepted."""
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
    level: str = "",
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
    level : str, optional
        Run only cases of the rules of this level.
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
    from attnspec.conformance.attribution.levels import rules_of
    from attnspec.conformance.attribution.report import Report

    backend = describe(function, name=name or ("" if said else _place_of(function)), **said)
    if level and rules:
        raise SpecError("level: expected either level or rules, got both")
    chosen = rules_of(level) if level else tuple(rules)
    selection = Selection(quick, chosen, tuple(cases), level=level, seed=seed)
    run = Run(Header(""))
    place = _Here(backend, Cases(seed, selection.files), is_function=not isinstance(function, Backend))
    for event in events(place, selection):
        run.add(event)
    return Judged(Report(gather([run])))


def _place_of(function: Any) -> str:
    """Return the ``module:name`` from which another process can load a function; empty if there is none."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    target = sys.modules.get(module or "")
    for part in name.split("."):
        target = getattr(target, part, None)
    return f"{module}:{name}" if target is function and module != "__main__" else ""


@dataclass(frozen=True)
class _Here:
    """The place of a run in this process."""

    backend: Backend
    cases: Cases
    is_function: bool

    @property
    def name(self) -> str:
        return self.backend.name

    def plan(self, selection: Selection) -> tuple[Outline, ...]:
        if is_indexed(selection):
            return plan_of(selection)
        return self.cases.plan(selection, self.backend.constraints)

    def load(self) -> Loaded:
        loaded = describe_loaded(self.name, self.backend)
        if not self.is_function:
            return loaded
        # By its name alone, a function that no module has is taken for an adapter.
        return replace(loaded, subject=replace(loaded.subject, kind=class_of(f":{self.name}", self.backend)))

    def judge(self, plan: tuple[Outline, ...]) -> Iterator[Verdict]:
        for outline in plan:
            case = self.cases.find(outline.name, outline.group, self.backend.constraints)
            # The same as in a separate process, except that an interrupt ends the run.
            verdict = judge_again(self.backend, case, judge)
            if outline.calls:  # the index has its traits
                verdict = replace(
                    verdict, traits=outline.traits, numbers=outline.numbers, sizes=outline.sizes
                )
            else:
                verdict = with_traits(verdict, case)
            yield verdict
            self.backend.array_library.release()

    def missing(self, shown: set[str]) -> list[Verdict]:
        return not_shown(self.backend, shown)
