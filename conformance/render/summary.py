"""The summary of a run: the part of the suite, and for each backend its verdicts, budget and time."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from attnspec.backends import DTYPES
from attnspec.conformance.attribution.by_rule import KNOWN, NOT_SHOWN
from attnspec.conformance.attribution.report import Report
from attnspec.conformance.results import Results, Subject
from attnspec.conformance.traits import GRADIENT
from attnspec.conformance.verdict import CLASSES, LEFT_OUT, STATUSES, Verdict
from attnspec.reference.budget.profile import PROFILES

#: The statuses that are counted, in this order.
COUNTED = (*STATUSES[:3], KNOWN, *STATUSES[3:])
#: The largest number of rules that are named as missing for a level.
_MOST_NAMED = 6
#: A case that used more than this share of its budget is named.
_NEAR = 0.9
#: A case that took more than this share of the time is named.
_SLOW = 0.2


def run(results: Results) -> str:
    """Describe which part of the suite was run, and with which cases.

    Examples
    --------
    >>> from attnspec.conformance.render.summary import run
    >>> from attnspec.conformance.results import Header, Results
    >>> run(Results((), (), (Header("1", "quick", 7),)))
    'run: quick (seed 7)'
    >>> run(Results((), (), (Header("1", "whole", cases=("a", "b")),), missing={"m:f": ("b",)}))
    'run: not whole: 1 of 2 cases of the plan were not judged (the fixed cases; --seed N draws others)'
    """
    named = (f"level {one.level}" if one.part == "level" else one.part for one in results.headers)
    parts = ", ".join(dict.fromkeys(named)) or "nothing"
    planned = sum(len(header.cases) for header in results.headers)
    if missing := sum(map(len, results.missing.values())):
        whole = "not whole" if parts == "whole" else parts
        parts = f"{whole}: {missing} of {planned} cases of the plan were not judged"
    seeds = {header.seed for header in results.headers} - {None}
    if seeds:
        return f"run: {parts} (seed {', '.join(map(str, sorted(seeds, key=str)))})"
    cases = [case for header in results.headers for case in header.cases]
    if parts.startswith("sizes") or (cases and all(case.startswith("sizes-") for case in cases)):
        return f"run: {parts}" if parts.startswith("sizes") else f"run: {parts} sizes"
    return f"run: {parts} (the fixed cases; --seed N draws others)"


def counts(verdicts: Iterable[Verdict], known: Collection[Verdict] = ()) -> Counter[str]:
    """Count verdicts by status. Known failures are counted separately.

    Examples
    --------
    >>> from attnspec.conformance.render.summary import counts
    >>> from attnspec.conformance.verdict import Verdict
    >>> failing = Verdict("b", "softmax-000-float32", "", ("SOFT-1",), "fail")
    >>> counts([failing]), counts([failing], {failing})
    (Counter({'fail': 1}), Counter({'known': 1}))
    """
    return Counter(KNOWN if verdict in known else verdict.status for verdict in verdicts)


def totals(verdicts: Iterable[Verdict], known: Collection[Verdict] = ()) -> list[str]:
    """Count the verdicts of one backend on calls with a result and on calls that must be refused.

    Examples
    --------
    >>> from attnspec.conformance.render.summary import totals
    >>> from attnspec.conformance.verdict import Verdict
    >>> value = Verdict("b", "softmax-000-float32", "", ("SOFT-1",), "pass")
    >>> refusal = Verdict("b", "errors-scale-1-float32", "", ("ERR-6",), "fail", refusal=True)
    >>> totals([value, refusal])
    ['values: 1 pass', 'refusals: 1 fail']
    """
    found = list(verdicts)
    lines = []
    for name, refusal in (("values", False), ("refusals", True)):
        counted = counts((one for one in found if one.refusal == refusal), known)
        said = ", ".join(f"{counted[status]} {status}" for status in COUNTED if counted[status])
        lines += [f"{name}: {said}"] if said else []
    return lines or ["no verdict"]


def gradients(verdicts: Iterable[Verdict]) -> str:
    """Return why no gradient was judged. Empty if some were judged, or none was planned.

    Examples
    --------
    >>> from attnspec.conformance.render.summary import gradients
    >>> from attnspec.conformance.verdict import Verdict
    >>> reason = "b computes no gradient: RuntimeError: no backward pass"
    >>> told = {"traits": (GRADIENT,), "reason": reason, "code": "no gradient"}
    >>> gradients([Verdict("b", "c", "", ("GRAD-1",), "unsupported", **told)])
    'gradients: not judged; it computes no gradient: RuntimeError: no backward pass'
    """
    asked = [one for one in verdicts if GRADIENT in one.traits]
    reasons = [one for one in asked if one.code == "no gradient"]
    if not reasons or any(one.status != "unsupported" for one in asked):
        return ""
    return f"gradients: not judged; it {reasons[0].reason.removeprefix(f'{reasons[0].backend} ')}"


def left_out(verdicts: Iterable[Verdict]) -> str:
    """Return how many cases the limits of a run left out, with the first reason. Empty if none.

    Examples
    --------
    >>> from attnspec.conformance.render.summary import left_out
    >>> from attnspec.conformance.verdict import Verdict
    >>> reason = "left out: 0 s are left (--within)"
    >>> left_out([Verdict("b", "c", "", ("SOFT-3",), "unsupported", reason=reason, code="left out")])
    'left out: 1 case: 0 s are left (--within)'
    """
    reasons = [one.reason.removeprefix(LEFT_OUT) for one in verdicts if one.code == "left out"]
    if not reasons:
        return ""
    cases = "1 case" if len(reasons) == 1 else f"{len(reasons)} cases, the first"
    return f"left out: {cases}:{reasons[0]}"


def used(verdicts: Iterable[Verdict]) -> str:
    """Return the largest used share of the budget for each dtype, with the class if not the tightest.

    Examples
    --------
    >>> from attnspec.conformance.render.summary import used
    >>> from attnspec.conformance.verdict import Verdict
    >>> most = {"dtype": "float32", "share": 0.25, "accuracy": "full"}
    >>> used([Verdict("b", "softmax-000-float32", "", ("SOFT-1",), "pass", **most)])
    'of the budget used: float32 0.25'
    """
    shares: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        if verdict.accuracy and verdict.dtype in DTYPES:
            shares.setdefault(verdict.dtype, []).append(verdict)
    if not shares:
        return ""
    parts = []
    for dtype in sorted(shares, key=DTYPES.index):
        most = max(verdict.share for verdict in shares[dtype])
        loosest = max((verdict.accuracy for verdict in shares[dtype]), key=_looseness)
        parts.append(f"{dtype} {most:.2f}" + (f" ({loosest})" if loosest != CLASSES[0] else ""))
    full = max((one for of_dtype in shares.values() for one in of_dtype), key=lambda one: one.share)
    where = f"; most in {full.case}" if full.share >= _NEAR else ""
    return f"of the budget used: {', '.join(parts)}{where}"


def time(verdicts: Sequence[Verdict]) -> str:
    """Return the time of judging, and a case that took a large part of it.

    Examples
    --------
    >>> from attnspec.conformance.render.summary import time
    >>> from attnspec.conformance.verdict import Verdict
    >>> time([Verdict("b", "softmax-000-float32", "", ("SOFT-1",), "pass", seconds=0.25)])
    'time: 0.2 s for 1 cases; the slowest, 0.25 s: softmax-000-float32'
    """
    taken = sum(verdict.seconds for verdict in verdicts)
    if not taken:
        return ""
    slowest = max(verdicts, key=lambda verdict: verdict.seconds)
    told = f"time: {taken:.1f} s for {len(verdicts)} cases"
    if slowest.seconds < _SLOW * taken:
        return told
    return f"{told}; the slowest, {slowest.seconds:.2f} s: {slowest.case}"


def _looseness(accuracy: str) -> int:
    return [*map(str, CLASSES), *PROFILES].index(accuracy)


def levels(report: Report, subject: Subject) -> str:
    """Return the levels that a backend reaches, and what it lacks for the next."""
    found = report.standings(subject)
    if not found:
        cut = subject.problem or report.results.missing.get(subject.name)
        why = "the backend was not judged completely" if cut else "the suite was not run as a whole"
        return f"not determined, because {why}"
    reached = ", ".join(standing.level for standing in found if standing.reached) or "none"
    return f"{reached}{lacks(report, subject)}"


def lacks(report: Report, subject: Subject) -> str:
    """Return what a backend lacks for the nearest level of which it offers something, or an empty string."""
    lacking = [standing for standing in report.standings(subject) if not standing.reached]
    offered = [one for one in lacking if not {*one.missing.values()} <= {"unsupported", NOT_SHOWN}]
    if not offered:
        return ""
    # Most levels build on `core`, so what is missing for `core` is reported first.
    nearest = min(offered, key=lambda one: (one.level != "core", len(one.missing)))
    rules = [f"{rule} ({what})" for rule, what in nearest.missing.items()]
    more = f" and {len(rules) - _MOST_NAMED} more" if len(rules) > _MOST_NAMED else ""
    return f"; {nearest.level} lacks {', '.join(rules[:_MOST_NAMED])}{more}"
