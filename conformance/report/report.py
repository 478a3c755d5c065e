"""What there is to report of a run, whatever the form: failures sorted, levels reached, good or not."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from attnspec.conformance.report.known_failures import Known, Sorted, sort_failures
from attnspec.conformance.report.levels import Standing, standings
from attnspec.conformance.results import Results, Subject
from attnspec.conformance.verdict import Verdict


class Outcome(Enum):
    """How a run ended; the value is the exit status that tells it, and 2 is a wrong command line.

    Examples
    --------
    >>> from attnspec.conformance.report.report import Outcome
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


@dataclass(frozen=True)
class Report:
    """A run and what is known to fail in it.

    Attributes
    ----------
    results : Results
    known : sequence of Known
        The known failures; empty where there are none.
    """

    results: Results
    known: Sequence[Known] = ()

    @cached_property
    def failures(self) -> Sorted:
        """The failures, new and known, and the entries that are stale."""
        return sort_failures(self.results, self.known)

    @cached_property
    def known_verdicts(self) -> frozenset[Verdict]:
        """The failures that are known."""
        return frozenset(verdict for verdict, _ in self.failures.known)

    @property
    def outcome(self) -> "Outcome":
        """How it ended, by the gravest of what happened."""
        subjects = self.results.subjects
        asked = {verdict.backend for verdict in self.results.verdicts}
        judged = {verdict.backend for verdict in self.results.verdicts if verdict.status != "unsupported"}
        if any(one.problem and one.name not in asked for one in subjects) or not subjects:
            return Outcome.NOT_LOADED
        if self.failures.new or self.failures.stale:
            return Outcome.FAILS
        missing = self.results.missing
        if any(one.problem or missing.get(one.name) or one.name not in judged for one in subjects):
            return Outcome.NOT_WHOLE
        return Outcome.GOOD

    @property
    def good(self) -> bool:
        """Whether every backend was judged to the end, without a new failure or a stale entry."""
        return self.outcome is Outcome.GOOD

    @property
    def seed(self) -> int | None:
        """The seed of the generated cases, where all runs had one and the same."""
        seeds = {header.seed for header in self.results.headers}
        return seeds.pop() if len(seeds) == 1 else None

    def verdicts(self, subject: Subject) -> list[Verdict]:
        """Those of one backend."""
        return [verdict for verdict in self.results.verdicts if verdict.backend == subject.name]

    def standings(self, subject: Subject) -> tuple[Standing, ...]:
        """How one backend stands to each level; none where it was not judged by the whole suite."""
        if not self.results.whole or subject.problem:
            return ()
        return standings(self.verdicts(subject))
