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
from attnspec.conformance.judge.expected import differences, value_variants
from attnspec.conformance.verdict import LISTS, Difference
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
) -> Mapping[str, Any] | None:
    """Return approximate values of a call if they show that all outputs are within their budgets."""
    # Many backends of this project have companions with the source of the reference.
    own = backend.name.removeprefix(UNTRUSTED).partition("?")[0] in {*PORTABLE, *ADAPTERS, *SEPARATE}
    if own or case.dtype == "float64" or case.misuse or case.expected or LISTS & {*outputs}:
        return None
    if value_variants(backend.dialect, case):
        return None
    sizes = bound(case.operation, case.arguments)[0]
    scores = prod((*(sizes.batch or ()), *(sizes.letters.get(letter, 1) for letter in ("Hq", "L", "S"))))
    if scores < _LEAST_SCORES or store.find(case.fingerprint):
        return None
    form = OPERATIONS[case.operation]
    asked = {result.option: True for result in form.results if result.option and result.name in outputs}
    arguments = in_dtype(case.arguments, "float64") | asked
    try:
        results = function(case.operation)(**arguments)
    except ArgumentError:  # a rule defines the result of a call that the reference rejects
        return None
    results = results if isinstance(results, tuple) else (results,)
    values = dict(zip(form.wanted(arguments), results, strict=True))
    errors = budget(case.operation, case.arguments, "float64")
    if not {*outputs} <= {*values} or not all(_is_moderate(values[name], errors[name]) for name in outputs):
        return None
    narrow = {name: budgets[name] - errors[name] for name in outputs}
    compared = differences(outputs, values, narrow, case.dtype, own_dtypes(case))
    return None if any(isinstance(each, Difference) for each in compared) else values


def _is_moderate(values: Any, errors: Budget) -> bool:
    return bool((np.abs(values) <= _LARGEST).all() and np.isfinite(errors).all())
