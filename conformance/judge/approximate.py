"""Approximate values of large calls, which spare most implementations the exact ones.

A call that is drawn to fit the constraints of an implementation has no stored values, and the exact values of
some hundred queries and keys take many seconds. The reference in float64 is off by at most its own budget. An
output that is nearer to these values than its own budget, by more than that, is within its budget of the
exact ones. In every other case, the exact values decide, and always for the backends of this project.
"""

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from attnspec import OPERATIONS, Case
from attnspec.backends import Backend
from attnspec.backends.names import ADAPTERS, PORTABLE, SEPARATE, UNTRUSTED
from attnspec.conformance.judge import store
from attnspec.conformance.judge.dtypes import Outputs, in_dtype, own_dtypes
from attnspec.conformance.judge.expected import differ, differences, value_variants
from attnspec.conformance.verdict import LISTS, Difference
from attnspec.operations.operation import primal
from attnspec.reference.budget.budget import Budget, budget
from attnspec.reference.errors import ArgumentError
from attnspec.reference.functions import function
from attnspec.sizes import bound

#: The number of scores from which exact values take longer than a twentieth of a second.
_LEAST_SCORES = 1000
#: Numbers beyond this may overflow in a step of an implementation, and have rules of their own.
_LARGEST = 1e3


def approximate_values(
    backend: Backend, case: Case, budgets: Mapping[str, Budget], outputs: Outputs
) -> tuple[Mapping[str, Any], tuple[str, ...]] | None:
    """Return approximate values of a call if they show that all outputs are within their budgets.

    They come with the rule whose declared variant changes them, if one does.
    """
    # Many backends of this project have companions with the source of the reference.
    own = backend.name.removeprefix(UNTRUSTED).partition("?")[0] in {*PORTABLE, *ADAPTERS, *SEPARATE}
    if own or case.dtype == "float64" or case.misuse or case.expected or LISTS & {*outputs}:
        return None
    sizes = bound(case.operation, case.arguments)[0]
    scores = prod((*(sizes.batch or ()), *(sizes.letters.get(letter, 1) for letter in ("Hq", "L", "S"))))
    dialect = value_variants(backend.dialect, case)
    if scores < _LEAST_SCORES or (store.find(case.fingerprint) and not dialect):
        return None
    plain = _values_and_errors(case, case.arguments, outputs)
    aligned, rule = _align(case, sizes.letters, dialect) if dialect else (case.arguments, "")
    if aligned is None or plain is None:
        return None
    near = plain if aligned is case.arguments else _values_and_errors(case, aligned, outputs)
    if near is None:
        return None
    (values, errors), (other, others) = near, plain
    both = {name: np.maximum(errors[name], others[name]) for name in outputs}
    # An error of the reference may be larger than a small budget, of which nothing is left then.
    narrow = {name: np.maximum(budgets[name] - both[name], 0) for name in outputs}
    wide = {name: budgets[name] + both[name] for name in outputs}
    compared = differences(outputs, values, narrow, case.dtype, own_dtypes(case))
    if any(isinstance(each, Difference) for each in compared):
        return None
    shows = differ(values, other, narrow, outputs)
    # Whether the variant shows has to be as certain as the values are.
    return None if shows and not differ(values, other, wide, outputs) else (values, (rule,) if shows else ())


def _align(
    case: Case, letters: Mapping[str, int], dialect: Mapping[str, str]
) -> tuple[Mapping[str, Any] | None, str]:
    """Write an alignment of the last query with the last key as an offset; None for another variant."""
    arguments = case.arguments
    rule = {"attention": "MASK-3", "packed_attention": "PACK-5"}.get(primal(case.operation), "")
    if not rule or {*dialect.values()} != {"bottom-right"} or "query_positions" in arguments:
        return None, ""
    offset = arguments.get("query_offset")
    if np.ndim(0 if offset is None else offset) or offset or rule not in dialect:
        return arguments, ""
    own = letters["S"] - letters["L"]
    if rule == "PACK-5":
        own = np.diff(arguments["key_starts"]) - np.diff(arguments["query_starts"])
    return {**arguments, "query_offset": own}, rule


def _values_and_errors(
    case: Case, arguments: Mapping[str, Any], outputs: Outputs
) -> tuple[Mapping[str, Any], Mapping[str, Budget]] | None:
    """Compute the values of the reference in float64, and what they may be off by."""
    form = OPERATIONS[case.operation]
    asked = {result.option: True for result in form.results if result.option and result.name in outputs}
    given = in_dtype(arguments, "float64") | asked
    try:
        results = function(case.operation)(**given)
    except ArgumentError:  # a rule defines the result of a call that the reference rejects
        return None
    results = results if isinstance(results, tuple) else (results,)
    values = dict(zip(form.wanted(given), results, strict=True))
    errors = budget(case.operation, arguments, "float64")
    good = {*outputs} <= {*values} and all(_is_moderate(values[name], errors[name]) for name in outputs)
    return (values, errors) if good else None


def _is_moderate(values: Any, errors: Budget) -> bool:
    return bool((np.abs(values) <= _LARGEST).all() and np.isfinite(errors).all())
