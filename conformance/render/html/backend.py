"""The page of one run of a backend: levels, counts, what does not hold, error shares and earlier runs."""

from collections.abc import Mapping, Sequence

from attnspec import levels, rules
from attnspec.backends.names import PORTABLE
from attnspec.conformance.render.badge import badge_svg
from attnspec.conformance.render.counts import cell
from attnspec.conformance.render.html.column import NOTE, Column, page_of
from attnspec.conformance.render.html.compare import history
from attnspec.conformance.render.html.marks import MARK, MARKS
from attnspec.conformance.render.html.page import Links, Page, at, render
from attnspec.conformance.render.html.shares import charts

#: The statuses in the order of the table of cases.
_STATUSES = ("pass", "fail", "error", "deviation", "should not met", "unsupported")
#: What a level lacks, the most telling first.
_LACKS = ("fail", "error", "deviation", "should not met", "not shown")
#: The most rules that a level is said to lack for one reason.
_MOST = 8
_PARTS = {
    "whole": "the whole suite",
    "quick": "the quick part of the suite",
    "smoke": "the smallest calls of the suite",
    "sizes": "the large sizes",
}
_BADGES = {
    "p": ("reached", "good"),
    "f": ("not reached", "bad"),
    "d": ("not reached: deviates", "part"),
    "s": ("not reached", "part"),
    "m": ("not reached", "part"),
    "u": ("not offered", "part"),
    "n": ("not judged", "part"),
}


def backend_page(path: str, column: Column, columns: Sequence[Column], links: Links) -> Page:
    """Return the page of a run. Of a part of the suite, the levels are last, and folded."""
    body = render(
        "backend.html",
        page_root="../" * path.count("/"),
        column=column,
        links=links,
        library=links.library(column.library) if links.library else "",
        notes=(NOTE, *column.notes) if column.backend in PORTABLE else column.notes,
        part=_PARTS.get(column.part, "a part of the suite"),
        levels=[_level(column, level.name) for level in levels()],
        cases=[(status, column.totals[status]) for status in _STATUSES if column.totals.get(status)],
        total=sum(column.totals.values()),
        missing=sum(letter == "-" for letter in column.cases.values()),
        broken=[
            (rule, MARK[letter], _text(column, rule.id, letter))
            for rule in rules()
            if (letter := column.letters[rule.id]) in "fdsm"
        ],
        charts=charts(column.shares),
        runs=[run for run in history(columns) if run.column.backend == column.backend],
        names=[f"rules: {mark.name}" for mark in reversed(MARKS)],
        marks=MARKS[::-1],
    )
    return Page(path, column.title, body)


def latest_page(path: str, column: Column, columns: Sequence[Column], _links: Links) -> Page:
    """Return a page for the address of a run that is the newest of its backend: where its results are."""
    address = at("../" * path.count("/"), page_of(column, columns))
    return Page(path, column.title, render("latest.html", column=column, address=address))


def badge_path(column: Column, level: str) -> str:
    """Return the permanent address of the badge of a backend and a level."""
    return f"badges/{column.stem}-{level}.svg"


def badge(column: Column, level: str) -> str:
    """Return the image: the backend, the level, and whether it is reached."""
    message, mood = _BADGES[column.letter_of_level(level)]
    return badge_svg(f"{column.backend} {level}", message, mood)


def _level(column: Column, name: str) -> Mapping[str, object]:
    letter = column.letter_of_level(name)
    standing = column.standings.get(name)
    missing = standing.missing if standing and letter != "p" else {}
    return {
        "name": name,
        "mark": MARK[letter],
        "result": {"p": "reached", "n": "not determined"}.get(letter, "not reached"),
        "lacks": [*_lacks(missing)],
        "badge": badge_path(column, name),
    }


def _lacks(missing: Mapping[str, str]) -> list[tuple[str, list[str], int]]:
    """Return the rules that a level lacks, by their result, and how many more there are of each."""
    by: dict[str, list[str]] = {}
    for rule, what in missing.items():
        by.setdefault(what, []).append(rule)
    order = sorted(by, key=lambda what: _LACKS.index(what) if what in _LACKS else len(_LACKS))
    return [(what, by[what][:_MOST], max(0, len(by[what]) - _MOST)) for what in order]


def _text(column: Column, rule: str, letter: str) -> str:
    text = cell(column.results_of(rule))[0]
    ways = column.deviations(rule) if letter == "d" else ""
    return f"{text}: {ways}" if ways else text
