"""What there is to report of a run, whatever the form: failures sorted, levels reached, good or not."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from attnspec.conformance.report.known_failures import Known, Sorted, sort_failures
from attnspec.conformance.report.levels import Standing, standings
from attnspec.conformance.verdict import Results, Subject, Verdict

#: More rules than this are not named as what keeps a backend from a level.
_MOST_NAMED = 6


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

    @property
    def good(self) -> bool:
        """Whether every backend was judged to the end, without a new failure or a stale entry."""
        judged = {verdict.backend for verdict in self.results.verdicts if verdict.status != "unsupported"}
        sound = all(subject.name in judged and not subject.problem for subject in self.results.subjects)
        return sound and bool(self.results.subjects) and not self.failures.new and not self.failures.stale

    def verdicts(self, subject: Subject) -> list[Verdict]:
        """Those of one backend."""
        return [verdict for verdict in self.results.verdicts if verdict.backend == subject.name]

    def standings(self, subject: Subject) -> tuple[Standing, ...]:
        """How one backend stands to each level; none where only a part of the suite was run."""
        if not self.results.whole or subject.problem:
            return ()
        return standings(self.verdicts(subject))

    def extent(self) -> str:
        """Say in a line what was run: which part, and with which problems."""
        parts = ", ".join(dict.fromkeys(header.part for header in self.results.headers)) or "nothing"
        seeds = {header.seed for header in self.results.headers} - {None}
        problems = f"seed {', '.join(map(str, sorted(seeds, key=str)))}" if seeds else "the fixed problems"
        return f"run: {parts} ({problems}{'' if seeds else '; --seed N draws others'})"

    def levels(self, subject: Subject) -> str:
        """Say in a line which levels a backend reaches."""
        found = self.standings(subject)
        if not found:
            return "levels: not told, as the suite was not run as a whole"
        reached = [standing.level for standing in found if standing.reached]
        if len(reached) == len(found):
            return f"levels: {', '.join(reached)}"
        next_ = min((one for one in found if not one.reached), key=lambda one: len(one.missing))
        lacks = [f"{rule} ({what})" for rule, what in next_.missing.items()]
        more = f" and {len(lacks) - _MOST_NAMED} more" if len(lacks) > _MOST_NAMED else ""
        named = ", ".join(lacks[:_MOST_NAMED])
        return f"levels: {', '.join(reached) or 'none'}; {next_.level} lacks {named}{more}"

    def shortest_reproduction(self) -> str:
        """Give the shortest reproduction of a new failure, with its rule; empty where there is none."""
        found = []
        for verdict in self.failures.new:
            before, said, after = verdict.message.partition("\nreproduce:\n")
            if said:
                title = before.splitlines()[0]
                snippet = after.partition("\nin test")[0]
                found.append((snippet.count("\n"), len(snippet), f"{title}\n{snippet}"))
        return min(found)[2] if found else ""
