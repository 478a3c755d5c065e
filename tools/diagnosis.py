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

from attnspec import Case, cases
from attnspec.backends import Backend
from attnspec.conformance.attribution.diagnosis import Gallery, calls_to_compare, nearest, tally_entries
from attnspec.conformance.attribution.finding import Diagnosis
from attnspec.conformance.gallery import Entry, entry, wrong_entries
from attnspec.conformance.judge.dtypes import in_each
from attnspec.conformance.suite.options import OPTIONS, draw_option
from attnspec.conformance.suite.problem import GROUPED, MASKED, Shape, problem_of

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
class Naming:
    """The names that the diagnosis of an entry gave, with and without the entry itself to choose from."""

    entry: str
    named: tuple[str, ...]
    without: tuple[str, ...]


@dataclass(frozen=True)
class Counts:
    """The numbers of entries that are named rightly and wrongly.

    `rightly`, `several` and `nothing` count the entries that are named alone, as one of several, and not at
    all. `wrongly` has the names given instead of an entry, and `twins` the names given if the entry itself is
    left out.
    """

    entries: int
    rightly: int
    several: int
    nothing: int
    wrongly: Mapping[str, Sequence[str]]
    twins: Mapping[str, Sequence[str]]


def on_another_base(wrong: Entry) -> Backend:
    """Make the same bug in another implementation."""
    steps: dict[str, Any] = {}
    for name in OTHER_BASE:
        steps |= entry(name).steps
    return replace(wrong, steps={**steps, **wrong.steps}).backend()


def diagnose_entry(wrong: Entry, probes: Sequence[Case], gallery: Gallery) -> Naming:
    """Diagnose one entry."""
    backend = on_another_base(wrong)
    tallies, counts = tally_entries(backend, calls_to_compare(backend, probes), gallery)
    others = [tally for tally in tallies if tally.entry is not wrong]
    return Naming(wrong.name, _names(nearest(tallies, counts)), _names(nearest(others, counts)))


def _names(found: Diagnosis | None) -> tuple[str, ...]:
    return found.names if found else ()


def diagnose(names: Sequence[str], *, workers: int = 2) -> list[Naming]:
    """Diagnose entries in separate processes."""
    with ProcessPoolExecutor(workers, get_context("spawn"), _begin) as pool:
        return list(pool.map(_diagnose_by_name, names, chunksize=-(-len(names) // workers)))


def count(found: Sequence[Naming]) -> Counts:
    """Count how many are named rightly and how many wrongly."""
    return Counts(
        entries=len(found),
        rightly=sum(naming.named == (naming.entry,) for naming in found),
        several=sum(len(naming.named) > 1 and naming.entry in naming.named for naming in found),
        nothing=sum(not naming.named for naming in found),
        wrongly={
            naming.entry: naming.named
            for naming in found
            if naming.named and naming.entry not in naming.named
        },
        twins={naming.entry: naming.without for naming in found if naming.without},
    )


def report(found: Counts) -> str:
    """Say how many are named rightly and how many wrongly."""
    named = f"{found.rightly} named rightly, {found.several} as one of several, {len(found.wrongly)} wrongly"
    lines = [
        f"diagnosis: {found.entries} entries, {named}, {found.nothing} not named",
        f"without the entry itself: {len(found.twins)} named as another",
    ]
    others = (*found.wrongly.items(), *found.twins.items())
    lines += [f"{name} is named {', '.join(named)}" for name, named in others]
    return "\n".join(lines)


_PROBES: list[Case] = []
_GALLERY = Gallery()


def _begin() -> None:
    _PROBES[:] = [*golden_vectors(), *probes(_SEED)]


def _diagnose_by_name(name: str) -> Naming:
    return diagnose_entry(entry(name), _PROBES, _GALLERY)


_SHAPES = (MASKED[0], GROUPED[1], Shape((1, 1), 19, 35, 2, 2))
_PLAIN = (
    Shape((), 2, 257, 2, 3),
    Shape((), 33, 9, 20, 2),
    Shape((2, 2), 4, 4, 3, 3),
    Shape((2,), 3, 4, 2, 5),
)


def golden_vectors() -> list[Case]:
    """Return all golden vectors, each in one of the dtypes that hold its numbers."""
    each = [in_each(case) for case in cases()]
    return [found[number % len(found)] for number, found in enumerate(each) if found]


def probes(seed: int = 5) -> list[Case]:
    """Make cases with one option each, and plain cases. Some have sizes past tiles."""
    found = []
    for number, shape in enumerate((*_SHAPES, *_PLAIN)):
        for dtype in ("float32", "float16"):
            for name in OPTIONS if number < len(_SHAPES) else ("plain",):
                problem = problem_of(shape, dtype, seed + number)
                needs, own = ({}, {}) if name == "plain" else draw_option(problem, name)
                rule = OPTIONS[name].rule if name in OPTIONS else "SOFT-1"
                title, arguments = f"a probe of {name}", problem.arguments | needs | own
                id_ = f"errors-probe-{name.replace('_', '-')}-{number}"
                found.append(Case(id_, title, "errors", "attention", (rule,), arguments, group="probe"))
    return found


if __name__ == "__main__":
    print(report(count(diagnose([wrong.name for wrong in wrong_entries()]))))  # noqa: T201 - a command
