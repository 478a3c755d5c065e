"""A run as Markdown, for the summary of a pull request."""

from collections import Counter
from collections.abc import Iterator

from attnspec import find_rule
from attnspec.conformance.report.failures import Example, broken
from attnspec.conformance.report.outside import plain
from attnspec.conformance.report.report import Report
from attnspec.conformance.report.summary import levels
from attnspec.conformance.report.text import said, title
from attnspec.conformance.results import Subject
from attnspec.conformance.verdict import STATUSES

#: Rules that are shown with a failure each; the rest is counted.
_MOST_SHOWN = 20


def to_markdown(report: Report) -> str:
    """Write a table of the backends, then a failure for each broken rule, then what is known and stale.

    Examples
    --------
    >>> from attnspec.conformance.report.report import Report
    >>> from attnspec.conformance.report.markdown import to_markdown
    >>> from attnspec.conformance.results import Results, Subject
    >>> from attnspec.conformance.verdict import Verdict
    >>> verdict = Verdict("b", "masking-004-float32", "", ("MASK-1",), "pass")
    >>> print(to_markdown(Report(Results((Subject("b", "numpy", "2"),), (verdict,)))).splitlines()[0])
    ## attnspec: conforms
    """
    lines = [f"## attnspec: {_headline(report)}", "", *_table(report)]
    for subject in report.results.subjects:
        lines += [f"\n**error**: {_cell(subject.problem)}"] if subject.problem else []
        lines += [f"\n{_cell(subject.name)}: {_cell(subject.note)}"] if subject.note else []
    examples = broken(report.failures.new, report.results.verdicts)
    for example in examples[:_MOST_SHOWN]:
        lines += _details(example, report.seed)
    if len(examples) > _MOST_SHOWN:
        lines += ["", f"and failures under {len(examples) - _MOST_SHOWN} more rules"]
    lines += _known(report)
    if report.failures.stale:
        lines += ["", "Stale entries of known failures:", ""]
        lines += [f"- {_cell(text)}" for text in report.failures.stale]
    return "\n".join(lines) + "\n"


def _headline(report: Report) -> str:
    if not report.good:
        return "does not conform"
    number = len(report.failures.known)
    return f"{number} known failures, and no other" if number else "conforms"


def _table(report: Report) -> Iterator[str]:
    yield f"| backend | library | {' | '.join(STATUSES)} | levels |"
    yield "| --- " * (len(STATUSES) + 3) + "|"
    for subject in report.results.subjects:
        yield f"| {' | '.join(_row(report, subject))} |"


def _row(report: Report, subject: Subject) -> Iterator[str]:
    counts = Counter(verdict.status for verdict in report.verdicts(subject))
    yield _cell(subject.name)
    yield _cell(f"{subject.library} {subject.version}")
    yield from (str(counts[status]) for status in STATUSES)
    yield levels(report, subject)


def _details(example: Example, seed: int | None) -> Iterator[str]:
    first, _, rest = said(example.verdict, seed, example.cause).partition("\n")
    fence = "```"
    while fence in rest:
        fence += "`"
    more = f" (and {example.more} more)" if example.more else ""
    summary = f"{_html(title(example.verdict))}{more}"
    yield from ("", f"<details><summary>{summary}</summary>", "")
    yield from (f"{fence}text", rest or first, fence, "", "</details>")


def _known(report: Report) -> Iterator[str]:
    counted = Counter(entry for _, entry in report.failures.known)
    if counted:
        yield from ("", "Known failures:", "")
    for entry, number in counted.items():
        link = f" ([link]({entry.link}))" if entry.link else ""
        yield f"- {entry.rule} {find_rule(entry.rule).title}: {number} of it, {_cell(entry.reason)}{link}"


def _cell(text: str) -> str:
    return _html(plain(text)).replace("|", "\\|").replace("\n", " ")


def _html(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
