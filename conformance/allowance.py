"""What a backend is allowed: the budgets of the accuracy class that it must meet."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from attnspec.backends import Backend
from attnspec.reference.rounding import Accuracy, Budget, budget

#: From the tightest to the loosest.
CLASSES: tuple[Accuracy, ...] = ("full", "cast", "storage")


def required(backend: Backend, dtype: str) -> Accuracy:
    """Tell the class that a backend must meet in a dtype (NUM-3, NUM-5).

    Examples
    --------
    >>> from attnspec.backends import load
    >>> from attnspec.conformance.allowance import required
    >>> required(load("numpy-portable"), "float16"), required(load("numpy-portable"), "float32")
    ('cast', 'full')
    """
    if dtype not in ("float16", "bfloat16"):
        return "full"  # the working precision is that of the inputs, and the classes are one
    return "storage" if backend.dialect.get("NUM-5") == "storage" else "cast"


def budgets_of(
    backend: Backend,
    operation: str,
    arguments: Mapping[str, Any],
    dtype: str,
    accuracy: Accuracy | None = None,
) -> dict[str, Budget]:
    """Compute the budgets of a call, by output name.

    Parameters
    ----------
    backend : Backend
        Its dialect counts: a working precision, or a mean where a row is empty.
    operation, arguments, dtype
        As in `attnspec.reference.rounding.budget`.
    accuracy : {"full", "cast", "storage"}, optional
        By default the class that the backend must meet.
    """
    options: dict[str, Any] = {
        "accuracy": accuracy or required(backend, dtype),
        "working": backend.dialect.get("NUM-2") if dtype == "float64" else None,
        "uniform_rows": backend.dialect.get("MASK-6") == "uniform",
    }
    budgets = budget(operation, arguments, dtype, **options)
    if operation == "attention" and not backend.has("attention", "return_weights"):
        # Seen as the output for an identity value, the weights are rounded as an output is.
        keys = arguments["key"].shape[-2]
        identity = np.broadcast_to(np.eye(keys), (*arguments["value"].shape[:-1], keys))
        budgets["weights"] = budget(operation, {**arguments, "value": identity}, dtype, **options)["output"]
    return budgets
