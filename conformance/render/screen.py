"""Writes a run for the terminal: failures, a table, further lines, and the result."""

import os
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

from attnspec import Rule, rules
from attnspec.conformance.attribution.causes import never_returns
from attnspec.conformance.attribution.levels import (
    ACCEPTED,
    KNOWN,
    NOT_SHOWN,
    count_by_rule,
    rule_results,
    rules_of,
)
from attnspec.conformance.attribution.report import Outcome, Report
from attnspec.conformance.outside import one_line, plain
from attnspec.conformance.render.finding import accepted_text, finding_line, finding_text
from attnspec.conformance.render.summary import (
    backend_headline,
    backend_lines,
    cell,
    other_part_line,
    run_line,
    stale_line,
    totals,
    unmet_lines,
    why_not_whole,
)
from attnspec.conformance.render.text import address
from attnspec.conformance.results import Subject

#: The number of lines of an error that are shown.
_MOST_OF_ERROR = 12
#: A rule with only these results has no row.
_PLAIN = frozenset({"pass", "unsupported"})
#: The widths of columns: of a rule's id or a chapter's name, of a backend, of a title.
_RULE, _BACKEND, _TITLE = 10, 18, (20, 44)
#: The smallest width of the column of a single backend, so that its cells are not wrapped.
_ALONE = 22
#: The additional width of a column, and of the last line.
_EDGES, _END = 3, 1
#: The number of lines of a report, unless everything is asked for, and of causes that have one line.
_MOST_LINES, _MOST_SHORT = 40, 6
#: The largest number of rules that the block of a cause names. A line below it names all.
_MOST_RULES = 8
#: The number of lines of a report that are blank, or say that there are more causes.
_BLANK = 5
#: If nothing of some chapters is offered, they share one row.
_TWO = 2
#: A partial run with at most this many rules has a row for each rule.
_FEW = 12
#: The colour of each result of a rule.
STYLES: Mapping[str, str] = MappingProxyType(
    {
        "pass": "green",
        "fail": "bold red",
        "error": "bold red",
        KNOWN: "yellow",
        ACCEPTED: "yellow",
        "deviation": "yellow",
        "should not met": "yellow",
        NOT_SHOWN: "dim",
        "unsupported": "dim",
    }
)


def screen(report: Report, *, color: bool = False, width: int | None = None, every: bool = False) -> str:
    """Write the report of a run for a terminal: verdicts, causes, what was judged, and where the rest is.

    It has `_MOST_LINES` lines at most, unless `every` asks for everything: then a cause that does not fit has
    one line, and the table of rules is left out.
    """
    width = width or shutil.get_terminal_size().columns
    verdicts, causes = [*_verdicts(report)], report.findings
    blocks = [(finding_text(finding, None if every else _MOST_RULES), "") for finding in causes]
    short = [(finding_line(finding), "") for finding in causes]
    accepted = [
        (accepted_text(finding, every=every), STYLES[ACCEPTED]) for finding in report.accepted_findings
    ]
    details, end = [*_details(report)], [*_end(report, every=every)]
    tables = [] if not every and _only_raises(report) else [*_tables(report, width, every=every)]
    most = _MOST_SHORT
    if not every:
        # The first cause, what else fails in a line each, and what the numbers are of, are always there.
        named = [*_rules_line(report)]
        there = _height([*verdicts, *accepted, *named, *end], width) + _tall(blocks[:1], width) + _BLANK
        while most > 1 and there + _height(short[1:most], width) > _MOST_LINES:
            most -= 1
        room = _MOST_LINES - there - _height(short[1:most], width)
        for number, block in enumerate(blocks[1:], start=1):
            saved = short[number : number + 1] if number < most else []
            left = room + _height(saved, width) - _tall([block], width) - 1
            if left < 0:
                blocks = blocks[:number]
                break
            room = left
        high = _height(details, width)
        details, room = (details, room - high) if high <= room else ([], room)
        high = _tall([(_printed(table, width), "") for table in tables], width)
        tables, end = (tables, end) if high <= room + _height(named, width) else ([], [*named, *end])
    console = Console(force_terminal=color, no_color=not color, width=width, highlight=False)
    with console.capture() as capture:
        _print(console, verdicts, width)
        for text, style in blocks:
            console.print()
            console.print(Text(text, style=style), soft_wrap=True)
        if len(blocks) < len(causes):
            console.print()
            left = len(causes) - max(most, len(blocks))
            more = [(f"and {left} more causes, which --table shows", "")] if left > 0 else []
            _print(console, [*short[len(blocks) : most], *more], width)
        console.print()
        for table in tables:
            console.print(table)
        _print(console, [*accepted, *details, *end], width)
    return "\n" + capture.get()


def _print(console: Console, lines: Sequence[tuple[str, str]], width: int) -> None:
    """Print lines in their styles. Commands and paths are not wrapped, so that they can be copied."""
    for text, style in lines:
        console.print(Text(_line(text, style, width), style=style), soft_wrap=True)


def _line(text: str, style: str, width: int) -> str:
    """Fold a line, unless it may have a command or a path."""
    whole = style == STYLES["error"] or "\n" in text or "attnspec check" in text
    return _indented(text) if whole else _folded(one_line(text), width)


def _tall(blocks: Sequence[tuple[str, str]], width: int) -> int:
    """Return how many lines of a terminal blocks of lines take that are not folded."""
    return sum(max(1, -(-len(line) // width)) for text, _ in blocks for line in text.splitlines())


def _height(lines: Sequence[tuple[str, str]], width: int) -> int:
    """Return how many lines of a terminal lines of text take."""
    return _tall([(_line(text, style, width), style) for text, style in lines], width)


def wants_color() -> bool:
    """Whether standard output is a terminal with colours, and the environment does not disable them."""
    dumb = os.environ.get("TERM") == "dumb" or bool(os.environ.get("NO_COLOR"))
    return sys.stdout.isatty() and not dumb


def _only_raises(report: Report) -> bool:
    """Whether no call of any backend returns."""
    return all(never_returns(report.verdicts(subject)) for subject in report.results.subjects)


def _indented(text: str) -> str:
    """Indent all lines but the first, so that external text does not look like a line of the report."""
    return "\n    ".join(one_line(line) for line in text.splitlines()[:_MOST_OF_ERROR])


def _folded(text: str, width: int) -> str:
    """Wrap a long line between words, with an indent."""
    return textwrap.fill(
        text, width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )


def _verdicts(report: Report) -> Iterator[tuple[str, str]]:
    """Yield the result of each backend."""
    for subject in report.results.subjects:
        good = report.outcome_of(subject) is Outcome.GOOD
        why = why_not_whole(report, subject)
        headline = backend_headline(report, subject) + (f": {why}" if why else "")
        yield one_line(f"{subject.name}: {headline}"), "green" if good else "red"


def _details(report: Report) -> Iterator[tuple[str, str]]:
    """Yield what is not needed to understand a failure: what is not offered, the budget, the time."""
    alone = len(report.results.subjects) == 1
    for subject in report.results.subjects:
        for text in backend_lines(report, subject):
            yield f"{'' if alone else f'{subject.name}: '}{text}", ""


def _end(report: Report, *, every: bool) -> Iterator[tuple[str, str]]:
    """Yield what was run, what was counted, errors, and where the rest is."""
    # With only one backend, each line is about it.
    alone = len(report.results.subjects) == 1
    yield from () if _only_raises(report) else _unmet(report, every=every)
    yield run_line(report.results), ""
    for subject in report.results.subjects:
        named = "" if alone else f"{subject.name}: "
        yield named + "; ".join(totals(report.verdicts(subject), report.marks)), ""
        if subject.note:
            yield f"{subject.name}: {subject.note}", ""
    if report.failures.known:
        number = len(report.failures.known)
        yield f"{number} known failure{'s' * (number != 1)}, shown only in the table", ""
    if report.failures.parts:
        yield other_part_line(report.failures.parts), STYLES["should not met"]
    for stale in report.failures.stale:
        yield f"error: known failures: {stale_line(stale)}", STYLES["error"]
    for subject in report.results.subjects:
        if subject.problem:  # complete; the verdict has a short form
            yield f"error: {subject.problem}", STYLES["error"]
    if report.pages:
        yield f"pages: {report.pages}", ""


def _unmet(report: Report, *, every: bool) -> Iterator[tuple[str, str]]:
    """Yield the SHOULD rules that the backends do not meet."""
    for subject in report.results.subjects:
        own = [finding for finding in report.unmet if finding.backend == subject.name]
        for text in unmet_lines(own, every=every):
            named = "" if len(report.results.subjects) == 1 else f"{subject.name}: "
            yield f"{named}{text}", STYLES["should not met"]


def _rules_line(report: Report) -> Iterator[tuple[str, str]]:
    """Name every rule that does not hold, with its cases, where there is no room for the table."""
    for subject in report.results.subjects:
        counts = _Column.of(report, subject).counts
        named = {rule.id: counts.get(rule.id, Counter()) for rule in rules()}
        bad = {rule: number for rule, of in named.items() if (number := of["fail"] + of["error"])}
        text = ", ".join(f"{rule} {number}" for rule, number in bad.items())
        if text:
            yield f"failing cases of {subject.name} by rule (--table has all): {text}", ""


def _tables(report: Report, width: int, *, every: bool = False) -> Iterator[Table]:
    """Make the tables of the rules that were tested, each with as many backends as fit."""
    columns = [_Column.of(report, subject) for subject in report.results.subjects]
    columns = [column for column in columns if column.counts]
    rows = _merged([*_rows(report, columns, every=every)], columns)
    room = width - _END - _RULE - _EDGES
    titled = len(columns) * (_BACKEND + _EDGES) + _TITLE[0] + _EDGES <= room
    most = max(1, len(columns) if titled else room // (_BACKEND + _EDGES))
    for start in range(0, len(columns), most):
        yield _table(rows, columns[start : start + most], room if titled else 0, sections=every)


@dataclass(frozen=True)
class _Column:
    """The results of one backend: counts of its verdicts, and its passing cases, by rule."""

    subject: Subject
    counts: Mapping[str, Counter[str]]
    passed: Mapping[str, set[str]]

    @classmethod
    def of(cls, report: Report, subject: Subject) -> "_Column":
        """Count the results of a backend."""
        verdicts = report.verdicts(subject)
        passed: dict[str, set[str]] = {}
        for verdict in verdicts:
            for rule, status in rule_results(verdict).items():
                if status == "pass":
                    passed.setdefault(rule, set()).add(verdict.case)
        return cls(subject, count_by_rule(verdicts, report.marks), passed)

    def failures(self, rule: str) -> int:
        """Count the cases that fail under a rule."""
        counts = self.counts.get(rule, Counter())
        return counts["fail"] + counts["error"]

    def of_rules(self, ids: Sequence[str]) -> tuple[str, str]:
        """Count the results of rules that have no rows of their own."""
        failing = sum(bool(self.failures(rule)) for rule in ids)
        if failing:
            passing = sum(bool(self.passed.get(rule)) and not self.failures(rule) for rule in ids)
            return f"{failing} FAIL" + (f", {passing} pass" if passing else ""), "fail"
        holding = [rule for rule in ids if self.passed.get(rule)]
        without = sum(bool(self.counts.get(rule)) for rule in ids) - len(holding)
        if not holding:
            return ("unsupported" if without else ""), "unsupported"
        cases: set[str] = set().union(*(self.passed[rule] for rule in holding))
        more = (
            f"{without} unsupported" if without else f"{len(cases)} {'case' if len(cases) == 1 else 'cases'}"
        )
        return f"{len(holding)} pass, {more}", "pass"


@dataclass(frozen=True)
class _Row:
    """A rule, or all others of a chapter."""

    rules: tuple[Rule, ...]
    single: bool
    others: bool = False


def _rows(report: Report, columns: Sequence[_Column], *, every: bool) -> Iterator[_Row]:
    counted = {rule for column in columns for rule in column.counts}
    if report.results.level:
        counted &= {*rules_of(report.results.level)}
    tested = [rule for rule in rules() if rule.id in counted]
    single = {rule for column in columns for rule in column.counts if set(column.counts[rule]) - _PLAIN}
    if every or (len(tested) <= _FEW and not report.results.whole):
        single = counted
    for chapter in dict.fromkeys(rule.chapter for rule in tested):
        of_chapter = [rule for rule in tested if rule.chapter == chapter]
        yield from (_Row((rule,), single=True) for rule in of_chapter if rule.id in single)
        rest = tuple(rule for rule in of_chapter if rule.id not in single)
        if rest:
            yield _Row(rest, single=False, others=len(rest) < len(of_chapter))


def _merged(rows: Sequence[_Row], columns: Sequence[_Column]) -> list[_Row]:
    """Merge the chapters of which nothing is offered into one row, the last."""
    without = [row for row in rows if not row.single and not any(_holds(row, column) for column in columns)]
    if len(without) < _TWO:
        return [*rows]
    kept = [row for row in rows if row not in without]
    return [*kept, _Row(tuple(rule for row in without for rule in row.rules), single=False)]


def _holds(row: _Row, column: _Column) -> bool:
    return any(column.passed.get(rule.id) for rule in row.rules)


def _table(rows: Sequence[_Row], columns: Sequence[_Column], room: int, *, sections: bool) -> Table:
    table = Table(title="results by rule, in cases", title_justify="left")
    table.add_column("rule", min_width=_RULE, no_wrap=True)
    wide, title = _widths(columns, room) if room else (_BACKEND, 0)
    if room:
        table.add_column("title", overflow="ellipsis", no_wrap=True, max_width=title)
    for column in columns:
        heading = Text(plain(f"{column.subject.name}\n{_release(column.subject)}"))
        table.add_column(heading, overflow="fold", min_width=wide, max_width=wide)
    chapter = ""
    for row in rows:
        if sections and chapter not in ("", row.rules[0].chapter):
            table.add_section()
        chapter = row.rules[0].chapter
        table.add_row(*_head(row, with_title=bool(room)), *(_cell(row, column) for column in columns))
    return table


def _release(subject: Subject) -> str:
    """Return whose version it is: for a function that of the library of its arrays."""
    return f"{subject.library} {subject.version}".strip() or "not loaded"


def _printed(table: Table, width: int) -> str:
    console = Console(no_color=True, width=width, highlight=False)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def _widths(columns: Sequence[_Column], room: int) -> tuple[int, int]:
    """Divide the width among the columns of backends, which have one width, and the column of titles."""
    number = len(columns)
    left = room - _EDGES - number * (_BACKEND + _EDGES)
    # Names are not wrapped if possible. With one backend, titles get less room instead.
    wanted = max(_ALONE, *(len(column.subject.name) for column in columns))
    kept = _TITLE[0] if number == 1 else _TITLE[1]
    wide = max(_BACKEND, min(wanted, _BACKEND + (left - kept) // number))
    return wide, min(_TITLE[1], left - (wide - _BACKEND) * number)


def _head(row: _Row, *, with_title: bool) -> Iterator[Text]:
    rule = row.rules[0]
    if row.single:
        yield Text(rule.id, style=Style(link=address(rule)))
        title = rule.title
    else:
        chapters = [*dict.fromkeys(rule.chapter for rule in row.rules)]
        several = len(chapters) > 1
        yield Text(f"{len(chapters)} others" if several else rule.chapter)
        title = f"{len(row.rules)} {'other' if row.others else 'rule'}{'s' * (len(row.rules) > 1)}"
        title = f"{title}: {', '.join(chapters)}" if several else title
    if with_title:
        yield Text(title)


def _cell(row: _Row, column: _Column) -> Text:
    ids = [rule.id for rule in row.rules]
    text, worst = cell(column.counts.get(ids[0], Counter())) if row.single else column.of_rules(ids)
    return Text(text, style=STYLES[worst])
