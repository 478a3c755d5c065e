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
    with np.errstate(
        invalid="ignore"
    ):  # inf - inf: non-finite elements are compared as patterns, not by budget
        final = np.maximum(storage.unit * np.abs(value) + storage.unit * error, storage.subnormal / 2)
        return np.where(
            np.isfinite(value), error + np.where(value == 0, np.where(error == 0, 0, final), final), 0
        )
