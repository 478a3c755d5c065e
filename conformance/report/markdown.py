"""A run as Markdown, for the summary of a pull request."""

from collections import Counter

from attnspec import find_rule
from attnspec.conformance.report.report import Report
from attnspec.conformance.report.table import failures
from attnspec.conformance.verdict import STATUSES

#: Rules that are shown with a failure each; the rest is counted.
_MOST_SHOWN = 20


def to_markdown(report: Report) -> str:
    """Write a table of the backends, then a failure for each broken rule, then what is known and stale.

    Examples
    --------
    >>> from attnspec.conformance.report.report import Report
    >>> from attnspec.conformance.report.markdown import to_markdown
    >>> from attnspec.conformance.verdict import Results, Subject, Verdict
    >>> verdict = Verdict("b", ("MASK-1",), "test_mask[b]", "pass")
    >>> print(to_markdown(Report(Results((Subject("b", "numpy", "2"),), (verdict,)))).splitlines()[0])
    ## attnspec: conforms
    """
    lines = [f"## attnspec: {'conforms' if report.good else 'does not conform'}", ""]
    lines += [
        f"| backend | library | {' | '.join(STATUSES)} | levels |",
        "| --- " * (len(STATUSES) + 3) + "|",
    ]
    for subject in report.results.subjects:
        counts = Counter(verdict.status for verdict in report.verdicts(subject))
        numbers = " | ".join(str(counts[status]) for status in STATUSES)
        levels = report.levels(subject).removeprefix("levels: ")
        library = f"{subject.library} {subject.version}"
        lines.append(f"| {_cell(subject.name)} | {_cell(library)} | {numbers} | {levels} |")
    lines += [
        f"\n**error**: {_cell(subject.problem)}" for subject in report.results.subjects if subject.problem
    ]
    texts = failures(report.failures.new)
    for text in texts[:_MOST_SHOWN]:
        first, _, rest = text.partition("\n")
        lines += [
            "",
            f"<details><summary>{_html(first)}</summary>",
            "",
            *_fenced(rest or first),
            "",
            "</details>",
        ]
    if len(texts) > _MOST_SHOWN:
        lines += ["", f"and failures under {len(texts) - _MOST_SHOWN} more rules"]
    if report.failures.known:
        lines += ["", "Known failures:", ""]
        counted = Counter(entry for _, entry in report.failures.known)
        for entry, number in counted.items():
            link = f" ([link]({entry.link}))" if entry.link else ""
            title = find_rule(entry.rule).title
            lines.append(f"- {entry.rule} {title}: {number} of it, {entry.reason}{link}")
    if report.failures.stale:
        lines += [
            "",
            "Stale entries of known failures:",
            "",
            *(f"- {text}" for text in report.failures.stale),
        ]
    return "\n".join(lines) + "\n"


def _fenced(text: str) -> list[str]:
    fence = "```"
    while fence in text:
        fence += "`"
    return [f"{fence}text", text, fence]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _html(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
