"""A run on the terminal: what fails, one table, and a line each for the rest."""

from collections.abc import Iterator, Mapping

from rich.console import Console
from rich.text import Text

from attnspec.conformance.report.failures import Example, broken, unmet
from attnspec.conformance.report.outside import plain
from attnspec.conformance.report.report import Report
from attnspec.conformance.report.summary import levels, run, totals
from attnspec.conformance.report.table import STYLES, table
from attnspec.conformance.report.text import line, said


def screen(
    report: Report,
    *,
    color: bool = False,
    width: int | None = None,
    diagnoses: Mapping[str, str] | None = None,
) -> str:
    """Write all that a run has to say on a terminal.

    Parameters
    ----------
    report : Report
    color : bool, optional
        With terminal colours.
    width : int, optional
        In columns; as wide as the table when not given.
    diagnoses : mapping of str to str, optional
        By backend, what its failures are consistent with.
    """
    console = Console(
        force_terminal=color, no_color=not color, width=width or _width(report), highlight=False
    )
    with console.capture() as capture:
        console.print()
        for example in broken(report.failures.new, report.results.verdicts):
            console.print(Text(shown(example, report.seed) + "\n"), soft_wrap=True)
        for name, text in (diagnoses or {}).items():
            console.print(Text(plain(f"{name}: {text}\n")), soft_wrap=True)
        rows = table(report)
        if rows.row_count:
            console.print(rows)
        for text, style in _lines(report):
            console.print(Text(plain(text), style=style), soft_wrap=True)
    return capture.get()


def shown(example: Example, seed: int | None = None) -> str:
    """Write a failure with what else comes of its cause.

    Examples
    --------
    >>> from attnspec.conformance.report.failures import broken
    >>> from attnspec.conformance.report.screen import shown
    >>> from attnspec.conformance.verdict import Verdict
    >>> failing = [Verdict("b", f"{rule}-float32", "", (rule,), "fail") for rule in ("SOFT-1", "NUM-3")]
    >>> (example,) = broken(failing)
    >>> shown(example).splitlines()[-1]
    'also: 1 case under another rule, with the same cause: NUM-3'
    """
    return said(example.verdict, seed, example.cause)


def _lines(report: Report) -> Iterator[tuple[str, str]]:
    """Give the lines below the table, each with its style."""
    for example in unmet(report.results.verdicts):
        more = f" (and {example.more} more)" if example.more else ""
        yield f"{example.verdict.backend}: {line(example.verdict)}{more}", STYLES["should not met"]
    yield run(report.results), ""
    for subject in report.results.subjects:
        yield f"{subject.name}: {totals(report.verdicts(subject))}", ""
        yield f"{subject.name}: levels: {levels(report, subject)}", ""
        if subject.note:
            yield f"{subject.name}: {subject.note}", ""
    if report.failures.known:
        yield f"{len(report.failures.known)} known failures, told of in the table alone", ""
    for text in report.failures.stale:
        yield f"error: known failures: {text}", STYLES["error"]
    for subject in report.results.subjects:
        if subject.problem:
            yield f"error: {subject.problem}", STYLES["error"]


def _width(report: Report) -> int:
    """Wide enough that nothing is cut, whatever the terminal: a table that wraps is no table."""
    return 64 + sum(max(19, len(subject.name) + 3) for subject in report.results.subjects)
