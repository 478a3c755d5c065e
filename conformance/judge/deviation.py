"""Declarations: verifies that what a deviation states happens, and finds what a run did not show."""

import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec import Case
from attnspec.backends import Backend, Deviation
from attnspec.backends.outcome import (
    Bound,
    InDtype,
    NoArray,
    OtherCall,
    Outcome,
    Raises,
    Special,
    Unwritten,
    Variant,
)
from attnspec.conformance.judge.budget import budgets_of, without_overflow
from attnspec.conformance.judge.call import observe
from attnspec.conformance.judge.cause import outputs_to_judge
from attnspec.conformance.judge.dtypes import Outputs, own_dtypes
from attnspec.conformance.judge.expected import differences, values_in_dialect
from attnspec.conformance.judge.failure import Failure
from attnspec.conformance.verdict import JUDGED, Difference, Verdict
from attnspec.dialect import ROUTES, described
from attnspec.dtypes import FORMATS
from attnspec.reference.budget.budget import Budget

#: With more candidates than this, only one, two and all of them are tried together.
_FEW = 4


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Ignore warnings: the values of a call that overflows, or that the standard rejects, are computed."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


@_without_warnings()
def explain(
    backend: Backend, case: Case, outputs: Outputs, name: str, rules: Collection[str] = ()
) -> tuple[Deviation, ...]:
    """Find the declared deviations whose outcomes give an output of a call. Return none if it is otherwise.

    Without rules, only deviations are considered that say by themselves which calls they are about.
    """
    region = {"dtype": case.dtype, "output": name, "group": case.group}
    candidates = [
        deviation
        for deviation in backend.deviations
        if any(deviation.covers(rule, case.arguments, **region) for rule in rules or ("",))
        and not all(isinstance(outcome, Raises | NoArray) for outcome in deviation.outcomes)
    ]
    count = len(candidates)
    for size in range(1, count + 1) if count <= _FEW else (1, 2, count):
        for several in combinations(candidates, size):
            if _is_outcome(
                backend, case, outputs, name, [x for deviation in several for x in deviation.outcomes]
            ):
                return several
    return ()


def _is_outcome(
    backend: Backend, case: Case, outputs: Outputs, name: str, outcomes: Sequence[Outcome]
) -> bool:
    """Whether an output is what some outcomes state together, and right in what they do not speak of."""
    got = np.real(outputs[name])
    if np.imag(outputs[name]).any():
        return False
    try:
        showing, other = _other_call(backend, case, outcomes)
    except (LookupError, ValueError, TypeError):  # a malformed call that it cannot be made of
        return False
    values, budgets = _values(showing, other, {**outputs, name: got}, name)
    if (
        got.shape != values[name].shape
    ):  # with a depth of 0, a gradient has no element where the other call has some
        own = case.arguments.get(name.removeprefix("d_"))
        return name.startswith("d_") and not got.size and got.shape == getattr(own, "shape", None)
    value, allowed, dtypes = values[name], budgets[name], (other.dtype, own_dtypes(other))
    arguments = case.arguments
    for outcome in outcomes:
        if isinstance(outcome, OtherCall):
            arguments = outcome.change(arguments)
        elif isinstance(outcome, Special | Unwritten):
            value = _with_own(outcome, arguments, name, got.astype(np.float64), value)
        elif isinstance(outcome, Bound):
            allowed = outcome.budgets * allowed + outcome.absolute
        elif isinstance(outcome, InDtype):
            if outputs[name].dtype.name != (outcome.of(case.arguments) or outputs[name].dtype.name):
                return False
            allowed = allowed + _rounding(got.dtype.name, value)
            got, dtypes = got.astype(np.float64), ("float64", {})
    compared = differences({name: got}, {**values, name: value}, {name: allowed}, *dtypes)
    return not any(isinstance(difference, Difference) for difference in compared)


def _with_own(
    outcome: Special | Unwritten,
    arguments: Mapping[str, Any],
    name: str,
    got: NDArray[Any],
    value: NDArray[Any],
) -> NDArray[Any]:
    """Expect the elements of an output as they are, where an outcome allows it."""
    taken = np.broadcast_to(outcome.where(arguments).get(name, np.zeros((), np.bool_)), got.shape)
    if isinstance(outcome, Special):
        among = np.zeros(got.shape, np.bool_)
        for number in outcome.numbers:
            among |= np.isnan(got) if np.isnan(number) else got == number
        taken = taken & among
    return np.where(taken, got, value)


def _rounding(dtype: str, value: NDArray[Any]) -> NDArray[Any]:
    """Return the largest error of rounding numbers to a dtype, towards 0 if it is one of integers."""
    if np.dtype(dtype).kind in "iub":
        return np.ones(value.shape)
    unit = 2.0 ** -FORMATS[dtype].digits if dtype in FORMATS else 0.0
    return np.where(np.isfinite(value), np.abs(np.nan_to_num(value)) * unit, 0.0)


def _other_call(backend: Backend, case: Case, outcomes: Sequence[Outcome]) -> tuple[Backend, Case]:
    """Return the call whose results are expected, and the backend with the variants that they show."""
    case = replace(case, misuse=None)
    for outcome in outcomes:
        if isinstance(outcome, OtherCall):
            arguments = outcome.change(case.arguments)
            case = replace(case, arguments=arguments, expected={}, alternatives=(), layout={})
        elif isinstance(outcome, Variant):
            dialect = {**backend.dialect, outcome.rule: outcome.name}
            backend = replace(backend, dialect={rule: name for rule, name in dialect.items() if name})
    return backend, case


def _values(
    backend: Backend, case: Case, outputs: Outputs, name: str
) -> tuple[dict[str, Any], dict[str, Budget]]:
    """Return exact values and budgets. Where the standard defines none, every number is wrong."""
    try:
        # A negative softcap that is computed has the errors of a positive one, as c * tanh(x / c) is even.
        softcap = case.arguments.get("softcap")
        positive = {} if softcap is None else {"softcap": abs(softcap)}
        budgets = budgets_of(backend, replace(case, arguments={**case.arguments, **positive}))
        # The budget of a number that is refused may be infinite, as that of one out of range is.
        is_none = np.isinf if case.must_raise else np.isnan
        if not any((is_none(budget) | np.isnan(budget)).any() for budget in budgets.values()):
            values, _ = values_in_dialect(backend, case, budgets, outputs)
            values = without_overflow(backend, case, values, outputs)
            if name in values:
                return dict(values), budgets
    except (LookupError, ValueError, TypeError, ArithmeticError):  # a malformed call
        pass
    shape = outputs[name].shape
    if case.operation == "attention" and name == "output":
        shape = (*case.arguments["query"].shape[:-1], case.arguments["value"].shape[-1])
    if shape != outputs[name].shape:
        return {name: np.zeros(shape)}, {name: np.zeros(shape)}
    wrong = np.where(np.isnan(outputs[name].astype(np.float64)), 0.0, np.nan)
    return {name: wrong}, {name: np.zeros(shape)}


@_without_warnings()
def declared_deviation(
    backend: Backend, calls: Sequence[Case], verdict: Verdict, failure: Failure | None = None
) -> Verdict | None:
    """Turn a failure or an error that a backend declares into a deviation. Return None if it does not.

    If a relation does not hold, its calls are made again: each has to be right or as declared, and the
    deviation is about the rule that is broken.
    """
    name = verdict.difference.output if verdict.difference else ""
    covering = [
        deviation
        for deviation in backend.deviations
        if any(
            deviation.covers(verdict.rule, case.arguments, dtype=case.dtype, output=name, group=case.group)
            for case in calls
        )
    ]
    if verdict.raised is not None or verdict.code == "no result":
        output = failure.output if failure else ""
        shown = [deviation for deviation in covering if _raises(deviation, verdict, output)]
        return as_deviation(verdict, shown[:1], verdict.rule) if shown else None
    if failure is not None and failure.outputs is not None:
        outputs = failure.outputs
        parts = [explain(backend, calls[0], outputs, part, [verdict.rule]) for part in outputs]
        shown = [deviation for part in parts for deviation in part] if all(parts) else []
        return as_deviation(verdict, shown, verdict.rule) if shown else None
    covering = [deviation for deviation in covering if verdict.rule in deviation.rules]
    if not covering or verdict.code not in ("differs", "relation"):
        return None
    found = _deviations_of(backend, calls, verdict.rule)
    if found is None:
        return None
    bounds = [x for x in covering if any(isinstance(outcome, Bound) for outcome in x.outcomes)]
    shown = found or bounds  # errors within a bound may have one sign
    return as_deviation(verdict, shown, verdict.rule) if shown else None


def _raises(deviation: Deviation, verdict: Verdict, output: str) -> bool:
    """Whether a deviation states the exception, or the output that is no array."""
    for outcome in deviation.outcomes:
        if isinstance(outcome, NoArray) and outcome.output == output:
            return True
        if isinstance(outcome, Raises) and verdict.raised is not None:
            types = outcome.type.split(" or ")
            return verdict.raised.type in types and outcome.message in verdict.raised.message
    return False


def _deviations_of(backend: Backend, calls: Iterable[Case], rule: str) -> list[Deviation] | None:
    """Make the calls of a relation, and return what they show. Return None if one is wrong otherwise."""
    shown: list[Deviation] = []
    for case in calls:
        outputs = observe(backend, case)
        budgets = budgets_of(backend, case)
        values, _ = values_in_dialect(backend, case, budgets, outputs)
        values = without_overflow(backend, case, values, outputs)
        judged = outputs_to_judge(outputs, case)
        for compared in differences(judged, values, budgets, case.dtype, own_dtypes(case)):
            if isinstance(compared, Difference):
                several = explain(backend, case, outputs, compared.output, [rule])
                if not several:
                    return None
                shown += several
    return shown


def as_deviation(verdict: Verdict, deviations: Sequence[Deviation], rule: str, *others: str) -> Verdict:
    """Turn a verdict into one on declared deviations, under the rules that are broken."""
    ids = [deviation.id for deviation in deviations]
    known = {rule, *(deviation.rules[0] for deviation in deviations)}
    return replace(
        verdict,
        status="deviation",
        rules=tuple(dict.fromkeys((*verdict.rules, rule))),
        rule=rule,
        reason=deviations[0].reason,
        declared=tuple(dict.fromkeys([*ids, *(other for other in others if other not in known)])),
        code="deviation",
    )


def declarations(backend: Backend) -> Mapping[str, tuple[str, str]]:
    """Return the rule of each declared variant and deviation, and the words for it, by what shows it."""
    return {
        **dict(_variants(backend)),
        **{
            deviation.id: (deviation.rules[0], f"the deviation ({deviation.reason})")
            for deviation in backend.deviations
        },
    }


def not_shown(backend: Backend, shown: Collection[str]) -> list[Verdict]:
    """Return an error for each variant, deviation and claim that a complete run did not show.

    A claim is shown by a case that judges its rule.
    """
    missing = []
    for rule in backend.claims:
        if f"{JUDGED}{rule}" not in shown:
            reason = f"{backend.name} claims {rule}, and no case could judge it"
            missing.append(
                Verdict(backend.name, "", "", (rule,), "error", rule=rule, reason=reason, code="not shown")
            )
    for key, (rule, what) in declarations(backend).items():
        if key not in shown:
            reason = f"{backend.name} declares {what}, and no case of a whole run shows it"
            missing.append(
                Verdict(backend.name, "", "", (rule,), "error", rule=rule, reason=reason, code="not shown")
            )
    return missing


def _variants(backend: Backend) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield for each declared variant what shows it, its rule and the words for it."""
    for rule, said in backend.dialect.items():
        if isinstance(said, str) or set(said) <= set(ROUTES):
            yield rule, (rule, f"the variant `{described({rule: said})[rule]}`")
        else:
            for dtype, variant in said.items():
                yield f"{rule} {dtype}", (rule, f"the variant `{variant}` in {dtype}")
