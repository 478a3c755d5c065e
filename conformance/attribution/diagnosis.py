"""Diagnosis: finds the wrong implementation of the gallery that has the results of a failing backend.

An entry agrees with the backend on a call if it has the same result where the backend fails, and a right
result where the backend passes. The diagnosis names one entry, or two or three that no call
distinguishes, in the first of these cases that applies:

- The entry agrees on every call.
- The entry is similar: it agrees on every call except those of a few kinds, such as calls with NaN. The
  diagnosis names these kinds.
- The entry is similar: it agrees on nearly every call of any kind.
- The entry has the same result on all failing calls, and is also wrong on calls that a trait
  distinguishes from these. The backend then has the bug on one path.

In all other cases the diagnosis is empty.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from attnspec import Case, find_rule
from attnspec.backends import DTYPES, Backend, Broken, Unsupported
from attnspec.conformance import traits
from attnspec.conformance.attribution.alike import fails, is_right, outputs_of, share_of
from attnspec.conformance.attribution.naming import Diagnosis, by_kin
from attnspec.conformance.attribution.tally import APART, EDGES, Numbers, Tally, numbers_of
from attnspec.conformance.gallery import Entry, wrong_entries
from attnspec.conformance.judge.dtypes import Outputs, is_real
from attnspec.conformance.judge.traits import numbers as counted
from attnspec.conformance.judge.traits import traits as traits_of
from attnspec.conformance.suite.group import Item

#: With fewer failing calls than this, too many entries fit,
_FEWEST = 2
#: unless at least this many calls pass.
_PASSING = 100
#: A run of fewer calls than this has no diagnosis.
_FEWEST_ASKED = 10
#: More entries than this are not named. Entries that differ only in a size count as one.
_MOST = 3
#: The number of results of entries that are kept.
_MOST_KNOWN = 30_000
#: The class of the entries that remember earlier calls.
_REMEMBERS = "T"


@dataclass(frozen=True)
class Gallery:
    """The entries that may be named, and their results. Each entry makes each call once.

    Attributes
    ----------
    entries : tuple of Entry
        By default all wrong ones.
    """

    entries: tuple[Entry, ...] = field(default_factory=wrong_entries)
    _given: dict[tuple[str, str], Outputs | None] = field(default_factory=dict)
    _backends: dict[str, Backend] = field(default_factory=dict)

    def given(self, one: Entry, case: Case) -> Outputs | None:
        """Return the outputs of an entry, or None if it raises."""
        key = one.name, case.name
        if key not in self._given:
            if len(self._given) >= _MOST_KNOWN:  # these are arrays of thousands of calls
                self._given.clear()
            self._given[key] = outputs_of(self._backend(one), case)
        return self._given[key]

    def _backend(self, one: Entry) -> Backend:
        """Make the backend of an entry, a new one for each call if the entry remembers earlier calls."""
        if one.kind == _REMEMBERS:
            return one.backend()
        if one.name not in self._backends:
            self._backends[one.name] = one.backend()
        return self._backends[one.name]


def diagnose(backend: Backend, asked: Iterable[Case], gallery: Gallery | None = None) -> Diagnosis | None:
    """Find the entries of the gallery that give the results of a backend."""
    tallies, numbers = tallied(backend, asked, gallery or Gallery())
    return chosen(tallies, numbers)


def tallied(backend: Backend, asked: Iterable[Case], gallery: Gallery) -> tuple[list[Tally], Numbers]:
    """Compare a backend with each entry, and return the near ones, or none if too few calls distinguish."""
    failing, passing = _asked(backend, asked)
    numbers = numbers_of([kinds for kinds, _ in failing], [kinds for kinds, _ in passing])
    if len(failing) < (_FEWEST if len(passing) < _PASSING else 1):
        return [], numbers
    tallies = [Tally(one) for one in gallery.entries]
    # Failing calls exclude most entries at once. Plain calls exclude more entries, and small ones are faster.
    calls = [(kinds, bad, *one) for bad, some in ((True, failing), (False, passing)) for kinds, one in some]
    calls.sort(key=lambda one: (not one[1], bool(one[0] & EDGES), counted(one[2])))
    for kinds, bad, case, outputs in calls:
        for tally in tallies:
            given = gallery.given(tally.entry, case)
            share = share_of(backend, case, outputs, given, finite=traits.SPECIAL not in kinds)
            if share > APART and not bad and is_right(backend, case, outputs, given):
                share = 0.0
            tally.add(share, kinds, bad=bad)
        tallies = [one for one in tallies if one.may_be(numbers)]
    return tallies, numbers


def chosen(tallies: Sequence[Tally], asked: Numbers) -> Diagnosis | None:
    """Choose the entries equal on every call, otherwise the nearest, otherwise those equal on one path."""
    nearest = min((one.rank(asked) for one in tallies), default=None)
    found = [one for one in tallies if one.rank(asked) == nearest]
    if len(by_kin(one.entry for one in found)) > _MOST:
        fewest = min(one.misfits[False] for one in found)
        found = [one for one in found if one.misfits[False] == fewest]
    kin = by_kin(one.entry for one in found)
    if not found or len(kin) > (_MOST if asked.failing >= _FEWEST else 1):
        return None
    fits, good = (asked[bad] - found[0].misfits[bad] for bad in (True, False))
    share = max(one.share for one in found)
    entries = tuple(one.entry for one in found)
    diagnosis = Diagnosis(entries, asked.failing, asked.passing, share, fits, good)
    if found[0].is_near(asked):
        return replace(diagnosis, apart=found[0].named)
    common = [path for path in found[0].paths(asked) if all(path in one.paths(asked) for one in found)]
    return replace(diagnosis, path=common[0]) if common else None


#: Calls with their traits and the outputs of the backend.
Asked = list[tuple[frozenset[str], tuple[Case, Outputs | None]]]


def _asked(backend: Backend, asked: Iterable[Case]) -> tuple[Asked, Asked]:
    """Make the calls that distinguish entries. Return those that the backend fails and those that it passes.

    Calls that the backend does not offer are not made. Calls about a SHOULD or a MAY are not made either,
    because several results conform. If some values are wrong, calls that must or may be refused and calls
    that raise wrongly are left out.
    """
    failing: Asked = []
    passing: Asked = []
    for case in asked:
        if not _is_offered(backend, case):
            continue
        with suppress(Unsupported, Broken):
            outputs = outputs_of(backend, case)
            kinds = frozenset({case.dtype, *traits_of(case)})
            (failing if fails(backend, case, outputs) else passing).append((kinds, (case, outputs)))
    values = [one for one in failing if one[1][1] is not None and one[1][0].misuse is None]
    if not values and any(one[1][0].operation == "attention_vjp" for one in failing):
        return [], []  # every entry that computes no gradient raises too
    if not any(one[1][1] is not None for one in (*failing, *passing)):
        return [], []  # no call has a result that could be compared
    if not values:
        return failing, passing
    return values, [one for one in passing if one[1][0].misuse is None]


def _is_offered(backend: Backend, case: Case) -> bool:
    arrays = {str(x.dtype) for x in case.arguments.values() if is_real(x)}
    musts = all(find_rule(rule).level == "MUST" for rule in case.rules)
    return musts and {case.dtype, *arrays} & set(DTYPES) <= set(backend.dtypes)


def diagnosis_of(backend: Backend, found: Iterable[Item]) -> str:
    """Diagnose a backend in one line by cases that it failed and passed. Empty if no entry fits.

    Only the calls of these cases are made, because others might not end.
    """
    asked = {item.name: item for item in found if isinstance(item, Case)}
    return said(diagnose(backend, asked.values())) if len(asked) >= _FEWEST_ASKED else ""


def said(found: Diagnosis | None) -> str:
    """Write a diagnosis in one line."""
    return str(found) if found else ""
