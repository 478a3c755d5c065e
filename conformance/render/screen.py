"""Writes a run for the terminal: failures, a table, further lines, and the result."""

import os
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping

from rich.console import Console
from rich.text import Text

from attnspec.conformance.attribution.by_rule import about
from attnspec.conformance.attribution.failures import Example, broken, unmet
from attnspec.conformance.attribution.messages import never_returned
from attnspec.conformance.attribution.report import Outcome, Report
from attnspec.conformance.outside import one_line, plain
from attnspec.conformance.render.cell import STYLES
from attnspec.conformance.render.headline import headline_of, why_not_whole
from attnspec.conformance.render.not_offered import not_offered
from attnspec.conformance.render.summary import gradients, left_out, run, time, totals, used
from attnspec.conformance.render.table import tables
from attnspec.conformance.render.text import brief, said

#: The number of lines of an error that are shown.
_MOST_LINES = 12


def screen(
    report: Report,
    *,
    color: bool = False,
    width: int | None = None,
    diagnoses: Mapping[str, str] | None = None,
    every: bool = False,
) -> str:
    """Write the report of a run for a terminal."""
    width = width or shutil.get_terminal_size().columns
    console = Console(force_terminal=color, no_color=not color, width=width, highlight=False)
    with console.capture() as capture:
        console.print()
        for example in broken(report.failures.new, report.results.verdicts):
            console.print(Text(shown(example, report.seed) + "\n"), soft_wrap=True)
        for name, text in (diagnoses or {}).items():
            console.print(Text(plain(f"{name}: {text}\n")), soft_wrap=True)
        # A table in which each row is an error says no more than the block.
        for table in tables(report, width, every=every) if every or not _raise(report) else ():
            console.print(table)
        for text, style in _lines(report):
            # Errors are not wrapped, so that commands and paths in them can be copied.
            shown_as = _indented(text) if style == STYLES["error"] else _folded(one_line(text), width)
            console.print(Text(shown_as, style=style), soft_wrap=True)
    return capture.get()


def _raise(report: Report) -> bool:
    """Whether every call of every backend raises."""
    return all(never_returned(report.verdicts(subject)) for subject in report.results.subjects)


def wants_color() -> bool:
    """Whether standard output is a terminal with colours, and the environment does not disable them."""
    dumb = os.environ.get("TERM") == "dumb" or bool(os.environ.get("NO_COLOR"))
    return sys.stdout.isatty() and not dumb


def _indented(text: str) -> str:
    """Indent all lines but the first, so that external text does not look like a line of the report."""
    return "\n    ".join(one_line(line) for line in text.splitlines()[:_MOST_LINES])


def _folded(text: str, width: int) -> str:
    """Wrap a long line between words, with an indent."""
    return textwrap.fill(
        text, width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )


def shown(example: Example, seed: int | None = None) -> str:
    """Write a failure, with the other failures of its cause.

    Examples
    --------
    >>> from attnspec.conformance.attribution.failures import broken
    >>> from attnspec.conformance.render.screen import shown
    >>> from attnspec.conformance.verdict import Verdict
    >>> failing = [Verdict("b", f"{rule}-float32", "", (rule,), "fail") for rule in ("SOFT-1", "NUM-3")]
    >>> (example,) = broken(failing)
    >>> shown(example).splitlines()[-1]
    'also: 1 case under another rule, with the same cause: NUM-3'
    """
    return said(example.verdict, seed, example.cause)


def _of_a_should(example: Example) -> str:
    """Describe an unmet SHOULD without its title, which is in the table."""
    rule, more = about(example.verdict), f" ({example.more + 1} cases)" if example.more else ""
    found = brief(example.verdict)
    return f"SHOULD not met: {rule}{more}: {found}; fails no run; see attnspec explain {rule}"


def _lines(report: Report) -> Iterator[tuple[str, str]]:
    """Yield the lines below the table with their styles. The last lines are the results."""
    # With only one backend, each line is about it.
    alone = len(report.results.subjects) == 1
    for example in () if _raise(report) else unmet(report.told.verdicts):
        named = "" if alone else f"{example.verdict.backend}: "
        yield f"{named}{_of_a_should(example)}", STYLES["should not met"]
    yield run(report.results), ""
    for subject in report.results.subjects:
        verdicts = report.verdicts(subject)
        lines = [*totals(verdicts, report.known_verdicts), *not_offered(verdicts)]
        lines += [left_out(verdicts), gradients(verdicts)]
        lines += [used(verdicts), time(verdicts)]
        for text in filter(None, lines if verdicts else []):
            yield f"{'' if alone else f'{subject.name}: '}{text}", ""
        if subject.note:
            yield f"{subject.name}: {subject.note}", ""
    if report.failures.known:
        number = len(report.failures.known)
        yield f"{number} known failure{'s' * (number != 1)}, shown only in the table", ""
    if report.failures.hint:
        yield report.failures.hint, STYLES["should not met"]
    for text in report.failures.stale:
        yield f"error: known failures: {text}", STYLES["error"]
    for subject in report.results.subjects:
        if subject.problem:  # complete; the last line of a backend has a short form
            yield f"error: {subject.problem}", STYLES["error"]
        good = report.outcome_of(subject) is Outcome.GOOD
        why = why_not_whole(report, subject)
        comes_to = headline_of(report, subject) + (f": {why}" if why else "")
        yield f"{subject.name}: {comes_to}", "green" if good else "red"
