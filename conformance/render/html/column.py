"""The results of one backend in one run, reduced to what the pages show."""

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from attnspec import rules
from attnspec.conformance.attribution.levels import Standing, count_by_rule
from attnspec.conformance.attribution.report import Report
from attnspec.conformance.outside import one_line
from attnspec.conformance.render.html.detail import details_of
from attnspec.conformance.render.html.marks import letter_of, letter_of_case, letter_of_level
from attnspec.conformance.render.html.portable import label_of
from attnspec.conformance.render.html.shares import Shares, shares_of
from attnspec.conformance.render.html.shown import shown_of
from attnspec.conformance.render.summary import backend_headline, count_statuses, why_not_whole
from attnspec.conformance.results import Results, Subject


@dataclass(frozen=True, eq=False)
class Column:
    """One backend, in one version of its library, on one day.

    Attributes
    ----------
    backend, library, version : str
    attnspec : str
        The version of the standard.
    part : str
        The part of the suite, as in `Header`.
    date : str
        The day of the run, as ``2026-01-31``.
    headline : str
        The result in one line.
    notes : tuple of str
        Why it was not judged whole, and what is said beside its verdicts.
    totals : mapping of str to int
        The number of cases by status.
    standings : mapping of str to Standing
        By level. Empty if no level was determined.
    counts : mapping of str to Counter
        The number of results by rule.
    shown : mapping of str to str
        The variants and declared deviations that the backend shows, by rule.
    details : mapping of str to object
        What a cell shows, by rule, as JSON.
    cases : mapping of str to str
        The letter of each case, and the rule that it is about if it does not pass: ``f MASK-6``.
    shares : tuple of Shares
        The used shares of the budget by dtype and size.
    stem : str
        The name of the page of the backend, without its suffix.
    slug : str
        The name of the page of this run, and of its data.
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
    shown: Mapping[str, str]
    details: Mapping[str, Any]
    cases: Mapping[str, str]
    shares: tuple[Shares, ...] = ()
    stem: str = ""
    slug: str = ""

    @cached_property
    def letters(self) -> Mapping[str, str]:
        """The letter of every rule."""
        return {rule.id: letter_of(self.counts.get(rule.id, Counter())) for rule in rules()}

    def letter_of_level(self, name: str) -> str:
        """Return the letter of a level."""
        return letter_of_level(self.standings.get(name))

    @property
    def label(self) -> str:
        """The name of the backend on a page."""
        return label_of(self.backend)

    @property
    def title(self) -> str:
        """The backend with the version of its library."""
        return f"{self.label}, {self.library} {self.version}"


def columns_of(results: Results, date: str) -> Iterator[Column]:
    """Yield a column for each backend of some results.

    Examples
    --------
    >>> from attnspec.conformance.render.html.column import columns_of
    >>> from attnspec.conformance.results import Header, Results, Subject
    >>> from attnspec.conformance.verdict import Verdict
    >>> verdict = Verdict("b", "c-float32", "", ("MASK-1",), "pass")
    >>> results = Results((Subject("b", "numpy", "2"),), (verdict,), (Header("1", cases=("c-float32",)),))
    >>> column, = columns_of(results, "2026-01-31")
    >>> column.title, column.letters["MASK-1"], column.letters["MASK-2"]
    ('b, numpy 2', 'p', 'n')
    """
    report = Report(results)
    for subject in results.subjects:
        yield _column(report, subject, date)


def slug_of(name: str) -> str:
    """Return a name as a part of an address.

    Examples
    --------
    >>> from attnspec.conformance.render.html.column import slug_of
    >>> slug_of("torch-sdpa"), slug_of("./mine.py:f?dtype=float16"), slug_of("2.13.0+cpu"), slug_of("..")
    ('torch-sdpa', 'mine.py-f-dtype-float16', '2.13.0-cpu', 'backend')
    """
    return re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-.") or "backend"


def _column(report: Report, subject: Subject, date: str) -> Column:
    verdicts = report.verdicts(subject)
    header = report.results.headers[0] if report.results.headers else None
    cases = dict.fromkeys(map(sys.intern, report.results.missing.get(subject.name, ())), "-")
    for one in verdicts:
        if one.case:
            letter = letter_of_case(one.status, one.rule)
            said = letter if letter in "pu" else f"{letter} {one.main_rule}"
            cases[sys.intern(one.case)] = sys.intern(said)
    return Column(
        backend=one_line(subject.name),
        library=one_line(subject.library),
        version=one_line(subject.version),
        attnspec=one_line(header.attnspec) if header else "",
        part=header.part if header else "chosen",
        date=date,
        headline=one_line(backend_headline(report, subject)),
        notes=tuple(one_line(text) for text in (why_not_whole(report, subject), subject.note) if text),
        totals=dict(count_statuses(verdicts)),
        standings={one.level: one for one in report.standings(subject)},
        counts=count_by_rule(verdicts),
        shown=shown_of(verdicts),
        details=details_of(verdicts, report.seed),
        cases=cases,
        shares=shares_of(verdicts),
    )
