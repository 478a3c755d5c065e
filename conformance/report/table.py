"""The table of a run: a row for each rule, a column for each backend."""

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType

from rich.table import Table
from rich.text import Text

from attnspec import rules
from attnspec.conformance.report.by_rule import KNOWN, NOT_SHOWN, by_rule
from attnspec.conformance.report.outside import plain
from attnspec.conformance.report.report import Report

#: The colour of what is said of a rule.
STYLES: Mapping[str, str] = MappingProxyType(
    {
        "pass": "green",
        "fail": "bold red",
        "error": "bold red",
        KNOWN: "yellow",
        "deviation": "yellow",
        "should not met": "yellow",
        NOT_SHOWN: "dim",
        "unsupported": "dim",
    }
)
#: How what does not hold is counted in a cell, the gravest first: those of a line stand beside each other.
_WORDS = (
    (("fail", "FAIL"), ("error", "ERROR")),
    ((KNOWN, "known"),),
    (("deviation", "deviation"), ("should not met", "not met")),
    ((NOT_SHOWN, "not shown"),),
)


def table(report: Report) -> Table:
    """Make the table of the rules that the run came to."""
    found = [by_rule(report.verdicts(subject), report.known_verdicts) for subject in report.results.subjects]
    shown = Table(title="attnspec conformance, by rule", title_justify="left")
    shown.add_column("rule", no_wrap=True)
    shown.add_column("", overflow="ellipsis", no_wrap=True, max_width=44)
    for subject in report.results.subjects:
        shown.add_column(Text(plain(f"{subject.name}\n{subject.version or 'not loaded'}")), no_wrap=True)
    chapter = ""
    for rule in rules():
        if not any(rule.id in counts for counts in found):
            continue
        if chapter not in ("", rule.chapter):
            shown.add_section()
        chapter = rule.chapter
        cells = (cell(counts.get(rule.id, Counter())) for counts in found)
        shown.add_row(rule.id, rule.title, *(Text(text, style=STYLES[worst]) for text, worst in cells))
    return shown


def cell(counts: Mapping[str, int]) -> tuple[str, str]:
    """Put what is said of one rule in a few words, with the status that colours them.

    Parameters
    ----------
    counts : mapping of str to int
        What is said, as in `by_rule`, and how often.

    Examples
    --------
    >>> from attnspec.conformance.report.table import cell
    >>> cell({"pass": 1, "fail": 1})
    ('FAIL 1 of 2', 'fail')
    >>> cell({"pass": 3, "should not met": 2})
    ('not met 2 of 5', 'should not met')
    >>> cell({"pass": 3, "unsupported": 2}), cell({"unsupported": 2}), cell({})
    (('pass 3', 'pass'), ('unsupported', 'unsupported'), ('', 'unsupported'))
    """
    judged = sum(number for status, number in counts.items() if status != "unsupported")
    for words in _WORDS:
        parts = [(status, f"{word} {counts[status]}") for status, word in words if counts.get(status)]
        if parts:
            return f"{', '.join(text for _, text in parts)} of {judged}", parts[0][0]
    if counts.get("pass"):
        return f"pass {counts['pass']}", "pass"
    return ("unsupported" if counts else ""), "unsupported"
