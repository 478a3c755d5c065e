"""The folder of pages of results, and the summary of a CI run that leads to it."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

from markupsafe import Markup, escape

from attnspec import SpecError, levels, rules
from attnspec.conformance.attribution.report import Report
from attnspec.conformance.files import write_whole
from attnspec.conformance.render.html.backend import backend_page, badge, badge_path, latest_page
from attnspec.conformance.render.html.column import Column, columns_of, in_order, newest, page_of, run_page
from attnspec.conformance.render.html.compare import compare_page, feed
from attnspec.conformance.render.html.matrix import (
    all_json,
    case_names,
    column_data,
    levels_csv,
    matrix_data,
    matrix_page,
    pack_names,
    rules_csv,
)
from attnspec.conformance.render.html.page import ASSETS, Links, Page, alone, render, script
from attnspec.conformance.render.markdown import code, pages_line
from attnspec.conformance.render.summary import backend_headline
from attnspec.conformance.render.text import web_address
from attnspec.conformance.results import Results, gather, join_shards
from attnspec.conformance.results_file import runs_of, stem

#: The variable that names the file of the summary in a GitHub workflow.
SUMMARY = "GITHUB_STEP_SUMMARY"
_DAY = re.compile(r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])$")


def write(results: Iterable[Path | Results], folder: Path) -> Path:
    """Write pages of results, which need no server and load nothing from elsewhere; return the first.

    The day of a file of results is the end of its name, as in ``numpy-2.4-2026-01-31.jsonl.xz``, or that of
    its last change.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from attnspec.conformance.render.html import write
    >>> from attnspec.conformance.results import Header, Results, Subject
    >>> from attnspec.conformance.verdict import Verdict
    >>> verdict = Verdict("b", "c-float32", "", ("MASK-1",), "pass")
    >>> results = Results((Subject("b", "numpy", "2"),), (verdict,), (Header("1", cases=("c-float32",)),))
    >>> with tempfile.TemporaryDirectory() as name:
    ...     first = write([results], Path(name))
    ...     first.name, "MASK-1" in Path(name, "matrix.csv").read_text()
    ('index.html', True)
    """
    columns = read_columns(results)
    if not columns:
        raise SpecError("results: expected the results of a backend, got none")
    for name, content in files(columns, Links(lambda rule: f"rules.html#{rule}")):
        _put(folder / name, alone(content) if isinstance(content, Page) else content)
    page = _rules_page()
    _put(folder / page.path, alone(page))
    for asset in sorted(ASSETS.iterdir()):
        _put(folder / "_static" / asset.name, asset.read_text(encoding="utf-8"))
    _put(folder / "_static" / "names.js", script("attnspecNames", _names(columns)))
    return folder / "index.html"


def read_columns(results: Iterable[Path | Results]) -> list[Column]:
    """Read results files, one by one, or take results, and return their columns in order."""
    return in_order(column for each in results for column in _columns(each))


def files(columns: Sequence[Column], links: Links) -> Iterator[tuple[str, str | Page]]:
    """Yield the name of each file with its text, or with a page that has no shell yet."""
    names = case_names(columns)
    parts = [*pack_names(names)]
    for page in (matrix_page(columns, links), compare_page(columns, links)):
        yield page.path, page
    yield "data/matrix.js", _data("matrix", matrix_data(columns, links) | {"parts": len(parts)})
    yield "data/rules.js", _data("rules", {rule.id: rule.sentence for rule in rules()})
    for index, part in enumerate(parts):
        yield f"data/cases-{index}.js", _data(f"cases-{index}", part)
    for column in columns:
        yield f"data/{column.slug}.js", _data(column.slug, column_data(column, names, links))
        # The newest run has the page of its backend. Its own address leads there until another is newer.
        make = latest_page if page_of(column, columns) != run_page(column) else backend_page
        yield run_page(column), make(run_page(column), column, columns, links)
    for column in newest(columns):
        path = f"{column.stem}.html"
        yield path, backend_page(path, column, columns, links)
        for level in levels():
            yield badge_path(column, level.name), badge(column, level.name)
    yield "matrix.csv", rules_csv(columns)
    yield "levels.csv", levels_csv(columns)
    yield "matrix.json", all_json(columns)
    yield "feed.xml", feed(columns)


def add_summary(results: Sequence[Path], first: Path) -> None:
    """Add each backend's result and the link to the pages to the summary of a CI run, if there is one."""
    if target := os.environ.get(SUMMARY):
        lines = ("## attnspec", "", *_headlines(results), "", pages_line(first), "")
        with Path(target).open("a", encoding="utf-8") as file:
            file.write("\n".join(lines))


def _headlines(results: Sequence[Path]) -> Iterator[str]:
    for run in join_shards(run for path in results for run in runs_of(path)):
        report = Report(gather([run]))
        for subject in report.results.subjects:
            library = code(f"{subject.library} {subject.version}")
            yield f"- {code(subject.name)} ({library}): {code(backend_headline(report, subject))}"


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text)


def _data(name: str, data: object) -> str:
    return script("attnspec.put", name, data)


def _columns(results: Path | Results) -> Iterator[Column]:
    if isinstance(results, Results):
        yield from columns_of(results, f"{datetime.now(UTC):%Y-%m-%d}")
        return
    for run in runs_of(results):
        yield from columns_of(gather([run]), _day_of(results))


def _day_of(path: Path) -> str:
    """Return the day of a file: the end of its name, or that of its last change."""
    if day := _DAY.search(stem(path)):
        return day[0]
    return f"{datetime.fromtimestamp(path.stat().st_mtime, UTC):%Y-%m-%d}"


def _rules_page() -> Page:
    """Return the page of all rules, with their variants, for a folder that has no site around it."""
    chapters = [
        (name, [(rule, web_address(rule)) for rule in own])
        for name, own in groupby(rules(), key=lambda rule: rule.chapter)
    ]
    return Page("rules.html", "Rules", render("rules.html", chapters=chapters, prose=_prose))


def _prose(text: str) -> Markup:
    """Return a text of the standard as HTML: code, and links by their text."""
    without = re.sub(r"\[((?:[^\]`]|`[^`]*`)*)\]\[[^\]]*\]", r"\1", text)
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(without))))  # noqa: S704 - it is escaped


def _names(columns: Sequence[Column]) -> list[list[str]]:
    """Return what the search of the folder finds: kind, name, title, address, other names and text."""
    names = [
        ["rule", rule.id, rule.title.replace("`", ""), f"rules.html#{rule.id}", "", rule.sentence]
        for rule in rules()
    ]
    names += [
        ["library", column.backend, f"{column.library} {column.version}", f"{column.stem}.html", "", ""]
        for column in newest(columns)
    ]
    return [*names, ["page", "Compare", "two runs, or your own results file", "compare.html", "", ""]]
