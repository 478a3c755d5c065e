"""The judge: runs one case or relation on one backend, and compares the result with the expected one."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from attnspec import Case, find_rule
from attnspec.backends import DTYPES, Backend, Broken, Unsupported
from attnspec.backends.backend import in_one_dtype
from attnspec.backends.constraints import fits
from attnspec.conformance.judge.budget import budgets_of, required
from attnspec.conformance.judge.call import observe
from attnspec.conformance.judge.cause import Cause, cause_of, looked_at
from attnspec.conformance.judge.deviation import declared_for, largest_error
from attnspec.conformance.judge.dtypes import LSES, Outputs, is_real, own_dtypes
from attnspec.conformance.judge.expected import declared, differ, differences
from attnspec.conformance.judge.failure import Failure, Missing, Raised, code_of, lacking_of
from attnspec.conformance.judge.figure import misprint
from attnspec.conformance.judge.lacking import gradient_lacking
from attnspec.conformance.judge.output_rules import OUTPUT_OF, of_outputs
from attnspec.conformance.judge.overflow import without_overflow
from attnspec.conformance.judge.refusal import refused
from attnspec.conformance.judge.traits import numbers, traits
from attnspec.conformance.relations.relation import Relation
from attnspec.conformance.relations.shapes import misshapen
from attnspec.conformance.sizes.judge import judge_sized
from attnspec.conformance.sizes.sized import Sized
from attnspec.conformance.verdict import CLASSES, Code, Difference, Verdict
from attnspec.dtypes import SHORT
from attnspec.operations.gradients import primal
from attnspec.reference.budget.arithmetic import PROFILES
from attnspec.reference.budget.budget import Accuracy, Budget, budget

#: Rules whose declared variant is a lower precision, and the precision that they require.
_PRECISIONS = {"NUM-2": "float32", "NUM-5": "storage"}

#: The reason of a failure that is due to a claim contains this.
CLAIMED = "the implementation claims this rule"

#: Rules about the default of an option.
_DEFAULTS = {"SCORE-2": "scale"}


def judge(backend: Backend, item: Case | Relation | Sized) -> Verdict:
    """Judge one case or relation on one backend.

    Examples
    --------
    >>> from attnspec import find_case
    >>> from attnspec.backends import load
    >>> from attnspec.conformance.judge.judge import judge
    >>> judge(load("numpy-portable"), find_case("masking-empty-last")).status
    'pass'
    """
    backend = in_one_dtype(backend, item.dtype)
    if isinstance(item, Sized):
        return judge_sized(backend, item)
    verdict = _judged(backend, item)
    seen = verdict.difference is not None and verdict.difference.output == "weights"
    return replace(verdict, probed=seen and not backend.has("attention", "return_weights"))


def _judged(backend: Backend, item: Case | Relation) -> Verdict:
    verdict = _of_nothing(backend, item)
    verdict = replace(verdict, traits=traits(item), numbers=numbers(item))
    try:
        _require(backend, item)
        verdict = replace(verdict, rules=asked(backend, item))
        if isinstance(item, Relation):
            return _judge_relation(backend, item, verdict)
        # A rule about an output that is not returned cannot be the broken one.
        item = replace(item, rules=verdict.rules)
        if item.misuse is not None and not _has_variant(backend, item):
            computed = refused(backend, item)
            if computed is None:
                return verdict
            return _judge_values(backend, item, verdict, computed)
        return _judge_values(backend, item, verdict, observe(backend, item))
    except Unsupported as unsupported:
        lacking = gradient_lacking(backend, item, unsupported)
        declined = not lacking and not isinstance(unsupported, Missing)
        return replace(
            verdict,
            status="unsupported",
            reason=lacking.reason if lacking else str(unsupported),
            declined=declined,
            lacks=lacking_of(unsupported),
            code=lacking.code if lacking else code_of(unsupported),
        )
    except Broken as broken:  # whatever the level of the rule
        return replace(verdict, status="error", rule=item.rules[0], reason=str(broken), code="broken")
    except Raised as raised:
        if lacking := gradient_lacking(backend, item, raised):
            return replace(verdict, status="unsupported", reason=lacking.reason, code=lacking.code)
        return _weighed(
            backend,
            item,
            replace(verdict, status="error", rule=item.rules[0], raised=raised.data, code="raised"),
        )
    except Failure as failure:
        found = replace(
            verdict,
            status="fail",
            rule=failure.rule,
            reason=failure.reason,
            difference=failure.difference,
            code=failure.code,
        )
        return _weighed(backend, item, found)


def _of_nothing(backend: Backend, item: Case | Relation) -> Verdict:
    """Make the verdict on an item of which nothing is known to be wrong."""
    return Verdict(backend.name, item.name, item.group, item.rules, "pass", item.dtype, item.operation)


def judge_outputs(backend: Backend, case: Case, outputs: Outputs) -> Verdict:
    """Judge the outputs that a call gave."""
    backend = in_one_dtype(backend, case.dtype)
    return _judge_values(backend, case, _of_nothing(backend, case), outputs)


def asked(backend: Backend, item: Case | Relation) -> tuple[str, ...]:
    """Return the rules of a case that are tested on a backend."""
    if isinstance(item, Relation):
        returns = [name for name in OUTPUT_OF.values() if backend.has("attention", f"return_{name}")]
        return of_outputs(item.rules, returns)
    rules = tuple(rule for rule in item.rules if _is_asked(rule, backend, item))
    if not rules:
        hidden = dict.fromkeys(OUTPUT_OF[rule] for rule in item.rules if rule in OUTPUT_OF)
        raise Missing(_why_none(backend, item), *(f"output {name}" for name in hidden))
    return rules


def _is_asked(rule: str, backend: Backend, case: Case) -> bool:
    if rule in ("NUM-5", "NUM-6"):
        return case.dtype in SHORT
    if _without_default(rule, backend, case):
        return False
    output = OUTPUT_OF.get(rule)
    return output is None or case.misuse is not None or backend.has(case.operation, f"return_{output}")


def _without_default(rule: str, backend: Backend, case: Case) -> str:
    """Return the option whose default a rule defines, if the backend has no default for it."""
    option = _DEFAULTS.get(rule, "")
    return option if primal(case.operation) == "attention" and option in backend.given else ""


def _why_none(backend: Backend, case: Case) -> str:
    options = [option for rule in case.rules if (option := _without_default(rule, backend, case))]
    if options:
        return f"{backend.name} is always given {', '.join(options)}, and shows no default"
    return f"{backend.name} does not return what {', '.join(case.rules)} is about"


def _require(backend: Backend, item: Case | Relation) -> None:
    """Raise `Missing` if the backend does not offer the case."""
    if backend.cases and item.name not in backend.cases:
        raise Missing(f"{backend.name} has no answers to {item.id}")
    needed = {item.dtype} & set(DTYPES)
    for case in item.calls if isinstance(item, Relation) else (item,):
        if backend.function("attention") is None and backend.function(case.operation) is None:
            raise Missing(f"{backend.name} has no {case.operation}", f"operation {case.operation}")
        misfit = fits(backend.constraints, case.arguments) if primal(case.operation) == "attention" else ""
        if misfit:
            raise Missing(f"{backend.name} {misfit}")
        if case.group:  # a golden vector is judged in the dtype of its first array
            # An lse is of a dtype that any backend takes, unless its half precision is the fault of a call.
            given = {(name, str(x.dtype)) for name, x in case.arguments.items() if is_real(x)}
            needed |= {dtype for name, dtype in given if name not in LSES or dtype in SHORT}
    missing = sorted(needed - set(backend.dtypes))
    if missing:
        raise Missing(f"{backend.name} has no {', '.join(missing)}", *(f"dtype {one}" for one in missing))


def _has_variant(backend: Backend, case: Case) -> bool:
    """Whether a backend declares a variant that computes a misuse, and the case has the values."""
    return any(backend.dialect.get(other.rule) == other.variant for other in case.alternatives)


def _judge_values(backend: Backend, case: Case, verdict: Verdict, observed: Outputs) -> Verdict:
    """Compare the outputs of a backend with the exact values, in its dialect."""
    budgets = budgets_of(backend, case)
    outputs = looked_at(observed, case)
    values, shown_rules = _expected(backend, case, budgets, outputs)
    deviates = next(iter(shown_rules), "")
    if not set(values) & set(outputs):
        lacks = [f"output {name}" for name in values]
        raise Missing(f"{backend.name} does not return {', '.join(values)}", *lacks)
    worst, shown, found = 0.0, outputs, []
    for compared in differences(outputs, values, budgets, case.dtype, own_dtypes(case)):
        if not isinstance(compared, Difference):
            worst = max(worst, compared)
            continue
        cause = cause_of(backend, case, compared, outputs, values)
        error = math.inf
        if compared.kind in ("value", "pattern"):
            name = compared.output
            error = largest_error(outputs[name], values[name], budgets[name])
        deviation = declared_for(backend, cause.rule, case, compared.output, error)
        if deviation is None:
            return _failed(backend, verdict, cause, compared)
        found.append(deviation)
        shown = {name: array for name, array in shown.items() if name != compared.output}
    for figure in () if deviates else case.figures:
        if figure.of in shown and (problem := misprint(figure, outputs, budgets)):
            raise Failure(case.rules[0], problem, code="misprint")
    accuracy = _tightest(backend, case, shown, values)
    verdict = replace(verdict, share=worst, accuracy=accuracy)
    deviates = deviates or _of_precision(backend, case, shown, values)
    if found:
        rule = found[0].rules[0]
        rules = tuple(dict.fromkeys((*verdict.rules, rule)))
        ids = tuple(dict.fromkeys(one.id for one in found))
        return replace(
            verdict,
            status="deviation",
            rules=rules,
            rule=rule,
            reason=found[0].reason,
            declared=ids,
            code="deviation",
        )
    if deviates:
        rules = tuple(dict.fromkeys((*verdict.rules, deviates)))
        variant = backend.dialect[deviates]
        return replace(
            verdict,
            status="deviation",
            rules=rules,
            rule=deviates,
            variant=variant,
            declared=shown_rules[1:],
            code="variant",
        )
    return verdict


def _expected(
    backend: Backend, case: Case, budgets: Mapping[str, Budget], outputs: Outputs
) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """Return the expected values, and the rules whose declared variants change them."""
    if case.misuse is not None and not case.misuse.allowed:
        (other,) = case.alternatives
        return other.expected, (other.rule,)
    exact, rules = declared(backend, case, budgets, outputs)
    values = without_overflow(backend, case, exact, outputs)
    overflow = values is not exact and differ(values, exact, budgets, outputs)
    return values, (*rules, "NUM-5") if overflow else rules


def _failed(backend: Backend, verdict: Verdict, cause: Cause, difference: Difference) -> Verdict:
    found = replace(
        verdict,
        status="fail",
        rule=cause.rule,
        difference=difference,
        variant=cause.variant,
        ignored=cause.ignored,
        precision=cause.precision,
        code="differs",
    )
    return _by_level(backend, found)


def _judge_relation(backend: Backend, relation: Relation, verdict: Verdict) -> Verdict:
    try:
        found = relation.holds(backend)
    except (ValueError, IndexError):  # the relation cannot combine results whose shapes differ
        if (wrong := misshapen(backend, relation.calls)) is None:
            raise
        raise wrong from None
    if found is None:
        return verdict
    if isinstance(found, Verdict):  # one of the cases of a sequence
        return replace(
            found,
            case=verdict.case,
            group=verdict.group,
            traits=verdict.traits,
            numbers=verdict.numbers,
            rules=tuple(dict.fromkeys((*verdict.rules, *found.rules))),
        )
    reason, difference = ("", found) if isinstance(found, Difference) else (found, None)
    code: Code = "differs" if difference else "relation"
    failed = replace(
        verdict, status="fail", rule=relation.rules[0], reason=reason, difference=difference, code=code
    )
    return _weighed(backend, relation, failed)


def _weighed(backend: Backend, item: Case | Relation, verdict: Verdict) -> Verdict:
    """Turn a failure or an error that the backend declares into a deviation."""
    cases = item.calls if isinstance(item, Relation) else (item,)
    output = verdict.difference.output if verdict.difference else ""
    for case in cases:
        deviation = declared_for(backend, verdict.rule, case, output)
        if deviation is not None:
            rules = tuple(dict.fromkeys((*verdict.rules, verdict.rule)))
            return replace(
                verdict,
                status="deviation",
                rules=rules,
                reason=deviation.reason,
                declared=(deviation.id,),
                code="deviation",
            )
    return _by_level(backend, verdict)


def _by_level(backend: Backend, verdict: Verdict) -> Verdict:
    """Set the status of a failure by the level of its rule. Only a broken MUST or claim is a failure."""
    level = find_rule(verdict.rule).level
    if level == "MUST":
        return verdict
    if verdict.rule in backend.claims:
        return replace(verdict, reason="; ".join(filter(None, (verdict.reason, CLAIMED))))
    return replace(verdict, status="should not met" if level == "SHOULD" else "unsupported")


def _tightest(backend: Backend, case: Case, outputs: Outputs, values: Mapping[str, Any]) -> str:
    """Find the tightest class that the outputs meet, given that they meet the required one.

    If the dtype has only one class and the outputs need a profile, return the name of the profile.
    """
    last = required(backend, case.dtype)
    if case.dtype not in SHORT and case.dtype in PROFILES.get(backend.profile, {}):
        plain = budgets_of(replace(backend, profile=""), case, last)
        return last if _within(outputs, values, plain, case.dtype) else backend.profile
    for accuracy in CLASSES[: CLASSES.index(last)]:
        if _within(outputs, values, budgets_of(backend, case, accuracy), case.dtype):
            return accuracy
    return last


def _of_precision(backend: Backend, case: Case, outputs: Outputs, values: Mapping[str, Any]) -> str:
    """Return the rule about precision whose declared variant a case shows, or an empty string."""
    for rule, variant in _PRECISIONS.items():
        applies = case.dtype == "float64" if rule == "NUM-2" else case.dtype in SHORT
        if applies and rule in case.rules and backend.dialect.get(rule) == variant:
            accuracy: Accuracy = "full" if rule == "NUM-2" else "cast"
            options: dict[str, Any] = {"accuracy": accuracy, "profile": backend.profile}
            strict = budget(case.operation, case.arguments, case.dtype, **options)
            if not _within(outputs, values, strict, case.dtype):
                return rule
    return ""


def _within(outputs: Outputs, values: Mapping[str, Any], budgets: Mapping[str, Budget], dtype: str) -> bool:
    shown = {name: np.asarray(array) for name, array in outputs.items() if name in budgets}
    return not any(isinstance(one, Difference) for one in differences(shown, values, budgets, dtype))
