"""The content of a report in any format: findings, known failures, levels, and the outcome."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from pathlib import Path

from attnspec.conformance.attribution.causes import by_backend, findings, unmet
from attnspec.conformance.attribution.finding import Diagnosis, Finding
from attnspec.conformance.attribution.known_failures import Known, SortedFailures, sort_failures
from attnspec.conformance.attribution.levels import (
    ACCEPTED,
    KNOWN,
    REFUSALS,
    VALUES,
    Standing,
    chain,
    rule_results,
    rules_of,
    standings,
)
from attnspec.conformance.results import Results, Subject
from attnspec.conformance.verdict import Verdict


class Outcome(Enum):
    """How a run ended. The value is the exit status; 2 is reserved for a wrong command line."""

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
    """A run, its known failures, and what decides whether it is good.

    `required` is ``values``: every value must be right, and a call that must be rejected may return.
    ``refusals`` requires both. A level requires its rules alone.

    The default is ``values``, because a wrong value misleads every caller, and a check that is missing only
    those with a wrong call; kernels leave it to their callers.

    JUnit lists unsupported cases if `unsupported` says so.

    `pages` is the first page of the folder of pages that was written for the same run. `diagnoses` are those
    of the causes of a backend, by its name and the rule of the cause, and so are `probes`. `seconds` is the
    time of the whole run.
    """

    results: Results
    known: Sequence[Known] = ()
    required: str = VALUES
    pages: Path | None = None
    diagnoses: Mapping[str, Mapping[str, Diagnosis]] = field(default_factory=dict)
    unsupported: bool = False
    seconds: float = 0.0
    probes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @cached_property
    def reported(self) -> Results:
        """The results to report. For a run of one level, those of its rules."""
        if not self.results.level:
            return self.results
        rules = {*rules_of(self.results.level)}
        verdicts = self.results.verdicts
        return replace(
            self.results,
            verdicts=tuple(verdict for verdict in verdicts if rules & {*rule_results(verdict)}),
        )

    @cached_property
    def failures(self) -> SortedFailures:
        """The new and known failures, and the stale entries. Accepted calls are not among the new ones."""
        bad = SortedFailures(tuple(verdict for verdict in self.reported.verdicts if verdict.bad))
        failures = sort_failures(self.reported, self.known) if self.known else bad
        new = tuple(verdict for verdict in failures.new if not self.waives(verdict))
        return replace(failures, new=new, parts=failures.parts if new else None)

    @cached_property
    def accepted(self) -> tuple[Verdict, ...]:
        """The calls that must be rejected and are accepted, if the run does not require refusals."""
        known = self.known_verdicts
        return tuple(
            verdict for verdict in self.reported.verdicts if self.waives(verdict) and verdict not in known
        )

    @cached_property
    def counted(self) -> Results:
        """The results to report without the accepted calls that fail no run."""
        accepted = {*self.accepted}
        verdicts = tuple(verdict for verdict in self.reported.verdicts if verdict not in accepted)
        return replace(self.reported, verdicts=verdicts)

    @cached_property
    def level(self) -> str:
        """The level that is required, or an empty string."""
        return self.required if self.required not in (VALUES, REFUSALS) else ""

    @cached_property
    def _rules(self) -> frozenset[str]:
        """The rules whose refusals are required, if a level is."""
        return frozenset(rules_of(self.level) if self.level else ())

    def waives(self, verdict: Verdict) -> bool:
        """Whether a verdict is on an accepted call, and the run does not require that it is refused."""
        return verdict.accepts and self.required != REFUSALS and verdict.main_rule not in self._rules

    @cached_property
    def findings(self) -> list[Finding]:
        """The causes of the new failures of each backend, the most important first."""
        names = {subject.name: subject.names for subject in self.results.subjects}
        known = self.diagnoses, self.probes
        return findings(self.failures.new, self.results.verdicts, *known, seed=self.seed, names=names)

    @cached_property
    def accepted_findings(self) -> list[Finding]:
        """A finding for each backend that accepts calls that must be rejected, if this fails no run."""
        return findings(self.accepted, self.results.verdicts, seed=self.seed)

    @cached_property
    def unmet(self) -> list[Finding]:
        """A finding for each SHOULD that a backend does not meet."""
        return unmet(self.reported.verdicts)

    @cached_property
    def known_verdicts(self) -> frozenset[Verdict]:
        """The failures that are known."""
        return frozenset(verdict for verdict, _ in self.failures.known)

    @cached_property
    def marks(self) -> dict[Verdict, str]:
        """What known failures and accepted calls count as."""
        return dict.fromkeys(self.known_verdicts, KNOWN) | dict.fromkeys(self.accepted, ACCEPTED)

    @cached_property
    def outcome(self) -> Outcome:
        """How the run ended, by the gravest event."""
        outcomes = {self.outcome_of(subject) for subject in self.results.subjects} or {Outcome.NOT_LOADED}
        if self.failures.stale and not self.level:
            outcomes.add(Outcome.FAILS)
        return next(outcome for outcome in _GRAVEST_FIRST if outcome in outcomes)

    def outcome_of(self, subject: Subject) -> Outcome:
        """How the run ended for one backend."""
        statuses = {verdict.status for verdict in self._all_verdicts.get(subject.name, ())}
        if subject.problem and not statuses:
            return Outcome.NOT_LOADED
        missing = subject.problem or self.results.missing.get(subject.name)
        whole = not missing and statuses - {"unsupported"}
        if self.level:
            if not whole:
                return Outcome.NOT_WHOLE
            return Outcome.GOOD if self.level in self.levels_reached(subject) else Outcome.FAILS
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
        return self._reported_verdicts.get(subject.name, [])

    @cached_property
    def _all_verdicts(self) -> dict[str, list[Verdict]]:
        return by_backend(self.results.verdicts)

    @cached_property
    def _reported_verdicts(self) -> dict[str, list[Verdict]]:
        return by_backend(self.reported.verdicts)

    def standings(self, subject: Subject) -> tuple[Standing, ...]:
        """Return the standings of one backend for each level that was tested completely."""
        level = self.results.level
        partial = not self.results.whole and not level
        if partial or subject.problem or self.results.missing.get(subject.name):
            return ()
        every = standings(self.verdicts(subject))
        tested = {built.name for built in chain(level)} if level else {standing.level for standing in every}
        return tuple(standing for standing in every if standing.level in tested)

    def levels_reached(self, subject: Subject) -> tuple[str, ...]:
        """Return the levels that a backend reaches."""
        return tuple(standing.level for standing in self.standings(subject) if standing.reached)
