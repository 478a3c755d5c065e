"""Compares two runs: regressions, repairs, and new and removed cases."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from attnspec import SpecError
from attnspec.conformance.attribution.known_failures import kind
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
    """A case of two runs.

    Attributes
    ----------
    case : str
    before, after : Verdict or None
        None if the case was not judged.
    """

    case: str
    before: Verdict | None
    after: Verdict | None

    @property
    def sort(self) -> str:
        """Its kind: ``regressions``, ``repairs`` or ``changed``. Empty if both runs have the same result."""
        before, after = self.before, self.after
        if before is None or after is None:
            return "regressions" if before is not None else "changed" if after is not None else ""
        if before.bad and after.bad:
            return "changed" if (kind(before), before.main_rule) != (kind(after), after.main_rule) else ""
        if before.status == after.status:
            return ""
        if before.bad or before.status == "unsupported":
            better = "repairs" if before.bad and after.status in _GOOD else "changed"
            return "regressions" if after.bad else better
        if after.status not in _GOOD or _GOOD.index(after.status) > _GOOD.index(before.status):
            return "regressions"
        return "repairs"

    def __str__(self) -> str:
        statuses = (one.status if one else "not judged" for one in (self.before, self.after))
        verdict = next((one for one in (self.after, self.before) if one and one.status != "pass"), None)
        return one_line(
            f"{self.case}: {' -> '.join(statuses)}{f': {verdict_line(verdict)}' if verdict else ''}"
        )


@dataclass(frozen=True)
class Comparison:
    """The differences between two runs of one backend.

    Attributes
    ----------
    changes : tuple of Change
        Changes of the cases that both runs planned.
    new, gone : tuple of Change
        Cases that only one of the runs planned.
    """

    changes: tuple[Change, ...]
    new: tuple[Change, ...] = ()
    gone: tuple[Change, ...] = ()

    def of(self, sort: str) -> list[Change]:
        """Return the changes of a kind."""
        return [change for change in self.changes if change.sort == sort]

    def lines(self) -> Iterator[str]:
        """Yield the text, with a line for each change."""
        for sort in ("regressions", "repairs", "changed"):
            found = self.of(sort)
            yield f"{sort}: {len(found)}"
            yield from (f"  {change}" for change in found[:_MOST])
            if len(found) > _MOST:
                yield f"  and {len(found) - _MOST} more"
        failing = [change for change in self.new if change.after is not None and change.after.bad]
        yield f"new: {len(self.new)} cases{f', {len(failing)} of which fail' if failing else ''}"
        yield f"gone: {len(self.gone)} cases"


def compare(before: Results, after: Results) -> dict[str, Comparison]:
    """Compare the backends of two runs by their names, or the only backend of each.

    Examples
    --------
    >>> from attnspec.conformance.render.compare import compare
    >>> from attnspec.conformance.results import Results, Subject
    >>> from attnspec.conformance.verdict import Verdict
    >>> runs = [
    ...     Results((Subject("b", "numpy", "2"),), (Verdict("b", "softmax-000", "", ("SOFT-1",), status),))
    ...     for status in ("pass", "fail")
    ... ]
    >>> list(compare(*runs)["b"].lines())[:2]
    ['regressions: 1', '  softmax-000: pass -> fail: SOFT-1 Weights are the softmax of each row']
    """
    seeds = [{header.seed for header in run.headers} for run in (before, after)]
    if seeds[0] != seeds[1]:
        said = (", ".join(str(seed or "none") for seed in sorted(each, key=str)) for each in seeds)
        raise SpecError(f"compare: expected two runs of one seed, got {' and '.join(said)}")
    names = {one.name: one.name for one in after.subjects}
    if len(before.subjects) == len(after.subjects) == 1:
        names = {after.subjects[0].name: before.subjects[0].name}
    lacking = {one.name for one in before.subjects} ^ {*names.values()}
    if lacking:
        raise SpecError(
            f"compare: expected the same backends in both, got {', '.join(sorted(lacking))} in one"
        )
    return {new: _of_one(_planned(before, old), _planned(after, new)) for new, old in names.items()}


def _planned(results: Results, name: str) -> dict[str, Verdict | None]:
    """Return the verdict of each planned case, or None if it has none."""
    found: dict[str, Verdict | None] = dict.fromkeys(results.missing.get(name, ()))
    for verdict in results.verdicts:
        if verdict.backend == name:
            # A declaration that was not shown belongs to no case.
            found[verdict.case or f"{verdict.main_rule} {verdict.reason}"] = verdict
    return found


def _of_one(before: Mapping[str, Verdict | None], after: Mapping[str, Verdict | None]) -> Comparison:
    changes = [Change(case, before.get(case), after.get(case)) for case in dict.fromkeys((*before, *after))]
    return Comparison(
        tuple(one for one in changes if one.case in before and one.case in after),
        tuple(one for one in changes if one.case not in before),
        tuple(one for one in changes if one.case not in after),
    )
