"""Comparisons of runs: the page that compares two, the history of a backend, and the feed of changes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from uuid import NAMESPACE_URL, uuid5

from attnspec import levels, rules
from attnspec.conformance.render.html.column import Column, newest, page_of, run_page, runs_of_backend
from attnspec.conformance.render.html.marks import MARK, MARKS
from attnspec.conformance.render.html.page import Links, Page, render

#: The largest number of entries of the feed.
_MOST = 200


@dataclass(frozen=True)
class Run:
    """A run, the run of the same backend before it, and the addresses of its pages."""

    column: Column
    before: Column | None
    page: str
    address: str

    @property
    def name(self) -> str:
        """The version of the library."""
        return f"{self.column.library} {self.column.version}"


def history(columns: Sequence[Column]) -> list[Run]:
    """Return the runs of each backend, the newest version first."""
    runs = []
    for last in newest(columns):
        own = runs_of_backend(last.backend, columns)
        pairs = zip(own, (None, *own), strict=False)
        runs += [Run(run, before, page_of(run, columns), run_page(run)) for run, before in pairs][::-1]
    return runs


def compare_page(columns: Sequence[Column], links: Links) -> Page:
    """Return the page. The comparison is made by its script; the history is in the page."""
    body = render("compare.html", links=links, runs=history(columns), marks=MARKS[::-1])
    return Page("compare.html", "Compare results", body)


def feed(columns: Sequence[Column]) -> str:
    """Return the changes as an Atom feed, the newest run first."""
    runs = sorted(history(columns), key=lambda run: run.column.date, reverse=True)
    return render(
        "feed.xml",
        updated=runs[0].column.date if runs else "1970-01-01",
        entries=[(run, *_entry(run)) for run in islice(runs, _MOST)],
        id_of=lambda name: f"urn:uuid:{uuid5(NAMESPACE_URL, f'attnspec/results/{name}')}",
    )


def _entry(run: Run) -> tuple[str, list[str]]:
    """Return the title of an entry, and its lines."""
    if run.before is None:
        return f"{run.column.title}: first results", [run.column.headline]
    title = f"{run.column.title}: compared with {run.before.version} of {run.before.date}"
    return title, [*_changes(run.before, run.column)] or ["no rule has another result"]


def _changes(before: Column, after: Column) -> Iterator[str]:
    """Yield what changed between two runs of a backend, by level and then by rule."""
    for level in levels():
        was, now = before.letter_of_level(level.name), after.letter_of_level(level.name)
        if (was == "p") != (now == "p"):
            yield f"level {level.name}: {'reached' if now == 'p' else 'no longer reached'}"
    for rule in rules():
        was, now = before.letters[rule.id], after.letters[rule.id]
        if was != now:
            yield f"{rule.id} {rule.title}: {MARK[was].name} \u2192 {MARK[now].name}"
