"""The page that compares two runs, or a run with a results file that a reader drops on it."""

from collections.abc import Sequence
from html import escape

from attnspec.conformance.render.html.backend import symbol
from attnspec.conformance.render.html.column import Column
from attnspec.conformance.render.html.folder import newest, page_of, run_page, runs_of_backend
from attnspec.conformance.render.html.marks import MARKS
from attnspec.conformance.render.html.matrix import SCRIPTS
from attnspec.conformance.render.html.page import Links, frame


def compare_page(columns: Sequence[Column], links: Links) -> str:
    """Return the page. The comparison is made by its script; the history is in the page."""
    return frame(
        "Compare results",
        f"""<h1>Compare results</h1>
<p class="lead">Choose two runs, or drop your own results file anywhere on this page. The file is read in the
browser and is sent nowhere. <code>attnspec check BACKEND --results FILE.jsonl</code> writes one.</p>
<form id="chosen" class="filters" aria-label="Runs to compare" hidden></form>
<p id="count" class="count" role="status"></p>
<div id="comparison"></div>
<aside id="detail" class="detail" aria-labelledby="detail-title" tabindex="-1" hidden></aside>
<h2 id="history">History</h2>
<p>The rules of each stored run by their result, the newest version of a library first.</p>
{_history(columns)}
""",
        home=links.home,
        scripts=(*SCRIPTS, "dropped.js", "compare.js", "data/matrix.js"),
    )


def _history(columns: Sequence[Column]) -> str:
    heads = "".join(f'<th scope="col">{symbol(mark.letter)}</th>' for mark in reversed(MARKS))
    rows = []
    for last in newest(columns):
        runs = runs_of_backend(last.backend, columns)
        for index in reversed(range(len(runs))):
            one = runs[index]
            letters = [*one.letters.values()]
            numbers = "".join(f"<td>{letters.count(mark.letter)}</td>" for mark in reversed(MARKS))
            changed = ""
            if index:
                changed = f'<a href="#left={runs[index - 1].slug}&amp;right={one.slug}">what changed</a>'
            name = f'<a href="{escape(page_of(one, columns))}">{escape(one.label)}</a>'
            run = f'<a href="{run_page(one)}">{one.date}</a>'
            rows.append(
                f'<tr><th scope="row">{name}</th><td>{escape(one.library)} {escape(one.version)}</td>'
                f'<td class="nowrap">{run}</td>{numbers}<td>{changed}</td></tr>'
            )
    return (
        '<div class="wide" tabindex="0" role="region" aria-label="History"><table class="plain"><thead><tr>'
        '<th scope="col">backend</th><th scope="col">version</th><th scope="col">run of</th>'
        f"{heads}<td></td></tr></thead>\n<tbody>{''.join(rows)}</tbody></table></div>"
    )
