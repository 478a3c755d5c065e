"""What there is to report of a run, whatever the form: failures sorted, levels reached, good or not."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from attnspec.conformance.report.known_failures import Known, Sorted, sort_failures
from attnspec.conformance.report.levels import Standing, standings
from attnspec.conformance.results import Results, Subject
from attnspec.conformance.verdict import Verdict


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
    def good(self) -> bool:
        """Whether every backend was judged to the end, without a new failure or a stale entry."""
        judged = {verdict.backend for verdict in self.results.verdicts if verdict.status != "unsupported"}
        sound = all(subject.name in judged and not subject.problem for subject in self.results.subjects)
        return sound and bool(self.results.subjects) and not self.failures.new and not self.failures.stale

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
