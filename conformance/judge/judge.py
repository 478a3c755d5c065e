"""The judge: one call of one backend held against what it must give."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from numpy.typing import NDArray

from attnspec import Case
from attnspec.backends import Backend
from attnspec.conformance.judge.budget import CLASSES, budgets_of, required
from attnspec.conformance.judge.call import Missing, Outputs, observe
from attnspec.conformance.judge.cause import looked_at, of_generated, of_golden, rule_of
from attnspec.conformance.judge.deviations import excused
from attnspec.conformance.judge.dtypes import arguments_of, dtype_of, dtypes_of, in_dtype
from attnspec.conformance.judge.expected import declared, differences, exact, of_values
from attnspec.conformance.judge.failure import Failure
from attnspec.conformance.judge.figure import misprint
from attnspec.conformance.judge.refusal import judge_misuse
from attnspec.conformance.report.reproduction import of_arguments, of_case
from attnspec.reference.budget.budget import Accuracy, Budget

__all__ = ["Judgement", "dtypes_of", "in_dtype", "judge", "judge_case", "observe"]


@dataclass(frozen=True)
class Judgement:
    """That a call gave what it must.

    Attributes
    ----------
    status : {"pass", "deviation"}
        A deviation is a declared variant, verified.
    share : float
        The largest share of its budget that an element used.
    accuracy : {"full", "cast", "storage"}
        The tightest class whose budgets hold.
    deviates : str
        The rule whose declared variant was verified; empty for a pass.
    """

    status: Literal["pass", "deviation"]
    share: float
    accuracy: Accuracy = "full"
    deviates: str = ""


def judge_case(backend: Backend, case: Case, dtype: str) -> Judgement:
    """Run a golden vector in a dtype that holds its inputs exactly.

    Raises
    ------
    Failure
        When a rule is broken.
    Raised
        When the implementation raises.
    Unsupported
        When the backend cannot be asked.
    """
    arguments = arguments_of(case, dtype)
    place = f"case {case.id}, {dtype}, on {backend.name}"
    reproduction = of_case(backend, case, dtype)
    if case.misuse is not None:
        judge_misuse(backend, case.operation, arguments, case.rules[0], place, reproduction)
        return Judgement("pass", 0.0)
    budgets = budgets_of(backend, case.operation, arguments, dtype)
    outputs = looked_at(observe(backend, case.operation, arguments), case.rules, dtype)
    expected, deviates = _of_case(backend, case, arguments, budgets, outputs)
    worst, shown = 0.0, outputs
    for name, comparison in differences(outputs, expected, budgets, dtype):
        if comparison.problem:
            rule, hint = of_golden(case, name, outputs, comparison, budgets, dtype)
            if excused(backend, rule, arguments, dtype=dtype, output=name):
                shown = {other: array for other, array in shown.items() if other != name}
                continue
            raise Failure(rule, f"{place}\n{comparison.problem}{hint}\n{reproduction}")
        worst = max(worst, comparison.share)
    accuracy = _tightest(backend, case.operation, arguments, dtype, shown, expected)
    for figure in () if deviates else case.figures:
        if figure.of in shown and (problem := misprint(figure, outputs, budgets)):
            raise Failure(case.rules[0], f"{place}\n{problem}\n{reproduction}")
    return Judgement("deviation" if deviates else "pass", worst, accuracy, deviates)


def judge(
    backend: Backend,
    rule: str,
    operation: str,
    arguments: Mapping[str, Any],
    expected: Callable[[], Mapping[str, NDArray[Any]]] | None = None,
) -> Judgement:
    """Hold one call with generated arguments against expected values.

    Parameters
    ----------
    backend : Backend
    rule : str
        The rule under test.
    operation : str
    arguments : mapping
        Arrays of floating-point numbers all have one dtype.
    expected : callable, optional
        Gives the exact values by output name, and is asked once the call is over;
        an output that is not listed is not looked at. By default they are those of
        the second oracle, with the variants that the backend declares.

    Raises
    ------
    Failure, Raised, Unsupported
        As `judge_case`.
    """
    dtype = dtype_of(operation, arguments)
    outputs = looked_at(observe(backend, operation, arguments), (rule,), dtype)
    budgets = budgets_of(backend, operation, arguments, dtype)
    if expected is None:
        plain = exact(operation, arguments)
        values, deviates = declared(backend, operation, arguments, plain, budgets, outputs)
    else:
        values, deviates = expected(), ""
    if not set(values) & set(outputs):
        raise Missing(f"{backend.name} does not return {', '.join(values)}")
    worst, shown = 0.0, outputs
    for name, comparison in differences(outputs, values, budgets, dtype):
        if comparison.problem:
            broken, hint = rule_of(rule, operation, name, comparison), ""
            if comparison.kind in ("value", "pattern"):
                broken, hint = of_generated(backend, rule, operation, arguments, outputs, values)
            if excused(backend, broken, arguments, dtype=dtype, output=name):
                shown = {other: array for other, array in shown.items() if other != name}
                continue
            text = of_arguments(backend, operation, arguments, name, values[name])
            raise Failure(broken, f"{dtype}, on {backend.name}\n{comparison.problem}{hint}\n{text}")
        worst = max(worst, comparison.share)
    accuracy = _tightest(backend, operation, arguments, dtype, shown, values)
    return Judgement("deviation" if deviates else "pass", worst, accuracy, deviates)


def _of_case(
    backend: Backend,
    case: Case,
    arguments: Mapping[str, Any],
    budgets: Mapping[str, Budget],
    outputs: Outputs,
) -> tuple[Mapping[str, Any], str]:
    """Take the values that a golden vector holds for this backend's dialect, or compute them."""
    declared_values = of_values(backend.dialect)
    for other in case.alternatives:
        if backend.dialect.get(other.rule) == other.variant and declared_values.keys() <= {other.rule}:
            return other.expected, other.rule  # what is stored holds one variant alone
    return declared(backend, case.operation, arguments, case.expected, budgets, outputs)


def _tightest(
    backend: Backend,
    operation: str,
    arguments: Mapping[str, Any],
    dtype: str,
    outputs: Outputs,
    expected: Mapping[str, Any],
) -> Accuracy:
    """Find the tightest class that holds, given that the required one does."""
    last = required(backend, dtype)
    for accuracy in CLASSES[: CLASSES.index(last)]:
        budgets = budgets_of(backend, operation, arguments, dtype, accuracy)
        if not any(comparison.problem for _, comparison in differences(outputs, expected, budgets, dtype)):
            return accuracy
    return last
