"""Where an entry of the gallery gives something else than a backend: on how many calls, and of what kinds."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from attnspec.conformance import traits
from attnspec.conformance.gallery import Entry

#: Two results that are each within a budget of the same number are within two of each other.
APART = 2.0
#: Kinds of calls in which two implementations with the same bug may differ by what else they do.
EDGES = frozenset({traits.SPECIAL, traits.NOTHING, traits.EMPTY, traits.LARGE})
#: The part of the calls that a backend fails, and passes, on which a similar entry may give something else.
_MISFITS = {True: 0.2, False: 0.1}
#: On any number of failing calls of those kinds, where it gives the same on so many others, and all of them.
_PLAIN = 3
#: An entry that differs on so many failing calls, and is the same on none, is asked no more.
_HOPELESS = 4
#: On so many failing calls an entry gives the same whose bug a backend has on one path alone.
_PATH = 3
#: The part of both on which one may on calls of any kind, and how many calls must fail for that.
_FEW_MISFITS, _MANY = 0.03, 10
#: And on how many that pass at most, as a part of those that fail.
_BESIDES = 0.1


@dataclass(frozen=True)
class Numbers:
    """How many calls are compared, and what their traits are.

    Attributes
    ----------
    failing, passing : int
        That a backend fails, and passes.
    plain : int
        Failing ones of no edge kind.
    shared : frozenset of str
        Traits of all failing calls.
    having : mapping of str to int
        How many passing calls have a trait; those of some failing calls but not of all are left out.
    """

    failing: int
    passing: int
    plain: int
    shared: frozenset[str] = frozenset()
    having: Mapping[str, int] = field(default_factory=dict)

    def __getitem__(self, bad: bool) -> int:
        """Those that it fails, or passes."""
        return self.failing if bad else self.passing


def numbers_of(failing: Sequence[frozenset[str]], passing: Sequence[frozenset[str]]) -> Numbers:
    """Count calls by their traits.

    Examples
    --------
    >>> from attnspec.conformance.report.tally import numbers_of
    >>> found = numbers_of([frozenset({"mask", "bias"}), frozenset({"mask"})], [frozenset({"mask", "scale"})])
    >>> sorted(found.shared), found.having
    (['mask'], {'mask': 1, 'scale': 1})
    """
    shared = frozenset.intersection(*failing) if failing else frozenset()
    mixed = frozenset().union(*failing) - shared
    counted = Counter(trait for kinds in passing for trait in kinds - mixed)
    plain = sum(not kinds & EDGES for kinds in failing)
    return Numbers(len(failing), len(passing), plain, shared, dict(sorted(counted.items())))


@dataclass
class Tally:
    """On how many calls an entry gave something else, failing ones and others, and what they have in common.

    Attributes
    ----------
    fits : int
        On how many failing calls it gave the same.
    plain : dict of bool to int
        How many of the calls with something else are of no edge kind.
    apart : frozenset of str
        The kinds that each of those calls is of; all there are where there are no such calls.
    kinds : frozenset of str
        The kinds that any of them is of.
    outside : list of frozenset of str
        The traits of the passing calls on which it is wrong.
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
        """Count a call of some traits, by how far apart the two results are."""
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

    def may_be(self, asked: Numbers) -> bool:
        """Whether it is near, or could be the bug of one path."""
        if self.misfits[True] >= _HOPELESS and not self.fits:
            return False
        return self.is_near(asked) or bool(self.paths(asked))

    def is_near(self, asked: Numbers) -> bool:
        """Whether it gave something else on few calls of one kind, on edge kinds alone, or on very few."""
        both = (True, False)
        of_a_kind = self.apart and all(self.misfits[bad] <= _MISFITS[bad] * asked[bad] for bad in both)
        of_edges = not any(self.plain.values()) and asked.plain >= _PLAIN
        of_edges &= self.misfits[False] <= _MISFITS[False] * asked.passing
        few = all(self.misfits[bad] <= _FEW_MISFITS * asked[bad] for bad in both)
        # It is wrong where the other is: not on many calls besides, compared to those.
        few &= self.misfits[False] <= _BESIDES * asked.failing
        return bool(of_a_kind or of_edges or (few and asked.failing >= _MANY))

    def paths(self, asked: Numbers) -> list[tuple[str, bool]]:
        """Traits by which the calls are told on which the backend has the bug, the most exact first.

        With each, whether these calls have it: all that fail do, and none that passes with a wrong entry;
        or the other way round.
        """
        same = self.misfits[True] <= _MISFITS[True] * asked.failing and not self.plain[True]
        if not same or asked.failing < _PATH or not self.outside:
            return []
        shared = asked.shared.difference(*self.outside)
        lacked = frozenset.intersection(*self.outside) & (asked.having.keys() - asked.shared)
        rest = {(trait, True): asked.having.get(trait, 0) for trait in shared}
        rest |= {(trait, False): asked.passing - asked.having[trait] for trait in lacked}
        # That an option is given says more than what its numbers are, where both tell the calls.
        return sorted(rest, key=lambda path: (traits.option_of(path[0]) != path[0], rest[path], path))

    def rank(self, asked: Numbers) -> tuple[bool, int, int, int]:
        """Order of those that are left: what differs on fewer calls is nearer, plain ones first.

        How often a bug that a backend has on one path is wrong on others says nothing of it.
        """
        if not self.is_near(asked):
            return True, 0, self.misfits[True], 0
        return False, sum(self.plain.values()), self.misfits[True], self.misfits[False]

    @property
    def named(self) -> tuple[str, ...]:
        """The kinds that the calls apart are of: one that all are of, where there is one."""
        if not any(self.misfits.values()) or any(self.plain.values()):
            return ()
        return tuple(sorted(self.apart)[:1] or sorted(self.kinds))
