"""Counts verdicts for each rule."""

from collections import Counter
from collections.abc import Collection, Iterable

from attnspec.conformance.verdict import Verdict

#: Results of a rule besides `attnspec.conformance.verdict.STATUSES`: a MAY that does not hold, and a known
#: failure.
NOT_SHOWN, KNOWN = "not shown", "known"


def about(verdict: Verdict) -> str:
    """Return the rule that a verdict is about: the one that does not hold, or the first that it tests.

    Examples
    --------
    >>> from attnspec.conformance.attribution.by_rule import about
    >>> from attnspec.conformance.verdict import Verdict
    >>> about(Verdict("b", "softmax-000-float32", "", ("SOFT-1", "MASK-1"), "error"))
    'SOFT-1'
    """
    return verdict.rule or next(iter(verdict.rules), "")


def says(verdict: Verdict) -> dict[str, str]:
    """Return the result of each rule of a verdict.

    A verdict that breaks one rule says nothing about its other rules. With a declared
    deviation from one rule, the other rules hold. An error counts for every rule.

    Examples
    --------
    >>> from attnspec.conformance.attribution.by_rule import says
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
    """Count the results of each rule in the verdicts of one backend.

    Examples
    --------
    >>> from attnspec.conformance.attribution.by_rule import by_rule
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
