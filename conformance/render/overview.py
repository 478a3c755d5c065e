"""Writes results of several backends in short: the levels of each, and where `core` is not met."""

import shutil
from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from attnspec import levels
from attnspec.backends.names import PORTABLE
from attnspec.conformance.attribution.levels import rules_of
from attnspec.conformance.attribution.report import Outcome, Report
from attnspec.conformance.outside import one_line, plain
from attnspec.conformance.render.html.column import NOTE
from attnspec.conformance.render.rule_table import STYLES, level_tables, release
from attnspec.conformance.render.summary import backend_headline, levels_line, why_not_whole
from attnspec.conformance.results import Subject

#: The level whose deviations are shown: every other level builds on it.
_LEVEL = "core"


def overview(report: Report, *, color: bool = False, width: int | None = None) -> str:
    """Write the levels by backend, then the rules of `core` that a backend does not meet, side by side."""
    width = width or shutil.get_terminal_size().columns
    console = Console(force_terminal=color, no_color=not color, width=width, highlight=False)
    with console.capture() as capture:
        console.print(_levels(report))
        if any(subject.name in PORTABLE for subject in report.results.subjects):
            console.print(Text(NOTE))
        console.print()
        tables = [*level_tables(report, width, _LEVEL, links=color)]
        for table in tables:
            console.print(table)
        for text in _reasons(report):
            console.print(Text(text))
        if not tables:
            console.print(Text(f"no judged backend departs from a rule of {_LEVEL}"))
    return capture.get()


def _levels(report: Report) -> Table:
    table = Table("backend", "release", "levels", title="levels reached", title_justify="left")
    for subject in report.results.subjects:
        good = report.outcome_of(subject) is Outcome.GOOD
        text = _in_short(report, subject) if good else _failures(report, subject)
        style = STYLES["pass" if good else "fail"]
        table.add_row(Text(plain(subject.name)), Text(plain(release(subject))), Text(text, style=style))
    return table


def _in_short(report: Report, subject: Subject) -> str:
    """Return the levels that a backend reaches, or those that it does not, whichever are fewer."""
    standings = report.standings(subject)
    reached = [standing.level for standing in standings if standing.reached]
    other = [standing.level for standing in standings if not standing.reached]
    if "core" in reached and len(standings) == len(levels()) and len(other) < len(reached):
        return f"all but {', '.join(other)}" if other else "all"
    return levels_line(report, subject)


def _failures(report: Report, subject: Subject) -> str:
    why = why_not_whole(report, subject)
    return one_line(backend_headline(report, subject) + (f": {why}" if why else ""))


def _reasons(report: Report) -> Iterator[str]:
    """Say what each declared deviation from a rule of the level is, and whose it is."""
    wanted = rules_of(_LEVEL)
    whose: dict[tuple[str, str], dict[str, None]] = {}
    for verdict in report.reported.verdicts:
        if verdict.status == "deviation" and verdict.rule in wanted:
            kind = (verdict.rule, one_line(verdict.variant or verdict.reason))
            whose.setdefault(kind, {})[verdict.backend] = None
    for (rule, what), backends in sorted(whose.items(), key=lambda item: wanted.index(item[0][0])):
        yield one_line(f"{rule}: {what} ({', '.join(backends)})")
