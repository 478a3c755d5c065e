"""Rows that overflow in the storage dtype, where a backend declares that it computes in it (NUM-5)."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from attnspec import Case
from attnspec.backends import Backend
from attnspec.conformance.judge.budget import in_plain_words, required
from attnspec.conformance.judge.dtypes import Outputs
from attnspec.reference.budget.attention import overflowing_rows


def without_overflow(
    backend: Backend, case: Case, values: Mapping[str, Any], outputs: Outputs
) -> Mapping[str, Any]:
    """Replace the expected values of rows that overflow by the returned ones, because they may be anything.

    Examples
    --------
    >>> from attnspec import find_case
    >>> from attnspec.backends import load
    >>> from attnspec.conformance.judge.overflow import without_overflow
    >>> case = find_case("masking-empty-last")
    >>> without_overflow(load("numpy-portable"), case, case.expected, {}) is case.expected
    True
    """
    if case.operation != "attention" or required(backend, case.dtype) != "storage":
        return values
    arguments = in_plain_words(case.arguments, backend.dialect)
    rows = overflowing_rows(
        arguments, case.dtype, capped_bias=backend.dialect.get("SCORE-5") == "after-bias"
    )  # (*B, Hq, L)
    if not rows.any():
        return values
    found = dict(values)
    for name, got in outputs.items():
        if name in values and got.shape == values[name].shape:
            where = rows if name == "lse" else rows[..., None]
            found[name] = np.where(where, got.astype(np.float64), values[name])
    return found
