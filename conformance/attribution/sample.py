"""Chooses the cases of a run by which the causes of its failures are diagnosed."""

from collections.abc import Iterator, Sequence

from attnspec.conformance.attribution.causes import diagnosed_causes, findings
from attnspec.conformance.traits import GRADIENT, NOTHING, REFUSED, RELATED, SPECIAL, VIEWED
from attnspec.conformance.verdict import Verdict
from attnspec.dtypes import DTYPES

#: The largest number of failing cases (True) and of passing cases (False) that a diagnosis repeats: in a
#: second, and in more time.
_MOST_DIAGNOSED = ({True: 30, False: 60}, {True: 100, False: 300})
#: The largest number of cases under the rule of the cause, which come first.
_MOST_OF_RULE = 6
#: A run of fewer cases than this has no diagnosis.
FEWEST_CASES = 10
#: With fewer cases in the widest dtype, the cases of all dtypes are used.
_FEWEST_OF_DTYPE = 20

#: What random numbers and arrays in rows do not show.
_NOT_PROBED = {GRADIENT, NOTHING, REFUSED, RELATED, SPECIAL, VIEWED}


def cases_to_diagnose(
    verdicts: Sequence[Verdict], *, many: bool = True
) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Choose failing and passing cases of a run for each of its first causes, with the rule of the cause.

    Each case comes with its group. The first cases are of the rule of the cause. All are of one dtype, the
    widest in which a value is wrong. Calls that ended the process or hung are left out, because they would do
    so again.
    """
    causes = findings([verdict for verdict in verdicts if verdict.bad], verdicts)
    # If values are wrong, calls that must be rejected give no information.
    refusals = not any(verdict.bad and REFUSED not in verdict.traits for verdict in verdicts)
    passing = [verdict for verdict in verdicts if verdict.status == "pass"]
    for cause in diagnosed_causes(causes):
        if cause.kind in ("raised", "always", "ended", "changed"):
            continue  # a wrong implementation that raises, or writes, too need not do so for the same reason
        asked = [
            verdict
            for verdict in _widest([*cause.failures, *passing])
            if verdict.case and not verdict.ended and (REFUSED in verdict.traits) == refusals
        ]
        own = [
            (verdict.case, verdict.group)
            for verdict in asked
            if verdict.main_rule == verdict.rules[0] == cause.rule and RELATED not in verdict.traits
            if verdict.bad
        ][:_MOST_OF_RULE]
        chosen = list(own)
        for bad, most in _MOST_DIAGNOSED[many].items():
            those = [verdict for verdict in asked if verdict.bad == bad]
            # Without a great depth, a scale that rounds the depth up is a constant.
            deepest = sorted(those, key=lambda verdict: -max(verdict.sizes[5:6], default=0))[:1]
            some = (*deepest, *those[:: -(-len(those) // most) or 1])
            names = dict.fromkeys((verdict.case, verdict.group) for verdict in some)
            chosen += [name for name in names if name not in own]
        yield cause.rule, chosen


def cases_to_probe(verdicts: Sequence[Verdict]) -> tuple[str, list[tuple[str, str]]]:
    """Return the rule of the first cause, and its first and its largest call with wrong values."""
    causes = diagnosed_causes(findings([verdict for verdict in verdicts if verdict.bad], verdicts))
    if not causes or causes[0].kind:
        return "", []
    calls = [
        verdict
        for verdict in causes[0].failures
        if verdict.difference is not None and verdict.difference.kind in ("value", "pattern")
        if verdict.case and not _NOT_PROBED.intersection(verdict.traits)
    ]
    chosen = [*calls[:1], *sorted(calls, key=lambda verdict: -verdict.numbers)[:1]]
    return causes[0].rule, [*dict.fromkeys((verdict.case, verdict.group) for verdict in chosen)]


def _widest(verdicts: Sequence[Verdict]) -> Sequence[Verdict]:
    """Leave out other dtypes than the widest in which a value is wrong, if enough cases have it.

    float32 comes before float64, which some libraries lack.
    """
    wrong = {verdict.dtype for verdict in verdicts if verdict.bad and verdict.difference is not None}
    dtype = next((dtype for dtype in ("float32", *DTYPES[::-1]) if dtype in wrong), "")
    kept = [verdict for verdict in verdicts if verdict.dtype == dtype]
    return kept if len(kept) >= _FEWEST_OF_DTYPE else verdicts
