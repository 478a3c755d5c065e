"""The tables of a run: a row for each rule that does not fully pass, and one for each chapter."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.style import Style
from rich.table import Table
from rich.text import Text

from attnspec import Rule, rules
from attnspec.conformance.attribution.by_rule import by_rule, says
from attnspec.conformance.attribution.levels import rules_of
from attnspec.conformance.attribution.report import Report
from attnspec.conformance.outside import plain
from attnspec.conformance.render.cell import STYLES, cell
from attnspec.conformance.render.links import page
from attnspec.conformance.results import Subject

#: A rule with only these results has no row.
_PLAIN = frozenset({"pass", "unsupported"})
#: The widths of columns: of a rule's id or a chapter's name, of a backend, of a title.
_RULE, _BACKEND, _TITLE = 10, 18, (20, 44)
#: The smallest width of the column of a single backend, so that its cells are not wrapped.
_ALONE = 22
#: The additional width of a column, and of the last line.
_EDGES, _END = 3, 1
#: If more rules than this fail, only some of each chapter have a row.
_MOST_FAILING, _WORST = 8, 2
#: If nothing of some chapters is offered, they share one row.
_TWO = 2
#: A partial run with at most this many rules has a row for each rule.
_FEW = 12


def tables(report: Report, width: int, *, every: bool = False) -> Iterator[Table]:
    """Make the tables of the rules that were tested, each with as many backends as fit."""
    columns = [Column.of(report, subject) for subject in report.results.subjects]
    columns = [column for column in columns if column.counts]
    rows = _merged([*_rows(report, columns, every=every)], columns)
    room = width - _END - _RULE - _EDGES
    titled = len(columns) * (_BACKEND + _EDGES) + _TITLE[0] + _EDGES <= room
    most = max(1, len(columns) if titled else room // (_BACKEND + _EDGES))
    for start in range(0, len(columns), most):
        some = columns[start : start + most]
        yield _table(rows, some, room if titled else 0, sections=every)


@dataclass(frozen=True)
class Column:
    """The results of one backend.

    Attributes
    ----------
    subject : Subject
    counts : mapping of str to Counter
        The counts by rule, as in `by_rule`.
    passed : mapping of str to set of str
        The passing cases, by rule.
    """

    subject: Subject
    counts: Mapping[str, Counter[str]]
    passed: Mapping[str, set[str]]

    @classmethod
    def of(cls, report: Report, subject: Subject) -> "Column":
        """Count the results of a backend."""
        verdicts = report.verdicts(subject)
        passed: dict[str, set[str]] = {}
        for verdict in verdicts:
            for rule, status in says(verdict).items():
                if status == "pass":
                    passed.setdefault(rule, set()).add(verdict.case)
        return cls(subject, by_rule(verdicts, report.known_verdicts), passed)

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


def _rows(report: Report, columns: Sequence[Column], *, every: bool) -> Iterator[_Row]:
    asked = {rule for column in columns for rule in column.counts}
    if report.results.level:
        asked &= {*rules_of(report.results.level)}
    found = [rule for rule in rules() if rule.id in asked]
    told = {rule for column in columns for rule in column.counts if set(column.counts[rule]) - _PLAIN}
    if every or (len(found) <= _FEW and not report.results.whole):
        told = asked
    if len(columns) == 1 and not every:
        told = told - _beyond(found, columns[0])
    for chapter in dict.fromkeys(rule.chapter for rule in found):
        of_chapter = [rule for rule in found if rule.chapter == chapter]
        yield from (_Row((rule,), single=True) for rule in of_chapter if rule.id in told)
        rest = tuple(rule for rule in of_chapter if rule.id not in told)
        if rest:
            yield _Row(rest, single=False, others=len(rest) < len(of_chapter))


def _beyond(found: Sequence[Rule], column: Column) -> set[str]:
    """Return the failing rules without a row. If many fail, those with the most cases have a row."""
    failing = [rule for rule in found if column.failures(rule.id)]
    if len(failing) <= _MOST_FAILING:
        return set()
    worst: dict[str, list[str]] = {}
    for rule in sorted(failing, key=lambda rule: -column.failures(rule.id)):
        worst.setdefault(rule.chapter, []).append(rule.id)
    return {rule for of_chapter in worst.values() for rule in of_chapter[_WORST:]}


def _merged(rows: Sequence[_Row], columns: Sequence[Column]) -> list[_Row]:
    """Merge the chapters of which nothing is offered into one row, the last."""
    without = [row for row in rows if not row.single and not any(_holds(row, column) for column in columns)]
    if len(without) < _TWO:
        return [*rows]
    kept = [row for row in rows if row not in without]
    return [*kept, _Row(tuple(rule for row in without for rule in row.rules), single=False)]


def _holds(row: _Row, column: Column) -> bool:
    return any(column.passed.get(rule.id) for rule in row.rules)


def _table(rows: Sequence[_Row], columns: Sequence[Column], room: int, *, sections: bool) -> Table:
    shown = Table(title="attnspec conformance, by rule", title_justify="left")
    shown.add_column("rule", min_width=_RULE, no_wrap=True)
    wide, title = _widths(columns, room) if room else (_BACKEND, 0)
    if room:
        shown.add_column("", overflow="ellipsis", no_wrap=True, max_width=title)
    for column in columns:
        heading = Text(plain(f"{column.subject.name}\n{column.subject.version or 'not loaded'}"))
        shown.add_column(heading, overflow="fold", min_width=wide, max_width=wide)
    chapter = ""
    for row in rows:
        if sections and chapter not in ("", row.rules[0].chapter):
            shown.add_section()
        chapter = row.rules[0].chapter
        shown.add_row(*_head(row, with_title=bool(room)), *(_of(row, column) for column in columns))
    return shown


def _widths(columns: Sequence[Column], room: int) -> tuple[int, int]:
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
        yield Text(rule.id, style=Style(link=page(rule)))
        title = rule.title
    else:
        chapters = [*dict.fromkeys(each.chapter for each in row.rules)]
        several = len(chapters) > 1
        yield Text(f"{len(chapters)} others" if several else rule.chapter)
        title = f"{len(row.rules)} {'other' if row.others else 'rule'}{'s' * (len(row.rules) > 1)}"
        title = f"{title}: {', '.join(chapters)}" if several else title
    if with_title:
        yield Text(title)


def _of(row: _Row, column: Column) -> Text:
    ids = [rule.id for rule in row.rules]
    text, worst = cell(column.counts.get(ids[0], Counter())) if row.single else column.of_rules(ids)
    return Text(text, style=STYLES[worst])
