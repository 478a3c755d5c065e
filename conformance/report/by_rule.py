"""What verdicts say of each rule."""

from collections import Counter
from collections.abc import Collection, Iterable

from attnspec.conformance.verdict import Verdict

#: What is said of a rule besides `attnspec.conformance.verdict.STATUSES`: of a MAY that does not hold, and of
#: a failure that is known.
NOT_SHOWN, KNOWN = "not shown", "known"


def about(verdict: Verdict) -> str:
    """Name the rule that a verdict is about: the one that does not hold, or the first that it bears on.

    Examples
    --------
    >>> from attnspec.conformance.report.by_rule import about
    >>> from attnspec.conformance.verdict import Verdict
    >>> about(Verdict("b", "softmax-000-float32", "", ("SOFT-1", "MASK-1"), "error"))
    'SOFT-1'
    """
    return verdict.rule or next(iter(verdict.rules), "")


def says(verdict: Verdict) -> dict[str, str]:
    """Tell what a verdict says of each rule.

    What breaks one rule says nothing of the others; what deviates from one, as
    declared, holds the others; an error is one under every rule.

    Examples
    --------
    >>> from attnspec.conformance.report.by_rule import says
    >>> from attnspec.conformance.verdict import Verdict
    >>> says(Verdict("b", "c-float32", "", ("MASK-1", "MASK-6"), "deviation", rule="MASK-6"))
    {'MASK-1': 'pass', 'MASK-6': 'deviation'}
    >>> says(Verdict("b", "c-float32", "", ("NUM-10",), "unsupported", rule="NUM-10"))
    {'NUM-10': 'not shown'}
    """
    rule = about(verdict)
    if verdict.status == "deviation":
        return dict.fromkeys(verdict.rules, "pass") | {rule: verdict.status}
    if verdict.status in ("fail", "should not met"):
        return {rule: verdict.status}
    if verdict.status == "unsupported" and verdict.rule:
        return {rule: NOT_SHOWN}
    return dict.fromkeys(verdict.rules or (rule,), verdict.status)


def by_rule(verdicts: Iterable[Verdict], known: Collection[Verdict] = ()) -> dict[str, Counter[str]]:
    """Count what the verdicts of one backend say of each rule.

    Parameters
    ----------
    verdicts : iterable of Verdict
    known : collection of Verdict, optional
        Those that are known failures, and are counted as such.

    Examples
    --------
    >>> from attnspec.conformance.report.by_rule import by_rule
    >>> from attnspec.conformance.verdict import Verdict
    >>> passing = Verdict("b", "c-float32", "", ("MASK-1",), "pass")
    >>> by_rule([passing, passing])["MASK-1"]
    Counter({'pass': 2})
    """
    counts: dict[str, Counter[str]] = {}
    for verdict in verdicts:
        for rule, status in says(verdict).items():
            counts.setdefault(rule, Counter())[KNOWN if verdict in known else status] += 1
    return counts
