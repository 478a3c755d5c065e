"""Why a call gave what it did: the rule that a difference breaks, and what the result looks like."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from attnspec import OPERATIONS, Alternative, Case, find_rule
from attnspec.backends import Backend
from attnspec.conformance.judge.budget import budgets_of
from attnspec.conformance.judge.call import Outputs
from attnspec.conformance.judge.comparison import Comparison, compare
from attnspec.conformance.judge.dtypes import LSES, accepted, dtype_of, is_real
from attnspec.conformance.judge.expected import differ, differences, exact, of_values
from attnspec.reference.budget.budget import Budget, budget
from attnspec.reference.rational.dialect import SHOWN

#: The rule that a wrong shape of an output of attention breaks, whatever the call is about.
_SHAPES = {output.name: output.rule for output in OPERATIONS["attention"].results}
#: Rules that an lse of too short a dtype breaks; in calls about others it is not looked at.
_OF_LSE = ("NUM-7", "SHAPE-8", "SOFT-6", "SOFT-7", "DROP-3", "CACHE-6", "CACHE-7")
#: A call with the variants that are to show: operation, arguments, dialect.
_Asked = tuple[str, Mapping[str, Any], Mapping[str, str]]
#: A variant's own rounding is not that of the softmax for which budgets are derived.
_SLACK = 8


def rule_of(rule: str, operation: str, name: str, comparison: Comparison) -> str:
    """Say which rule a difference breaks in a call that is about one rule: that one, unless it is plainer.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.conformance.judge.cause import rule_of
    >>> from attnspec.conformance.judge.comparison import compare
    >>> wrong = compare("lse", np.zeros(2, np.float16), np.zeros(2), np.zeros(2), "float32")
    >>> rule_of("MASK-1", "attention", "lse", wrong)
    'NUM-7'
    """
    if comparison.kind == "shape" and operation == "attention":
        return _SHAPES[name]
    if comparison.kind == "dtype":
        return "NUM-7" if name == "lse" else "NUM-1"
    return rule


def looked_at(outputs: Outputs, rules: tuple[str, ...], dtype: str) -> Outputs:
    """Leave out an lse of a dtype that it may not have, unless the call is about the lse."""
    lse = outputs.get("lse")
    if lse is None or str(lse.dtype) in accepted("lse", dtype) or set(rules) & set(_OF_LSE):
        return outputs
    return {name: array for name, array in outputs.items() if name != "lse"}


def of_generated(
    backend: Backend,
    rule: str,
    operation: str,
    arguments: Mapping[str, Any],
    outputs: Outputs,
    expected: Mapping[str, Any],
) -> tuple[str, str]:
    """Say which rule values that are off break, and what they look like.

    Returns
    -------
    rule : str
        That of a variant that they equal, or the one under test.
    hint : str
        A line of its own, or empty.
    """
    dtype = dtype_of(operation, arguments)
    if find_rule(rule).level != "MUST":
        return rule, ""  # what a rule leaves open is no breach of another, whatever it looks like
    for name in ignored(backend, operation, arguments, outputs):
        return rule, f"\nequals the result without `{name}`: accepted, and changes nothing in {dtype}"
    variant = _variant(backend, operation, arguments, outputs)
    return variant or _precision(backend, operation, arguments, outputs, expected) or (rule, "")


def of_golden(
    case: Case, name: str, outputs: Outputs, comparison: Comparison, budgets: Mapping[str, Budget], dtype: str
) -> tuple[str, str]:
    """Say the same of a golden vector, by the values that stand in it for variants of its rules."""
    if comparison.kind in ("shape", "dtype"):
        return rule_of(case.rules[0], case.operation, name, comparison), ""
    for other in case.alternatives:
        if _equals(other, name, outputs, budgets, dtype):
            return other.rule, _said(other.rule, other.variant)
    return case.rules[0], ""


def ignored(backend: Backend, operation: str, arguments: Mapping[str, Any], outputs: Outputs) -> list[str]:
    """List the options without any one of which the call would have to give what it gave."""
    dialect = of_values(backend.dialect)
    found = []
    for name in arguments:
        # A number of heads, say, cannot be left out: what is left is no call.
        if name not in OPERATIONS[operation].arrays and operation == "attention":
            left_out = OPERATIONS[operation].together(name)
            less = {other: x for other, x in arguments.items() if other not in left_out}
            if _gave(backend, (operation, less, dialect), (operation, arguments, dialect), outputs, 1):
                found.append(name)
    return found


def _precision(
    backend: Backend,
    operation: str,
    arguments: Mapping[str, Any],
    outputs: Outputs,
    expected: Mapping[str, Any],
) -> tuple[str, str] | None:
    """Tell whether values are off just as a precision that is too low would have them."""
    dtype = dtype_of(operation, arguments)
    if any(is_real(x) and x.dtype != dtype for name, x in arguments.items() if name not in LSES):
        return None  # which precision is too low is what a rule of its own is about (ERR-14)
    if dtype == "float64":
        low = budget(operation, arguments, dtype, working="float32")
        rule, hint = (
            "NUM-2",
            "\nwithin the budget of the variant `float32` of NUM-2: some step is done in float32",
        )
    elif dtype == "float32":
        return None
    else:
        low = budgets_of(backend, operation, arguments, dtype, "storage")
        rule, hint = (
            "NUM-5",
            f"\nwithin the budget of the variant `storage` of NUM-5: some step is done in {dtype}",
        )
    shown = {name: array for name, array in outputs.items() if name in low}
    fits = not any(difference.problem for _, difference in differences(shown, expected, low, dtype))
    return (rule, hint) if fits else None


def _variant(
    backend: Backend, operation: str, arguments: Mapping[str, Any], outputs: Outputs
) -> tuple[str, str] | None:
    """Tell whether values are those of a variant of the standard that is not declared."""
    dialect = of_values(backend.dialect)
    for rule, variant in ((rule, variant) for rule, known in SHOWN.items() for variant in known):
        other = {**dialect, rule: variant}
        showing = replace(backend, dialect={**backend.dialect, rule: variant})
        if _gave(showing, (operation, arguments, other), (operation, arguments, dialect), outputs, _SLACK):
            return rule, _said(rule, variant)
    return None


def _gave(backend: Backend, other: _Asked, asked: _Asked, outputs: Outputs, slack: float) -> bool:
    """Whether outputs are what another call has to give, and not what the one that was made has to."""
    operation, arguments, _ = other
    values, whole = _possible(*other), _possible(*asked)
    if values is None or whole is None:
        return False
    dtype = dtype_of(operation, arguments)
    budgets = budgets_of(backend, operation, arguments, dtype)
    allowed = {name: slack * budgets[name] for name in outputs}
    if any(difference.problem for _, difference in differences(outputs, values, allowed, dtype)):
        return False
    return differ(values, whole, allowed, outputs)


def _possible(
    operation: str, arguments: Mapping[str, Any], dialect: Mapping[str, str]
) -> Mapping[str, Any] | None:
    """Ask the oracle what a call might have given; None where the standard would not say."""
    try:
        return exact(operation, arguments, dialect)
    except ValueError:
        return None


def _said(rule: str, variant: str) -> str:
    text = next(known.text for known in find_rule(rule).variants if known.name == variant)
    return f"\nequals the variant `{variant}` of {rule}: {text}"


def _equals(
    other: Alternative, name: str, outputs: Outputs, budgets: Mapping[str, Budget], dtype: str
) -> bool:
    if name not in other.expected:
        return False
    allowed = _SLACK * budgets[name]
    return not compare(name, outputs[name], other.expected[name], allowed, *accepted(name, dtype)).problem
