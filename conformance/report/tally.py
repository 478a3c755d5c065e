"""Where an entry of the gallery gives something else than a backend: on how many calls, and of what kinds."""

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
#: The part of both on which one may on calls of any kind, and how many calls must fail for that.
_FEW_MISFITS, _MANY = 0.03, 10
#: And on how many that pass at most, as a part of those that fail.
_BESIDES = 0.1


@dataclass(frozen=True)
class Numbers:
    """How many calls are compared: that a backend fails, that it passes, and failing ones of no edge kind."""

    failing: int
    passing: int
    plain: int

    def __getitem__(self, bad: bool) -> int:
        """Those that it fails, or passes."""
        return self.failing if bad else self.passing


@dataclass
class Tally:
    """On how many calls an entry gave something else, failing ones and others, and what they have in common.

    Attributes
    ----------
    plain : int
        How many of these calls are of no edge kind.
    apart : frozenset of str
        The kinds that each of these calls is of; all there are where there are no such calls.
    kinds : frozenset of str
        The kinds that any of them is of.
    """

    entry: Entry
    misfits: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})
    share: float = 0.0
    apart: frozenset[str] = EDGES
    plain: int = 0
    kinds: frozenset[str] = frozenset()

    def add(self, share: float, edges: frozenset[str], *, bad: bool) -> None:
        """Count a call, by how far apart the two results are."""
        if share <= APART:
            self.share = max(self.share, share)
        else:
            self.misfits[bad] += 1
            self.apart &= edges
            self.plain += not edges
            self.kinds |= edges

    def is_near(self, asked: Numbers) -> bool:
        """Whether it gave something else on few calls of one kind, on edge kinds alone, or on very few."""
        both = (True, False)
        of_a_kind = self.apart and all(self.misfits[bad] <= _MISFITS[bad] * asked[bad] for bad in both)
        of_edges = not self.plain and asked.plain >= _PLAIN
        of_edges &= self.misfits[False] <= _MISFITS[False] * asked.passing
        few = all(self.misfits[bad] <= _FEW_MISFITS * asked[bad] for bad in both)
        # It is wrong where the other is: not on many calls besides, compared to those.
        few &= self.misfits[False] <= _BESIDES * asked.failing
        return bool(of_a_kind or of_edges or (few and asked.failing >= _MANY))

    @property
    def rank(self) -> tuple[int, int, int]:
        """Order of those that are near: what differs on fewer calls is nearer, plain ones first."""
        return self.plain, self.misfits[True], self.misfits[False]

    @property
    def named(self) -> tuple[str, ...]:
        """The kinds that the calls apart are of: one that all are of, where there is one."""
        if not any(self.misfits.values()) or self.plain:
            return ()
        return tuple(sorted(self.apart)[:1] or sorted(self.kinds))
