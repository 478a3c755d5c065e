"""The page of one run of a backend: levels, counts, what does not hold, error shares and earlier runs."""

from collections.abc import Mapping, Sequence
from html import escape

from attnspec import levels, rules
from attnspec.backends.names import PORTABLE
from attnspec.conformance.render.html.badges import badge_path
from attnspec.conformance.render.html.chart import charts
from attnspec.conformance.render.html.column import Column
from attnspec.conformance.render.html.folder import page_of, run_page, runs_of_backend
from attnspec.conformance.render.html.marks import MARKS
from attnspec.conformance.render.html.page import Links, at, frame, link
from attnspec.conformance.render.html.portable import NOTE
from attnspec.conformance.render.screen import cell

_MARK = {mark.letter: mark for mark in MARKS}
#: The statuses in the order of the table of cases.
_STATUSES = ("pass", "fail", "error", "deviation", "should not met", "unsupported")


def backend_page(column: Column, columns: Sequence[Column], links: Links, root: str = "") -> str:
    """Return the page of a run, `root` being the way from it to the folder."""
    where = links.library(column.library) if links.library else ""
    library = link(at(root, where), column.library) if where else escape(column.library)
    said = (NOTE, *column.notes) if column.backend in PORTABLE else column.notes
    notes = "".join(f"<p class='note'>{escape(note)}</p>" for note in said)
    return frame(
        column.title,
        f"""<h1>{escape(column.label)}</h1>
<p class="lead">{library} {escape(column.version)}: {escape(column.headline)}</p>
{notes}
<p>Run of {column.date}, {_PARTS.get(column.part, "a part of the suite")},
version {escape(column.attnspec)} of the standard.
<a href="{root}index.html#library={escape(column.backend)}">In the matrix</a>,
<a href="{root}compare.html#left={column.slug}">compare</a>.</p>
{_results(column, links, root)}
<h2 id="errors">Error as a share of the allowed error</h2>
<p>For each size, the bar ends at the largest share of the allowed error that an element used. The line in it
is the median of the calls. A value above 1 is a failure or a declared deviation. A triangle stands for a
share above 1.25.</p>
{charts(column.shares)}
<h2 id="history">Runs of this backend</h2>
{_history(column, columns, root)}
""",
        root=root,
        home=links.home,
    )


_PARTS = {"whole": "the whole suite", "quick": "the quick part of the suite", "sizes": "the large sizes"}


def _results(column: Column, links: Links, root: str) -> str:
    """Return the levels, the cases and the rules. Of a part of the suite, the levels are last, and folded."""
    levels_ = _levels(column, links, root)
    others = f"""<h2 id="cases">Cases</h2>
{_cases(column)}
<h2 id="rules">Rules that do not fully pass</h2>
{_rules(column, links, root)}"""
    if column.standings:
        return f'<h2 id="levels">Levels</h2>\n{levels_}\n{others}'
    return f"""{others}
<h2 id="levels">Levels</h2>
<p>No level is determined: only a run of the whole suite determines them.</p>
<details><summary>{len(levels())} levels and their badges</summary>{levels_}</details>"""


def symbol(letter: str) -> str:
    """Return the symbol of a mark with its name for screen readers.

    Examples
    --------
    >>> from attnspec.conformance.render.html.backend import symbol
    >>> "not run" in symbol("n")
    True
    """
    mark = _MARK[letter]
    return f'<span class="k {letter}" aria-hidden="true">{mark.symbol}</span> {escape(mark.name)}'


def _levels(column: Column, links: Links, root: str) -> str:
    rows = []
    for level in levels():
        letter = column.letter_of_level(level.name)
        standing = column.standings.get(level.name)
        if letter == "p":
            said, mark = "", f'<span class="k p" aria-hidden="true">{_MARK["p"].symbol}</span> reached'
        else:
            words = "not determined" if letter == "n" else "not reached"
            mark = f'<span class="k {letter}" aria-hidden="true">{_MARK[letter].symbol}</span> {words}'
            said = "" if standing is None else _missing(standing.missing, links, root)
        image = f'<a href="{root}{badge_path(column, level.name)}">badge</a>'
        rows.append(
            f'<tr id="level-{level.name}"><th scope="row">{escape(level.name)}</th>'
            f'<td class="nowrap">{mark}</td><td>{said}</td><td>{image}</td></tr>'
        )
    return _table_of(("level", "result", "lacks", ""), rows, "Levels")


def _missing(missing: Mapping[str, str], links: Links, root: str) -> str:
    """Name the rules that a level lacks, by their result, the most telling first."""
    by: dict[str, list[str]] = {}
    for rule, what in missing.items():
        by.setdefault(what, []).append(rule)
    order = ("fail", "error", "deviation", "should not met", "not shown")
    parts = []
    for what in sorted(by, key=lambda one: order.index(one) if one in order else len(order)):
        shown = ", ".join(link(at(root, links.rule(rule)), rule) for rule in by[what][:8])
        more = f" and {len(by[what]) - 8} more" if len(by[what]) > 8 else ""
        parts.append(f"{escape(what)}: {shown}{more}")
    return "; ".join(parts)


def _cases(column: Column) -> str:
    total = sum(column.totals.values())
    shown = [status for status in _STATUSES if column.totals.get(status)]
    rows = [
        f'<tr><th scope="row">{escape("not offered" if status == "unsupported" else status)}</th>'
        f"<td>{column.totals[status]}</td><td>{column.totals[status] / total:.1%}</td></tr>"
        for status in shown
    ]
    missing = sum(letter == "-" for letter in column.cases.values())
    if missing:
        rows.append(f'<tr><th scope="row">not run</th><td>{missing}</td><td></td></tr>')
    return _table_of(("verdict", "cases", "share"), rows, "Cases")


def _rules(column: Column, links: Links, root: str) -> str:
    rows = []
    for rule in rules():
        letter = column.letters[rule.id]
        if letter in "fdsm":
            text = cell(column.counts[rule.id])[0]
            if letter == "d" and rule.id in column.shown:
                text = f"{text}: {column.shown[rule.id]}"
            opened = f"{root}index.html#cell={rule.id}:{column.slug}&all=1"
            rows.append(
                f'<tr id="{rule.id}"><th scope="row">{link(at(root, links.rule(rule.id)), rule.id)}</th>'
                f'<td>{escape(rule.title.replace("`", ""))}</td><td class="nowrap">{symbol(letter)}</td>'
                f'<td><a href="{opened}">{escape(text)}</a></td></tr>'
            )
    if not rows:
        return "<p>Every rule that was judged passes.</p>"
    return _table_of(("rule", "", "result", "cases"), rows, "Rules that do not fully pass")


def _history(column: Column, columns: Sequence[Column], root: str) -> str:
    runs = runs_of_backend(column.backend, columns)
    rows = []
    for index in reversed(range(len(runs))):
        one = runs[index]
        letters = [*one.letters.values()]
        numbers = "".join(f"<td>{letters.count(mark.letter)}</td>" for mark in reversed(MARKS))
        before = ""
        if index:
            address = f"{root}compare.html#left={runs[index - 1].slug}&right={one.slug}"
            before = f'<a href="{address}">what changed</a>'
        name = f"{one.library} {one.version}"
        name = escape(name) if one is column else link(f"{root}{page_of(one, columns)}", name)
        run = f'<a href="{root}{run_page(one)}">{one.date}</a>'
        rows.append(
            f'<tr><th scope="row">{name}</th><td class="nowrap">{run}</td>'
            f"<td>{escape(one.attnspec)}</td>{numbers}<td>{before}</td></tr>"
        )
    heads = ("version", "run of", "standard", *(f"rules: {mark.name}" for mark in reversed(MARKS)), "")
    return _table_of(heads, rows, "Runs")


def _table_of(heads: Sequence[str], rows: Sequence[str], label: str) -> str:
    head = "".join(f'<th scope="col">{escape(one)}</th>' if one else "<td></td>" for one in heads)
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(label)}"><table class="plain">'
        f"<thead><tr>{head}</tr></thead>\n<tbody>{''.join(rows)}</tbody></table></div>"
    )
