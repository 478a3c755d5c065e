"""Declarations: finds the deviation that covers a failure, and what a run did not show of all of them."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec import Case
from attnspec.backends import Backend, Deviation
from attnspec.conformance.verdict import JUDGED, Verdict
from attnspec.dialect import ROUTES, described
from attnspec.reference.budget.arithmetic import Budget


def find_deviation(
    backend: Backend, rule: str, case: Case, output: str = "", error: float = math.inf
) -> Deviation | None:
    """Find the declared deviation that covers a broken rule in a case. Return None if there is none."""
    for deviation in backend.deviations:
        if deviation.covers(
            rule, case.arguments, dtype=case.dtype, output=output, group=case.group, error=error
        ):
            return deviation
    return None


def declared_deviation(backend: Backend, calls: Iterable[Case], verdict: Verdict) -> Verdict | None:
    """Turn a failure or an error that a backend declares into a deviation. Return None if it does not."""
    output = verdict.difference.output if verdict.difference else ""
    for case in calls:
        deviation = find_deviation(backend, verdict.rule, case, output)
        if deviation is not None:
            return as_deviation(verdict, verdict.rule, [deviation])
    return None


def as_deviation(verdict: Verdict, rule: str, deviations: Sequence[Deviation]) -> Verdict:
    """Turn a verdict into one on declared deviations, under a rule that they are about."""
    return replace(
        verdict,
        status="deviation",
        rules=tuple(dict.fromkeys((*verdict.rules, rule))),
        rule=rule,
        reason=deviations[0].reason,
        declared=tuple(dict.fromkeys(deviation.id for deviation in deviations)),
        code="deviation",
    )


def largest_error(got: NDArray[Any], expected: NDArray[Any], allowed: Budget) -> float:
    """Return the largest absolute error beyond the budget; infinity if other elements are NaN or infinite."""
    if got.shape != expected.shape:
        return math.inf
    wide, finite = got.astype(np.float64), np.isfinite(expected)
    same = np.array_equal(wide[~finite], expected[~finite], equal_nan=True)
    if not same or not np.isfinite(wide[finite]).all():
        return math.inf
    off = np.abs(wide[finite] - expected[finite])
    return float(off[off > np.broadcast_to(allowed, got.shape)[finite]].max(initial=0))


def not_shown(backend: Backend, shown: Collection[str]) -> list[Verdict]:
    """Return an error for each variant, deviation and claim that a complete run did not show.

    A claim is shown by a case that judges its rule.
    """
    declared: Mapping[str, tuple[str, str]] = {
        **dict(_variants(backend)),
        **{
            deviation.id: (deviation.rules[0], f"the deviation ({deviation.reason})")
            for deviation in backend.deviations
        },
    }
    missing = []
    for rule in backend.claims:
        if f"{JUDGED}{rule}" not in shown:
            reason = f"{backend.name} claims {rule}, and no case could judge it"
            missing.append(
                Verdict(backend.name, "", "", (rule,), "error", rule=rule, reason=reason, code="not shown")
            )
    for key, (rule, what) in declared.items():
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
