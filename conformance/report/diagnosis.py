"""Diagnosis: which wrong implementation of the gallery gives what a failing backend gives.

A name is given where one entry of the gallery, or two or three that cannot be told apart, give the
backend's results on every call that it fails, and right results on every call that it passes. Where none
does, the one that does so on every call but those of a few kinds, such as calls with NaN, is named as
similar, and the kinds with it; or the one that does so on nearly every call, few of any kind left out.
Otherwise nothing is said.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from attnspec import Case, find_rule
from attnspec.backends import DTYPES, Backend, Broken, Unsupported
from attnspec.conformance import traits
from attnspec.conformance.gallery import Entry, wrong_entries
from attnspec.conformance.judge.budget import budgets_of
from attnspec.conformance.judge.call import Outputs, call
from attnspec.conformance.judge.cause import looked_at
from attnspec.conformance.judge.comparison import compare
from attnspec.conformance.judge.dtypes import accepted, is_real
from attnspec.conformance.judge.expected import declared, differences
from attnspec.conformance.judge.failure import Failure, Raised
from attnspec.conformance.judge.traits import traits as traits_of
from attnspec.conformance.report.because import in_words
from attnspec.conformance.suite.group import Item
from attnspec.conformance.verdict import Difference

#: Two results that are each within a budget of the same number are within two of each other.
_APART = 2.0
#: On fewer failing calls than these too much looks like everything,
_FEWEST = 2
#: unless so many calls pass beside a single one.
_PASSING = 100
#: And on a run of fewer calls.
_FEWEST_ASKED = 10
#: More entries than these are no name; those that differ in a size alone count as one.
_MOST = 3
#: Kinds of calls in which two implementations with the same bug may differ by what else they do.
_EDGES = frozenset({traits.SPECIAL, traits.NOTHING, traits.EMPTY, traits.LARGE})
#: The part of the calls that it fails, and passes, on which a similar entry may give something else.
_MISFITS = {True: 0.2, False: 0.1}
#: On any number of failing calls of those kinds, where it gives the same on so many others, and all of them.
_PLAIN = 3
#: The part of both on which one may on calls of any kind, and how many calls must fail for that.
_FEW_MISFITS, _MANY = 0.03, 10
#: And on how many that pass at most, as a part of those that fail.
_BESIDES = 0.1
#: What two results may be apart besides, as a part of the largest number in them.
_UNITS = {"float64": 2.0**-40, "float32": 2.0**-17, "float16": 2.0**-10, "bfloat16": 2.0**-7}


@dataclass(frozen=True)
class Diagnosis:
    """What fits.

    Attributes
    ----------
    entries : tuple of Entry
        Those that give what the backend gives.
    failing, passing : int
        How many calls were compared that it fails, and that it passes.
    share : float
        How far off they are at most, in budgets.
    fits, good : int
        On how many of these the results are the same.
    apart : tuple of str
        Traits of which all other calls have one; empty where there are none.
    """

    entries: tuple[Entry, ...]
    failing: int
    passing: int
    share: float
    fits: int
    good: int
    apart: tuple[str, ...] = ()

    def __str__(self) -> str:
        names = ", or ".join(f"{one.name} ({one.sentence.rstrip('.')}; {one.rule})" for one in self.entries)
        calls = f"{self.fits} of {self.failing} failing cases, {self.good} of {self.passing} passing ones"
        if self.apart:
            kinds = " or ".join(map(in_words, self.apart))
            others = f"all other cases are calls {kinds}, where it gives something else"
            return f"similar to: {names} (the same on {calls}; {others})"
        if (self.fits, self.good) != (self.failing, self.passing):
            return f"similar to: {names} (the same on {calls})"
        return f"consistent with: {names} ({calls}, within {self.share:.1f} budgets)"


@dataclass(frozen=True)
class Gallery:
    """The entries that may be named, and what they gave to calls: each is asked once.

    Attributes
    ----------
    entries : tuple of Entry
        By default all wrong ones.
    """

    entries: tuple[Entry, ...] = field(default_factory=wrong_entries)
    _given: dict[tuple[str, str], Outputs | None] = field(default_factory=dict)

    def given(self, one: Entry, case: Case) -> Outputs | None:
        """Give the outputs of an entry; None where it raises."""
        key = one.name, case.name
        if key not in self._given:
            self._given[key] = _outputs(one.backend(), case)
        return self._given[key]

    def without(self, one: Entry) -> "Gallery":
        """Take an entry away."""
        return Gallery(tuple(other for other in self.entries if other is not one), self._given)


def diagnose(backend: Backend, asked: Iterable[Case], gallery: Gallery | None = None) -> Diagnosis | None:
    """Find what in the gallery gives what a backend gives.

    Parameters
    ----------
    backend : Backend
    asked : iterable of Case
        Calls of which it fails some, their names all different.
    gallery : Gallery, optional

    Returns
    -------
    Diagnosis or None
        None where nothing fits, or too much.

    Examples
    --------
    >>> from attnspec.conformance.report.diagnosis import diagnose
    >>> from attnspec.conformance.meta.probes import probes
    >>> from attnspec.conformance.gallery import entry
    >>> found = diagnose(entry("lse_negative").backend(), probes()[:12])
    >>> [one.name for one in found.entries], found.failing
    (['lse_negative'], 12)
    >>> diagnose(entry("plain").backend(), probes()[:12])
    """
    gallery = gallery or Gallery()
    failing, passing = _asked(backend, asked)
    if len(failing) < (_FEWEST if len(passing) < _PASSING else 1):
        return None
    numbers = Numbers(len(failing), len(passing), sum(not edges for edges, _ in failing))
    tallies = [Tally(one) for one in gallery.entries]
    # What fails tells most entries from it at once, and plain calls tell more than others do.
    calls = [(edges, bad, *one) for bad, some in ((True, failing), (False, passing)) for edges, one in some]
    for edges, bad, case, outputs in sorted(calls, key=lambda one: (not one[1], bool(one[0]))):
        for tally in tallies:
            given = gallery.given(tally.entry, case)
            share = _share(backend, case, outputs, given)
            if share > _APART and not bad and _is_right(backend, case, outputs, given):
                share = 0.0
            tally.add(share, edges, bad=bad)
        tallies = [one for one in tallies if one.is_near(numbers)]
        if not tallies:
            return None
    return _chosen(tallies, numbers)


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
    apart: frozenset[str] = _EDGES
    plain: int = 0
    kinds: frozenset[str] = frozenset()

    def add(self, share: float, edges: frozenset[str], *, bad: bool) -> None:
        """Count a call, by how far apart the two results are."""
        if share <= _APART:
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


def _chosen(tallies: Sequence[Tally], asked: Numbers) -> Diagnosis | None:
    """Take what is the same on every call; else what is nearest."""
    nearest = min(one.rank for one in tallies)
    chosen = [one for one in tallies if one.rank == nearest]
    alike = {_without_size(one.entry.name) for one in chosen}
    if len(alike) > (_MOST if asked.failing >= _FEWEST else 1):
        return None
    fits, good = (asked[bad] - chosen[0].misfits[bad] for bad in (True, False))
    share = max(one.share for one in chosen)
    entries = tuple(one.entry for one in chosen)
    return Diagnosis(entries, asked.failing, asked.passing, share, fits, good, chosen[0].named)


def _without_size(name: str) -> str:
    return "".join(letter for letter in name if not letter.isdigit())


#: Calls with what the backend gave, each with those of `_EDGES` that it is of.
Asked = list[tuple[frozenset[str], tuple[Case, Outputs | None]]]


def _asked(backend: Backend, asked: Iterable[Case]) -> tuple[Asked, Asked]:
    """Make the calls that can tell, and give those that the backend fails and those that it passes.

    What it does not offer is not asked. Where values are wrong, calls that it has to refuse or may, or
    that raise though they must not, are another matter; what a SHOULD or a MAY leaves open tells nothing.
    """
    failing: Asked = []
    passing: Asked = []
    for case in asked:
        if not _is_offered(backend, case):
            continue
        with suppress(Unsupported, Broken):
            outputs = _outputs(backend, case)
            edges = _EDGES & set(traits_of(case))
            (failing if _fails(backend, case, outputs) else passing).append((edges, (case, outputs)))
    values = [one for one in failing if one[1][1] is not None and one[1][0].misuse is None]
    if not values:
        return failing, passing
    return values, [one for one in passing if one[1][0].misuse is None]


def _is_offered(backend: Backend, case: Case) -> bool:
    arrays = {str(x.dtype) for x in case.arguments.values() if is_real(x)}
    musts = all(find_rule(rule).level == "MUST" for rule in case.rules)
    return musts and {case.dtype, *arrays} & set(DTYPES) <= set(backend.dtypes)


def _is_refused(case: Case) -> bool:
    return case.misuse is not None and not case.misuse.allowed


def diagnosis_of(backend: Backend, found: Iterable[Item]) -> str:
    """Diagnose a backend in a line, by cases that it failed and passed; empty where nothing fits.

    No other calls are made than those that it was judged by: some might not end.

    Parameters
    ----------
    backend : Backend
    found : iterable of Case or Relation
    """
    asked = {item.name: item for item in found if isinstance(item, Case)}
    return said(diagnose(backend, asked.values())) if len(asked) >= _FEWEST_ASKED else ""


def said(found: Diagnosis | None) -> str:
    """Put a diagnosis in a line."""
    return str(found) if found else ""


def _outputs(backend: Backend, case: Case) -> Outputs | None:
    """Call it; None where it raises."""
    try:
        return call(backend, case.operation, case.arguments, case.layout)
    except (Raised, Failure):
        return None


def _is_right(backend: Backend, case: Case, got: Outputs | None, given: Outputs | None) -> bool:
    """Whether an entry gives something else that is right too: what a backend passes may be left open."""
    if got is None or given is None or not got.keys() <= given.keys():
        return False
    return not _fails(backend, case, {name: given[name] for name in got})


def _fails(backend: Backend, case: Case, outputs: Outputs | None) -> bool:
    """Whether outputs are wrong, as `judge` has it, who says why too, which takes its time."""
    if outputs is None or _is_refused(case):
        return (case.misuse is None) == (outputs is None)
    budgets, seen = budgets_of(backend, case), looked_at(outputs, case)
    values, _ = declared(backend, case, budgets, seen)
    return any(isinstance(one, Difference) for one in differences(seen, values, budgets, case.dtype))


def _share(backend: Backend, case: Case, got: Outputs | None, given: Outputs | None) -> float:
    """How far apart two results are, in budgets; infinitely where they are of different kinds."""
    if got is None or given is None:
        return 0.0 if got is given else np.inf
    budgets: dict[str, Any] = {} if _is_refused(case) else budgets_of(backend, case)
    worst = 0.0
    for name, one in got.items():
        if name not in given or given[name].shape != one.shape:
            return np.inf
        may = accepted(name, case.dtype)  # an lse has a choice
        if given[name].dtype != one.dtype and not {str(given[name].dtype), str(one.dtype)} <= set(may):
            return np.inf
        other = given[name].astype(np.float64)
        if name == "lse":  # of a row with an infinite score it may be NaN too (NUM-11)
            other = np.where((other == np.inf) & np.isnan(one.astype(np.float64)), np.nan, other)
            other = np.where((one == np.inf) & np.isnan(other), np.inf, other)
        # A wrong number may be larger than the right one, and come of others that are larger still.
        size = np.abs(other[np.isfinite(other)]).max(initial=1.0)
        # Results of integers, which are wrong as such, are compared to the last bit.
        rounding = size * max(_UNITS.get(str(each.dtype), 0.0) for each in (one, given[name]))
        budget = budgets.get(name, np.zeros(()))
        budget = budget if budget.shape == other.shape else np.full(other.shape, budget.max(initial=0.0))
        lse = given.get("lse")
        of_rows = name == "weights" and lse is not None and lse.shape == other.shape[:-1]
        where = ~np.isnan(given["lse"])[..., None] if of_rows else None  # NUM-11
        compared = compare(name, one, other, budget + rounding, str(one.dtype), where=where)
        worst = max(worst, compared.share if isinstance(compared, Difference) else compared)
    return worst
