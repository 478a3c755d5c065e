"""The text and the colour of a cell of the table."""

from collections.abc import Mapping
from types import MappingProxyType

from attnspec.conformance.attribution.by_rule import KNOWN, NOT_SHOWN

#: The colour of each result of a rule.
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
#: The words for results that do not hold, the gravest first. Those of one line may be combined.
_WORDS = (
    (("fail", "FAIL"), ("error", "ERROR"), (KNOWN, "known")),
    (("deviation", "deviation"), ("should not met", "not met")),
    ((NOT_SHOWN, "not shown"),),
)


def cell(counts: Mapping[str, int]) -> tuple[str, str]:
    """Return a short text for one rule, and the status that determines its colour.

    Examples
    --------
    >>> from attnspec.conformance.render.cell import cell
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
