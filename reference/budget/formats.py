"""The type of a budget, and the rounding of a result."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from attnspec.dtypes import FORMATS, Format

__all__ = ["FORMATS", "Accuracy", "Budget", "Format", "rounded"]

Accuracy = Literal["full", "cast", "storage"]
Budget = NDArray[np.floating[Any]]


def rounded(value: Budget, error: Budget, storage: Format) -> Budget:
    """Add the rounding of the result: relative, or half the spacing of the subnormals."""
    with np.errstate(invalid="ignore"):
        # Where a value is not finite, results are compared as patterns, not by budget.
        final = np.maximum(storage.unit * np.abs(value) + storage.unit * error, storage.subnormal / 2)
        if not np.all(value):
            final = np.where((value == 0) & (error == 0), 0, final)
        found = error + final
        return found if np.isfinite(value).all() else np.where(np.isfinite(value), found, 0)
