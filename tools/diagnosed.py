"""Measures the quality of the diagnosis on the gallery itself.

Each wrong entry is put on another base, so that it is another implementation with the same bug. It is
diagnosed on calls of another seed: once with all entries to choose from, and once without the entry
itself. In the second diagnosis, any name is wrong.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Any

from attnspec import Case
from attnspec.backends import Backend
from attnspec.conformance.attribution.diagnosis import Gallery, chosen, tallied
from attnspec.conformance.attribution.naming import Diagnosis
from attnspec.conformance.gallery import Entry, entry, wrong_entries
from tools.probes import golden, probes

#: Correct entries. Their steps together form the other base.
OTHER_BASE = (
    "everything_in_float64",
    "minus_infinity_filled_in",
    "feature_by_feature",
    "dropout_by_a_factor",
    "sums_with_compensation",
)
#: Tests diagnose one of this many entries. Each is compared with all others in all calls, which takes
#: seconds.
SAMPLE = 4
#: The seed of the generated calls. A diagnosis usually uses another one.
_SEED = 11


@dataclass(frozen=True)
class Measured:
    """The names that the diagnosis of an entry gave, with and without the entry itself to choose from."""

    entry: str
    named: tuple[str, ...]
    without: tuple[str, ...]


@dataclass(frozen=True)
class Counts:
    """The numbers of entries that are named rightly and wrongly.

    Attributes
    ----------
    entries : int
    rightly, several, nothing : int
        The numbers of entries that are named alone, as one of several, and not at all.
    wrongly : mapping of str to sequence of str
        Entries for which others are named, and the names of these.
    twins : mapping of str to sequence of str
        Entries for which others are named if the entry itself is left out, and the names of these.
    """

    entries: int
    rightly: int
    several: int
    nothing: int
    wrongly: Mapping[str, Sequence[str]]
    twins: Mapping[str, Sequence[str]]


def on_another_base(one: Entry) -> Backend:
    """Make the same bug in another implementation.

    Examples
    --------
    >>> from attnspec.conformance.gallery import entry
    >>> from tools.diagnosed import on_another_base
    >>> on_another_base(entry("values_one_late")).name
    'attnspec.conformance.gallery:values_one_late'
    """
    steps: dict[str, Any] = {}
    for name in OTHER_BASE:
        steps |= entry(name).steps
    return replace(one, steps={**steps, **one.steps}).backend()


def measure(one: Entry, asked: Sequence[Case], gallery: Gallery) -> Measured:
    """Diagnose one entry."""
    tallies, numbers = tallied(on_another_base(one), asked, gallery)
    others = [tally for tally in tallies if tally.entry is not one]
    return Measured(one.name, _names(chosen(tallies, numbers)), _names(chosen(others, numbers)))


def _names(found: Diagnosis | None) -> tuple[str, ...]:
    return tuple(one.name for one in found.entries) if found else ()


def measured(names: Sequence[str], *, workers: int = 2) -> list[Measured]:
    """Diagnose entries in separate processes."""
    with ProcessPoolExecutor(workers, get_context("spawn"), _begin) as pool:
        return list(pool.map(_measured, names, chunksize=-(-len(names) // workers)))


def counts(found: Sequence[Measured]) -> Counts:
    """Count how many are named rightly and how many wrongly.

    Examples
    --------
    >>> from tools.diagnosed import Measured, counts
    >>> counts([Measured("a", ("a", "b"), ("b",)), Measured("b", ("a",), ())])
    Counts(entries=2, rightly=0, several=1, nothing=0, wrongly={'b': ('a',)}, twins={'a': ('b',)})
    """
    return Counts(
        entries=len(found),
        rightly=sum(one.named == (one.entry,) for one in found),
        several=sum(len(one.named) > 1 and one.entry in one.named for one in found),
        nothing=sum(not one.named for one in found),
        wrongly={one.entry: one.named for one in found if one.named and one.entry not in one.named},
        twins={one.entry: one.without for one in found if one.without},
    )


def report(found: Counts) -> str:
    """Say how many are named rightly and how many wrongly.

    Examples
    --------
    >>> from tools.diagnosed import Counts, report
    >>> print(report(Counts(2, rightly=1, several=0, nothing=1, wrongly={}, twins={"b": ("a",)})))
    diagnosis: 2 entries, 1 named rightly, 0 as one of several, 0 wrongly, 1 not named
    without the entry itself: 1 named as another
    b is named a
    """
    named = f"{found.rightly} named rightly, {found.several} as one of several, {len(found.wrongly)} wrongly"
    lines = [
        f"diagnosis: {found.entries} entries, {named}, {found.nothing} not named",
        f"without the entry itself: {len(found.twins)} named as another",
    ]
    others = (*found.wrongly.items(), *found.twins.items())
    lines += [f"{name} is named {', '.join(named)}" for name, named in others]
    return "\n".join(lines)


_ASKED: list[Case] = []
_GALLERY = Gallery()


def _begin() -> None:
    _ASKED[:] = [*golden(), *probes(_SEED)]


def _measured(name: str) -> Measured:
    return measure(entry(name), _ASKED, _GALLERY)


if __name__ == "__main__":
    print(report(counts(measured([one.name for one in wrong_entries()]))))  # noqa: T201 - a command
