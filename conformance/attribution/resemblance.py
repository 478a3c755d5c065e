"""Counts the calls on which an entry of the gallery and a backend differ, to say how well the entry fits."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from attnspec.conformance import traits
from attnspec.conformance.gallery import Entry

#: If two results are each within one budget of a number, they are within two budgets of each other.
APART = 2.0
#: Edge kinds: calls of these kinds may have different results in two implementations with the same bug.
EDGES = frozenset({traits.SPECIAL, traits.NOTHING, traits.EMPTY, traits.LARGE})
#: The share of failing (True) and of passing (False) calls on which a similar entry may differ.
_MISFITS = {True: 0.2, False: 0.1}
#: A similar entry may differ on any number of failing calls of edge kinds if there are at least this many
#: other failing calls and it differs on none of them.
_PLAIN = 3
#: An entry is dropped if it differs on this many failing calls and agrees on none.
_HOPELESS = 4
#: With fewer failing calls than this, no entry is named as the bug of one path.
_PATH = 3
#: The share of failing and of passing calls of any kind on which a similar entry may differ, and the
#: number of failing calls that this requires.
_FEW_MISFITS, _MANY = 0.03, 10
#: Such an entry may be wrong on this many passing calls, as a share of the number of failing calls.
_BESIDES = 0.1


@dataclass(frozen=True)
class CallCounts:
    """The number of compared calls, and their traits.

    Attributes
    ----------
    failing, passing : int
        The numbers of calls that a backend fails, and that it passes.
    plain : int
        The number of failing calls of no edge kind.
    shared : frozenset of str
        Traits of all failing calls.
    having : mapping of str to int
        The number of passing calls with each trait. Traits of only some failing calls are left out.
    """

    failing: int
    passing: int
    plain: int
    shared: frozenset[str] = frozenset()
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
        plain = sum(not kinds & EDGES for kinds in failing)
        return cls(len(failing), len(passing), plain, shared, dict(sorted(having.items())))


@dataclass
class Tally:
    """The calls on which an entry differs from a backend: their numbers and what they have in common.

    Attributes
    ----------
    fits : int
        The number of failing calls on which it agrees.
    plain : dict of bool to int
        The number of calls of no edge kind on which it differs.
    apart : frozenset of str
        The edge kinds that all calls on which it differs have in common. All edge kinds if there are none.
    kinds : frozenset of str
        The edge kinds of any of these calls.
    outside : list of frozenset of str
        The traits of each passing call on which it is wrong.
    """

    entry: Entry
    misfits: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})
    fits: int = 0
    share: float = 0.0
    apart: frozenset[str] = EDGES
    plain: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})
    kinds: frozenset[str] = frozenset()
    outside: list[frozenset[str]] = field(default_factory=list)

    def add(self, share: float, kinds: frozenset[str], *, bad: bool) -> None:
        """Count a call with its traits and the distance between the two results."""
        edges = kinds & EDGES
        if share <= APART:
            self.share = max(self.share, share)
            self.fits += bad
            return
        self.misfits[bad] += 1
        self.apart &= edges
        self.plain[bad] += not edges
        self.kinds |= edges
        if not bad:
            self.outside.append(kinds)

    def may_be(self, calls: CallCounts) -> bool:
        """Whether the entry is near, or may be the bug of one path."""
        if self.misfits[True] >= _HOPELESS and not self.fits:
            return False
        return self.is_near(calls) or bool(self.paths(calls))

    def is_near(self, calls: CallCounts) -> bool:
        """Whether it differs on few calls of one kind, only on edge kinds, or on very few calls."""
        both = (True, False)
        of_a_kind = self.apart and all(self.misfits[bad] <= _MISFITS[bad] * calls[bad] for bad in both)
        of_edges = not any(self.plain.values()) and calls.plain >= _PLAIN
        of_edges &= self.misfits[False] <= _MISFITS[False] * calls.passing
        few = all(self.misfits[bad] <= _FEW_MISFITS * calls[bad] for bad in both)
        # It must not be wrong on many calls that the backend passes.
        few &= self.misfits[False] <= _BESIDES * calls.failing
        return bool(of_a_kind or of_edges or (few and calls.failing >= _MANY))

    def paths(self, calls: CallCounts) -> list[tuple[str, bool]]:
        """Return the traits that distinguish the calls on which the backend has the bug, the best first.

        With each trait, return whether these calls have it. If they do, all failing calls have it, and no
        passing call on which the entry is wrong has it. Otherwise it is the other way round.
        """
        same = self.misfits[True] <= _MISFITS[True] * calls.failing and not self.plain[True]
        if not same or calls.failing < _PATH or not self.outside:
            return []
        shared = calls.shared.difference(*self.outside)
        lacked = frozenset.intersection(*self.outside) & (calls.having.keys() - calls.shared)
        rest = {(trait, True): calls.having.get(trait, 0) for trait in shared}
        rest |= {(trait, False): calls.passing - calls.having[trait] for trait in lacked}
        # A given option is a better description than a property of its numbers.
        return sorted(rest, key=lambda path: (traits.option_of(path[0]) != path[0], rest[path], path))

    def rank(self, calls: CallCounts) -> tuple[bool, int, int, int]:
        """Return a sort key: entries that differ on fewer calls come first, and plain calls count first.

        For the bug of one path, the number of wrong results on other paths does not count.
        """
        if not self.is_near(calls):
            return True, 0, self.misfits[True], 0
        return False, sum(self.plain.values()), self.misfits[True], self.misfits[False]

    @property
    def named(self) -> tuple[str, ...]:
        """The edge kinds of the calls on which it differs: one common kind, otherwise all of them."""
        if not any(self.misfits.values()) or any(self.plain.values()):
            return ()
        return tuple(sorted(self.apart)[:1] or sorted(self.kinds))
