"""The judge: calls one backend as an item asks, and turns what happens into a verdict."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol

from attnspec import Case, find_rule
from attnspec.backends import DTYPES, Backend, Broken, Deviation, Unsupported
from attnspec.backends.backend import in_one_dtype
from attnspec.backends.constraints import ANY, fits, other_encoding
from attnspec.backends.errors import NotApplicable
from attnspec.backends.preconditions import breach_of
from attnspec.conformance.judge.approximate import approximate_values
from attnspec.conformance.judge.budget import budgets_of, required_accuracy, without_overflow
from attnspec.conformance.judge.call import observe
from attnspec.conformance.judge.cause import cause_of, outputs_to_judge
from attnspec.conformance.judge.comparison import misprint
from attnspec.conformance.judge.deviation import (
    as_deviation,
    declared_deviation,
    explain,
)
from attnspec.conformance.judge.dtypes import LSES, Outputs, is_real, own_dtypes
from attnspec.conformance.judge.expected import are_within, differ, differences, values_in_dialect
from attnspec.conformance.judge.failure import Failure, Missing, Raised, code_of, lacks_of
from attnspec.conformance.judge.refusal import Lacking, defined_call, gradient_lacking, judge_refusal
from attnspec.conformance.verdict import CLASSES, OUTPUT_OF, Difference, Verdict, not_judged_in
from attnspec.dtypes import SHORT, name_of
from attnspec.operations.operation import primal
from attnspec.reference.budget.arithmetic import PROFILES
from attnspec.reference.budget.budget import Accuracy, Budget

#: Rules whose declared variant is a lower precision, and the precision that they require.
_PRECISIONS = {"NUM-2": "float32", "NUM-5": "storage"}

#: The reason of a failure that is due to a claim contains this.
CLAIMED = "the implementation claims this rule"

#: Rules about the default of an option.
_DEFAULTS = {"SCORE-2": "scale"}


class Item(Protocol):
    """What has a verdict: a case, a relation between calls, or a call by formula."""

    @property
    def id(self) -> str:
        """Its permanent id."""

    @property
    def name(self) -> str:
        """Its id and its dtype."""

    @property
    def group(self) -> str:
        """Its group; empty for a golden vector."""

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules that it tests, the main one first."""

    @property
    def dtype(self) -> str:
        """The dtype in which it is judged."""

    @property
    def operation(self) -> str:
        """The operation of its first call."""

    @property
    def calls(self) -> tuple[Case, ...]:
        """Its calls."""


class Procedure(Protocol):
    """How an item is judged."""

    def require(self, backend: Backend) -> None:
        """Raise `Missing` if the backend does not offer the calls."""

    def applicable_rules(self, backend: Backend) -> tuple[str, ...]:
        """Return the rules that it tests on a backend."""

    def judge(self, backend: Backend, verdict: Verdict) -> Verdict:
        """Make the calls, and complete the verdict, which is a pass so far."""


class Judgeable(Item, Procedure, Protocol):
    """An item that knows how it is judged, and what describes it: a relation, or a call by formula."""

    @property
    def traits(self) -> tuple[str, ...]:
        """Its options, and other properties that a bug may depend on."""

    @property
    def numbers(self) -> int:
        """The number of numbers in its arrays."""


def judge(backend: Backend, item: Case | Judgeable) -> Verdict:
    """Judge one item on one backend. Here is the only place that turns exceptions into verdicts."""
    backend = in_one_dtype(backend, item.dtype)
    procedure = _OfCase(item) if isinstance(item, Case) else item
    verdict = new_verdict(backend, item)
    try:
        procedure.require(backend)
        if (rules := procedure.applicable_rules(backend)) != verdict.rules:
            verdict = replace(verdict, rules=rules)
        verdict = procedure.judge(backend, verdict)
    except (Unsupported, Raised) as error:
        made = () if isinstance(error, Missing) else item.calls  # the arrays of sizes are made on demand
        lacking = gradient_lacking(backend, made, error) if made else None
        # A function for gradients that always raises is an error, and what it does not offer is declined.
        named = any(case.operation in backend.companions for case in made)
        if isinstance(error, Raised) and (lacking is None or (named and lacking.code == "no gradient")):
            wrong = replace(verdict, status="error", rule=verdict.rules[0], raised=error.data, code="raised")
            verdict = settle(backend, item, wrong)
        else:
            verdict = _unsupported_verdict(verdict, error, lacking, named=named)
    except Broken as broken:  # whatever the level of the rule
        verdict = replace(verdict, status="error", rule=verdict.rules[0], reason=str(broken), code="broken")
    except Failure as failure:
        wrong = replace(verdict, status="fail", rule=failure.rule, reason=failure.reason, code=failure.code)
        verdict = settle(backend, item, replace(wrong, difference=failure.difference), failure)
    observed = verdict.difference is not None and verdict.difference.output == "weights"
    probed = observed and not backend.has("attention", "return_weights")
    return replace(verdict, probed=True) if probed else verdict


def new_verdict(backend: Backend, item: Item) -> Verdict:
    """Make the verdict on an item of which nothing is known to be wrong."""
    return Verdict(backend.name, item.name, item.group, item.rules, "pass", item.dtype, item.operation)


def judge_outputs(backend: Backend, case: Case, outputs: Outputs) -> Verdict:
    """Judge the outputs that a call gave."""
    backend = in_one_dtype(backend, case.dtype)
    return _judge_values(backend, case, new_verdict(backend, case), outputs)


def _unsupported_verdict(
    verdict: Verdict, error: Unsupported | Raised, lacking: Lacking | None, *, named: bool
) -> Verdict:
    verdict = replace(verdict, status="unsupported")
    if lacking is not None:
        return replace(verdict, reason=lacking.reason, code=lacking.code, declined=named)
    assert isinstance(error, Unsupported)  # noqa: S101 - for the type checker: the caller has seen
    return replace(
        verdict,
        reason=str(error),
        declined=not isinstance(error, Missing | NotApplicable),
        lacks=lacks_of(error),
        code=code_of(error),
    )


def settle(backend: Backend, item: Item, verdict: Verdict, failure: Failure | None = None) -> Verdict:
    """Turn a failure or an error that the backend declares into a deviation; otherwise apply the level."""
    return declared_deviation(backend, item.calls, verdict, failure) or _by_level(backend, verdict)


def _by_level(backend: Backend, verdict: Verdict) -> Verdict:
    """Set the status of a failure by the level of its rule. Only a broken MUST or claim is a failure."""
    level = find_rule(verdict.rule).level
    if level == "MUST":
        return verdict
    if verdict.rule in backend.claims:
        return replace(verdict, reason="; ".join(filter(None, (verdict.reason, CLAIMED))))
    return replace(verdict, status="should not met" if level == "SHOULD" else "unsupported")


def require_calls(backend: Backend, item: Item) -> None:
    """Raise `Missing` if the backend does not offer the calls of a case or a relation."""
    if backend.cases and item.name not in backend.cases:
        raise Missing(f"{backend.name} has no answers to {item.id}")
    needed = {item.dtype} & set(DTYPES)
    for case in item.calls:
        offered = backend.function(case.operation) is not None
        if backend.function("attention") is None and not offered:
            raise Missing(f"{backend.name} has no {case.operation}", f"operation {case.operation}")
        if offered and (other := other_encoding(backend.constraints, case.arguments, case.operation)):
            raise Missing(f"{backend.name} takes no codes of {other}", f"encoding {other}")
        constrained = offered and backend.constraints != ANY
        misfit = fits(backend.constraints, case.arguments, case.operation) if constrained else ""
        if misfit:
            required = [word for word in backend.constraints.requires if breach_of([word], case.arguments)]
            raise Missing(f"{backend.name} {misfit}", *(f"precondition {word}" for word in required))
        _require_gradients(backend, case)
        if case.group:  # a golden vector is judged in the dtype of its first array
            # An lse is of a dtype that any backend takes, unless its half precision is the fault of a call.
            given = {(name, name_of(x.dtype)) for name, x in case.arguments.items() if is_real(x)}
            needed |= {dtype for name, dtype in given if name not in LSES or dtype in SHORT}
    missing = sorted(needed - set(backend.dtypes))
    if missing:
        said = f"{backend.name} {not_judged_in(missing, backend.dtypes)}"
        raise Missing(said, *(f"dtype {dtype}" for dtype in missing))


def _require_gradients(backend: Backend, case: Case) -> None:
    """Raise `Missing` if a case is about a gradient of what the backend passes in another way."""
    without = getattr(backend.function(case.operation), "without_gradient", ())
    gone = [f"d_{name}" for name in without if name in case.arguments and case.operation.endswith("_vjp")]
    if asked := [name for name in gone if not case.outputs or name in case.outputs]:
        raise Missing(f"{backend.name} does not return {', '.join(asked)}", *(f"output {x}" for x in asked))


@dataclass(frozen=True)
class _OfCase:
    """How a case is judged."""

    case: Case

    def require(self, backend: Backend) -> None:
        require_calls(backend, self.case)

    def applicable_rules(self, backend: Backend) -> tuple[str, ...]:
        return applicable_rules(backend, self.case)

    def judge(self, backend: Backend, verdict: Verdict) -> Verdict:
        # A rule about an output that is not returned cannot be the broken one.
        case = self.case if self.case.rules == verdict.rules else replace(self.case, rules=verdict.rules)
        declares = any(backend.dialect.get(other.rule) == other.variant for other in case.alternatives)
        if case.misuse is None or declares:
            try:
                observed = observe(backend, case)
            except Failure as failure:
                if failure.outputs:
                    with suppress(Failure, Missing):  # it returns nothing that the case is about
                        if _judge_values(backend, case, verdict, failure.outputs).bad:
                            failure.code, values = "argument changed, values wrong", "wrong too"
                        else:
                            failure.code, values = "argument changed, values right", "right"
                        failure.reason += f"; its values are {values}"
                raise
            return _judge_values(backend, case, verdict, observed)
        try:
            outputs = judge_refusal(backend, case)
        except Failure as failure:
            defined = defined_call(case, failure)
            wrong = defined and _judge_values(backend, defined, verdict, failure.outputs or {})
            if wrong and wrong.status == "fail":
                return wrong
            raise
        return verdict if outputs is None else _judge_values(backend, case, verdict, outputs)


def applicable_rules(backend: Backend, case: Case) -> tuple[str, ...]:
    """Return the rules of a case that are tested on a backend."""
    rules = tuple(rule for rule in case.rules if _is_tested(rule, backend, case))
    if not rules:
        hidden = dict.fromkeys(OUTPUT_OF[rule] for rule in case.rules if rule in OUTPUT_OF)
        raise Missing(_why_untested(backend, case), *(f"output {name}" for name in hidden))
    return rules


def _is_tested(rule: str, backend: Backend, case: Case) -> bool:
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


def _why_untested(backend: Backend, case: Case) -> str:
    options = [option for rule in case.rules if (option := _without_default(rule, backend, case))]
    if options:
        return f"{backend.name} is always given {', '.join(options)}, and shows no default"
    return f"{backend.name} does not return what {', '.join(case.rules)} is about"


def _judge_values(backend: Backend, case: Case, verdict: Verdict, observed: Outputs) -> Verdict:
    """Compare the outputs of a backend with the exact values, in its dialect."""
    budgets = budgets_of(backend, case)
    outputs = outputs_to_judge(observed, case)
    near = approximate_values(backend, case, budgets, outputs)
    values, shown_rules = near or _expected_values(backend, case, budgets, outputs)
    deviates = next(iter(shown_rules), "")
    if not outputs:
        lacks = [f"output {name}" for name in values]
        raise Missing(f"{backend.name} does not return {', '.join(values)}", *lacks)
    worst, conforming = 0.0, outputs
    deviations: list[Deviation] = []
    broken: list[str] = []
    for compared in differences(outputs, values, budgets, case.dtype, own_dtypes(case)):
        if not isinstance(compared, Difference):
            worst = max(worst, compared)
            continue
        declares = bool(backend.deviations)
        explained = explain(backend, case, outputs, compared.output) if declares else ()
        cause = cause_of(backend, case, compared, outputs, values)
        if declares and not explained:
            explained = explain(backend, case, outputs, compared.output, [cause.rule])
        if not explained:
            every = differences(outputs, values, budgets, case.dtype, own_dtypes(case))
            difference = _with_outputs(compared, backend, outputs, every)
            wrong = replace(verdict, status="fail", difference=difference, code="differs", **vars(cause))
            return _by_level(backend, wrong)
        deviations += explained
        broken.append(cause.rule)
        conforming = {name: array for name, array in conforming.items() if name != compared.output}
    for figure in () if deviates else case.figures:
        if figure.of in conforming and (problem := misprint(figure, outputs, budgets)):
            raise Failure(case.rules[0], problem, code="misprint")
    accuracy = _tightest_class(backend, case, conforming, values)
    verdict = replace(verdict, share=worst, accuracy=accuracy)
    deviates = deviates or _declared_precision(backend, case, conforming, values)
    if deviations:
        return as_deviation(verdict, deviations, *broken)
    if deviates:
        return replace(
            verdict,
            status="deviation",
            rules=tuple(dict.fromkeys((*verdict.rules, deviates))),
            rule=deviates,
            variant=backend.dialect[deviates],
            declared=shown_rules[1:],
            code="variant",
        )
    return verdict


def _with_outputs(
    compared: Difference, backend: Backend, outputs: Outputs, results: Iterable[Difference | float]
) -> Difference:
    """Name the wrong outputs of a call and the right ones in a difference."""
    every = {name: isinstance(result, Difference) for name, result in zip(outputs, results, strict=True)}
    if not backend.has("attention", "return_weights"):
        every.pop("weights", None)  # they are determined from the output of other calls
    wrong, right = (tuple(name for name in every if every[name] == is_wrong) for is_wrong in (True, False))
    return replace(compared, outputs=wrong, right=right)


def _expected_values(
    backend: Backend, case: Case, budgets: Mapping[str, Budget], outputs: Outputs
) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """Return the expected values, and the rules whose declared variants change them."""
    if case.must_raise:
        (other,) = case.alternatives
        return other.expected, (other.rule,)
    exact, rules = values_in_dialect(backend, case, budgets, outputs)
    values = without_overflow(backend, case, exact, outputs)
    stores = required_accuracy(backend, case.dtype) == "storage"
    overflow = stores and values is not exact and differ(values, exact, budgets, outputs)
    return values, (*rules, "NUM-5") if overflow else rules


def _tightest_class(backend: Backend, case: Case, outputs: Outputs, values: Mapping[str, Any]) -> str:
    """Find the tightest class that the outputs meet, given that they meet the required one.

    If the dtype has only one class and the outputs need a profile, return the name of the profile.
    """
    last = required_accuracy(backend, case.dtype)
    if case.dtype in SHORT and backend.profile:  # which goes with `cast`
        return "cast" if last == "full" else last
    if case.dtype not in SHORT and case.dtype in PROFILES.get(backend.profile, {}):
        plain = budgets_of(replace(backend, profile=""), case, last)
        return last if are_within(outputs, values, plain, case.dtype) else backend.profile
    for accuracy in CLASSES[: CLASSES.index(last)]:
        if are_within(outputs, values, budgets_of(backend, case, accuracy), case.dtype):
            return accuracy
    return last


def _declared_precision(backend: Backend, case: Case, outputs: Outputs, values: Mapping[str, Any]) -> str:
    """Return the rule about precision whose declared variant a case shows, or an empty string."""
    for rule, variant in _PRECISIONS.items():
        applies = case.dtype == "float64" if rule == "NUM-2" else case.dtype in SHORT
        if applies and rule in case.rules and backend.dialect.get(rule) == variant:
            accuracy: Accuracy = "full" if rule == "NUM-2" else "cast"
            others = {name: other for name, other in backend.dialect.items() if name != rule}
            strict = budgets_of(replace(backend, dialect=others), case, accuracy)
            if not are_within(outputs, values, strict, case.dtype):
                return rule
    return ""
