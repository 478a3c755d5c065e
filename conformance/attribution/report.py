"""The content of a report in any format: sorted failures, levels, and the outcome."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from pathlib import Path

from attnspec.conformance.attribution.by_rule import says
from attnspec.conformance.attribution.known_failures import Known, Sorted, sort_failures
from attnspec.conformance.attribution.levels import Standing, chain, rules_of, standings
from attnspec.conformance.results import Results, Subject
from attnspec.conformance.verdict import Verdict


class Outcome(Enum):
    """How a run ended. The value is the exit status; 2 is reserved for a wrong command line.

    Examples
    --------
    >>> from attnspec.conformance.attribution.report import Outcome
    >>> Outcome.NOT_WHOLE.status
    4
    """

    GOOD = 0
    FAILS = 1
    NOT_LOADED = 3
    NOT_WHOLE = 4

    @property
    def status(self) -> int:
        """The exit status."""
        return self.value


_GRAVEST_FIRST = (Outcome.NOT_LOADED, Outcome.FAILS, Outcome.NOT_WHOLE, Outcome.GOOD)


@dataclass(frozen=True)
class Report:
    """A run and its known failures.

    Attributes
    ----------
    results : Results
    known : sequence of Known
        The known failures.
    required : str
        The level that decides whether the run is good. Empty if all rules do.
    pages : Path or None
        The first page of the folder of pages that was written for the same run.
    """

    results: Results
    known: Sequence[Known] = ()
    required: str = ""
    pages: Path | None = None

    @cached_property
    def told(self) -> Results:
        """The results to report. For a run of one level, those of its rules."""
        if not self.results.level:
            return self.results
        rules = {*rules_of(self.results.level)}
        verdicts = self.results.verdicts
        return replace(self.results, verdicts=tuple(one for one in verdicts if rules & {*says(one)}))

    @cached_property
    def failures(self) -> Sorted:
        """The new and known failures, and the stale entries."""
        return sort_failures(self.told, self.known)

    @cached_property
    def known_verdicts(self) -> frozenset[Verdict]:
        """The failures that are known."""
        return frozenset(verdict for verdict, _ in self.failures.known)

    @cached_property
    def outcome(self) -> "Outcome":
        """How the run ended, by the gravest event."""
        found = {self.outcome_of(subject) for subject in self.results.subjects} or {Outcome.NOT_LOADED}
        if self.failures.stale and not self.required:
            found.add(Outcome.FAILS)
        return next(one for one in _GRAVEST_FIRST if one in found)

    def outcome_of(self, subject: Subject) -> "Outcome":
        """How the run ended for one backend."""
        asked = {verdict.status for verdict in self._all_of.get(subject.name, ())}
        if subject.problem and not asked:
            return Outcome.NOT_LOADED
        whole = not subject.problem and not self.results.missing.get(subject.name) and asked - {"unsupported"}
        if self.required:
            reached = any(one.reached for one in self.standings(subject) if one.level == self.required)
            return Outcome.NOT_WHOLE if not whole else Outcome.GOOD if reached else Outcome.FAILS
        if any(verdict.backend == subject.name for verdict in self.failures.new):
            return Outcome.FAILS
        return Outcome.GOOD if whole else Outcome.NOT_WHOLE

    @property
    def good(self) -> bool:
        """Whether every backend was judged completely, without a new failure or a stale entry."""
        return self.outcome is Outcome.GOOD

    @property
    def seed(self) -> int | None:
        """The seed of the generated cases, if it is the same for all runs."""
        seeds = {header.seed for header in self.results.headers}
        return seeds.pop() if len(seeds) == 1 else None

    def verdicts(self, subject: Subject) -> list[Verdict]:
        """Return the verdicts of one backend."""
        return self._told_of.get(subject.name, [])

    @cached_property
    def _all_of(self) -> dict[str, list[Verdict]]:
        return _by_backend(self.results)

    @cached_property
    def _told_of(self) -> dict[str, list[Verdict]]:
        return _by_backend(self.told)

    def standings(self, subject: Subject) -> tuple[Standing, ...]:
        """Return the standings of one backend for each level that was tested completely."""
        level = self.results.level
        not_told = not self.results.whole and not level
        if not_told or subject.problem or self.results.missing.get(subject.name):
            return ()
        found = standings(self.verdicts(subject))
        asked = {one.name for one in chain(level)} if level else {one.level for one in found}
        return tuple(one for one in found if one.level in asked)


def _by_backend(results: Results) -> dict[str, list[Verdict]]:
    found: dict[str, list[Verdict]] = {}
    for verdict in results.verdicts:
        found.setdefault(verdict.backend, []).append(verdict)
    return found
