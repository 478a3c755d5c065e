"""Why a case failed: the rule that a difference breaks, and what the result looks like."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attnspec import OPERATIONS, Case, find_rule
from attnspec.backends import Backend
from attnspec.conformance.judge.budget import budgets_of
from attnspec.conformance.judge.call import Outputs
from attnspec.conformance.judge.comparison import compare
from attnspec.conformance.judge.dtypes import LSES, accepted, is_real
from attnspec.conformance.judge.expected import differ, differences, expected, of_values
from attnspec.conformance.judge.shapes import RULES
from attnspec.conformance.judge.variants import can_show
from attnspec.conformance.verdict import Difference
from attnspec.reference import attention
from attnspec.reference.budget.budget import Budget, budget

#: Rules that an lse of too short a dtype breaks; in cases about others it is not looked at.
_OF_LSE = ("NUM-7", "SHAPE-8", "SOFT-6", "SOFT-7", "DROP-3", "CACHE-6", "CACHE-7")
#: By this part of its largest number no result is off by rounding.
_FAR = 0.25
#: A variant's own rounding is not that of the softmax for which budgets are derived.
_SLACK = 8


@dataclass(frozen=True)
class Cause:
    """The rule that is broken, and what the result looks like, as in a `Verdict`."""

    rule: str
    variant: str = ""
    ignored: str = ""
    precision: str = ""


def looked_at(outputs: Outputs, case: Case) -> Outputs:
    """Leave out what a case does not judge: an lse of a dtype that it may not have, unless it is about it."""
    found = {name: x for name, x in outputs.items() if not case.outputs or name in case.outputs}
    lse = found.get("lse")
    if lse is None or str(lse.dtype) in accepted("lse", case.dtype) or set(case.rules) & set(_OF_LSE):
        return found
    return {name: array for name, array in found.items() if name != "lse"}


def cause_of(
    backend: Backend, case: Case, difference: Difference, outputs: Outputs, values: Mapping[str, Any]
) -> Cause:
    """Say which rule a difference breaks, and what the outputs look like.

    Parameters
    ----------
    backend : Backend
    case : Case
    difference : Difference
    outputs : mapping of str to array
        What the backend gave.
    values : mapping of str to array
        What it had to give.
    """
    rule = case.rules[0]
    if difference.kind == "shape" and case.operation == "attention" and case.misuse is None:
        return Cause(RULES[difference.output])
    if difference.kind == "dtype":
        return Cause("NUM-7" if difference.output == "lse" else "NUM-1")
    if find_rule(rule).level != "MUST":
        return Cause(rule)  # what a rule leaves open is no breach of another, whatever it looks like
    if not case.group:
        return _of_golden(backend, case, difference.output, outputs)
    if difference.kind == "shape":
        return Cause(rule)
    for name in ignored(backend, case, outputs):
        return Cause("ERR-3" if "ERR-3" in case.rules else rule, ignored=name)
    return (
        _variant(backend, case, outputs, can_show(case, values, difference.output))
        or _precision(backend, case, outputs, values)
        or Cause(rule)
    )


def ignored(backend: Backend, case: Case, outputs: Outputs) -> list[str]:
    """List the options without any one of which the call would have to give what it gave."""
    dialect = of_values(backend.dialect)
    found = []
    for name in case.arguments:
        # A number of heads, say, cannot be left out: what is left is no call.
        if name not in OPERATIONS[case.operation].arrays and case.operation == "attention":
            left_out = OPERATIONS[case.operation].together(name)
            less = {key: x for key, x in case.arguments.items() if key not in left_out}
            if (dialect or _is_near(outputs, less)) and _gave(
                backend, replace(case, arguments=less, expected={}), dialect, (case, dialect), outputs, 1
            ):
                found.append(name)
    return found


def _is_near(outputs: Outputs, arguments: Mapping[str, Any]) -> bool:
    """Whether an output may be what a call gives, by the reference: the oracle takes far longer."""
    wide = {name: x.astype(np.float64) if is_real(x) else x for name, x in arguments.items()}
    if "output" not in outputs:
        return True
    try:
        near = attention(**wide)
        off = np.abs(outputs["output"].astype(np.float64) - near)
    except (ValueError, TypeError):
        return True
    return not bool((off[np.isfinite(off)] > _FAR * np.abs(near[np.isfinite(near)]).max(initial=1.0)).any())


def _of_golden(backend: Backend, case: Case, name: str, outputs: Outputs) -> Cause:
    """Say the same of a golden vector, by the values that stand in it for variants of its rules."""
    budgets = budgets_of(backend, case)
    for other in case.alternatives:
        if name in other.expected:
            allowed = _SLACK * budgets[name]
            compared = compare(
                name, outputs[name], other.expected[name], allowed, *accepted(name, case.dtype)
            )
            # Values that the standard's own are as near to are those of no variant.
            apart = differ(other.expected, case.expected, {name: allowed}, {name: outputs[name]})
            if apart and not isinstance(compared, Difference):
                return Cause(other.rule, other.variant)
    return Cause(case.rules[0])


def _precision(backend: Backend, case: Case, outputs: Outputs, values: Mapping[str, Any]) -> Cause | None:
    """Tell whether values are off just as a precision that is too low would have them."""
    dtype = case.dtype
    if any(is_real(x) and x.dtype != dtype for name, x in case.arguments.items() if name not in LSES):
        return None  # which precision is too low is what a rule of its own is about (ERR-14)
    if dtype == "float32":
        return None
    if dtype == "float64":
        low = budget(case.operation, case.arguments, dtype, working="float32")
        found = Cause("NUM-2", "float32", precision="float32")
    else:
        low = budgets_of(backend, case, "storage")
        found = Cause("NUM-5", "storage", precision=dtype)
    return found if _fit(outputs, values, low, dtype) else None


def _variant(
    backend: Backend, case: Case, outputs: Outputs, variants: Iterable[tuple[str, str]]
) -> Cause | None:
    """Tell whether values are those of a variant of the standard that is not declared."""
    dialect = of_values(backend.dialect)
    for rule, variant in variants:
        # Most calls leave the scale out, and the oracle takes long: the reference is asked first.
        quick = rule == "SCORE-2" and not dialect and case.operation == "attention"
        if quick and not _is_near(outputs, {**case.arguments, "scale": 1.0}):
            continue
        showing = replace(backend, dialect={**backend.dialect, rule: variant})
        if _gave(showing, case, {**dialect, rule: variant}, (case, dialect), outputs, _SLACK):
            return Cause(rule, variant)
    return None


def _gave(
    backend: Backend,
    other: Case,
    dialect: Mapping[str, str],
    asked: tuple[Case, Mapping[str, str]],
    outputs: Outputs,
    slack: float,
) -> bool:
    """Whether outputs are what another call has to give, and not what the one that was made has to."""
    values, whole = _possible(other, dialect), _possible(*asked)
    if values is None or whole is None:
        return False
    budgets = budgets_of(backend, other)
    allowed = {name: slack * budgets[name] for name in outputs}
    return _fit(outputs, values, allowed, other.dtype) and differ(values, whole, allowed, outputs)


def _fit(outputs: Outputs, values: Mapping[str, Any], budgets: Mapping[str, Budget], dtype: str) -> bool:
    shown = {name: array for name, array in outputs.items() if name in budgets}
    return not any(isinstance(one, Difference) for one in differences(shown, values, budgets, dtype))


def _possible(case: Case, dialect: Mapping[str, str]) -> Mapping[str, Any] | None:
    """Ask the oracle what a call might have given; None where the standard would not say."""
    try:
        return expected(replace(case, expected={}), dialect)
    except ValueError:
        return None
