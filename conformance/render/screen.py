"""Writes a run for the terminal: failures, a table, further lines, and the result."""

import os
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from attnspec import rules
from attnspec.conformance.attribution.exceptions import never_returns
from attnspec.conformance.attribution.levels import ACCEPTED, count_by_rule
from attnspec.conformance.attribution.report import Outcome, Report
from attnspec.conformance.claim import claim_of
from attnspec.conformance.outside import one_line
from attnspec.conformance.render.counts import totals
from attnspec.conformance.render.finding import accepted_text, finding_line, finding_text
from attnspec.conformance.render.reproduction import check_command
from attnspec.conformance.render.rule_table import STYLES, rule_tables
from attnspec.conformance.render.summary import (
    backend_headline,
    backend_lines,
    other_part_line,
    run_line,
    stale_line,
    unmet_lines,
    why_not_whole,
)
from attnspec.conformance.verdict import Verdict

#: The number of lines of an error that are shown.
_MOST_OF_ERROR = 12
#: The number of lines of a report, unless everything is asked for, and of causes that have one line.
_MOST_LINES, _MOST_SHORT = 40, 6
#: The largest number of rules that the block of a cause names. A line below it names all.
_MOST_RULES = 8
#: The number of rules with a command that judges a case about another rule, which breaks them.
_MOST_COMMANDS = 3
#: The number of lines of a report that are blank, or say that there are more causes.
_BLANK = 5


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
    details, end = [*_details(report, every=every)], [*_end(report, every=every)]
    tables = (
        [] if not every and _only_raises(report) else [*rule_tables(report, width, every=every, links=color)]
    )
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
        high = _tall([(_print_table(table, width), "") for table in tables], width)
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
    whole = style == STYLES["error"] or "\n" in text or "attnspec check" in text or "claim: " in text
    return _indent(text) if whole else _wrap(one_line(text), width)


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


def _indent(text: str) -> str:
    """Indent all lines but the first, so that external text does not look like a line of the report."""
    return "\n    ".join(one_line(line) for line in text.splitlines()[:_MOST_OF_ERROR])


def _wrap(text: str, width: int) -> str:
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


def _details(report: Report, *, every: bool) -> Iterator[tuple[str, str]]:
    """Yield what is not needed to understand a failure: what is not offered, the budget, the time."""
    alone = len(report.results.subjects) == 1
    for subject in report.results.subjects:
        for text in backend_lines(report, subject, every=every):
            yield f"{'' if alone else f'{subject.name}: '}{text}", ""


def _end(report: Report, *, every: bool) -> Iterator[tuple[str, str]]:
    """Yield what was run, what was counted, errors, and where the rest is."""
    # With only one backend, each line is about it.
    alone = len(report.results.subjects) == 1
    yield from () if _only_raises(report) else _commands_of_other_cases(report)
    yield from () if _only_raises(report) else _unmet(report, every=every)
    ended = f", in {report.seconds:.1f} s from start to end" if report.seconds else ""
    yield run_line(report.results) + ended, ""
    for subject in report.results.subjects:
        named = "" if alone else f"{subject.name}: "
        yield named + "; ".join(totals(report.verdicts(subject), report.marks)), ""
        if claim := claim_of(report, subject):
            yield f"claim: {claim}", ""
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


def _commands_of_other_cases(report: Report) -> Iterator[tuple[str, str]]:
    """Name a case for each rule that only cases about other rules break, since -k selects none of them."""
    about: set[tuple[str, str]] = set()
    others: dict[tuple[str, str], Verdict] = {}
    for verdict in report.failures.new:
        key = verdict.backend, verdict.main_rule
        others.setdefault(key, verdict)
        about |= {key} if verdict.main_rule in verdict.rules else set()
    left = [verdict for key, verdict in others.items() if key not in about]
    for verdict in left[:_MOST_COMMANDS]:
        rule, command = verdict.main_rule, check_command(verdict, report.seed)
        yield f"{rule} fails in cases about other rules, which -k {rule} leaves out: {command}", ""


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
        counts = count_by_rule(report.verdicts(subject), report.marks)
        named = {rule.id: counts.get(rule.id, Counter()) for rule in rules()}
        bad = {rule: number for rule, of in named.items() if (number := of["fail"] + of["error"])}
        text = ", ".join(f"{rule} {number}" for rule, number in bad.items())
        if text:
            yield f"failing cases of {subject.name} by rule (--table has all): {text}", ""


def _print_table(table: Table, width: int) -> str:
    console = Console(no_color=True, width=width, highlight=False)
    with console.capture() as capture:
        console.print(table)
    return capture.get()
