"""The order in which causes are reported, and failures within a cause."""

from collections.abc import Callable, Sequence
from math import inf

from attnspec.conformance.attribution.finding import Finding
from attnspec.conformance.attribution.precision import PRECISE, TRACES, is_slight
from attnspec.conformance.traits import SPECIAL
from attnspec.conformance.verdict import Verdict

#: Exceptions of one cause come first if they are so many times as many as all wrong values.
_FAR_MORE = 4


def importance(cause: Finding, wrong_values: int) -> tuple[bool, bool, bool, bool, int, float]:
    """Return a sort key: what explains more failures comes first, and of equally many what is off by more.

    Exceptions come after wrong values unless they are far more: calls of odd sizes often raise beside a bug.
    What only calls show that lack a precondition of many kernels comes after what other calls show. Errors
    of few budgets and refusals come last.
    """
    rounds = cause.kind in (PRECISE, TRACES) or (
        cause.rule == "NUM-3" and not (cause.kind or cause.precision)
    )
    rounds |= not cause.variant and all(map(is_slight, cause.failures))
    raises = cause.kind == "raised" and len(cause.failures) < _FAR_MORE * wrong_values
    off = cause.verdict.difference
    size = off.share if off and off.kind == "value" else inf
    special = bool(cause.preconditions) or all(SPECIAL in verdict.traits for verdict in cause.failures)
    return cause.kind == "refused", rounds, raises, special, -len(cause.failures), -size


def under_rule_first(failures: Sequence[Verdict], rule: str) -> tuple[Verdict, ...]:
    """Put the failures under a rule first, and of these errors of few budgets last."""
    return tuple(sorted(failures, key=lambda verdict: (verdict.main_rule != rule, is_slight(verdict))))


def put_first(failures: Sequence[Verdict], wanted: Callable[[Verdict], bool]) -> tuple[Verdict, ...]:
    """Put the wanted failures first."""
    return tuple(sorted(failures, key=lambda verdict: not wanted(verdict)))


def plainness(verdict: Verdict) -> tuple[bool, bool, bool, int, int, str]:
    """Return a sort key: values before exceptions, then named results, golden vectors, and small sizes."""
    size = verdict.difference.size if verdict.difference else 0
    named = verdict.variant or verdict.ignored or verdict.precision
    return verdict.status == "error", not named, bool(verdict.group), size, len(verdict.case), verdict.case
