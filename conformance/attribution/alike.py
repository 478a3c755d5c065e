"""Compares the results of two implementations in one call, and says whether a result is right."""

import numpy as np

from attnspec import Case
from attnspec.backends import Backend
from attnspec.conformance.judge.budget import budgets_of
from attnspec.conformance.judge.call import call
from attnspec.conformance.judge.cause import looked_at
from attnspec.conformance.judge.comparison import compare
from attnspec.conformance.judge.dtypes import Outputs, accepted, own_dtypes
from attnspec.conformance.judge.expected import declared, differences
from attnspec.conformance.judge.failure import Failure, Raised
from attnspec.conformance.verdict import Difference

#: The additional distance that two results may have, as a share of the largest number in them.
_UNITS = {"float64": 2.0**-40, "float32": 2.0**-17, "float16": 2.0**-10, "bfloat16": 2.0**-7}


def outputs_of(backend: Backend, case: Case) -> Outputs | None:
    """Return the outputs of a call, or None if it raises."""
    try:
        return call(backend, case.operation, case.arguments, case.layout)
    except (Raised, Failure):
        return None


def is_right(backend: Backend, case: Case, got: Outputs | None, given: Outputs | None) -> bool:
    """Whether an entry gives a different result that also conforms, because the rule leaves it open."""
    if got is None or given is None or not got.keys() <= given.keys():
        return False
    return not fails(backend, case, {name: given[name] for name in got})


def fails(backend: Backend, case: Case, outputs: Outputs | None) -> bool:
    """Whether outputs are wrong. This agrees with `judge` but is faster, because it gives no reason."""
    if outputs is None or _is_refused(case):
        return (case.misuse is None) == (outputs is None)
    budgets, seen = budgets_of(backend, case), looked_at(outputs, case)
    values, _ = declared(backend, case, budgets, seen)
    return any(
        isinstance(one, Difference)
        for one in differences(seen, values, budgets, case.dtype, own_dtypes(case))
    )


def share_of(
    backend: Backend, case: Case, got: Outputs | None, given: Outputs | None, *, finite: bool = False
) -> float:
    """Return the distance between two results in budgets. It is infinite if they are of different kinds.

    With `finite`, all numbers of the call are finite: where one result is NaN and the other infinite,
    both have overflowed.
    """
    if got is None or given is None:
        return 0.0 if got is given else np.inf
    if _is_refused(case):
        return 0.0  # no rule says what is computed
    budgets = budgets_of(backend, case)
    worst = 0.0
    for name, one in got.items():
        if name not in given or given[name].shape != one.shape:
            return np.inf
        may = accepted(name, case.dtype)  # an lse may have several dtypes
        if given[name].dtype != one.dtype and not {str(given[name].dtype), str(one.dtype)} <= set(may):
            return np.inf
        other = given[name].astype(np.float64)
        if name == "lse":  # that of a row with an infinite score may be NaN (NUM-11)
            other = np.where((other == np.inf) & np.isnan(one.astype(np.float64)), np.nan, other)
            other = np.where((one == np.inf) & np.isnan(other), np.inf, other)
        elif finite:
            wide = one.astype(np.float64)
            other = np.where(~np.isfinite(wide) & ~np.isfinite(other), wide, other)
        # A wrong number may be larger than the right one, and it may follow from even larger numbers.
        size = np.abs(other[np.isfinite(other)]).max(initial=1.0)
        # Integer results are always wrong, so they are compared to the last bit.
        rounding = size * max(_UNITS.get(str(each.dtype), 0.0) for each in (one, given[name]))
        budget = budgets.get(name, np.zeros(()))
        budget = budget if budget.shape == other.shape else np.full(other.shape, budget.max(initial=0.0))
        lse = given.get("lse")
        of_rows = name == "weights" and lse is not None and lse.shape == other.shape[:-1]
        where = ~np.isnan(given["lse"])[..., None] if of_rows else None  # NUM-11
        compared = compare(name, one, other, budget + rounding, str(one.dtype), where=where)
        worst = max(worst, compared.share if isinstance(compared, Difference) else compared)
    return worst


def _is_refused(case: Case) -> bool:
    return case.misuse is not None and not case.misuse.allowed
