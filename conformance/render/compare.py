"""Compares two runs: regressions, repairs, and new and removed cases."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from attnspec import SpecError
from attnspec.conformance.attribution.known_failures import failure_kind
from attnspec.conformance.outside import one_line
from attnspec.conformance.render.text import verdict_line
from attnspec.conformance.results import Results
from attnspec.conformance.verdict import Verdict

#: The statuses that are not failures, the best first.
_GOOD = ("pass", "deviation", "should not met")
#: If there are more changes of a kind than this, the rest is counted.
_MOST = 40


@dataclass(frozen=True)
class Change:
    """A case of two runs. A verdict is None if the case was not judged."""

    case: str
    before: Verdict | None
    after: Verdict | None

    @property
    def kind(self) -> str:
        """``regressions``, ``repairs`` or ``changed``. Empty if both runs have the same result."""
        before, after = self.before, self.after
        if before is None or after is None:
            return "regressions" if before is not None else "changed" if after is not None else ""
        if before.bad and after.bad:
            same = (failure_kind(before), before.main_rule) == (failure_kind(after), after.main_rule)
            return "" if same else "changed"
        if before.status == after.status:
            return ""
        if before.bad or before.status == "unsupported":
            better = "repairs" if before.bad and after.status in _GOOD else "changed"
            return "regressions" if after.bad else better
        if after.status not in _GOOD or _GOOD.index(after.status) > _GOOD.index(before.status):
            return "regressions"
        return "repairs"

    def __str__(self) -> str:
        verdicts = (self.before, self.after)
        statuses = " -> ".join(verdict.status if verdict else "not judged" for verdict in verdicts)
        shown = next((v for v in reversed(verdicts) if v and v.status != "pass"), None)
        return one_line(f"{self.case}: {statuses}{f': {verdict_line(shown)}' if shown else ''}")


@dataclass(frozen=True)
class Comparison:
    """Changes of the cases that both runs of one backend planned, and the cases that only one planned."""

    changes: tuple[Change, ...]
    new: tuple[Change, ...] = ()
    gone: tuple[Change, ...] = ()

    def changes_of(self, kind: str) -> list[Change]:
        """Return the changes of a kind."""
        return [change for change in self.changes if change.kind == kind]

    def lines(self) -> Iterator[str]:
        """Yield the text, with a line for each change."""
        for kind in ("regressions", "repairs", "changed"):
            changes = self.changes_of(kind)
            yield f"{kind}: {len(changes)}"
            yield from (f"  {change}" for change in changes[:_MOST])
            if len(changes) > _MOST:
                yield f"  and {len(changes) - _MOST} more"
        failing = sum(change.after is not None and change.after.bad for change in self.new)
        yield f"new: {len(self.new)} cases{f', {failing} of which fail' if failing else ''}"
        yield f"gone: {len(self.gone)} cases"


def compare(before: Results, after: Results) -> dict[str, Comparison]:
    """Compare the backends of two runs by their names, or the only backend of each."""
    seeds = [{header.seed for header in run.headers} for run in (before, after)]
    if seeds[0] != seeds[1]:
        got = " and ".join(", ".join(str(seed or "none") for seed in sorted(each, key=str)) for each in seeds)
        raise SpecError(f"compare: expected two runs of one seed, got {got}")
    names = {subject.name: subject.name for subject in after.subjects}
    if len(before.subjects) == len(after.subjects) == 1:
        names = {after.subjects[0].name: before.subjects[0].name}
    lacking = {subject.name for subject in before.subjects} ^ {*names.values()}
    if lacking:
        raise SpecError(
            f"compare: expected the same backends in both, got {', '.join(sorted(lacking))} in one"
        )
    return {
        new: _compare_backend(_planned_verdicts(before, old), _planned_verdicts(after, new))
        for new, old in names.items()
    }


def _planned_verdicts(results: Results, name: str) -> dict[str, Verdict | None]:
    """Return the verdict of each planned case, or None if it has none."""
    planned: dict[str, Verdict | None] = dict.fromkeys(results.missing.get(name, ()))
    for verdict in results.verdicts:
        if verdict.backend == name:
            # A declaration that was not shown belongs to no case.
            planned[verdict.case or f"{verdict.main_rule} {verdict.reason}"] = verdict
    return planned


def _compare_backend(before: Mapping[str, Verdict | None], after: Mapping[str, Verdict | None]) -> Comparison:
    every = [Change(case, before.get(case), after.get(case)) for case in {**before, **after}]
    return Comparison(
        tuple(change for change in every if change.case in before and change.case in after),
        tuple(change for change in every if change.case not in before),
        tuple(change for change in every if change.case not in after),
    )
