"""Writes the folder of pages."""

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from attnspec import SpecError, levels
from attnspec.conformance.files import write_whole
from attnspec.conformance.packed import bare
from attnspec.conformance.render.html.backend import backend_page
from attnspec.conformance.render.html.badges import badge, badge_path
from attnspec.conformance.render.html.cases import names_of, packed
from attnspec.conformance.render.html.column import Column, columns_of
from attnspec.conformance.render.html.compare import compare_page
from attnspec.conformance.render.html.feed import feed
from attnspec.conformance.render.html.folder import newest, placed, run_page
from attnspec.conformance.render.html.matrix import column_data, matrix_data, matrix_page
from attnspec.conformance.render.html.page import Links, script
from attnspec.conformance.render.html.rule_list import PAGE, rule_address, rules_page, sentences
from attnspec.conformance.render.html.tables import all_json, levels_csv, rules_csv
from attnspec.conformance.results import Results, gathered
from attnspec.conformance.results_file import runs_of

#: The files that are copied into the folder.
ASSETS = ("results.css", "shared.js", "detail.js", "matrix.js", "compare.js", "dropped.js")
_DAY = re.compile(r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])$")


def write(
    results: Iterable[Path | Results],
    folder: Path,
    *,
    rule_page: Callable[[str], str] | None = None,
    finding_page: Callable[[str], str] | None = None,
    library_page: Callable[[str], str] | None = None,
    home: str = "",
) -> Path:
    """Write pages of results into a folder. They need no server and load nothing from elsewhere.

    Parameters
    ----------
    results : iterable of Path or Results
        Results files, read one by one, or results. The day of a file is the end of its name, as in
        ``numpy-2.4-2026-01-31.jsonl.xz``, or that of its last change.
    folder : Path
        Pages that are there are replaced.
    rule_page, finding_page, library_page : callable, optional
        The address of the page of a rule by its id, of a finding by ``library/name``, and of a library
        by its name, all relative to the folder. By default, the folder gets a page of all rules.
        With `library_page`, the first page names the backends of libraries that were not run.
    home : str, optional
        The address of the front page, relative to the folder.

    Returns
    -------
    Path
        The first page.

    Raises
    ------
    SpecError
        If a file is not one of results, or there are no results.
    OSError
        If a page cannot be written.

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
    links = Links(rule_page or rule_address, finding_page, library_page, home)
    columns = placed(column for one in results for column in _columns(one))
    if not columns:
        raise SpecError("results: expected the results of a backend, got none")
    for name, text in _files(columns, links):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text)
    return folder / "index.html"


def _columns(one: Path | Results) -> Iterator[Column]:
    if isinstance(one, Results):
        yield from columns_of(one, f"{datetime.now(UTC):%Y-%m-%d}")
        return
    for run in runs_of(one):
        yield from columns_of(gathered([run]), _day_of(one))


def _day_of(path: Path) -> str:
    """Return the day of a file: the end of its name, or that of its last change."""
    if found := _DAY.search(bare(path)):
        return found[0]
    return f"{datetime.fromtimestamp(path.stat().st_mtime, UTC):%Y-%m-%d}"


def _files(columns: list[Column], links: Links) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each file."""
    names = names_of(column.cases for column in columns)
    parts = [*packed(names)]
    yield "index.html", matrix_page(columns, links)
    yield "compare.html", compare_page(columns, links)
    yield "data/matrix.js", script("matrix", matrix_data(columns, links) | {"parts": len(parts)})
    yield "data/rules.js", script("rules", sentences())
    if links.rule is rule_address:
        yield PAGE, rules_page()
    for index, part in enumerate(parts):
        yield f"data/cases-{index}.js", script(f"cases-{index}", part)
    for column in columns:
        yield f"data/{column.slug}.js", script(column.slug, column_data(column, names, links))
        yield run_page(column), backend_page(column, columns, links, "../")
    for column in newest(columns):
        yield f"{column.stem}.html", backend_page(column, columns, links)
        for level in levels():
            yield badge_path(column, level.name), badge(column, level.name)
    yield "matrix.csv", rules_csv(columns)
    yield "levels.csv", levels_csv(columns)
    yield "matrix.json", all_json(columns)
    yield "feed.xml", feed(columns)
    here = Path(__file__).parent
    yield from ((name, (here / name).read_text(encoding="utf-8")) for name in ASSETS)
