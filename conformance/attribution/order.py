"""The order in which causes are reported, and failures within a cause."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf

from attnspec.conformance.attribution.finding import Finding
from attnspec.conformance.attribution.precision import PRECISE, TRACES, is_slight
from attnspec.conformance.traits import SPECIAL
from attnspec.conformance.verdict import Verdict

#: Exceptions of one cause come first if they are so many times as many as all wrong values.
_FAR_MORE = 4
#: The rules of outputs besides the first, and how many calls show that one of these is the cause.
_OF_OUTPUT, _SEVERAL = {"lse": "SOFT-6", "weights": "SOFT-4", "max": "SOFT-8"}, 3
#: With so many failing calls, an entry names a rule of their chapters that no case is about.
_MANY = 5


def importance(cause: Finding, wrong_values: int) -> tuple[bool, bool, bool, bool, bool, int, float]:
    """Return a sort key: what explains more failures comes first, and of equally many what is off by more.

    Exceptions come after wrong values unless they are far more: calls of odd sizes often raise beside a bug.
    What only calls show that lack a precondition of many kernels comes after what other calls show. Errors of
    few budgets come after these, then what only calls with NaN or infinity show, and refusals last.
    """
    rounds = cause.kind in (PRECISE, TRACES) or (
        cause.rule == "NUM-3" and not (cause.kind or cause.precision)
    )
    rounds |= not cause.variant and all(map(is_slight, cause.failures))
    raises = cause.kind == "raised" and len(cause.failures) < _FAR_MORE * wrong_values
    off = cause.verdict.difference
    size = off.share if off and off.kind == "value" else inf
    special = all(SPECIAL in verdict.traits for verdict in cause.failures)
    limited, number = bool(cause.preconditions), len(cause.failures)
    return cause.kind == "refused", special, rounds, raises, limited, -number, -size


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


def with_rule_of_bug(cause: Finding) -> Finding:
    """Put a cause under the rule of the entries that have its results, or under that of a wrong output."""
    diagnosis = cause.diagnosis
    rules = {twin.rule for twin in diagnosis.twins} if diagnosis is not None else {""}
    if len(rules) != 1 or (diagnosis is not None and diagnosis.path):
        return cause
    rule = "" if diagnosis is None else diagnosis.twins[0].rule
    if rule in ("", "NUM-3"):  # which is about every element
        rule = _rule_of_output(cause.failures) or rule
    shown = {verdict.main_rule for verdict in cause.failures}
    # Most cases of a chapter rest on a default, such as that of the scale, which none of them is about, and
    # cases of a form are about its rules.
    of_form = all(_is_number_of_form(verdict) for verdict in cause.failures)
    near = of_form if diagnosis is None else _chapter(rule) in {_chapter(x) for x in shown}
    many = (len(cause.failures) if diagnosis is None else diagnosis.failing) >= _MANY
    if rule not in shown and not (rule and many and near):
        return cause
    return replace(cause, rule=rule, failures=under_rule_first(cause.failures, rule))


def _is_number_of_form(verdict: Verdict) -> bool:
    """Whether a number is wrong in a call of a form; NaN or infinity may be that of a row without keys."""
    of_form = verdict.operation not in ("", "attention")
    return of_form and verdict.difference is not None and verdict.difference.kind == "value"


def _chapter(rule: str) -> str:
    return rule.partition("-")[0]


def _rule_of_output(failures: Sequence[Verdict]) -> str:
    """Return the rule of an output that is wrong in all failing calls, and alone in some; empty without one.

    The rules of a case say what its options do, which are no cause of such an output.
    """
    wrong = [{*(off.outputs or (off.output,))} for off in (x.difference for x in failures) if off]
    alone = {output for outputs in wrong if len(outputs) == 1 for output in outputs}
    if len(wrong) < max(_SEVERAL, len(failures)):
        return ""
    return next((_OF_OUTPUT.get(x, "") for x in sorted(alone) if all(x in outputs for outputs in wrong)), "")
