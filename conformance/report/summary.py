"""A run in lines: what was run, and for each backend its verdicts, the budget used, the levels reached."""

from collections import Counter
from collections.abc import Iterable

from attnspec.backends import DTYPES
from attnspec.conformance.judge.budget import CLASSES
from attnspec.conformance.report.report import Report
from attnspec.conformance.results import Results, Subject
from attnspec.conformance.verdict import STATUSES, Verdict

#: More rules than this are not named as what keeps a backend from a level.
_MOST_NAMED = 6


def run(results: Results) -> str:
    """Say which part of the suite was run, and with which cases.

    Examples
    --------
    >>> from attnspec.conformance.report.summary import run
    >>> from attnspec.conformance.results import Header, Results
    >>> run(Results((), (), (Header("1", "quick", 7),)))
    'run: quick (seed 7)'
    """
    parts = ", ".join(dict.fromkeys(header.part for header in results.headers)) or "nothing"
    seeds = {header.seed for header in results.headers} - {None}
    if seeds:
        return f"run: {parts} (seed {', '.join(map(str, sorted(seeds, key=str)))})"
    return f"run: {parts} (the fixed cases; --seed N draws others)"


def totals(verdicts: Iterable[Verdict]) -> str:
    """Count the verdicts of one backend by status, and say how much of the budget was used.

    Examples
    --------
    >>> from attnspec.conformance.report.summary import totals
    >>> from attnspec.conformance.verdict import Verdict
    >>> used = {"dtype": "float32", "share": 0.25, "accuracy": "full"}
    >>> totals([Verdict("b", "softmax-000-float32", "", ("SOFT-1",), "pass", **used)])
    '1 pass; of the budget used: float32 0.25 (full); most in softmax-000-float32'
    """
    found = list(verdicts)
    counts = Counter(verdict.status for verdict in found)
    said = ", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status])
    return "; ".join((said or "no verdict", *_used(found)))


def _used(verdicts: Iterable[Verdict]) -> list[str]:
    """Say for each dtype how much of the budget was used, by which class, and where most of it was."""
    shares: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        if verdict.accuracy and verdict.dtype in DTYPES:
            shares.setdefault(verdict.dtype, []).append(verdict)
    if not shares:
        return []
    parts = []
    for dtype in sorted(shares, key=DTYPES.index):
        most = max(verdict.share for verdict in shares[dtype])
        loosest = max((verdict.accuracy for verdict in shares[dtype]), key=_looseness)
        parts.append(f"{dtype} {most:.2f} ({loosest})")
    where = max((verdict for of_dtype in shares.values() for verdict in of_dtype), key=lambda one: one.share)
    return [f"of the budget used: {', '.join(parts)}", f"most in {where.case}"]


def _looseness(accuracy: str) -> int:
    return [str(name) for name in CLASSES].index(accuracy)


def levels(report: Report, subject: Subject) -> str:
    """Say which levels a backend reaches, and what it lacks of the next."""
    found = report.standings(subject)
    if not found:
        why = (
            "the backend was not judged to the end" if subject.problem else "the suite was not run as a whole"
        )
        return f"not told, as {why}"
    reached = ", ".join(standing.level for standing in found if standing.reached) or "none"
    lacking = [standing for standing in found if not standing.reached]
    if not lacking:
        return reached
    nearest = min(lacking, key=lambda standing: len(standing.missing))
    lacks = [f"{rule} ({what})" for rule, what in nearest.missing.items()]
    more = f" and {len(lacks) - _MOST_NAMED} more" if len(lacks) > _MOST_NAMED else ""
    return f"{reached}; {nearest.level} lacks {', '.join(lacks[:_MOST_NAMED])}{more}"
