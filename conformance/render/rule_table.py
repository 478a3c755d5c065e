"""Tables of the results of rules, with a column for each backend."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.style import Style
from rich.table import Table
from rich.text import Text

from attnspec import Rule, rules
from attnspec.conformance.attribution.levels import (
    ACCEPTED,
    KNOWN,
    NOT_SHOWN,
    count_by_rule,
    rule_results,
    rules_of,
)
from attnspec.conformance.attribution.report import Report
from attnspec.conformance.outside import plain
from attnspec.conformance.render.counts import cell
from attnspec.conformance.render.text import address
from attnspec.conformance.results import Subject

#: A rule with only these results has no row.
_PLAIN = frozenset({"pass", "unsupported"})
#: The widths of columns: of a rule's id or a chapter's name, of a backend, of a title.
_RULE, _BACKEND, _TITLE = 10, 18, (20, 44)
#: The smallest width of the column of a single backend, so that its cells are not wrapped.
_ALONE = 22
#: The additional width of a column, and of the last line.
_EDGES, _END = 3, 1
#: If nothing of some chapters is offered, they share one row.
_TWO = 2
#: A partial run with at most this many rules has a row for each rule.
_FEW = 12
#: The colour of each result of a rule.
STYLES: Mapping[str, str] = {
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


def rule_tables(report: Report, width: int, *, every: bool = False, links: bool = False) -> Iterator[Table]:
    """Make the tables of the rules that were tested, if asked for with links to them."""
    columns = _columns(report)
    rows = _merge([*_rows(report, columns, every=every)], columns)
    return _tables("results by rule, in cases", rows, columns, width, sections=every, links=links)


def level_tables(report: Report, width: int, level: str, *, links: bool) -> Iterator[Table]:
    """Make the tables of the rules of a level that some backend does not meet, with these backends only."""
    wanted = {*rules_of(level)}
    columns = [column for column in _columns(report) if column.unmet & wanted]
    unmet = wanted & {rule for column in columns for rule in column.unmet}
    rows = [_Row((rule,), single=True) for rule in rules() if rule.id in unmet]
    title = f"rules of {level} that some backend does not meet, in cases"
    return _tables(title, rows, columns, width, sections=False, links=links)


def _tables(
    title: str, rows: Sequence["_Row"], columns: Sequence["_Column"], width: int, **how: bool
) -> Iterator[Table]:
    """Make tables, each with as many backends as fit."""
    room = width - _END - _RULE - _EDGES
    titled = len(columns) * (_BACKEND + _EDGES) + _TITLE[0] + _EDGES <= room
    most = max(1, len(columns) if titled else room // (_BACKEND + _EDGES))
    for start in range(0, len(columns), most):
        shown = columns[start : start + most]
        yield _table(title, rows, shown, room if titled else 0, **how)


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

    def count_rules(self, ids: Sequence[str]) -> tuple[str, str]:
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

    @property
    def unmet(self) -> set[str]:
        """The rules with another result than a pass."""
        return {rule for rule, counts in self.counts.items() if set(counts) - _PLAIN}


def _columns(report: Report) -> list[_Column]:
    """Count the results of each backend that has some."""
    columns = [_Column.of(report, subject) for subject in report.results.subjects]
    return [column for column in columns if column.counts]


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
    single = {rule for column in columns for rule in column.unmet}
    if every or (len(tested) <= _FEW and not report.results.whole):
        single = counted
    for chapter in dict.fromkeys(rule.chapter for rule in tested):
        of_chapter = [rule for rule in tested if rule.chapter == chapter]
        yield from (_Row((rule,), single=True) for rule in of_chapter if rule.id in single)
        rest = tuple(rule for rule in of_chapter if rule.id not in single)
        if rest:
            yield _Row(rest, single=False, others=len(rest) < len(of_chapter))


def _merge(rows: Sequence[_Row], columns: Sequence[_Column]) -> list[_Row]:
    """Merge the chapters of which nothing is offered into one row, the last."""
    without = [row for row in rows if not row.single and not any(_holds(row, column) for column in columns)]
    if len(without) < _TWO:
        return [*rows]
    kept = [row for row in rows if row not in without]
    return [*kept, _Row(tuple(rule for row in without for rule in row.rules), single=False)]


def _holds(row: _Row, column: _Column) -> bool:
    return any(column.passed.get(rule.id) for rule in row.rules)


def _table(
    title: str, rows: Sequence[_Row], columns: Sequence[_Column], room: int, *, sections: bool, links: bool
) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("rule", min_width=_RULE, no_wrap=True)
    wide, titles = _widths(columns, room) if room else (_BACKEND, 0)
    if room:
        table.add_column("title", overflow="ellipsis", no_wrap=True, max_width=titles)
    for column in columns:
        heading = Text(plain(f"{column.subject.name}\n{release(column.subject)}"))
        table.add_column(heading, overflow="fold", min_width=wide, max_width=wide)
    chapter = ""
    for row in rows:
        if sections and chapter not in ("", row.rules[0].chapter):
            table.add_section()
        chapter = row.rules[0].chapter
        table.add_row(
            *_head(row, with_title=bool(room), links=links), *(_cell(row, column) for column in columns)
        )
    return table


def release(subject: Subject) -> str:
    """Return whose version it is: for a function that of the library of its arrays."""
    return f"{subject.library} {subject.version}".strip() or "not loaded"


def _widths(columns: Sequence[_Column], room: int) -> tuple[int, int]:
    """Divide the width among the columns of backends, which have one width, and the column of titles."""
    number = len(columns)
    left = room - _EDGES - number * (_BACKEND + _EDGES)
    # Names are not wrapped if possible. With one backend, titles get less room instead.
    wanted = max(_ALONE, *(len(column.subject.name) for column in columns))
    kept = _TITLE[0] if number == 1 else _TITLE[1]
    wide = max(_BACKEND, min(wanted, _BACKEND + (left - kept) // number))
    return wide, min(_TITLE[1], left - (wide - _BACKEND) * number)


def _head(row: _Row, *, with_title: bool, links: bool) -> Iterator[Text]:
    rule = row.rules[0]
    if row.single:
        yield Text(rule.id, style=Style(link=address(rule)) if links else "")
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
    text, worst = cell(column.counts.get(ids[0], Counter())) if row.single else column.count_rules(ids)
    return Text(text, style=STYLES[worst])
