"""Counts the calls on which an entry of the gallery and a backend differ, to say how well the entry fits."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from attnspec.conformance import traits
from attnspec.conformance.gallery import Entry

#: If two results are each within one budget of a number, they are within two budgets of each other.
APART = 2.0
#: Edge kinds: calls of these kinds come last, because they exclude few entries.
EDGES = frozenset({traits.SPECIAL, traits.NOTHING, traits.EMPTY, traits.LARGE})
#: With fewer failing calls than this, no entry is named as the bug of one path.
_PATH = 3


@dataclass(frozen=True)
class CallCounts:
    """The number of compared calls, and their traits."""

    failing: int  # the number of calls that a backend fails
    passing: int  # and that it passes
    shared: frozenset[str] = frozenset()  # traits of all failing calls
    #: The number of passing calls with each trait. Traits of only some failing calls are left out.
    having: Mapping[str, int] = field(default_factory=dict)

    def __getitem__(self, bad: bool) -> int:
        """Return the number of calls that the backend fails, or that it passes."""
        return self.failing if bad else self.passing

    @classmethod
    def of(cls, failing: Sequence[frozenset[str]], passing: Sequence[frozenset[str]]) -> "CallCounts":
        """Count calls by their traits."""
        shared = frozenset.intersection(*failing) if failing else frozenset()
        mixed = frozenset().union(*failing) - shared
        having = Counter(trait for kinds in passing for trait in kinds - mixed)
        return cls(len(failing), len(passing), shared, dict(sorted(having.items())))


@dataclass
class Tally:
    """The calls on which an entry differs from a backend: the number of failing ones, and the passing ones.

    `outside` has the traits of each passing call on which the entry is wrong.
    """

    entry: Entry
    misfits: int = 0
    share: float = 0.0
    outside: list[frozenset[str]] = field(default_factory=list)

    def add(self, share: float, kinds: frozenset[str], *, bad: bool) -> None:
        """Count a call with its traits and the distance between the two results."""
        if share <= APART:
            self.share = max(self.share, share)
        elif bad:
            self.misfits += 1
        else:
            self.outside.append(kinds)

    def may_be(self, calls: CallCounts) -> bool:
        """Whether the entry agrees on every call, or on every call if it is the bug of one path."""
        return not self.misfits and (not self.outside or bool(self.paths(calls)))

    def paths(self, calls: CallCounts) -> list[tuple[str, bool]]:
        """Return the traits that distinguish the calls on which the backend has the bug, the best first.

        With each trait, return whether these calls have it. If they do, all failing calls have it, and no
        passing call on which the entry is wrong has it. Otherwise it is the other way round.
        """
        if self.misfits or calls.failing < _PATH or not self.outside:
            return []
        shared = calls.shared.difference(*self.outside)
        lacked = frozenset.intersection(*self.outside) & (calls.having.keys() - calls.shared)
        rest = {(trait, True): calls.having.get(trait, 0) for trait in shared}
        rest |= {(trait, False): calls.passing - calls.having[trait] for trait in lacked}
        # A given option is a better description than a property of its numbers.
        return sorted(rest, key=lambda path: (traits.option_of(path[0]) != path[0], rest[path], path))
