"""The results of one backend in one run, reduced to what the pages show, and the addresses of its pages."""

import re
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

from packaging.version import InvalidVersion, Version

from attnspec import rules
from attnspec.backends.names import ADAPTERS, LIBRARY_NAMES, PORTABLE, SEPARATE
from attnspec.conformance.attribution.levels import Standing, count_by_rule
from attnspec.conformance.attribution.report import Report
from attnspec.conformance.outside import one_line
from attnspec.conformance.render.counts import count_statuses
from attnspec.conformance.render.html.cell import cells_of
from attnspec.conformance.render.html.marks import letter_of, letter_of_case, letter_of_level
from attnspec.conformance.render.html.shares import Shares, shares_of
from attnspec.conformance.render.summary import backend_headline, why_not_whole
from attnspec.conformance.results import Results, Subject
from attnspec.conformance.verdict import Verdict

#: What the columns of portable backends are, in one sentence.
NOTE = (
    "Portable code on a library is the reference implementation of this project, run on the arrays of that "
    "library; its results say nothing about the attention functions of the library itself."
)
#: The most deviations of a rule, and the most characters of one, that a cell names.
_MOST, _LONGEST = 2, 60
#: Names of other pages, which no backend may have.
_TAKEN = frozenset({"index", "compare", "matrix", "levels", "rules"})
#: The backends of readers are after those of libraries and before the portable ones.
_ORDER = {name: index for index, name in enumerate((*ADAPTERS, *SEPARATE, "", *PORTABLE))}
_Key = TypeVar("_Key")


@dataclass(frozen=True, eq=False)
class Column:
    """One backend, in one version of its library, on one day.

    `ways` has the declared deviation of a rule that each case shows: its variant and its reason. `tested`
    counts the results of a rule in its own cases, if these are known.
    `cases` has the letter of each case, and the rule that it is about if it does not pass: ``f MASK-6``.
    `stem` names the page of the backend, and `slug` that of this run and its data.
    """

    backend: str
    library: str
    version: str
    attnspec: str
    part: str
    date: str
    headline: str
    notes: tuple[str, ...]
    totals: Mapping[str, int]
    standings: Mapping[str, Standing]
    counts: Mapping[str, Counter[str]]
    ways: Mapping[str, Mapping[str, tuple[str, str]]]
    cells: Mapping[str, Any]
    cases: Mapping[str, str]
    shares: tuple[Shares, ...] = ()
    stem: str = ""
    slug: str = ""
    tested: Mapping[str, Counter[str]] = field(default_factory=dict)

    @cached_property
    def letters(self) -> Mapping[str, str]:
        """The letter of every rule."""
        return {rule.id: letter_of(self.counts.get(rule.id, Counter())) for rule in rules()}

    def number_of(self, letter: str) -> int:
        """Count the rules that have a letter."""
        return [*self.letters.values()].count(letter)

    def letter_of_level(self, name: str) -> str:
        """Return the letter of a level."""
        return letter_of_level(self.standings.get(name))

    def deviations(self, rule: str) -> str:
        """Name the deviations of a rule, the most frequent first: by its variant, or the declared reason."""
        ways: Counter[str] = Counter()
        for variant, reason in self.ways.get(rule, {}).values():
            if text := one_line(variant or reason):
                ways[text] += 1
        texts = [
            _short(text) if len(ways) == 1 else f"{_short(text)}: {number}"
            for text, number in ways.most_common(_MOST)
        ]
        more = len(ways) - len(texts)
        return "; ".join(texts) + (f"; {more} more" if more else "")

    def results_of(self, rule: str) -> Counter[str]:
        """Count the results of a rule, in its own cases if they are known."""
        return self.tested.get(rule) or self.counts.get(rule, Counter())

    @property
    def label(self) -> str:
        """The name of the backend on a page."""
        return label_of(self.backend)

    @property
    def title(self) -> str:
        """The backend with the version of its library."""
        return f"{self.label}, {self.library} {self.version}"


def columns_of(results: Results, date: str) -> Iterator[Column]:
    """Yield a column for each backend of some results."""
    report = Report(results)
    for subject in results.subjects:
        yield _column(report, subject, date)


def label_of(backend: str) -> str:
    """Return the name of a backend on a page."""
    return f"portable code on {LIBRARY_NAMES[PORTABLE[backend]]}" if backend in PORTABLE else backend


#: The most letters of the name of a page, for file systems that take 255 octets.
_MOST_OF_SLUG = 100


def slug_of(name: str) -> str:
    """Return a name as a part of an address."""
    return re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-.")[:_MOST_OF_SLUG] or "backend"


def in_order(columns: Iterable[Column]) -> list[Column]:
    """Return columns in the order of backends, versions and days, each with names for its pages.

    Portable code is last, because it is no attention of the library that it runs on.
    """
    ordered = sorted(columns, key=_order)
    stems = _unique({column.backend: slug_of(column.backend) for column in ordered}, _TAKEN)
    slugs = _unique(
        {
            index: f"{stems[column.backend]}-{slug_of(column.version)}-{column.date}"
            for index, column in enumerate(ordered)
        }
    )
    return [
        replace(column, stem=stems[column.backend], slug=slugs[index]) for index, column in enumerate(ordered)
    ]


def runs_of_backend(backend: str, columns: Sequence[Column]) -> list[Column]:
    """Return the runs of one backend, the oldest first."""
    return [column for column in columns if column.backend == backend]


def newest(columns: Sequence[Column]) -> list[Column]:
    """Return the newest run of each backend."""
    return [*{column.backend: column for column in columns}.values()]


def page_of(column: Column, columns: Sequence[Column]) -> str:
    """Return the address of the page of a run. That of the newest run is the page of the backend."""
    if runs_of_backend(column.backend, columns)[-1] is column:
        return f"{column.stem}.html"
    return run_page(column)


def run_page(column: Column) -> str:
    """Return the permanent address of the page of a run."""
    return f"runs/{column.slug}.html"


def without_run(backends: Collection[str]) -> list[str]:
    """Return the backends of libraries that are not among those that were run."""
    return [name for name in (*ADAPTERS, *SEPARATE) if name not in backends]


def _column(report: Report, subject: Subject, date: str) -> Column:
    verdicts = report.verdicts(subject)
    totals = dict(count_statuses(verdicts))
    header = report.results.headers[0] if report.results.headers else None
    cases = dict.fromkeys(map(sys.intern, report.results.missing.get(subject.name, ())), "-")
    ways: dict[str, dict[str, tuple[str, str]]] = {}
    for verdict in verdicts:
        if verdict.case:
            letter = letter_of_case(verdict.status, verdict.rule)
            cases[sys.intern(verdict.case)] = sys.intern(
                letter if letter in "pu" else f"{letter} {verdict.main_rule}"
            )
        if verdict.status == "deviation":
            ways.setdefault(verdict.main_rule, {})[sys.intern(verdict.case)] = _way(verdict)
    return Column(
        backend=one_line(subject.name),
        library=one_line(subject.library),
        version=one_line(subject.version),
        attnspec=one_line(header.attnspec) if header else "",
        part=header.part if header else "chosen",
        date=date,
        headline=_headline(one_line(backend_headline(report, subject)), totals),
        notes=tuple(one_line(text) for text in (why_not_whole(report, subject), subject.note) if text),
        totals=totals,
        standings={standing.level: standing for standing in report.standings(subject)},
        counts=count_by_rule(verdicts),
        ways=ways,
        cells=cells_of(verdicts, report.seed),
        cases=cases,
        shares=shares_of(verdicts),
    )


def _headline(text: str, totals: Mapping[str, int]) -> str:
    """Return the result of a run in one line, which does not say that a backend with deviations conforms."""
    if not totals.get("deviation"):
        return text
    return re.sub(
        r"^(values: )?conforms( to)?",
        lambda match: f"{match[1] or ''}no undeclared failure{'; reaches' if match[2] else ''}",
        text,
    )


def _way(verdict: Verdict) -> tuple[str, str]:
    return verdict.variant, "" if verdict.variant else verdict.reason


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}\u2026"


def _order(column: Column) -> tuple[int, str, bool, Version | str, str]:
    number = _ORDER.get(column.backend, _ORDER[""])
    try:
        return number, column.backend, True, Version(column.version), column.date
    except InvalidVersion:
        return number, column.backend, False, column.version, column.date


def _unique(names: Mapping[_Key, str], taken: Collection[str] = ()) -> dict[_Key, str]:
    """Make names unique by a number, where capital letters make no difference."""
    seen = Counter(taken)
    unique = {}
    for key, name in names.items():
        seen[name.lower()] += 1
        number = seen[name.lower()]
        unique[key] = name if number == 1 else f"{name}.{number}"
    return unique
