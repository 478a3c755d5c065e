"""Chooses the cases of a run by which a failing backend is diagnosed."""

from collections.abc import Iterator, Sequence

from attnspec.conformance.attribution.causes import findings
from attnspec.conformance.traits import REFUSED, RELATED
from attnspec.conformance.verdict import Verdict
from attnspec.dtypes import DTYPES

#: The largest number of failing cases (True) and of passing cases (False) that a diagnosis repeats: in a
#: second, and in more time.
_MOST_DIAGNOSED = ({True: 30, False: 60}, {True: 100, False: 300})
#: The largest number of cases under the rule of the first finding, which come first.
_MOST_OF_RULE = 6
#: A run of fewer cases than this has no diagnosis.
FEWEST_CASES = 10
#: With fewer cases in the widest dtype, the cases of all dtypes are used.
_FEWEST_OF_DTYPE = 20


def cases_to_diagnose(verdicts: Sequence[Verdict], *, many: bool = True) -> Iterator[tuple[str, str]]:
    """Choose failing and passing cases of a run, spread over all cases, each with its group.

    The first cases are of the rule of the first cause of wrong values. All are of one dtype, the widest in
    which a value is wrong. Calls that ended the process or hung are left out, because they would do so again.
    """
    # If values are wrong, calls that must be rejected give no information.
    refusals = not any(verdict.bad and REFUSED not in verdict.traits for verdict in verdicts)
    asked = [
        verdict
        for verdict in _widest(verdicts)
        if verdict.case and not verdict.ended and (REFUSED in verdict.traits) == refusals
    ]
    causes = findings(asked, asked)
    first = next((cause for cause in causes if cause.verdict.difference is not None), None)
    own = [
        (verdict.case, verdict.group)
        for verdict in (first.failures if first else ())
        if verdict.main_rule == verdict.rules[0] == (first and first.rule) and RELATED not in verdict.traits
    ][:_MOST_OF_RULE]
    yield from own
    for bad, most in _MOST_DIAGNOSED[many].items():
        names = [
            (verdict.case, verdict.group)
            for verdict in asked
            if (verdict.bad if bad else verdict.status == "pass")
        ]
        yield from (name for name in names[:: -(-len(names) // most) or 1] if name not in own)


def _widest(verdicts: Sequence[Verdict]) -> Sequence[Verdict]:
    """Leave out other dtypes than the widest in which a value is wrong, if enough cases have it.

    float32 comes before float64, which some libraries lack.
    """
    wrong = {verdict.dtype for verdict in verdicts if verdict.bad and verdict.difference is not None}
    dtype = next((dtype for dtype in ("float32", *DTYPES[::-1]) if dtype in wrong), "")
    kept = [verdict for verdict in verdicts if verdict.dtype == dtype]
    return kept if len(kept) >= _FEWEST_OF_DTYPE else verdicts
